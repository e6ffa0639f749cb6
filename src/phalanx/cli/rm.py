"""phalanx rm"""

from __future__ import annotations

import shutil
import sys

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json
from phalanx.errors import CallError


@click.command("rm")
@click.argument("runs", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def command(runs: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove runs that are over, with their logs, outputs and everything else."""
    with answering(as_json=as_json):
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.objects import garbage
        from phalanx.scheduler.registry import Registry
        from phalanx.scheduler.serving import settle

        home, store = open_home()
        with store:
            settle(home, store)
            found = [store.find(run) for run in runs]
            alive = [run.id for run in found if not run.is_done]
            if alive:
                raise CallError(f"not over yet: {', '.join(alive)}; stop them first with `phalanx stop`")
            question = f"Remove {', '.join(run.id for run in found)} for good?"
            if not yes and not as_json and not click.confirm(question):
                sys.exit(1)
            for run in found:
                folder = home.run(run.id).path
                grave = folder.with_name(f".removed-{run.id}")
                if folder.exists():
                    folder.rename(grave)  # gone in one step, so that nobody adopts half of it
                store.delete(run.id)
                shutil.rmtree(grave, ignore_errors=True)
            garbage(home.path)
            Registry(home, store).tidy()
        if as_json:
            print_json({"ok": True, "removed": [run.id for run in found]})
        else:
            click.echo(f"removed {', '.join(run.id for run in found)}")
