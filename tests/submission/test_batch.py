"""Many runs of one call: all of them are queued, or none; what is killed leaves whole runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import CallError
from phalanx.run_paths import RECORDS
from phalanx.submission.batch import SubmissionBatch
from phalanx.submission.model import Remark, Submission
from tests.scheduler.working import Works
from tests.submission.samples import submission_of

FILE = {"version": 1, "kind": "job", "params": {"seed": 1}, "run": {"cmd": "true"}}


@pytest.fixture
def said() -> list[Remark]:
    return []


@pytest.fixture
def batch(works: Works, said: list[Remark]) -> Iterator[SubmissionBatch]:
    with closing(SubmissionBatch(works.home, works.store, said.append, ["phalanx", "run"])) as found:
        yield found


def of(content: dict[str, Any], folder: Path, **params: int) -> Submission:
    return submission_of({**content, "params": {**content["params"], **params}}, folder=folder)


def hidden(works: Works) -> list[str]:
    return [path.name for path in works.home.runs.iterdir() if path.name.startswith(".")]


def test_nothing_appears_before_all_are_checked(works: Works, batch: SubmissionBatch, tmp_path: Path) -> None:
    batch.add(of(FILE, tmp_path), times=2)
    batch.add(of(FILE, tmp_path, seed=7))
    assert works.home.run_ids() == []
    assert works.store.runs() == []
    runs = list(batch.publish())
    assert [run.params["seed"] for run in runs] == [1, 1, 7]
    assert {run.id for run in works.store.runs()} == {run.id for run in runs} == set(works.home.run_ids())
    assert works.settle(*(run.id for run in runs)).status == "succeeded"


def test_a_refused_run_leaves_nothing_of_the_others(works: Works, batch: SubmissionBatch, tmp_path: Path) -> None:
    batch.add(of(FILE, tmp_path), times=3)
    greedy = {**FILE, "environment": {"resources": {"cpu": {"requests": 1e6}}}}
    with pytest.raises(CallError, match="requests more"):
        batch.add(replace(of(greedy, tmp_path), is_strict=True))
    assert len(hidden(works)) == 3
    batch.close()
    assert hidden(works) == []
    assert list(works.home.environments.iterdir()) == []


def test_a_call_killed_in_between_leaves_whole_runs(works: Works, batch: SubmissionBatch, tmp_path: Path) -> None:
    batch.add(of(FILE, tmp_path), times=3)
    (first, _), *_ = batch.drafts
    first.publish()  # and the process is killed before there is a row
    batch.drafts = []
    works.scheduler.adopt()
    run = works.settle(first.run.id)
    assert run.status == "succeeded"
    assert len(hidden(works)) == 2, "`Home.tidy` removes them when they are old"
    assert [found.id for found in works.store.runs()] == [run.id]


def test_the_environment_and_provenance_of_alike_runs_are_kept_once(
    works: Works, batch: SubmissionBatch, tmp_path: Path
) -> None:
    batch.add(of(FILE, tmp_path), times=2)
    batch.add(of(FILE, tmp_path, seed=7))
    runs = list(batch.publish())
    files = [works.home.run(run.id).path / RECORDS for run in runs]
    assert [json.loads(file.read_text())["seeds"].get("seed") for file in files] == [1, 1, 7]
    assert files[0].samefile(files[1])
    kept = [works.home.environments / f"{run.id}.json" for run in runs]
    assert kept[0].samefile(kept[2])
    assert kept[0].stat().st_mode & 0o777 == files[0].stat().st_mode & 0o777 == 0o600


def test_a_remark_about_all_is_made_once(
    works: Works, batch: SubmissionBatch, said: list[Remark], tmp_path: Path
) -> None:
    file = {**FILE, "build": {"image": "python:3"}}
    batch.add(of(file, tmp_path), times=5)
    assert len([remark for remark in said if "not in the image" in str(remark.about)]) == 1


def test_runs_with_the_same_build_wait_for_one(works: Works, batch: SubmissionBatch, tmp_path: Path) -> None:
    file = {**FILE, "build": {"build_steps": ["true"]}}
    for seed in (1, 2):
        batch.add(replace(of(file, tmp_path, seed=seed), is_built=True), times=2)
    runs = list(batch.publish())
    assert [run.status for run in runs] == ["building"] * 4
    (build,) = (run for run in works.store.runs() if run.kind == "build")
    assert {change.status for run in runs for change in works.home.run(run.id).history()} == {"created", "building"}
    assert all(build.id in works.home.run(run.id).history()[1].reason for run in runs)
