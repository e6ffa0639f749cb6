"""phalanx serve"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable

if TYPE_CHECKING:
    from phalanx.server.daemon import ServerStarted

THIS_MACHINE = "127.0.0.1,::1"


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65_535), help="Port; 0 picks a free one."
)
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Home to serve. Default: PHALANX_HOME.")
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Accept this host name besides those of the machine. Repeatable.",
)
@click.option(
    "--behind-proxy",
    metavar="ADDRESS",
    is_flag=False,
    flag_value=THIS_MACHINE,
    help="Trust X-Forwarded-For and X-Forwarded-Proto from a proxy on this machine, or at these comma-separated "
    "addresses.",
)
@click.option("--no-token-url", is_flag=True, help="Don't print a URL that contains the owner's token.")
@click.option("--access-log", is_flag=True, help="Log every request to standard error.")
@click.option(
    "--log-format", default="text", show_default=True, type=click.Choice(["text", "json"]), help="Format of log lines."
)
@click.option("--open-metrics", is_flag=True, help="Serve /metrics without a token.")
@click.option(
    "--rate",
    default=1000.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Maximum requests per second of a user, token or address; 0 for no limit.",
)
@click.option(
    "--only-admins-start", is_flag=True, help="Only admins may start runs on this machine; editors may still track."
)
@click.option(
    "--sign-on",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings of an OpenID Connect provider, or of a proxy that authenticates users.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 32),
    envvar="PHALANX_SERVER_PROCESSES",
    help="Number of processes that answer requests. Default: one per core, at most 4, or PHALANX_SERVER_PROCESSES.",
)
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
    sign_on: Path | None,
    processes: int | None,
    as_json: bool,
) -> None:
    """Start a server for the home: web page, REST API, MLflow API, and tracking for runs on other machines.

    Every request needs a token; the owner's token is in the file `token` of the home. In a terminal, prints a URL that
    signs the owner in. The server also runs the scheduler, unless another process does. Press Ctrl-C to stop it.
    """
    from phalanx.home.home import Home, default_home
    from phalanx.server.daemon import ServerOptions, default_processes, serve

    def say(started: ServerStarted) -> None:
        if as_json:
            _say_json(started)
        else:
            _say(started, with_token=not no_token_url)

    place = Home(home.absolute() if home is not None else default_home())
    settings = None
    if sign_on is not None:
        from phalanx.server.auth.sign_on import read_settings

        settings = read_settings(sign_on)
    options = ServerOptions(
        allow_host,
        behind_proxy,
        open_metrics,
        access_log,
        log_format,
        rate,
        only_admins_start,
        settings,
        processes or default_processes(),
    )
    serve(place, host, port, database=os.environ.get("PHALANX_DATABASE"), options=options, say=say)


def _say_json(started: ServerStarted) -> None:
    """Print the path of the token, never the token: output may end up in logs."""
    row = {"ok": True, "url": started.url, "pid": os.getpid(), "token_file": str(started.token_file)}
    print_json({**row, "encrypted": False})
    _warn(started)


def _say(started: ServerStarted, *, with_token: bool) -> None:
    """Print the token only on a terminal: other output may end up in logs."""
    click.echo(f"serving at {click.style(started.url, bold=True)}; press Ctrl-C to stop")
    if with_token and sys.stdout.isatty():
        address = printable(signed_in(started.url, started.token_file))
        click.echo(f"open {click.style(address, underline=True)}")
    click.echo(f"the owner's token is in {printable(str(started.token_file))}")
    click.echo(f'MLflow: export MLFLOW_TRACKING_URI={started.url} MLFLOW_TRACKING_TOKEN="$(cat {started.token_file})"')
    _warn(started)


def signed_in(url: str, token_file: Path, path: str = "/") -> str:
    """A URL that signs the owner in. The part after `#` stays in the browser: servers, proxies and logs do not see
    it."""
    return f"{url}{path}#token={token_file.read_text(encoding='ascii').strip()}"


def _warn(started: ServerStarted) -> None:
    if started.is_open:
        click.echo(
            f"{click.style('note', fg='yellow')}: other machines can reach this server, and connections are not "
            "encrypted: others on the network can read tokens and data. Use a TLS proxy or a tunnel (ssh -L)",
            err=True,
        )
    sys.stdout.flush()
