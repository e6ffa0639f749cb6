"""phalanx serve"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json, printable

if TYPE_CHECKING:
    from phalanx.server.running import Started


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65_535), help="0: any that is free.")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Instead of PHALANX_HOME.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name to answer for, beside this machine's own.")
@json_option
def command(host: str, port: int, home: Path | None, allow_host: tuple[str, ...], as_json: bool) -> None:
    """Serve this home's runs: REST, MLflow's API, and tracking for runs on other machines.

    Every request needs a token; the owner's is in the file `token` of the home. While nobody else schedules the home's
    runs, the server does. Ctrl-C ends it.
    """
    with answering(as_json=as_json):
        from phalanx.scheduler.home import Home, default_home
        from phalanx.server.running import serve

        def say(started: Started) -> None:
            _say(started, as_json=as_json)

        place = Home(home.absolute() if home is not None else default_home())
        serve(place, host, port, database=os.environ.get("PHALANX_DATABASE"), allowed_hosts=allow_host, say=say)


def _say(started: Started, *, as_json: bool) -> None:
    """Where the token is, never the token: what is printed lands in logs."""
    if as_json:
        row = {"ok": True, "url": started.url, "pid": os.getpid(), "token_file": str(started.token_file)}
        print_json({**row, "encrypted": False})
    else:
        click.echo(f"serving at {click.style(started.url, bold=True)}; Ctrl-C ends it")
        click.echo(f"the owner's token is in {printable(str(started.token_file))}")
        click.echo(
            f'MLflow: export MLFLOW_TRACKING_URI={started.url} MLFLOW_TRACKING_TOKEN="$(cat {started.token_file})"'
        )
    if started.is_open:
        click.echo(
            f"{click.style('note', fg='yellow')}: other machines can reach this, and nothing is encrypted: tokens and "
            "data can be read on the way. Put a proxy with TLS before it, or use a tunnel (ssh -L)",
            err=True,
        )
    sys.stdout.flush()
