"""phalanx check"""

from __future__ import annotations

import click

from phalanx.cli.files import file_options, json_option, load
from phalanx.cli.output import answering, print_json, print_notes, printable


@click.command("check")
@file_options
@json_option
def command(files: tuple[str, ...], params: tuple[str, ...], as_json: bool) -> None:
    """Say everything that is wrong with a file, or what it means.

    Exit code 0: the file is fine. 1: it is not. 2: the call is wrong.
    """
    with answering(as_json=as_json):
        from phalanx.cli.summary import all_notes, plan_of, replicas_text, resources_text, summarise

        loaded = load(files, params)
        made = plan_of(loaded)
        summary = summarise(loaded, made)
        if as_json:
            print_json(summary)
            return
        print_notes(all_notes(loaded, made))
        name = f" `{loaded.name}`" if loaded.name else ""
        framework = f", {loaded.framework}" if loaded.framework else ""
        fine = click.style("ok", fg="green", bold=True)
        click.echo(f"{fine}: {printable(f'{loaded.file}: {loaded.kind}{name}{framework}')}")
        if loaded.search is not None:
            view = summary["search"]
            size = f": {view['size']} experiment{'s' if view['size'] != 1 else ''}" if view["size"] else ""
            over = ", ".join(view["matrix"])
            click.echo(printable(f"  search     {view['algorithm']} over {over}{size}"))
        if loaded.pipeline is not None:
            click.echo(f"  ops        {', '.join(summary['ops'])}")
        if made is not None:
            click.echo(f"  replicas   {replicas_text(made.roles)}")
            click.echo(f"  resources  {resources_text(made.totals)}")
        if summary["command"]:
            click.echo(f"  command    {printable(summary['command'])}")
        if loaded.params:
            click.echo(
                f"  params     {printable(', '.join(f'{key}={value}' for key, value in summary['params'].items()))}"
            )
