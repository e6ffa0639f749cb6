"""phalanx serve"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable, report_errors

if TYPE_CHECKING:
    from phalanx.server.daemon import ServerStarted

THIS_MACHINE = "127.0.0.1,::1"


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65_535), help="0: any that is free.")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Instead of PHALANX_HOME.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name to answer for, beside this machine's own.")
@click.option(
    "--behind-proxy",
    metavar="ADDRESS",
    is_flag=False,
    flag_value=THIS_MACHINE,
    help="Believe a proxy's X-Forwarded-For and -Proto: one on this machine, or at these addresses (with commas).",
)
@click.option("--no-token-url", is_flag=True, help="Print no address that has the owner's token in it.")
@click.option("--access-log", is_flag=True, help="Write a line on standard error for every request.")
@click.option("--log-format", default="text", show_default=True, type=click.Choice(["text", "json"]))
@click.option("--open-metrics", is_flag=True, help="Let everybody read /metrics, without a token.")
@click.option(
    "--rate",
    default=1000.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Requests a second that one user, token or address may make; 0: any number.",
)
@click.option("--only-admins-start", is_flag=True, help="Let editors track, but start no runs on this machine.")
@json_option
def command(
    host: str,
    port: int,
    home: Path | None,
    allow_host: tuple[str, ...],
    behind_proxy: str | None,
    no_token_url: bool,
    access_log: bool,
    log_format: str,
    open_metrics: bool,
    rate: float,
    only_admins_start: bool,
    as_json: bool,
) -> None:
    """Serve this home's runs: a page for the browser, REST, MLflow's API, and tracking for runs on other machines.

    Every request needs a token; the owner's is in the file `token` of the home. In a terminal, an address is printed
    that signs the owner in. While nobody else schedules the home's runs, the server does. Ctrl-C ends it.
    """
    with report_errors(as_json=as_json):
        from phalanx.home.home import Home, default_home
        from phalanx.server.daemon import ServerOptions, serve

        def say(started: ServerStarted) -> None:
            if as_json:
                _say_json(started)
            else:
                _say(started, with_token=not no_token_url)

        place = Home(home.absolute() if home is not None else default_home())
        options = ServerOptions(allow_host, behind_proxy, open_metrics, access_log, log_format, rate, only_admins_start)
        serve(place, host, port, database=os.environ.get("PHALANX_DATABASE"), options=options, say=say)


def _say_json(started: ServerStarted) -> None:
    """Where the token is, never the token: what is printed lands in logs."""
    row = {"ok": True, "url": started.url, "pid": os.getpid(), "token_file": str(started.token_file)}
    print_json({**row, "encrypted": False})
    _warn(started)


def _say(started: ServerStarted, *, with_token: bool) -> None:
    """The token itself only to somebody who looks: what is printed elsewhere lands in logs."""
    click.echo(f"serving at {click.style(started.url, bold=True)}; Ctrl-C ends it")
    if with_token and sys.stdout.isatty():
        address = printable(signed_in(started.url, started.token_file))
        click.echo(f"open {click.style(address, underline=True)}")
    click.echo(f"the owner's token is in {printable(str(started.token_file))}")
    click.echo(f'MLflow: export MLFLOW_TRACKING_URI={started.url} MLFLOW_TRACKING_TOKEN="$(cat {started.token_file})"')
    _warn(started)


def signed_in(url: str, token_file: Path, path: str = "/") -> str:
    """An address that signs the owner in. What is behind the `#` stays in the browser: no server, proxy or log sees
    it."""
    return f"{url}{path}#token={token_file.read_text(encoding='ascii').strip()}"


def _warn(started: ServerStarted) -> None:
    if started.is_open:
        click.echo(
            f"{click.style('note', fg='yellow')}: other machines can reach this, and nothing is encrypted: tokens and "
            "data can be read on the way. Put a proxy with TLS before it, or use a tunnel (ssh -L)",
            err=True,
        )
    sys.stdout.flush()
