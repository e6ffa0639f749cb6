"""What runs wait for, in words: other runs, or the queue of a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.store import DONE, Run, Store


def waits_for(store: Store, runs: Iterable[Run]) -> dict[str, str]:
    """By the id of each run that waits. The scheduler stores the words."""
    wanted = [run.id for run in runs if run.status not in DONE]
    facts = store.facts_of(wanted, "waiting") if wanted else {}
    return {run_id: str(fact["why"]) for run_id, fact in facts.items() if isinstance(fact, dict) and fact.get("why")}
