"""Calls `check`, `convert` and `plan` on a case, and checks what must hold for every file.

The calls are those of the command line: `phalanx.cli.call` with arguments, in this process, with captured output. Two
answers that no file changes are remembered: the entry points of the installed packages, and the packed code of the
working directory.
"""

from __future__ import annotations

import gc
import importlib.metadata
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import yaml

import phalanx
from phalanx import cli, plan, spec
from phalanx.cli.commands import plan as plan_command
from phalanx.cli.options import parse_params
from phalanx.spec import Spec
from phalanx.spec.yaml_writer import modern_document, to_yaml
from tests.fuzz.cases import Case
from tests.fuzz.yaml_trees import Loader

BACKENDS = ("local", "slurm", "kubernetes", "kubeflow")
CHECKS = (
    *([("check",)] * 5), *([("check", "--json")] * 3), *(("check", "--on", name) for name in BACKENDS),
    ("check", "--on", "slurm", "--site", "narval"), ("check", "--on", "slurm", "--site", "trillium", "--json"),
)  # fmt: skip
OFFERS = ("training-operator=1.8,mpi=v1", "kubernetes=1.25,kueue", "trainer", "trainer,kueue", "volcano")
PLANS = (
    ("plan",), ("plan", "--json"), ("plan", "--replica", "worker-0"),
    *(("plan", "--on", name) for name in BACKENDS for _ in range(3)),
    *(("plan", "--on", name, "--json") for name in BACKENDS),
    *(("plan", "--on", name, "--assume", offer) for name in ("kubernetes", "kubeflow") for offer in OFFERS),
)  # fmt: skip
CONVERTS = (("convert",), ("convert",), ("convert", "--json"))
EVERY_DOOR = tuple(dict.fromkeys((*CHECKS, *PLANS, *CONVERTS)))

SLOW_S = 1.0  # of CPU time
HOPELESS_S = 15.0  # a plan of 100,000 replicas, the most there are, takes 6 s
MANY_REPLICAS = 500  # TensorFlow: every replica has the addresses of all
PEAK_MIB = 700  # of the process: 150 before the first file
SHELL_SHARE = 0.02  # of the Slurm scripts that bash reads, too
YAML_SHARE = 0.1  # of the manifests that PyYAML reads, too

Door = tuple[str, ...]
SOURCES = str(Path(phalanx.__file__).parent)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that must not happen. `kind` tells failures of different causes apart."""

    kind: str
    door: Door
    detail: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call of the command line printed, and its exit code."""

    code: object
    out: str
    err: str


class Broken(Exception):
    """A rule is broken: its kind, and details."""


class Overtime(BaseException):
    """The call took so much CPU time that waiting is pointless. Not an Exception: no handler may swallow it."""


def prepare(folder: Path) -> None:
    """Prepare this process for calls: without cluster, server and home of the user, and with few system calls."""
    for name in [name for name in os.environ if name.startswith(("PHALANX", "SBATCH", "SLURM", "KUBE", "POLYAXON"))]:
        del os.environ[name]
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text("print('trained')\n", encoding="ascii")
    os.chdir(code)
    os.environ.update(PHALANX_DEBUG="1", PHALANX_HOME=str(folder / "home"), HOME=str(folder), NO_COLOR="1")
    importlib.metadata.entry_points = cache(importlib.metadata.entry_points)  # type: ignore[assignment]
    plan_command._packed = cache(plan_command._packed)
    gc.set_threshold(20_000, 10, 10)


def plant_crash(key: str) -> None:
    """Break the reader for files with a key at the top."""
    from phalanx.spec import loader

    intact = loader._kind

    def broken(root: Any, findings: Any) -> Any:
        return 1 / 0 if root.get(key) is not None else intact(root, findings)

    loader._kind = broken


def choose(rng: Random) -> list[Door]:
    """The calls for one file: always a check and a plan."""
    doors = [rng.choice(CHECKS), rng.choice(PLANS)]
    return [*doors, rng.choice(CONVERTS)] if rng.random() < 0.4 else doors


