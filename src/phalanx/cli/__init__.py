"""The command line: one verb, one file. Verbs are imported only when they are called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from phalanx import __version__

VERBS = {
    "check": "Say everything that is wrong with a file, or what it means.",
    "plan": "Show who will run what, with which resources, rank and environment.",
    "convert": "Print a file in the one modern form.",
    "schema": "Print the JSON Schema of a polyaxonfile, for editors.",
    "init": "Write a commented starter file.",
    "completion": "Print a shell's completion script.",
}


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"phalanx.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        from phalanx.spec.suggest import did_you_mean

        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as fault:
            hint = did_you_mean(args[0], VERBS) if args else None
            if not hint:
                raise
            raise click.UsageError(f"{fault.message.rstrip('.')}: {hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="phalanx", message="%(prog)s %(version)s")
def phalanx() -> None:
    """One declarative file, any cluster: check, place, wire and track distributed training."""


def main() -> None:
    """The `phalanx` command. Exit codes: 0 fine, 1 the file is wrong, 2 the call is wrong."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a user's text never breaks the terminal's encoding
    try:
        phalanx(prog_name="phalanx")
    except BrokenPipeError:
        # the reader went away (`| head`): nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as fault:
        if os.environ.get("PHALANX_DEBUG"):
            raise
        click.echo(f"phalanx: internal error: {type(fault).__name__}: {fault}", err=True)
        click.echo("This is a bug in Phalanx. PHALANX_DEBUG=1 shows where; please report it.", err=True)
        sys.exit(70)
