"""`%load_ext phalanx`: the magic `%phalanx run -f file.yml` in IPython and Jupyter.

`run` starts the run and shows it, updated until it ends; with `-d` it returns at once. The value is the run. All other
verbs are those of the command line.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from phalanx.errors import CallError, PhalanxError

if TYPE_CHECKING:
    from phalanx.launch.run_future import RunBatch, RunFuture


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext phalanx` calls it."""
    shell.register_magic_function(phalanx_magic, "line", "phalanx")


def phalanx_magic(line: str) -> RunFuture | RunBatch | None:
    """A command of Phalanx: `%phalanx run -f polyaxonfile.yml -P lr=0.1`, `%phalanx ps`."""
    words = shlex.split(line)
    if words[:1] != ["run"]:
        _print_command(words)
        return None
    try:
        return _run(words[1:])
    except PhalanxError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return None


def _run(words: list[str]) -> RunFuture | RunBatch:
    """Start the run with the command line, which has all options, and wait for it here. Raises CallError."""
    from phalanx.launch.functions import attach

    detached = {"-d", "--detach"} & set(words)
    ended = _called(["run", "--detach", *(word for word in words if word not in detached)])
    sys.stderr.write(ended.stderr)
    if ended.returncode:
        raise CallError(f"phalanx run ended with code {ended.returncode}")
    run = attach(ended.stdout.split()[-1])
    if not detached:
        run.wait()
    return run


def _print_command(words: list[str]) -> None:
    ended = _called(words)
    sys.stdout.write(ended.stdout)
    sys.stderr.write(ended.stderr)


def _called(words: list[str]) -> subprocess.CompletedProcess[str]:
    """The command line in a process, whose output goes to the cell."""
    call = [sys.executable, "-c", "from phalanx.cli import main; main()", *words]
    return subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
