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

from phalanx.cli.commands.serve import signed_in
from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable, report_errors

if TYPE_CHECKING:
    from phalanx.client.config import ServerChoice
    from phalanx.home.home import Home
    from phalanx.server.daemon import ServerStarted

PAGES = ("runs", "compare", "queue", "models", "projects", "help")


@click.command("ui")
@click.argument("what", required=False, metavar="[RUN|PATH]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Where to start a server, if need be. 0: any free one.")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Instead of PHALANX_HOME.")
@click.option("--no-browser", is_flag=True, help="Only say where the page is.")
@json_option
def command(what: str | None, port: int | None, home: Path | None, no_browser: bool, as_json: bool) -> None:
    """Open the page in the browser, signed in: of the server that one is logged in to, or else of this home.

    Uses the server that is up, or else starts one, which Ctrl-C ends. With a run's id it shows that run; a PATH is one
    of the page's own, like /queue or /runs/ID/logs.
    """
    with report_errors(as_json=as_json):
        from phalanx.cli.workspace.base import selected_server

        server = selected_server() if home is None else None
        showing = PageAnnouncement(as_json=as_json, no_browser=no_browser)
        if server is None:
            _of_home(home, what, port, showing)
        else:
            _of_server(server, what, showing)


class PageAnnouncement(NamedTuple):
    """How people and programs are told where the page is."""

    as_json: bool
    no_browser: bool

    def tell(self, address: str, token_file: Path | None = None) -> None:
        """Where the token is, never the token: what is printed may land in logs."""
        if self.as_json:
            print_json({"ok": True, "url": address, **({"token_file": str(token_file)} if token_file else {})})
        elif token_file is not None:
            click.echo(f"open {printable(address)}; the owner's token is in {printable(str(token_file))}")
        else:
            click.echo(f"open {printable(address)}")

    def open(self, folder: Path, address: str) -> None:
        """`folder`: where only the user reads."""
        if not self.no_browser and not _open(folder, address) and not self.as_json:
            click.echo("no browser could be started here: open the address above in yours")


def _of_server(server: ServerChoice, what: str | None, showing: PageAnnouncement) -> None:
    from phalanx.cli.workspace.base import open_workspace
    from phalanx.client.config import logins_file

    path = _page(what)
    if path is None:
        with open_workspace(settled=False, quiet=True) as place:
            path = f"/runs/{place.rows.find(what or '').id}"
    address = server.url + path
    showing.tell(address)
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
            click.echo(f"serving at {click.style(started.url, bold=True)}; Ctrl-C ends it")
        _show(place, started.url, started.token_file, path, showing)
        sys.stdout.flush()

    wanted = 8000 if port is None and _is_free(8000) else port or 0
    serve(place, "127.0.0.1", wanted, database=database, say=say)


def _show(home: Home, url: str, token_file: Path, path: str, showing: PageAnnouncement) -> None:
    signed = signed_in(url, token_file, path)
    if not showing.as_json and sys.stdout.isatty():
        click.echo(f"open {click.style(printable(signed), underline=True)}")
    else:
        showing.tell(url + path, token_file)
    tunnel = tunnel_line(url, os.environ, socket.gethostname())
    if tunnel is None:
        showing.open(home.path, signed)
    elif not showing.as_json:
        click.echo("this is another machine than the one your browser is on. There, in a second terminal, type:")
        click.echo(f"  {tunnel}")
        click.echo("and open the address above while that runs")


def _page(what: str | None) -> str | None:
    """The page's address for what was asked; None when that must be a run."""
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
    """By way of a file that only its owner reads: what a browser is called with, everybody on the machine can see."""
    from phalanx.atomic_files import write_atomic

    if not has_screen(os.environ, sys.platform):
        return False  # what would be started is a browser in this very terminal
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
    """What to type where the browser is, for whoever came here by SSH and has no screen here."""
    came = environment.get("SSH_CONNECTION", "").split()
    if len(came) != 4 or environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"):
        return None
    there, port = came[2], urlsplit(url).port
    way = "" if came[3] == "22" else f"-p {came[3]} "
    user = environment.get("USER") or getpass.getuser()
    name = there if there and not there.startswith(("127.", "::1")) else host
    return f"ssh -N -L {port}:127.0.0.1:{port} {way}{shlex.quote(f'{user}@{name}')}"
