"""Addresses and folders on Kubernetes. They are known before anything runs: names of pods are ours to choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.placeholders import Hole, Value, fill
from phalanx.plan.model import Plan


class Tables(NamedTuple):
    """What fills the holes of a plan, by kind, as the agent's facts have them: `*` is for whatever is not named."""

    host: Mapping[str, str]
    port: Mapping[str, int]
    path: Mapping[str, str]

    def answer(self, hole: Hole) -> str:
        if hole.kind == "interface":
            return ""  # pods have one network, whose name only they know
        table: Mapping[str, object] = {"host": self.host, "port": self.port, "path": self.path}[hole.kind]
        return str(table[hole.of] if hole.of in table else table["*"])

    def text(self, made: Plan, value: Value) -> str:
        return fill(value, made.members, self.answer)
