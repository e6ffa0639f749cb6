"""Scripts and commands in place of a polyaxonfile: `phalanx run job.sh`, `phalanx run -- torchrun …`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.options import MAX_READ
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.spec import Spec

_FILES = (".yml", ".yaml", ".json")


def file_of_program(words: Sequence[str]) -> tuple[str, bytes]:
    """The name and text of a polyaxonfile that runs it. Prints notes on standard error. Raises CallError."""
    from phalanx.spec.batch_scripts import document_of_command
    from phalanx.spec.yaml_writer import to_yaml

    first = words[0]
    if first.endswith(_FILES):
        raise CallError(f"{first!r}: write -f before the file of a run, or --each to queue one run for each file")
    text = script_text(first)
    try:
        document = document_of_command(words) if text is None else _script(first, text, words[1:])
    except ValueError as fault:
        raise CallError(f"{first}: {fault}") from None
    return first, to_yaml(document).encode()


def _script(name: str, text: str, arguments: Sequence[str]) -> dict[str, object]:
    """Raises ValueError."""
    from phalanx.spec.batch_scripts import document_of_script, read_script

    script = read_script(text)
    if not script.shell.endswith("sh"):
        raise ValueError(f"it is for `{script.shell[:60]}`; only scripts for bash and sh run as they are")
    document, notes = document_of_script(script, Path(name).stem, arguments)
    for note in notes:
        click.echo(f"note: {name}: {note}", err=True)
    return document


def script_text(name: str) -> str | None:
    """The text of a file with #SBATCH lines; None for anything else."""
    from phalanx.spec.batch_scripts import is_batch_script

    try:
        with Path(name).open("rb") as stream:
            text = stream.read(MAX_READ).decode()
    except (OSError, ValueError):
        return None
    return text if is_batch_script(text) else None


def load_other(name: str, params: tuple[str, ...]) -> Spec:
    """The spec of a file of any format that is read. Raises SpecErrors, CallError."""
    from phalanx.cli.options import parse_params, read_files
    from phalanx.launch.file_references import load_files
    from phalanx.spec.batch_scripts import converted_script
    from phalanx.spec.yaml_writer import to_yaml

    text = script_text(name)
    if text is None:
        return load_files(read_files((name,)), parse_params(params)).spec
    try:
        document, notes = converted_script(text, Path(name).stem)
    except ValueError as fault:
        raise CallError(f"{name}: {fault}") from None
    for note in notes:
        click.echo(f"note: {name}: {note}", err=True)
    return load_files([(name, to_yaml(document).encode())], parse_params(params)).spec
