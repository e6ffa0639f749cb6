"""The command as people and programs call it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from phalanx.cli import phalanx

COMMAND = str(Path(sys.executable).with_name("phalanx"))


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def called(*arguments: str, cwd: Path | None = None, stdin: bytes = b"", **environment: str) -> Answer:
    """The installed command, in a process of its own."""
    done = subprocess.run(
        [COMMAND, *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
        timeout=120,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def quick(*arguments: str, stdin: bytes | str = b"") -> Answer:
    """The same command inside this process. Whatever it does not expect is raised here."""
    result = CliRunner().invoke(phalanx, arguments, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def in_terminal(*arguments: str, cwd: Path | None = None, typed: str | None = None) -> tuple[int, str]:
    """The installed command with a terminal as its output and its standard error, and as its input if anything is
    typed."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL if typed is None else theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        os.close(theirs)
        os.write(ours, (typed or "").encode())
        shown = b""
        with suppress(OSError):  # the terminal is gone once the command ended
            while piece := os.read(ours, 65_536):
                shown += piece
        return process.wait(timeout=120), shown.decode()
    finally:
        os.close(ours)


def bounded(*arguments: str, cpu_s: int = 8, memory_mib: int = 1500) -> Answer:
    """The installed command with little time and memory: a hostile file must not need more."""
    limits = f'ulimit -v {memory_mib * 1024}; ulimit -t {cpu_s}; exec "$@"'
    done = subprocess.run(
        ["bash", "-c", limits, "-", COMMAND, *arguments], capture_output=True, check=False, timeout=120
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_shell(script: str, cwd: Path | None = None) -> Answer:
    """A line of bash in which $PHALANX is the installed command."""
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        capture_output=True,
        env={**os.environ, "PHALANX": COMMAND},
        check=False,
        timeout=120,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def is_silent_about_itself(answer: Answer) -> bool:
    """No traceback, and no admission of a bug."""
    text = answer.out + answer.err
    return "Traceback" not in text and "internal error" not in text and "bug in Phalanx" not in text
