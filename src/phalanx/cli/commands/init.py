"""phalanx init"""

from __future__ import annotations

from pathlib import Path

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, write_file
from phalanx.cli.starter_files import SINGLE, STARTERS, starter_text


@click.command("init")
@click.option(
    "--framework",
    type=click.Choice(tuple(STARTERS)),
    default=SINGLE,
    show_default=True,
    help="Framework of the training code; single means one process.",
)
@click.option(
    "-o", "--output", default="polyaxonfile.yml", show_default=True, metavar="FILE", help="File to write; - prints it."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@json_option
def command(framework: str, output: str, force: bool, as_json: bool) -> None:
    """Write a commented starter file."""
    text = starter_text(framework)
    if output != "-":
        write_file(Path(output), text, force=force)
    if as_json:
        print_json({"ok": True, "framework": framework, "file": output, "text": text})
    elif output == "-":
        click.echo(text, nl=False)
    else:
        click.echo(f"wrote {output}; next: phalanx check -f {output}")
