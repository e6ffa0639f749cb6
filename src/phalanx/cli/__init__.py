"""The command line: one verb, one file. Verbs are imported only when they are called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

SECTIONS = {
    "Start here": {
        "quickstart": "Run an example on this machine, and open its page.",
        "init": "Write a commented starter file.",
    },
    "Runs": {
        "run": "Run a file, here or on a cluster.",
        "ps": "List runs.",
        "show": "Show a run and its replicas.",
        "logs": "Print what the replicas of a run wrote.",
        "events": "Show everything that happened to a run.",
        "top": "Watch active runs, and what they use.",
        "stop": "Stop runs.",
        "statuses": "Show the statuses that a run has had.",
        "restart": "Run a run once more, as a new run.",
        "resume": "Go on with a run that is over.",
        "copy": "Run a run once more, beginning with a copy of its outputs.",
        "rerun": "Repeat a run as it was recorded.",
        "rm": "Remove runs that are over.",
        "advise": "Say what runs asked for, used and held idle, and what would do.",
        "size": "Try a file with different resources, and find the least that is fast.",
    },
    "What runs tracked": {
        "metrics": "Show the metrics of a run: table, chart, CSV.",
        "compare": "Put runs beside each other, what differs first.",
        "outputs": "Browse, preview and download what a run left.",
        "artifacts": "List what runs kept on purpose.",
        "models": "List, promote and download versions of models.",
        "import": "Take in runs of MLflow, TensorBoard, W&B, CSV, or another home.",
        "export": "Write runs as plain files or Parquet.",
    },
    "Files": {
        "check": "Say everything that is wrong with a file, or what it means.",
        "plan": "Show who will run what, with which resources, rank and environment.",
        "convert": "Print a file in the one modern form.",
        "schema": "Print the JSON Schema of a polyaxonfile, for editors.",
    },
    "This place": {
        "site": "Write, show and list profiles of clusters.",
        "wheels": "List the wheels that a wheelhouse, folder or index has for this Python.",
        "serve": "Serve runs and metrics by HTTP: a page, REST, MLflow's API.",
        "ui": "Open the page in the browser.",
        "token": "Make, list and revoke the tokens of the server.",
        "users": "Add, list and remove the people who use the server.",
        "login": "Make a server the one that all verbs ask.",
        "logout": "Forget the token of a server.",
        "sync": "Send what was tracked for a server and has not reached it yet.",
        "doctor": "Check the installation and a home, or rebuild its database from the folders.",
        "completion": "Print a shell's completion script.",
    },
}
VERBS = {verb: help_text for verbs in SECTIONS.values() for verb, help_text in verbs.items()}
MODULES = {"import": "import_"}  # a word of Python's own
# Verbs that work on a home of this machine alone: after a login they would be taken for the server's
AT_HOME = ("rerun", "size", "import", "export", "token", "users")
HERE = ("site", "doctor")  # the same, but clearly about this machine as long as PHALANX_SERVER is not set


_COMPLETE = "_PHALANX_COMPLETE"


class CommandGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"phalanx.cli.commands.{MODULES.get(cmd_name, cmd_name)}").command
        if cmd_name in (*AT_HOME, *HERE):
            from phalanx.cli.home_only import require_home

            require_home(command, cmd_name, also_after_login=cmd_name in AT_HOME)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        from phalanx.spec.suggestions import did_you_mean

        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as fault:
            hint = did_you_mean(args[0], VERBS) if args else None
            if not hint:
                raise
            raise click.UsageError(f"{fault.message.rstrip('.')}: {hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=lambda context, _, asked: _tell_version(context) if asked else None,
    help="Show the version, its Python and the extras that are installed.",
)
def phalanx() -> None:
    """One declarative file, any cluster: check, place, wire and track distributed training."""


def _tell_version(context: click.Context) -> None:
    from phalanx.cli.installation import extras_line, version_line

    click.echo(version_line())
    click.echo(extras_line())
    context.exit()


def main() -> None:
    """The `phalanx` command. Exit codes: 0 fine, 1 the file is wrong, 2 the call is wrong."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a user's text never breaks the terminal's encoding
    sys.exit(_run())


def _run() -> int:
    try:
        if _COMPLETE in os.environ:
            return _complete(os.environ[_COMPLETE])
        # not click's own `main`: it makes an error of a reader that went away
        with phalanx.make_context("phalanx", sys.argv[1:]) as context:
            code = phalanx.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as fault:
        _show(fault)
        return fault.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # the reader went away (`| head`): nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as fault:  # noqa: BLE001 - the edge: a traceback is for us, not for the user
        return _apologise(fault)
    return code if isinstance(code, int) else 0


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(phalanx, {}, "phalanx", _COMPLETE, instruction)


def _show(fault: click.ClickException) -> None:
    """What click has to say, without anything in it that a terminal would obey."""
    from phalanx.cli.render.output import printable

    context = getattr(fault, "ctx", None)
    if context is not None:
        click.echo(context.get_usage(), err=True)
    click.echo(f"error: {printable(fault.format_message())}", err=True)
    if context is not None:
        click.echo(f"`{context.command_path} --help` tells more", err=True)


def _apologise(fault: Exception) -> int:
    from phalanx.cli.render.output import printable

    if isinstance(fault, OSError) and fault.filename is None and fault.errno is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left to say would fail again at the end
        click.echo(f"error: cannot write the answer: {(fault.strerror or str(fault)).lower()}", err=True)
        return 2
    if os.environ.get("PHALANX_DEBUG"):
        raise fault
    if isinstance(fault, ModuleNotFoundError) and (fault.name or "phalanx").partition(".")[0] != "phalanx":
        click.echo(
            f"error: {printable(sys.executable)} has no package `{printable(fault.name or '')}`, which Phalanx needs: "
            "the installation is incomplete; repeat `pip install phalanx` there",
            err=True,
        )
        return 2
    click.echo(f"phalanx: internal error: {type(fault).__name__}: {printable(str(fault))}", err=True)
    click.echo("This is a bug in Phalanx. PHALANX_DEBUG=1 shows where; please report it.", err=True)
    return 70
