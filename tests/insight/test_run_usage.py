from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.insight.run_usage import SPOOLS_READ, given_gpus, read_usage, uses_of
from tests.insight.samples import end, file, notes, plan_json, planned, write_attempt

IDLE = [{"index": 0, "percent": 1.0, "memory_mib": 3.0, "total_mib": 40_960.0}]


def test_a_run_is_collected_from_its_folder(tmp_path: Path) -> None:
    document = file({"replicas": {"n_workers": 1, "processes": 2}}, framework="pytorch")
    (tmp_path / "plan.json").write_text(plan_json(document))
    (tmp_path / "job").mkdir()
    given = {"master-0": ["0"], "master-0.1": ["0"], "worker-0": [], "worker-0.1": []}
    (tmp_path / "job" / "attempt-1.json").write_text(json.dumps({"gpus": given}))
    for name in given:
        write_attempt(tmp_path, name, notes((5, 5, 10), (10, 10, 30), gpus=IDLE), end(10, cpu_s=10, memory_mib=30))
    seen = read_usage(tmp_path, status="succeeded", is_batch=False, attempt=1)
    assert seen.given == {("master", 0): 1, ("worker", 0): 0}
    assert seen.uses.keys() == {("master", 0), ("worker", 0)}
    use = seen.uses["master", 0]
    assert (use.cores_p95, use.memory_mib) == (2.0, 60)  # its two processes together
    assert use.gpu is not None
    assert (use.gpu.gpus, use.gpu.active, use.gpu.looks) == (1, 0, 4)


def test_of_a_trial_the_gpus_count_when_it_was_warm(tmp_path: Path) -> None:
    busy = [{**IDLE[0], "percent": 80.0}]
    rows = [*notes((1, 1, 10), (4, 4, 10), gpus=IDLE), *notes((6, 6, 10), (9, 9, 10), gpus=busy)[2:]]
    write_attempt(tmp_path, "master-0", rows, end(10, cpu_s=10, memory_mib=10))
    plan = planned(file({}))
    (whole,) = uses_of(tmp_path, plan).values()
    (warm,) = uses_of(tmp_path, plan, is_trial=True).values()
    assert whole.gpu is not None
    assert warm.gpu is not None
    assert (whole.gpu.mean_percent, warm.gpu.mean_percent) == (40.5, 80.0)


def test_of_very_many_replicas_most_are_known_by_their_ends(tmp_path: Path) -> None:
    count = 2 * SPOOLS_READ
    plan = planned(file({"replicas": {"n_workers": count - 1}}, framework="pytorch"))
    for replica in plan.replicas:
        write_attempt(tmp_path, replica.name, notes((5, 10, 10), (10, 10, 10)), end(10, cpu_s=10, memory_mib=50))
    uses = uses_of(tmp_path, plan)
    assert len(uses) == count
    assert {use.memory_mib for use in uses.values()} == {50}
    assert sum(use.cores_p95 == 2.0 for use in uses.values()) == SPOOLS_READ


@pytest.mark.parametrize("facts", ["", "[]", '{"gpus": null}', '{"gpus": {"master-0": "0"}}'])
def test_what_was_given_is_unknown_where_no_one_wrote_it_down(tmp_path: Path, facts: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "attempt-1.json").write_text(facts)
    assert given_gpus(tmp_path, 1, planned(file({}))) == {}
