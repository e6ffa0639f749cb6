"""What the tests of the spec room share: short ways to load a text, and one to load a hostile text under limits."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

from phalanx.errors import Note, SpecError, SpecErrors
from phalanx.spec import Spec, load
from phalanx.spec.tree import Mark, Node, Source, from_plain
from phalanx.spec.yaml_writer import modern_document, to_yaml

EXPERIMENT = "version: 1\nkind: experiment\n"
GROUP = "version: 1\nkind: group\n"
FILE = "polyaxonfile.yml"


def as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def load_text(text: str | bytes, **params: str) -> Spec:
    """The spec of one text."""
    return load([(FILE, as_bytes(text))], params)


def load_texts(*texts: str, **params: str) -> Spec:
    """The spec of several texts, `0.yml` over which `1.yml` is laid, and so on."""
    return load([(f"{number}.yml", text.encode()) for number, text in enumerate(texts)], params)


def errors_of(*texts: str | bytes, **params: str) -> tuple[SpecError, ...]:
    """All faults of one text, or of several laid over each other; none when they are fine."""
    names = [FILE] if len(texts) == 1 else [f"{number}.yml" for number in range(len(texts))]
    try:
        load([(name, as_bytes(text)) for name, text in zip(names, texts, strict=True)], params)
    except SpecErrors as faults:
        return faults.errors
    return ()


def error_of(*texts: str | bytes, **params: str) -> SpecError:
    """The one fault of a text."""
    errors = errors_of(*texts, **params)
    assert len(errors) == 1, [str(error) for error in errors]
    return errors[0]


def messages_of(*texts: str | bytes, **params: str) -> list[str]:
    return [error.message for error in errors_of(*texts, **params)]


def notes_of(text: str | bytes, **params: str) -> list[str]:
    return [note.message for note in load_text(text, **params).notes]


def assert_same(old: str, modern: str, *notes: str) -> Spec:
    """The old text gives the spec of the modern one, which needs no note, and exactly these notes."""
    spec = load_text(old)
    assert spec == load_text(modern)
    assert [note.message for note in load_text(modern).notes] == []
    assert sorted(note.message for note in spec.notes) == sorted(notes)
    return spec


def converted(spec: Spec) -> str:
    return to_yaml(modern_document(spec))


def assert_converts(spec: Spec, *, has_notes: bool = False) -> str:
    """The converted text means the same, says nothing that is old (unless a note lasts), and converts to itself."""
    text = converted(spec)
    again = load_text(text)
    assert again == spec
    assert converted(again) == text
    dialects = [note.message for note in again.notes if "read as" in note.message or "not used" in note.message]
    assert bool(dialects) == has_notes, dialects
    return text


def where(remark: SpecError | Note) -> tuple[int, int]:
    """Line and column."""
    return remark.place.line, remark.place.column


def outcome(data: bytes, name: str = FILE) -> Spec | SpecErrors:
    """A Spec or SpecErrors; anything else that is raised is a bug and goes on."""
    try:
        return load([(name, data)])
    except SpecErrors as faults:
        found = faults
    assert found.errors, "SpecErrors without a fault"
    for error in found.errors:
        assert error.message, "a fault without a message"
        json.dumps(error.as_json())
    return found


def tree_of(value: Any) -> Node:
    """A tree of plain data, standing nowhere in particular."""
    return from_plain(value, Mark(Source("test", ""), 0, 0, 0, 0))


def run_command(template: str, params: str = "") -> str:
    """An experiment whose command is a template."""
    return f"{EXPERIMENT}{params}run:\n  cmd: {json.dumps(template)}\n"


class Limited(NamedTuple):
    """How a load ended in a process of its own."""

    ended: str  # "spec", "errors", or what went wrong
    messages: list[str]
    cpu_s: float
    peak_mib: int


CPU_S = 3.0  # about a second on an ordinary machine, and room for a slow one
PEAK_MIB = 400
_CHILD = """
import json, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from phalanx.errors import SpecErrors
from phalanx.spec import load
data = sys.stdin.buffer.read()
messages = []
start = time.process_time()
try:
    load([("polyaxonfile.yml", data)])
    ended = "spec"
except SpecErrors as faults:
    ended, messages = "errors", [error.message for error in faults.errors[:50]]
except BaseException as fault:
    ended = f"{type(fault).__name__}: {fault}"[:200]
cpu_s = time.process_time() - start
# Not by getrusage: what that says of a process begins with the size of the one that forked it.
with open("/proc/self/status") as stream:
    peak_mib = next(int(line.split()[1]) >> 10 for line in stream if line.startswith("VmHWM:"))
print(json.dumps([ended, messages, cpu_s, peak_mib]))
"""


def load_limited(text: str | bytes, cpu_s: int = 4) -> Limited:
    """Load a text in a process that may use so much CPU and 1 GiB: a bomb that goes off hurts nobody else."""
    command = [sys.executable, "-c", _CHILD, str(cpu_s)]
    done = subprocess.run(command, input=as_bytes(text), capture_output=True, check=False)
    if not done.stdout:
        return Limited(f"killed ({done.returncode})", [], float(cpu_s), 0)
    return Limited(*json.loads(done.stdout))


def assert_quickly_refused(text: str | bytes, *words: str) -> None:
    """The text is a fault that says one of the words, found within the limits of time and memory."""
    result = load_limited(text)
    assert result.ended == "errors", result
    assert result.cpu_s < CPU_S, result
    assert result.peak_mib < PEAK_MIB, result
    assert any(word in message for word in words for message in result.messages), result