class Clock:
    """Notices when a call takes too long, and where it spends its time."""

    def __init__(self) -> None:
        self.slow_at = ""
        signal.signal(signal.SIGPROF, self._ring)

    def _ring(self, _: int, frame: FrameType | None) -> None:
        if self.slow_at:
            raise Overtime
        self.slow_at = _innermost(frame)
        signal.setitimer(signal.ITIMER_PROF, HOPELESS_S - SLOW_S)

    def __enter__(self) -> Clock:
        self.slow_at = ""
        signal.setitimer(signal.ITIMER_PROF, SLOW_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _innermost(frame: FrameType | None) -> str:
    while frame is not None and not frame.f_code.co_filename.startswith(SOURCES):
        frame = frame.f_back
    if frame is None:
        return "elsewhere"
    return f"{os.path.relpath(frame.f_code.co_filename, SOURCES)}:{frame.f_code.co_name}"


def kind_of(fault: BaseException) -> str:
    """The type of an exception and the innermost function of Phalanx that it passed."""
    frames = [frame for frame in traceback.extract_tb(fault.__traceback__) if frame.filename.startswith(SOURCES)]
    where = f"{os.path.relpath(frames[-1].filename, SOURCES)}:{frames[-1].name}" if frames else "elsewhere"
    return f"{type(fault).__name__} in {where}"


def call(arguments: Sequence[str]) -> Answer:
    """One call of the command line. What it raises is an internal error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    before = sys.argv, sys.stdout, sys.stderr
    sys.argv, (sys.stdout, sys.stderr) = ["phalanx", *arguments], streams
    try:
        code: object = cli.call()
    finally:
        sys.argv, sys.stdout, sys.stderr = before
    out, err = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams)
    return Answer(code, out, err)


class Examiner:
    """Takes cases through doors. Its folder holds the files of the case at hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()

    def examine(self, case: Case, doors: Sequence[Door], rng: Random) -> tuple[list[Failure], dict[str, object]]:
        """The failures of a case, and the exit code of each call."""
        paths = case.write(self.folder, "polyaxonfile")
        options = [part for path in paths for part in ("-f", str(path))]
        options += [part for param in case.params for part in ("-P", param)]
        failures: list[Failure] = []
        codes: dict[str, object] = {}
        for door in doors:
            try:
                answer = self._timed([*door, *options])
                codes[" ".join(door[:3])] = answer.code
                if self.clock.slow_at and not _is_large(case):
                    raise Broken(f"slow in {self.clock.slow_at}", f"more than {SLOW_S} s of CPU time")
                _judge(case, door, answer, rng)
                _agree(codes)
            except Overtime:
                kind = f"slow in {self.clock.slow_at}"
                failures.append(Failure(kind, door, f"more than {HOPELESS_S} s of CPU time"))
            except Broken as fault:
                failures.append(Failure(str(fault.args[0]), door, str(fault.args[1])[:4_000]))
            except Exception as fault:  # noqa: BLE001 - anything that a call raises is a finding
                failures.append(Failure(kind_of(fault), door, traceback.format_exc()[-6_000:]))
        for path in paths:
            path.unlink()
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10 > PEAK_MIB:
            failures.append(Failure("memory", doors[-1], f"the process grew beyond {PEAK_MIB} MiB"))
        return failures, codes

    def _timed(self, arguments: Sequence[str]) -> Answer:
        """A slow call is made again: the first may have imported something, or shared its core."""
        for _ in range(2):
            with self.clock:
                answer = call(arguments)
            if not self.clock.slow_at:
                break
        return answer


def _agree(codes: dict[str, object]) -> None:
    """A file that `check` accepts can be converted. `check` also plans the first experiment of a group."""
    checked = {code for door, code in codes.items() if door in ("check", "check --json")}
    converted = {code for door, code in codes.items() if door.startswith("convert")}
    if 0 in checked and converted - {0}:
        raise Broken("check and convert disagree", f"exit codes {checked} and {converted}")


def _judge(case: Case, door: Door, answer: Answer, rng: Random) -> None:
    text = answer.out + answer.err
    if answer.code not in (0, 1, 2):
        raise Broken(f"exit code {answer.code} of {door[0]}", text)
    if "Traceback (most recent" in answer.err or "internal error" in answer.err or "cannot write the output" in text:
        raise Broken(f"words of an internal error from {door[0]}", answer.err)
    if "--json" in door:
        _judge_json(answer)
    elif answer.code != 0 and "error" not in answer.err:
        raise Broken(f"{door[0]} fails without an error", text)
    if ("--on" not in door or door[0] == "check") and (found := _CONTROL.search(text)):
        raise Broken(f"control characters in the output of {door[0]}", f"{found[0]!r} in {text!r}")
    if "\\n" in answer.err and not _has_line_breaks(case):
        raise Broken(f"an escaped line break in a message of {door[0]}", answer.err)
    if answer.code == 0 and "--json" not in door:
        _judge_text(case, door, answer.out, rng)


def _judge_json(answer: Answer) -> None:
    try:
        parsed = json.loads(answer.out, parse_constant=_refuse)
    except ValueError as fault:
        raise Broken("invalid JSON", f"{fault}: {answer.out[:1_000]}") from None
    errors = parsed.get("errors", ())
    if answer.code != 0 and not errors:
        raise Broken("JSON fails without an error", answer.out)
    if not all(error["message"] for error in errors):
        raise Broken("an error without a message", answer.out)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _judge_text(case: Case, door: Door, out: str, rng: Random) -> None:
    if door[0] == "convert":
        _judge_converted(case, out)
    elif door[1:3] == ("--on", "slurm") and door[0] == "plan" and rng.random() < SHELL_SHARE:
        done = subprocess.run(["bash", "-n"], input=out.encode(), capture_output=True, check=False)
        if done.returncode != 0:
            raise Broken("bash cannot read the script", f"{done.stderr.decode(errors='replace')}\n{out}")
    elif door[0] == "plan" and door[2:3] in (("kubernetes",), ("kubeflow",)) and rng.random() < YAML_SHARE:
        try:
            objects = list(yaml.load_all(out, Loader=Loader))
        except yaml.YAMLError as fault:
            raise Broken("YAML cannot read the manifests", f"{fault}\n{out[:2_000]}") from None
        if not all(isinstance(each, dict) and each.get("kind") for each in objects):
            raise Broken("a manifest without kind", out[:2_000])


def load_case(case: Case) -> Spec:
    """The spec that the command line loads."""
    texts = [(f"{number}.{ending}", text) for number, (ending, text) in enumerate(case.files)]
    return spec.load(texts, parse_params(case.params), inspect=plan.inspect)


def _is_large(case: Case) -> bool:
    """Whether the work is in proportion: thousands of replicas take their time."""
    try:
        return len(plan.make(load_case(case), "fuzz").replicas) > MANY_REPLICAS
    except phalanx.errors.PhalanxError:
        return False


def _judge_converted(case: Case, out: str) -> None:
    first = load_case(case)
    try:
        second = load_case(Case((("yml", out.encode()),)))
    except phalanx.errors.SpecErrors as fault:
        raise Broken("convert prints a file that is refused", f"{fault}\n---\n{out}") from None
    if first != second and _shown(first) != _shown(second):
        raise Broken("convert changes the meaning", f"{_shown(first)}\n{_shown(second)}\n---\n{out}")
    if to_yaml(modern_document(second)) != out:
        raise Broken("convert changes its own output", f"{out}\n---\n{to_yaml(modern_document(second))}")


def _shown(loaded: Spec) -> str:
    """As text without the notes: NaN is not equal to itself."""
    names = [name for name in Spec.__slots__ if name not in ("document", "notes", "places")]
    shown = "\n".join(f"{name}={getattr(loaded, name)!r}" for name in names)
    return re.sub(r"notes=\(.*?\)|Location\(.*?\)", "", shown)


def _has_line_breaks(case: Case) -> bool:
    """Whether a message may quote a line break of the user."""
    if any("\n" in param or "\\" in param for param in case.params):
        return True
    for _, text in case.files:
        if b"\\" in text or not text.isascii():
            return True
        with suppress(yaml.YAMLError, UnicodeDecodeError):
            events: Any = yaml.parse(text.decode(), Loader=Loader)
            if any("\n" in (getattr(event, "value", None) or "") for event in events):
                return True
    return False
