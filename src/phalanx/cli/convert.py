"""phalanx convert"""

from __future__ import annotations

import click

from phalanx.cli.files import file_options, json_option, load
from phalanx.cli.output import answering, print_json, print_notes


@click.command("convert")
@file_options
@json_option
def command(files: tuple[str, ...], params: tuple[str, ...], as_json: bool) -> None:
    """Print a file in the one modern form.

    Old names and dialects become `framework` and `environment.replicas`; templates stay as they are. What was
    read differently from how it was written is said on standard error. Comments are not kept.
    """
    with answering(as_json=as_json):
        from phalanx.spec.writing import modern_document, to_yaml

        loaded = load(files, params)
        document = modern_document(loaded)
        if as_json:
            print_json(document, indent=2)
            return
        print_notes(loaded.notes, err=True)
        click.echo(to_yaml(document), nl=False)
