"""The pods in which a launcher (mpirun) starts its ranks. They report no ends: the launcher fails when one is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.backends.kubernetes.observe import states
from phalanx.backends.kubernetes.observe.attempt_objects import (
    Object,
    deleted_at,
    is_node_away,
    members_of,
    meta_of,
    node_of,
)
from phalanx.backends.kubernetes.observe.states import PodEnd, evicted_by, pod_end
from phalanx.ends import Cause

HOSTLESS_S = 30.0  # for a launcher to end after it has lost a pod of its ranks


class LauncherHosts:
    """`present`: the pods that only host ranks. Others, with a replica of their own, are also watched for losses."""

    def __init__(self) -> None:
        self.present: list[Object] = []
        self.taken: dict[str, tuple[float, PodEnd]] = {}  # by uid: since when a pod is lost, and how
        self._seen: dict[str, Object] = {}  # by uid, also those that are gone

    def watch(
        self, here: Mapping[str, Object], ranks: Mapping[str, Object], works: Sequence[Object], now: float
    ) -> None:
        """Keep which pods are deleted, or lose their node, while the launcher runs. `here`: the pods that exist;
        `ranks`: those with a replica. An operator replaces a deleted pod at once, and deletes all of them when the
        launcher has ended, so this must not be called then."""
        self._seen |= {_uid(pod): pod for pod in self.present} | dict(ranks)
        for uid, last in self._seen.items():
            pod = here.get(uid, last)
            if uid not in here or deleted_at(pod) is not None:
                end = evicted_by(pod, works) or PodEnd(Cause.LOST, states.DELETED, is_outside=True)
            elif is_node_away(pod):
                end = PodEnd(Cause.LOST, f"node {node_of(pod)} is not ready", is_outside=True)
            else:
                self.taken.pop(uid, None)
                continue
            if uid in here or uid not in self.taken:
                self.taken[uid] = (now, end)

    def lost(self, works: Sequence[Object], now: float) -> dict[str, PodEnd]:
        """The ends that explain the failure of a launcher, by replica."""
        ends = {members_of(pod)[0]: pod_end(pod, works) for pod in self.present}
        lost = {name: end for name, end in ends.items() if end is not None and is_own_fault(end)}
        recent = {uid: end for uid, (at, end) in self.taken.items() if now - at < HOSTLESS_S}
        return lost | {members_of(self._seen[uid])[0]: end for uid, end in recent.items()}


def is_own_fault(outcome: PodEnd) -> bool:
    """Whether the end of a rank's pod says more than the launcher's will."""
    return outcome.is_outside or outcome.cause in (Cause.MEMORY, Cause.SETUP)


def _uid(pod: Object) -> str:
    return str(meta_of(pod).get("uid"))
