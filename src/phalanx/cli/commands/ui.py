"""phalanx ui"""

from __future__ import annotations

import getpass
import html
import os
import shlex
import socket
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

import click

from phalanx.atomic_files import write_atomic
from phalanx.cli.commands.serve import signed_in
from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace, selected_server

if TYPE_CHECKING:
    from phalanx.client.config import ServerChoice
    from phalanx.home.home import Home
    from phalanx.server.daemon import ServerStarted

PAGES = ("runs", "compare", "queue", "models", "projects", "help")


@click.command("ui")
@click.argument("what", required=False, metavar="[RUN|PATH]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port, if a server must be started; 0 picks a free one.")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Home to show. Default: PHALANX_HOME.")
@click.option("--no-browser", is_flag=True, help="Print the address of the page; don't start a browser.")
@json_option
def command(what: str | None, port: int | None, home: Path | None, no_browser: bool, as_json: bool) -> None:
    """Open the web page in the browser, signed in.

    Opens the page of the server you are logged in to, else of the home. Starts a server for the home if none is
    running; Ctrl-C stops it. RUN shows a run; PATH is a path of the page, such as /queue or /runs/ID/logs.
    """
    server = selected_server() if home is None else None
    showing = PageAnnouncement(as_json=as_json, no_browser=no_browser)
    if server is None:
        _of_home(home, what, port, showing)
    else:
        _of_server(server, what, showing)


class PageAnnouncement(NamedTuple):
    """How the address of the page is shown."""

    as_json: bool
    no_browser: bool

    def print_address(self, address: str, token_file: Path | None = None) -> None:
        """Print the address and the path of the token, never the token: output may end up in logs."""
        if self.as_json:
            print_json({"ok": True, "url": address, **({"token_file": str(token_file)} if token_file else {})})
        elif token_file is not None:
            click.echo(f"open {printable(address)}; the owner's token is in {printable(str(token_file))}")
        else:
            click.echo(f"open {printable(address)}")

    def open(self, folder: Path, address: str) -> None:
        """Start a browser. `folder`: readable only by the user."""
        if not self.no_browser and not _open(folder, address) and not self.as_json:
            click.echo("cannot start a browser here: open the address above in yours")


def _of_server(server: ServerChoice, what: str | None, showing: PageAnnouncement) -> None:
    from phalanx.client.config import logins_file

    path = _page(what)
    if path is None:
        with open_workspace(settled=False, quiet=True) as workspace:
            path = f"/runs/{find_run(workspace, what or '').id}"
    address = server.url + path
    showing.print_address(address)
    showing.open(logins_file(os.environ).parent, f"{address}#token={server.token}" if server.token else address)


def _of_home(home: Path | None, what: str | None, port: int | None, showing: PageAnnouncement) -> None:
    from phalanx.home.home import Home, default_home
    from phalanx.home.run_tokens import server_url
    from phalanx.server.auth.tokens import Tokens
    from phalanx.server.daemon import serve
    from phalanx.store import Store

    place, database = Home(home.absolute() if home is not None else default_home()), os.environ.get("PHALANX_DATABASE")
    path = _page(what)
    if path is None:
        with Store.open(place.path, database) as store:
            path = f"/runs/{store.find(what or '').id}"
    url = server_url(place.path)
    if url is not None:
        _show(place, url, Tokens(place.path).ensure_owner(), path, showing)
        return

    def say(started: ServerStarted) -> None:
        if not showing.as_json:
            click.echo(f"serving at {click.style(started.url, bold=True)}; press Ctrl-C to stop")
        _show(place, started.url, started.token_file, path, showing)
        sys.stdout.flush()

    wanted = 8000 if port is None and _is_free(8000) else port or 0
    serve(place, "127.0.0.1", wanted, database=database, say=say)


def _show(home: Home, url: str, token_file: Path, path: str, showing: PageAnnouncement) -> None:
    signed = signed_in(url, token_file, path)
    if not showing.as_json and sys.stdout.isatty():
        click.echo(f"open {click.style(printable(signed), underline=True)}")
    else:
        showing.print_address(url + path, token_file)
    tunnel = tunnel_line(url, os.environ, socket.gethostname())
    if tunnel is None:
        showing.open(home.path, signed)
    elif not showing.as_json:
        click.echo("Your browser is on another machine. In a terminal there, run:")
        click.echo(f"  {tunnel}")
        click.echo("and open the address above while it runs.")


def _page(what: str | None) -> str | None:
    """The path for the argument; None if the argument must be a run."""
    if not what:
        return "/"
    if what.startswith("/"):
        return quote(what, safe="/?=&%:,")
    return f"/{what}" if what in PAGES else None


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _open(folder: Path, address: str) -> bool:
    """Open the address through a file that only its owner can read, because other users can see the arguments of a
    browser."""
    if not has_screen(os.environ, sys.platform):
        return False  # webbrowser would start a text browser in this terminal
    leading = folder / "open.html"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    escaped = html.escape(address, quote=True)
    text = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escaped}">'
    write_atomic(leading, f'{text}<a href="{escaped}">Phalanx</a>\n'.encode())
    try:
        return webbrowser.open(leading.as_uri())
    except (webbrowser.Error, OSError):
        return False


def has_screen(environment: Mapping[str, str], platform: str) -> bool:
    return platform == "darwin" or any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def tunnel_line(url: str, environment: Mapping[str, str], host: str) -> str | None:
    """The ssh command to run on the user's machine, for users who came by SSH without a display; else None."""
    came = environment.get("SSH_CONNECTION", "").split()
    if len(came) != 4 or environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"):
        return None
    there, port = came[2], urlsplit(url).port
    way = "" if came[3] == "22" else f"-p {came[3]} "
    user = environment.get("USER") or getpass.getuser()
    name = there if there and not there.startswith(("127.", "::1")) else host
    return f"ssh -N -L {port}:127.0.0.1:{port} {way}{shlex.quote(f'{user}@{name}')}"
