"""Records of the store as JSON, with fields that only the server adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phalanx.insight.wait_reasons import waits_for
from phalanx.spec import Kind
from phalanx.store import Artifact, Run, Store, Summary
from phalanx.store.rows import run_row


def waiting_rows(store: Store, runs: Sequence[Run]) -> list[dict[str, Any]]:
    waits, searches = waits_for(store, runs), searches_of(store, runs)
    return [{**run_row(run), "waits_for": waits.get(run.id), **searches.get(run.id, {})} for run in runs]


def searches_of(store: Store, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """How far the searches of groups are, as `search`."""
    groups = [run.id for run in runs if run.kind == Kind.GROUP]
    found = store.facts_of(groups, "search") if groups else {}
    return {
        run_id: {"search": {name: value for name, value in fact.items() if name != "recent"}}
        for run_id, fact in found.items()
        if isinstance(fact, dict)
    }


def waiting_row(store: Store, run: Run) -> dict[str, Any]:
    return waiting_rows(store, [run])[0]


def artifact_row(artifact: Artifact) -> dict[str, Any]:
    return {**artifact._asdict(), "at": artifact.at.isoformat()}


def summary_rows(summaries: Mapping[str, Summary]) -> dict[str, Any]:
    return {name: summary._asdict() for name, summary in summaries.items()}
