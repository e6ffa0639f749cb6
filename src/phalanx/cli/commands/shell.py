"""phalanx shell"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option, replica_options


@click.command("shell")
@replica_options
@click.argument("run")
@json_option
def command(run: str, replica: str | None, as_json: bool) -> None:
    """Open a shell beside a running replica, with its environment.

    It has the variables of the replica, its working folder, virtual environment and container, on the machine where the
    replica runs. The first replica is entered unless --rank or --replica names another one.
    """
    from phalanx.cli.replica_entry import enter_replica

    enter_replica(run, replica, (), "shell", quiet=as_json)
