"""phalanx show"""

from __future__ import annotations

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json, printable


@click.command("show")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Show a run: what became of it and of every replica. RUN is its id, the beginning of it, or its name."""
    with answering(as_json=as_json):
        from phalanx.cli.attending import metric_lines
        from phalanx.cli.homes import open_home, run_json, settle
        from phalanx.cli.ps import span
        from phalanx.cli.tables import replica_table, status_text

        home, store = open_home()
        with store:
            settle(home, store)
            found = store.find(run)
            if as_json:
                print_json({**run_json(store, found), "folder": str(home.run(found.id).path)})
                return
            replicas = store.replicas(found.id)
            statuses = store.statuses(found.id)
        click.echo(click.style(f"run {found.id}", bold=True) + (f" ({printable(found.name)})" if found.name else ""))
        click.echo(f"  status     {status_text(found.status)}: {printable(found.reason)}")
        click.echo(f"  kind       {found.kind}" + (f", {printable(found.framework)}" if found.framework else ""))
        click.echo(f"  project    {printable(found.project)}, by {printable(found.user)}")
        click.echo(f"  created    {found.created_at.astimezone():%Y-%m-%d %H:%M:%S}")
        if found.started_at and found.finished_at:
            click.echo(f"  took       {span(found.finished_at - found.started_at)}, attempt {found.attempt}")
        if found.tags:
            click.echo(f"  tags       {printable(', '.join(found.tags))}")
        if found.params:
            click.echo(f"  params     {printable(', '.join(f'{key}={value}' for key, value in found.params.items()))}")
        click.echo(f"  folder     {home.run(found.id).path}")
        click.echo("")
        for line in replica_table(replicas):
            click.echo(line)
        click.echo("")
        for line in metric_lines(home.run(found.id), found.attempt):
            click.echo(line)
        for change in statuses:
            click.echo(f"  {change.at.astimezone():%H:%M:%S}  {change.status:<10} {printable(change.reason)}")
