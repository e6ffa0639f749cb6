"""Pods that cannot start for a reason that does not resolve by itself: after a timeout their replicas fail."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.backends.kubernetes.observe.attempt_objects import AttemptObjects, is_build, meta_of
from phalanx.backends.kubernetes.observe.pending import obstacles
from phalanx.backends.kubernetes.observe.states import PodEnd
from phalanx.ends import Cause

GIVE_UP_S = 600.0
LOOK_S = 5.0  # between checks of all pending pods


class StuckPodTracker:
    """Tracks since when the pods of one attempt cannot start. After a restart of this process the count starts
    again."""

    def __init__(self, give_up_s: float = GIVE_UP_S) -> None:
        self.give_up_s = give_up_s
        self._since: dict[str, float] = {}
        self._looked_at = float("-inf")

    def overdue(self, group: AttemptObjects, now: float) -> Iterator[tuple[str, PodEnd]]:
        """The uids of pods whose timeout has passed, and their ends; "" stands for pods that were never created."""
        if now - self._looked_at < min(LOOK_S, self.give_up_s / 2):
            return
        self._looked_at = now
        found = obstacles(group)
        self._since = {uid: self._since.get(uid, now) for uid in found}
        builds = {str(meta_of(pod).get("uid")) for pod in group.pods if is_build(pod)} | (
            {""} if group.builds else set()
        )
        for uid, words in found.items():
            if now - self._since[uid] >= self.give_up_s:
                what = "its image could not be built" if uid in builds else "it could not start"
                yield uid, PodEnd(Cause.SETUP, f"{what} in {_time(self.give_up_s)}: {words}")


def _time(span_s: float) -> str:
    return f"{span_s / 60:.3g} minutes" if span_s >= 120 else f"{span_s:g} s"
