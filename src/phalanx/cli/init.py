"""phalanx init"""

from __future__ import annotations

import os
from pathlib import Path

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json
from phalanx.cli.starters import SINGLE, STARTERS, starter_text
from phalanx.errors import CallError


@click.command("init")
@click.option(
    "--framework",
    type=click.Choice(tuple(STARTERS)),
    default=SINGLE,
    show_default=True,
    help="What it trains with, over several replicas; single is one process.",
)
@click.option("-o", "--output", default="polyaxonfile.yml", show_default=True, metavar="FILE", help="- prints it.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@json_option
def command(framework: str, output: str, force: bool, as_json: bool) -> None:
    """Write a commented starter file."""
    with answering(as_json=as_json):
        text = starter_text(framework)
        if output != "-":
            _write(Path(output), text, force=force)
        if as_json:
            print_json({"ok": True, "framework": framework, "file": output, "text": text})
        elif output == "-":
            click.echo(text, nl=False)
        else:
            click.echo(f"wrote {output}; next: phalanx check -f {output}")


def _write(path: Path, text: str, *, force: bool) -> None:
    """The file, whole: a new one is never half there, and an old one is only replaced by a complete one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        try:
            if force:
                fresh.replace(path)
            else:
                os.link(fresh, path)  # fails when the name is taken, also by someone who came first just now
        finally:
            fresh.unlink(missing_ok=True)
    except FileExistsError:
        raise CallError(f"{path} is there already: name another file with -o, or write over it with --force") from None
    except OSError as fault:
        raise CallError(f"cannot write {path}: {(fault.strerror or str(fault)).lower()}") from None
