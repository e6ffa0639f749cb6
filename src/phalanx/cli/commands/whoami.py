"""phalanx whoami"""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.workspace.base import selected_server


@click.command("whoami")
@json_option
def command(as_json: bool) -> None:
    """Show who you are: in the local home, or on the server.

    On a server: the user, the role on each project, and the name and expiry of the token, but never the token itself.
    """
    found = selected_server()
    about = _here() if found is None else _there(found.url, found.token, found.by)
    if as_json:
        print_json({"ok": True, **about})
        return
    print_lines(
        f"{name}: {printable(str(about[name]))}"
        for name in ("name", "user", "where", "token", "expires")
        if about[name]
    )
    rows = [["PROJECT", "ROLE"], *([printable(project), role] for project, role in about["roles"].items())]
    print_lines(table(rows))


def _here() -> dict[str, Any]:
    from phalanx.home.home import default_home
    from phalanx.tracking.external_folder import user_name

    name = user_name()
    roles = {"*": "admin"}
    return {"name": name, "user": name, "where": str(default_home()), "token": None, "expires": None, "roles": roles}


def _there(url: str, token: str, by: str) -> dict[str, Any]:
    from phalanx.client import Client

    with Client(url, token) as client:
        who = client.whoami()
    known = {name: who.get(name) for name in ("name", "user", "token", "expires")}
    return {**known, "where": url, "selected_by": by, "roles": dict(who.get("roles") or {})}
