"""Runs a command beside a replica: with its variables, in its working folder and, if it has one, in its container.

The variables are read from the process of the replica, where secrets are, and are written to no file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from phalanx import run_paths
from phalanx.agent import processes

ENTER = "--enter"
NOT_ENTERED = 126  # exit code, as of a shell that cannot execute a command
TRACK = "PHALANX_TRACK"  # in the variables of a replica: its folder
_OF_TERMINAL = ("TERM", "COLORTERM", "LANG")


class NotEnterable(Exception):
    """The replica does not run here. The message is for the user."""


class Entry(NamedTuple):
    """What a command needs to run like the replica's own."""

    environment: Mapping[str, str]
    working: str
    before: Sequence[str] = ()  # the command of its container


def variables_of(folder: str) -> dict[str, str]:
    """The variables of the replica whose attempt has this folder. Raises NotEnterable."""
    try:
        with open(os.path.join(folder, run_paths.AGENT), "rb") as stream:
            agent = json.loads(stream.read())
        is_here = processes.is_alive_here(agent)
    except (OSError, ValueError, KeyError, TypeError):
        raise NotEnterable("it has not started yet") from None
    if not is_here:
        raise NotEnterable("its agent does not run on this machine any more")
    children = [stat for stat in processes.descendants(agent["pid"]) if stat.parent == agent["pid"]]
    for child in sorted(children, key=lambda stat: stat.started):
        found = _variables(child.pid)
        if found.get(TRACK) == folder:
            return found
    raise NotEnterable("its command has ended, or has not started yet")


def _variables(pid: int) -> dict[str, str]:
    """Only the user of a process can read them. Empty if it has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            words = stream.read().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(word).partition("=") for word in words if b"=" in word)
    return {name: value for name, _, value in pairs}


def entry_of(facts: Mapping[str, Any], name: str) -> Entry:
    """How to enter a replica of this machine. Raises NotEnterable."""
    folder = facts.get("folders", {}).get(name)
    if folder is None:
        raise NotEnterable("it has not started yet")
    python = facts.get("python", {}).get(facts.get("node", {}).get(name), {})
    return Entry(variables_of(str(folder)), str(facts["working"]), python.get("before", ()))


def enter(entry: Entry, name: str, argv: Sequence[str]) -> NoReturn:
    """Become the command, or an interactive shell without one. Raises OSError."""
    environment = {**entry.environment, **{key: os.environ[key] for key in _OF_TERMINAL if key in os.environ}}
    if not argv:
        run = environment.get("PHALANX_RUN_ID", "")[:8]
        environment["PS1"] = f"({run} {name}) \\w$ "
        argv = ("bash", "--norc", "--noprofile", *(("-i",) if os.isatty(0) else ()))
    os.chdir(entry.working)
    words = [*entry.before, *argv]
    try:
        os.execvpe(words[0], words, environment)
    except FileNotFoundError:
        if words[0] != "bash":
            raise
    words = ["sh", *(word for word in argv[1:] if word == "-i")]
    os.execvpe("sh", words, environment)  # small images have no bash


def enter_here(facts: Mapping[str, Any], name: str, argv: Sequence[str]) -> int:
    """Enter a replica of this machine. Returns an exit code only if that fails."""
    import sys

    try:
        enter(entry_of(facts, name), name, argv)
    except NotEnterable as fault:
        print(f"phalanx: cannot enter {name}: {fault}", file=sys.stderr)
    except OSError as fault:
        what = argv[0] if argv else "a shell"
        print(f"phalanx: cannot start {what}: {fault.strerror or fault}", file=sys.stderr)
        return NOT_ENTERED + isinstance(fault, FileNotFoundError)
    return NOT_ENTERED
