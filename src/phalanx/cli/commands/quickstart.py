"""phalanx quickstart"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.errors import CallError, path_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from phalanx.store import Run

FOLDER = "phalanx-quickstart"
FILES = ("polyaxonfile.yml", "train.py", "kubernetes.yml", "kubeflow.yml", ".polyaxonignore")
PHALANX = (sys.executable, "-P", "-c", "from phalanx.cli import main; main()")
BROKEN = "phalanx run -P broken_rank=2"
ELSEWHERE = ("PHALANX_SERVER", "PHALANX_TOKEN", "PHALANX_DATABASE")  # unset, because they would send the runs elsewhere
WIDTH = 50  # of the column of commands; longer ones exceed it
LONGEST_S = 180.0  # limit for the server to start and its page to load, on a busy machine


@click.command("quickstart")
@click.argument("folder", default=FOLDER, type=click.Path(path_type=Path))
@click.option(
    "--home", type=click.Path(file_okay=False, path_type=Path), help="Store the runs here. Default: FOLDER/home."
)
@click.option("--force", is_flag=True, help="Overwrite changed example files in FOLDER.")
@click.option("--no-ui", is_flag=True, help="Exit after the run; don't open the page.")
@click.option("--no-browser", is_flag=True, help="Print the address of the page; don't start a browser.")
@json_option
def command(folder: Path, home: Path | None, force: bool, no_ui: bool, no_browser: bool, as_json: bool) -> None:
    """Train a small model with four replicas on this machine and open the page of the run.

    Writes an example to FOLDER (default: phalanx-quickstart), checks it and runs it. The training code needs only
    Python. The runs are stored in FOLDER/home, separate from your own; to remove everything, delete FOLDER.

    In a terminal, the page is served until Ctrl-C. Elsewhere, the page is loaded once as a check.
    """
    example = Example(folder.absolute(), (home or folder / "home").absolute())
    write_example(example.folder, force=force)
    prepare_home(example.home)
    run = example.run_quietly() if as_json else example.run(folder)
    steps = next_steps(folder, example.home, run, os.environ)
    if as_json:
        is_built = None if no_ui else example.load_page(run)
        print_json(
            {
                "ok": True,
                "folder": str(example.folder),
                "home": str(example.home),
                "run": run.id,
                "status": run.status,
                "page": is_built,
                "next": [step.command for step in steps],
            }
        )
        return
    stays = not no_ui and is_interactive()
    _print_steps(steps, "Try next, in another terminal:" if stays else "Try next:")
    if stays:
        example.open_page(run, no_browser=no_browser)
    elif not no_ui and example.load_page(run):
        click.echo("\nThe page works; the last command opens it.")
    elif not no_ui:
        click.echo("\nThe server works, but its page is not built: run `make page` in a clone.")


# The example --------------------------------------------------------------------------------------------------------


def example_files() -> dict[str, bytes]:
    """The files of the example, by name: from the package, or in a clone from examples/quickstart."""
    package = Path(__file__).resolve().parent.parent.parent
    places = (package / "examples" / "quickstart", package.parent.parent / "examples" / "quickstart")
    source = next((place for place in places if (place / FILES[0]).is_file()), None)
    if source is None:
        raise CallError(f"this installation lacks the example, {places[0]}: run `pip install phalanx` again")
    return {name: (source / name).read_bytes() for name in FILES}


def write_example(folder: Path, *, force: bool) -> None:
    """Write the example, or make sure that the folder holds it unchanged. Raises CallError."""
    files = example_files()
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            _write_whole_folder(folder, files)
            return
        if not all((folder / name).is_file() for name in files):
            raise CallError(
                f"{folder} exists and does not contain the example: name another folder, "
                "as in `phalanx quickstart FOLDER`"
            )
        changed = [name for name, content in files.items() if (folder / name).read_bytes() != content]
        if changed and not force:
            raise CallError(
                f"{folder / changed[0]} was changed: run your version with `phalanx run` in that folder, "
                "restore the example with --force, or write another copy with `phalanx quickstart FOLDER`"
            )
        for name in changed:
            (folder / name).write_bytes(files[name])
    except OSError as fault:
        hint = "name another folder, as in `phalanx quickstart FOLDER`"
        raise path_error(f"cannot write {fault.filename or folder}", fault, hint) from None


def _write_whole_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write under a temporary name, then rename, so that an existing folder is always complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}-{os.getpid()}")
    draft.mkdir()
    try:
        for name, content in files.items():
            (draft / name).write_bytes(content)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def prepare_home(home: Path) -> None:
    """Create a home that git ignores. Raises CallError."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (home / ".gitignore").exists():
            (home / ".gitignore").write_text("*\n")
    except OSError as fault:
        raise path_error(f"cannot write {home}", fault) from None


# The run and its page -----------------------------------------------------------------------------------------------


