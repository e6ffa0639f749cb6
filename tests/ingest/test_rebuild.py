"""A database made again from the folders says what the one before said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.ingest import adoption
from phalanx.store import Store
from phalanx.store.rows import replica_row, run_row, status_row
from tests.scheduler.working import Works

TAGGED = "python -c \"from phalanx import tracking; tracking.tags('seen'); tracking.describe(description='a try')\""


@pytest.fixture(name="works")
def works_fixture(tmp_path: Path) -> Iterator[Works]:
    works = Works(tmp_path)
    yield works
    works.close()


def contents(store: Store, run_id: str) -> dict[str, Any]:
    run = store.find(run_id)
    return {
        "run": run_row(run),
        "statuses": [status_row(change) for change in store.statuses(run_id)],
        "replicas": [
            replica_row(replica) for attempt in range(1, run.attempt + 1) for replica in store.replicas(run_id, attempt)
        ],
        "facts": store.facts(run_id),
        "labels": store.labels(run_id),
    }


def rebuilt(works: Works, run_id: str) -> dict[str, Any]:
    works.store.clear()
    run = works.run_folder(run_id).read()
    assert run is not None
    adoption.index(works.home, works.store, run)
    return contents(works.store, run_id)


def test_the_time_of_the_last_change_is_kept_for_a_run_whose_code_set_tags(works: Works) -> None:
    run_id = works.submit(TAGGED)
    assert works.settle(run_id).tags == ("seen",)
    before = contents(works.store, run_id)
    assert rebuilt(works, run_id) == before


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_failure_of_an_earlier_attempt_is_kept(works: Works, attempts: int) -> None:
    """Also when a later attempt succeeded, and that of the last one where all failed."""
    works_at = "test $PHALANX_ATTEMPT = 2" if attempts == 1 else "false"
    run_id = works.submit(f"echo attempt $PHALANX_ATTEMPT; {works_at}", workers=1, max_restarts=1)
    assert works.settle(run_id).status == ("succeeded" if attempts == 1 else "failed")
    before = contents(works.store, run_id)
    assert before["facts"]["failure"]["attempt"] == attempts
    assert rebuilt(works, run_id) == before


def test_a_resumed_run_keeps_the_failure_of_the_attempt_before(works: Works) -> None:
    from phalanx.submission.resume import request_resume

    run_id = works.submit("test $PHALANX_ATTEMPT = 2")
    request_resume(works.home, works.settle(run_id), {})
    works.turn_until(lambda: works.run(run_id).status == "succeeded")
    before = contents(works.store, run_id)
    assert before["facts"]["failure"]["attempt"] == 1
    assert rebuilt(works, run_id) == before


def test_a_stopped_attempt_has_no_failure(works: Works) -> None:
    run_id = works.submit("sleep 600")
    works.turn_until(lambda: works.run(run_id).status == "running")
    works.run_folder(run_id).ask_to_stop("by its user")
    assert works.settle(run_id).status == "stopped"
    before = contents(works.store, run_id)
    assert rebuilt(works, run_id) == before
