"""TensorFlow: TF_CONFIG, with the name of the master's task that the code expects.

TensorFlow 2's strategies reject a task `master`; TensorFlow 1 code and Polyaxon's contract do not know `chief`.
The file decides with `replicas.master_task`; else a TensorFlow 1 named in `build` means `master`; else `chief`.

With parameter servers, TensorFlow 2's chief sends the work to the workers, which only serve (`server.join()`): the run
ends with the chief. Workers of TensorFlow 1 train themselves: the run waits for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from phalanx.placeholders import path
from phalanx.plan.frameworks import Each, Framework, Hole, MemberKind, ProcessGroup, Value, Wiring, by_kind, own
from phalanx.spec.model import Build

_IMAGE = re.compile(r"tensorflow[^:\s]*:v?(\d+)\.")
_PIN = re.compile(r"\btensorflow(?:[-_](?:cpu|gpu))?\s*(==|~=|>=|<=|<)\s*(\d+)(?:\.(\d+))?")


def major_version(build: Build | None) -> int | None:
    """The major version of TensorFlow in the build: from its image or a pinned install."""
    if build is None:
        return None
    for step in build.build_steps:
        pin = _PIN.search(step)
        if pin:
            below_major = pin[1] == "<" and int(pin[3] or 0) == 0  # `<2` and `<2.0` exclude all of 2
            return int(pin[2]) - 1 if below_major else int(pin[2])
    image = _IMAGE.search(build.image or "")
    return int(image[1]) if image else None


def master_task(gang: ProcessGroup) -> tuple[str, str]:
    """The name of the master in TF_CONFIG, and the reason."""
    if gang.replicas.master_task:
        return gang.replicas.master_task, "the file says so"
    version = major_version(gang.build)
    if version == 1:
        return "master", "the build names TensorFlow 1"
    return "chief", "the build names TensorFlow 2" if version else "the build names no TensorFlow 1"


def wire(gang: ProcessGroup) -> Wiring:
    task, why = master_task(gang)
    names = {"master": task}
    parts: list[str | Hole | Each] = []
    for role, count in gang.roles.items():
        if count or task == "master":  # Polyaxon listed empty roles too; TensorFlow 2 does not accept them
            parts += [", " if parts else "", f'"{names.get(role, role)}": [', gang.addresses(role), "]"]
    cluster = ('{"cluster": {', *parts, '}, "task": ')

    rest = (', "model_dir": "', path("outputs"), '", "environment": "cloud"}')

    def config(kind: MemberKind) -> Mapping[str, Value]:
        task = (f'{{"type": "{names.get(kind.role, kind.role)}", "index": ', own("index"), "}")
        return {"TF_CONFIG": (*cluster, *task, *rest)}

    other = "master" if task == "chief" else "chief"
    said = f"TF_CONFIG names the master `{task}`: {why} (`environment.replicas.master_task: {other}` for the other)"
    notes = [("environment.replicas", said)]
    if gang.replicas.delay_workers_by_global_step:
        unused = "`delay_workers_by_global_step` has no effect: the estimator delays its workers itself"
        notes.append(("environment.replicas", unused))
    serving = ("worker", "ps") if task == "chief" and gang.roles["ps"] else ("ps",)
    return Wiring({}, by_kind(config), meets=tuple(gang.roles), serving=serving, notes=tuple(notes))


FRAMEWORK = Framework(
    wire,
    ps_role="ps",
    symptoms=(
        "UnavailableError",
        "UNAVAILABLE",
        "AbortedError",
        "[Cc]oordination ?[Ss]ervice",
        "coordination agent",
        "CollectiveRe(?:duce|mote)",
        "Connection reset by peer",
        "Socket closed",
    ),
)
