"""Records of the store as JSON, with fields that only the server adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phalanx.insight.wait_reasons import waits_for
from phalanx.store import Artifact, Run, Store, Summary
from phalanx.store.kinds import GROUP, PIPELINE
from phalanx.store.rows import run_row


def waiting_rows(store: Store, runs: Sequence[Run]) -> list[dict[str, Any]]:
    waits, progress = waits_for(store, runs), progress_of(store, runs)
    return [{**run_row(run), "waits_for": waits.get(run.id), **progress.get(run.id, {})} for run in runs]


def progress_of(store: Store, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """How far groups are, as `search`, and pipelines, as `pipeline`."""
    shown: dict[str, dict[str, Any]] = {}
    for kind, fact in {GROUP: "search", PIPELINE: "pipeline"}.items():
        wanted = [run.id for run in runs if run.kind == kind]
        found = store.facts_of(wanted, fact) if wanted else {}
        for run_id, value in found.items():
            if isinstance(value, dict):
                shown[run_id] = {fact: {name: part for name, part in value.items() if name != "recent"}}
    return shown


def waiting_row(store: Store, run: Run) -> dict[str, Any]:
    return waiting_rows(store, [run])[0]


def artifact_row(artifact: Artifact) -> dict[str, Any]:
    return {**artifact._asdict(), "at": artifact.at.isoformat()}


def summary_rows(summaries: Mapping[str, Summary]) -> dict[str, Any]:
    return {name: summary._asdict() for name, summary in summaries.items()}
