"""`#SBATCH` lines of a script, as sbatch reads them: before the first command, in short and long form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

_SHORT = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "d": "dependency",
    "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name",
    "k": "no-kill", "L": "licenses", "m": "distribution", "M": "clusters", "n": "ntasks", "N": "nodes",
    "o": "output", "O": "overcommit", "p": "partition", "q": "qos", "Q": "quiet", "s": "oversubscribe",
    "S": "core-spec", "t": "time", "v": "verbose", "w": "nodelist", "W": "wait", "x": "exclude",
}  # fmt: skip
_FLAGS = frozenset(
    (
        *("hold", "no-kill", "overcommit", "oversubscribe", "quiet", "verbose", "wait", "requeue", "no-requeue"),
        *("contiguous", "exclusive", "get-user-env", "ignore-pbs", "parsable", "reboot", "spread-job", "test-only"),
        *("use-min-nodes", "disable-stdout-job-summary"),
    )
)
_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)\Z")
_LONG = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?\Z", re.DOTALL)
_VALUE = re.compile(r"[\w.,@%+:=/&|?*()\[\]-]*\Z")
MOST_CHARACTERS = 100_000  # bash takes a script of at most 128 KiB as an argument


class BatchScript(NamedTuple):
    """A script. `directives`: options of sbatch by their long names; one without a value has an empty text.
    `notes`: lines that are left out, with the reason."""

    directives: Mapping[str, str]
    notes: tuple[str, ...]
    shell: str
    text: str


def is_batch_script(text: str) -> bool:
    return any(line.startswith("#SBATCH") for line in text.splitlines()[:1000])


def read_script(text: str) -> BatchScript:
    """Raises ValueError for what cannot run as one job."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the script has more than {MOST_CHARACTERS} characters")
    lines = text.splitlines()
    directives: dict[str, str] = {}
    notes: list[str] = []
    for number, line in enumerate(lines, 1):
        found = _DIRECTIVE.match(line)
        if found is not None:
            _read_line(found[1], number, directives, notes)
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    first = lines[0] if lines else ""
    shell = first[2:].strip() if first.startswith("#!") else "/bin/bash"
    return BatchScript(directives, tuple(notes), shell, text)


def _read_line(line: str, number: int, directives: dict[str, str], notes: list[str]) -> None:
    """Read the options of one line. Raises ValueError."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        raise ValueError(f"line {number}: a quote is not closed") from None
    if words[:1] in (["hetjob"], ["packjob"]):
        raise ValueError(f"line {number}: a heterogeneous job cannot run as it is")
    while words:
        word = words.pop(0)
        long = _LONG.match(word)
        if long is not None:
            name, value = long[1], long[2]
        elif len(word) > 1 and word[0] == "-" and word[1] in _SHORT:
            name, value = _SHORT[word[1]], word[2:].removeprefix("=") or None
        else:
            raise ValueError(f"line {number}: `{word[:60]}` is no option of sbatch")
        if value is None and name not in _FLAGS:
            value = words.pop(0) if words else ""
        if not _VALUE.match(value or "") and name != "job-name":
            notes.append(f"line {number}: `--{name}` is left out: its value has spaces, quotes or `$`")
            continue
        directives[name] = value or ""
