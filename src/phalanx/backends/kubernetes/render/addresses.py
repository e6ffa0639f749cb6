"""Addresses and folders on Kubernetes. They are known before anything runs, because the pod names are chosen here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from phalanx.placeholders import Hole, Value, fill
from phalanx.plan.model import Plan
from phalanx.plan.variable_limit import AddressLengths


@dataclass(frozen=True)
class AddressTables:
    """The values for the holes of a plan, by kind, in the format of the agent's facts; `*` is the fallback."""

    host: Mapping[str, str]
    port: Mapping[str, int]
    path: Mapping[str, str]
    # Lists of all addresses are long and appear in every template, so a value is filled once per plan.
    _filled: dict[str, tuple[Plan, dict[Value, str]]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def lengths(self) -> AddressLengths:
        return AddressLengths(*(min(len(str(one)) for one in table.values()) for table in (self.host, self.port)))

    def answer(self, hole: Hole) -> str:
        if hole.kind == "interface":
            return ""  # pods have one network, whose name only they know
        table: Mapping[str, object] = {"host": self.host, "port": self.port, "path": self.path}[hole.kind]
        return str(table[hole.of] if hole.of in table else table["*"])

    def text(self, made: Plan, value: Value) -> str:
        if isinstance(value, str):
            return value
        known, texts = self._filled.get(made.run_id, (made, {}))
        if known is not made:
            texts = {}
        if value not in texts:
            texts[value] = fill(value, made.members, self.answer)
        self._filled[made.run_id] = (made, texts)
        return texts[value]