class Example(NamedTuple):
    """The example's folder, and the home of its runs."""

    folder: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
        return {**kept, "PHALANX_HOME": str(self.home)}

    def run(self, shown_folder: Path) -> Run:
        """Run the commands that a user would run. Exits with the code of the first that fails."""
        click.echo(click.style(f"$ cd {shlex.quote(str(shown_folder))}", bold=True))
        for arguments in (["check"], ["run"], ["ps"]):
            click.echo(click.style(f"\n$ phalanx {' '.join(arguments)}", bold=True))
            sys.stdout.flush()
            code = self._call(arguments)
            if code:
                raise click.exceptions.Exit(code)
        return self._newest()

    def run_quietly(self) -> Run:
        """The same without output. Raises CallError."""
        code = self._call(["run", "--json"], stdout=subprocess.DEVNULL)
        run = self._newest()
        if code:
            raise CallError(f"run {run.id} {run.status}: {run.reason}")
        return run

    def open_page(self, run: Run, *, no_browser: bool) -> None:
        """Become `phalanx ui`, which serves the page until Ctrl-C."""
        click.echo(click.style(f"\n$ phalanx ui {run.id}", bold=True))
        sys.stdout.flush()
        arguments = ["ui", run.id, *(["--no-browser"] if no_browser else [])]
        os.execve(PHALANX[0], [*PHALANX, *arguments], self.environment)

    def load_page(self, run: Run) -> bool:
        """Start the server, load the run's page and stop the server. Returns False if the page is not built. Raises
        CallError if the server does not respond."""
        import httpx

        with self._started(["ui", run.id, "--json", "--no-browser", "--port", "0"], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            watchdog = threading.Timer(LONGEST_S, process.kill)
            watchdog.start()
            try:
                url = json.loads(process.stdout.readline() or "{}").get("url")
                answer = httpx.get(url, trust_env=False, timeout=LONGEST_S) if url else None
            except (httpx.HTTPError, ValueError):
                answer = None
            finally:
                watchdog.cancel()
                process.terminate()
        if answer is None or answer.status_code != httpx.codes.OK:
            raise CallError("the page did not load; run `phalanx ui` to see why")
        return "/assets/" in answer.text

    def _call(self, arguments: Sequence[str], stdout: int | None = None) -> int:
        with self._started(arguments, stdout=stdout) as process:
            code = process.wait()
        return code if code >= 0 else 128 - code

    @contextmanager
    def _started(self, arguments: Sequence[str], stdout: int | None) -> Iterator[subprocess.Popen[Any]]:
        """A phalanx command as a child process. It receives Ctrl-C directly; TERM is forwarded."""
        started: list[subprocess.Popen[Any]] = []
        received: list[int] = []

        def pass_on(number: int, _: object) -> None:
            received.append(number)
            for process in started:
                if number == signal.SIGTERM:
                    process.terminate()

        before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            command = [*PHALANX, *arguments]
            with subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=stdout) as process:
                started.append(process)
                if signal.SIGTERM in received:  # before the process was in `started`
                    process.terminate()
                yield process
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _newest(self) -> Run:
        from phalanx.store import Store

        with Store.open(self.home, None) as store:
            return store.runs(limit=1)[0]


def is_interactive() -> bool:
    """Whether a user at a terminal can look at the page."""
    with suppress(AttributeError, ValueError):  # closed streams
        return sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")
    return False


# What to try next ---------------------------------------------------------------------------------------------------


class QuickstartStep(NamedTuple):
    command: str
    meaning: str


def next_steps(folder: Path, home: Path, run: Run, environment: Mapping[str, str]) -> list[QuickstartStep]:
    """Commands for the user's shell, to be run in this order."""
    steps = [QuickstartStep(f"cd {shlex.quote(str(folder))}", "")]
    place = '"$PWD/home"' if home == folder.absolute() / "home" else shlex.quote(str(home))
    steps.append(QuickstartStep(f"export PHALANX_HOME={place}", "the runs of this example"))
    others = [name for name in ELSEWHERE if environment.get(name)]
    if others:
        steps.append(QuickstartStep(f"unset {' '.join(others)}", "they select another home or server"))
    command_folder = _folder_to_add(environment)
    if command_folder is not None:
        steps.append(QuickstartStep(f'export PATH={shlex.quote(str(command_folder))}:"$PATH"', "where `phalanx` is"))
    return [
        *steps,
        QuickstartStep(f"phalanx show {run.id}", "its replicas and their resource usage"),
        QuickstartStep(f"phalanx logs {run.id} --tail 10", "the logs of all ranks, in order of time"),
        QuickstartStep(f"phalanx metrics {run.id} --plot", "its metrics"),
        QuickstartStep("phalanx run -P learning_rate=0.1", "train again with another value"),
        QuickstartStep("phalanx compare -q status:succeeded", "compare the runs"),
        QuickstartStep(BROKEN, "see how a failing rank is reported"),
        QuickstartStep("phalanx plan --on slurm", "the same run as a Slurm job script"),
        QuickstartStep("phalanx ui", "the page with all runs"),
    ]


def _folder_to_add(environment: Mapping[str, str]) -> Path | None:
    """The folder of this `phalanx`, or None if it is on the PATH already."""
    ours = Path(os.path.abspath(sys.argv[0]))
    if ours.name != "phalanx" or not ours.is_file():
        ours = Path(sys.executable).with_name("phalanx")
    found = shutil.which("phalanx", path=environment.get("PATH", ""))
    return None if found is not None and Path(found).resolve() == ours.resolve() else ours.parent


def _print_steps(steps: Sequence[QuickstartStep], title: str) -> None:
    width = max(len(step.command) for step in steps if len(step.command) <= WIDTH)
    click.echo(click.style(f"\n{title}\n", bold=True))
    for command_text, meaning in steps:
        click.echo(
            f"  {printable(command_text).ljust(width)}  # {meaning}" if meaning else f"  {printable(command_text)}"
        )
