"""phalanx exec"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option, replica_options


@click.command("exec")
@replica_options
@click.argument("run")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@json_option
def command(run: str, replica: str | None, words: tuple[str, ...], as_json: bool) -> None:
    """Run a command beside a running replica, with its environment.

    The command gets the variables of the replica, its working folder, virtual environment and container, on the machine
    where the replica runs: `phalanx exec RUN --rank 3 -- nvidia-smi -L`. The exit code is that of the command.
    """
    from phalanx.cli.replica_entry import enter_replica

    enter_replica(run, replica, words, "exec", quiet=as_json)
