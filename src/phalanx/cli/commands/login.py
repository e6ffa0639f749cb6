"""phalanx login"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import selected_server
from phalanx.errors import CallError, SystemFault


@click.command("login")
@click.argument("url", required=False)
@click.option("--status", is_flag=True, help="Show the selected server and user; don't log in.")
@json_option
def command(url: str | None, status: bool, as_json: bool) -> None:
    """Log in to a server. From then on, commands submit, list and stop runs there.

    Asks for a token, or reads it from standard input. Create one on the server's page, in the menu of the user; or an
    administrator does, with `phalanx token create NAME` on the server. The token is stored in
    ~/.config/phalanx/servers.json, readable only by you.

    PHALANX_SERVER and PHALANX_TOKEN take precedence over the login. With PHALANX_HOME set, and inside a run, commands
    use the local home. `phalanx logout` removes the token.
    """
    if status:
        if url is not None:
            raise CallError("--status takes no address")
        _show_status(as_json=as_json)
        return
    if url is None:
        raise CallError("name a server: `phalanx login https://host:8000`")
    _log_in(url, as_json=as_json)


def _log_in(url: str, *, as_json: bool) -> None:
    from phalanx.client import Client
    from phalanx.client.config import SERVER, checked, is_loopback, save_login

    url = checked(url)
    if url.startswith("http://") and not is_loopback(url):
        _note("without https, others on the network can read the token")
    with Client(url, "-") as unauthenticated:
        unauthenticated.is_there()  # fail on a wrong address before asking for a token
    with Client(url, _token(url)) as client:
        who = client.whoami()
    path = save_login(os.environ, url, client.token)
    if as_json:
        print_json({"ok": True, "url": url, "file": str(path), **_who(who)})
        return
    click.echo(f"logged in to {printable(url)} as {_words(who)}")
    if os.environ.get(SERVER):
        _note(f"{SERVER} is set and takes precedence: {printable(os.environ[SERVER])}")


def _token(url: str) -> str:
    """Read the token. Not a command-line argument, because other users can see those. Raises CallError."""
    from phalanx.client.config import LONGEST_TOKEN, checked_token

    if sys.stdin is not None and sys.stdin.isatty():
        found = str(click.prompt(f"Token for {url}", hide_input=True, err=True))
    else:
        found = sys.stdin.readline(LONGEST_TOKEN + 1) if sys.stdin is not None else ""
    return checked_token(found)


def _show_status(*, as_json: bool) -> None:
    from phalanx.client import Client
    from phalanx.client.config import BY_LOGIN, logins
    from phalanx.tracking.user_settings import default_home

    found, known = selected_server(), logins(os.environ)
    if found is None:
        if as_json:
            print_json({"ok": True, "url": None, "home": default_home(), "logins": sorted(known.tokens)})
            return
        click.echo(f"no server: runs are in {printable(default_home())}")
        for url in sorted(known.tokens):
            click.echo(f"logged in to {printable(url)}, but not using it here")
        return
    who: dict[str, Any] = {}
    trouble = ""
    try:
        with Client(found.url, found.token) as client:
            who = client.whoami()
    except (CallError, SystemFault) as fault:
        trouble = str(fault)
    by = "phalanx login" if found.by == BY_LOGIN else found.by
    if as_json:
        about = {"ok": not trouble, "url": found.url, "by": by, "trouble": trouble or None}
        print_json({**about, **_who(who), "logins": sorted(known.tokens)})
    else:
        click.echo(f"on {printable(found.url)} (set by {by})" + (f" as {_words(who)}" if who else ""))
        if trouble:
            click.echo(f"{click.style('error', fg='red', bold=True)}: {printable(trouble)}", err=True)
    if trouble:
        sys.exit(2)


def _who(who: dict[str, Any]) -> dict[str, Any]:
    return {"name": who.get("name"), "role": who.get("role"), "roles": who.get("roles") or {}}


def _words(who: dict[str, Any]) -> str:
    name = printable(str(who.get("name") or "unknown user"))
    if who.get("role"):
        return f"{name}, {who['role']}"
    roles = ", ".join(f"{role} of {project}" for project, role in (who.get("roles") or {}).items())
    return f"{name}, {printable(roles)[:200]}" if roles else name


def _note(text: str) -> None:
    click.echo(f"{click.style('note', fg='yellow')}: {text}", err=True)
