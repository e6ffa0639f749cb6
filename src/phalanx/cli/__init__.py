"""The command line: one file per verb, imported only when the verb is called."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from importlib import import_module
from typing import Any, NoReturn

from phalanx.cli.deferred_imports import rarely_used_deferred

with rarely_used_deferred():
    import click

SECTIONS = {
    "Start here": {
        "quickstart": "Run an example on this machine and open its page.",
        "init": "Write a commented starter file.",
    },
    "Runs": {
        "run": "Run a file, here or on a cluster.",
        "ps": "List runs.",
        "show": "Show a run and its replicas.",
        "logs": "Print or follow the logs of a run's replicas.",
        "events": "Show the event history of a run.",
        "top": "Watch active runs and their resource usage.",
        "notebook": "Start JupyterLab as a run, here or on a cluster.",
        "shell": "Open a shell beside a running replica.",
        "exec": "Run a command beside a running replica.",
        "wait": "Wait until runs have ended.",
        "stop": "Stop runs.",
        "priority": "Change the priority of a queued run.",
        "statuses": "Show the status history of a run.",
        "restart": "Submit a run again, as a new run.",
        "resume": "Continue a finished run, with the same outputs.",
        "copy": "Submit a run again, starting from a copy of its outputs.",
        "rerun": "Submit a run again, and list what changed since.",
        "rm": "Delete finished runs.",
        "archive": "Hide finished runs from lists.",
        "unarchive": "Show archived runs in lists again.",
        "star": "Mark runs for yourself.",
        "unstar": "Remove your star from runs.",
        "tag": "Add and remove tags of runs.",
        "rename": "Give a run another name.",
        "note": "Print or replace the note of a run.",
        "group": "Show, change, pause and extend a group of runs.",
        "code": "Print or get the code of a run.",
        "projects": "List, show, create and remove projects.",
        "notify": "Show the notifications of a run, or send a test message.",
        "advise": "Compare requested with used resources and recommend requests.",
        "size": "Try a file with different resources and recommend the cheapest fast ones.",
    },
    "Tracked data": {
        "metrics": "Show the metrics of a run: table, chart or CSV.",
        "compare": "Compare params and metrics of runs side by side.",
        "tensorboard": "Show runs in TensorBoard, side by side.",
        "outputs": "List, preview and download the files of a run.",
        "report": "List, write and export reports.",
        "artifacts": "List logged artifacts and models.",
        "models": "List, promote and download model versions.",
        "gc": "Remove outputs that are no longer kept.",
        "import": "Import runs from MLflow, TensorBoard, W&B, CSV or another home.",
        "export": "Export runs as plain files or tables.",
    },
    "Files": {
        "check": "Validate a file and summarize it.",
        "plan": "Show each replica's command, resources, rank and environment.",
        "convert": "Print a file in the current format.",
        "schema": "Print the JSON Schema of a polyaxonfile, for editors.",
    },
    "Installation and servers": {
        "site": "Create, show and list cluster profiles.",
        "wheels": "List the wheels available for this Python.",
        "serve": "Start the server: web page, REST and MLflow API.",
        "ui": "Open the web page in the browser.",
        "mcp": "Serve runs to assistants with the Model Context Protocol.",
        "token": "Create, list and revoke server tokens.",
        "users": "Add, list and remove server users.",
        "config": "Show and change your defaults: home, server, project, backend.",
        "whoami": "Show who you are, here or on the server.",
        "login": "Use a server for all commands.",
        "logout": "Forget the token of a server.",
        "sync": "Upload tracked data that has not reached the server yet.",
        "doctor": "Check the installation and the home, or rebuild its database.",
        "completion": "Print a shell completion script.",
    },
}
VERBS = {verb: help_text for verbs in SECTIONS.values() for verb, help_text in verbs.items()}
MODULES = {"import": "import_"}  # `import` is a Python keyword
# Verbs that work on a local home only. After a login, users would expect them to act on the server.
AT_HOME = ("rerun", "size", "import", "export", "token", "users")
HERE = ("site", "doctor")  # also local only, but clearly about this machine unless PHALANX_SERVER is set


_COMPLETE = "_PHALANX_COMPLETE"
COLLECT_EVERY = 20_000  # new objects: importing makes many, and none of them is garbage


class CommandGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        with rarely_used_deferred():
            module = import_module(f"phalanx.cli.commands.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        if cmd_name in (*AT_HOME, *HERE):
            from phalanx.cli.home_only import require_home

            require_home(command, cmd_name, also_after_login=cmd_name in AT_HOME)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as fault:
            from phalanx.spec.suggestions import did_you_mean

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
    callback=lambda context, _, asked: _print_version(context) if asked else None,
    help="Show the version, the Python in use and the installed extras.",
)
def phalanx() -> None:
    """Run and track distributed training from one declarative file, on any cluster."""


def _print_version(context: click.Context) -> None:
    from phalanx.cli.installation import extras_line, version_line

    click.echo(version_line())
    click.echo(extras_line())
    context.exit()


def main() -> None:
    """The `phalanx` command: ends the process."""
    _leave(call())


def call() -> str | int | None:
    """Run the command of `sys.argv`. Returns its exit code: 0 success, 1 invalid file, 2 invalid call; or a message."""
    gc.set_threshold(COLLECT_EVERY)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # user text that the terminal cannot encode must not raise
    try:
        return _run()
    except SystemExit as end:
        return end.code


def _leave(code: str | int | None) -> NoReturn:
    """Exit without freeing every object first: the system does that at once, and Python takes a tenth of a command for
    it. Exit hooks run and output is flushed. With other threads, or a message to print, it exits the usual way."""
    if isinstance(code, str) or threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()  # as Python itself does
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python reports it
    os._exit((code or 0) & 0xFF)


def _run() -> int:
    try:
        if _COMPLETE in os.environ:
            return _complete(os.environ[_COMPLETE])
        # not click's `main`: it reports a closed pipe as an error
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
        # the reader closed the pipe (`| head`): not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as fault:  # noqa: BLE001 - the outermost handler: users never see a traceback
        return _apologise(fault)
    return code if isinstance(code, int) else 0


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(phalanx, {}, "phalanx", _COMPLETE, instruction)


def _show(fault: click.ClickException) -> None:
    """Print an error of click, without terminal control characters."""
    from phalanx.cli.render.output import printable

    context = getattr(fault, "ctx", None)
    if context is not None:
        click.echo(context.get_usage(), err=True)
    click.echo(f"error: {printable(fault.format_message())}", err=True)
    if context is not None:
        click.echo(f"Try `{context.command_path} --help`.", err=True)


def _apologise(fault: Exception) -> int:
    from phalanx.cli.render.output import printable

    if isinstance(fault, OSError) and fault.filename is None and fault.errno is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # flushing the rest at exit would fail again
        click.echo(f"error: cannot write the output: {(fault.strerror or str(fault)).lower()}", err=True)
        return 2
    if os.environ.get("PHALANX_DEBUG"):
        raise fault
    if isinstance(fault, ModuleNotFoundError) and (fault.name or "phalanx").partition(".")[0] != "phalanx":
        click.echo(
            f"error: {printable(sys.executable)} has no package `{printable(fault.name or '')}`, which Phalanx needs: "
            "the installation is incomplete; run `pip install phalanx` there again",
            err=True,
        )
        return 2
    click.echo(f"phalanx: internal error: {type(fault).__name__}: {printable(str(fault))}", err=True)
    click.echo("This is a bug in Phalanx; please report it. PHALANX_DEBUG=1 shows the traceback.", err=True)
    return 70
