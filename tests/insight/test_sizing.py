from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import spec
from phalanx.insight.core_limits import busy_s, held_to_cores
from phalanx.insight.sizing import PAYS, Cost, Trial, combinations, label, recommend
from phalanx.insight.sizing_report import SizingReport
from phalanx.insight.throughput import Pace, Speeds
from phalanx.spec.yaml_writer import to_yaml
from tests.insight.samples import file, gpu, planned


def trial(speed: float | None, *, cpu: float = 1, gpus: float = 0, memory: float = 0, **fields: Any) -> Trial:
    choice = {"cpu": cpu, **({"gpu": gpus} if gpus else {}), **({"memory": memory} if memory else {})}
    speeds = Speeds({"loss": Pace(10, speed, 0.5)}, None, None) if speed is not None else None
    usual: dict[str, Any] = {"state": "measured", "reason": "ended by its time", "seconds": 60.0, "cores_p95": cpu}
    return Trial(choice, Cost(gpus, cpu, memory), "run", speeds=speeds, **{**usual, **fields})


def found(*trials: Trial, within: float = 0.9, **fields: Any) -> SizingReport:
    return SizingReport(trials, within, **fields)


def text(findings: SizingReport) -> str:
    return "\n".join(findings.sentences())


def test_every_combination_is_tried_the_smallest_first() -> None:
    assert combinations({"cpu": [2, 1, 2], "memory": [512]}) == [{"cpu": 1, "memory": 512}, {"cpu": 2, "memory": 512}]
    assert label({"cpu": 0.5, "memory": 1536, "gpu": 1}) == "cpu=0.5 memory=1.5Gi gpu=1"


def test_the_smallest_that_is_nearly_as_fast_is_recommended() -> None:
    findings = found(trial(10, cpu=1), trial(19, cpu=2), trial(20, cpu=4))
    assert findings.verdict == (1, 2, 2, 0)
    assert "cpu=2 is the smallest that is fast enough: 95 % of the best, cpu=4" in text(findings)
    assert "the next larger, cpu=4, brings 5 % more" in text(findings)
    assert "the next smaller, cpu=1, is 47 % slower" in text(findings)
    assert found(trial(10), trial(19, cpu=2), trial(20, cpu=4), within=0.99).verdict == (2, 2, None, 1)


def test_a_gpu_is_dearer_than_any_number_of_cores_and_those_than_memory() -> None:
    assert found(trial(20, cpu=1, gpus=1), trial(19, cpu=64)).verdict == (1, 0, 0, None)
    assert found(trial(20, cpu=2), trial(19, cpu=1, memory=1e6)).verdict == (1, 0, 0, None)
    assert found(trial(20, cpu=1, memory=512), trial(20, cpu=1, memory=1024)).verdict == (0, 0, 1, None)


def test_when_nothing_smaller_is_fast_enough_the_fastest_is_it() -> None:
    said = text(found(trial(10, cpu=1), trial(20, cpu=2), trial(15, cpu=4)))
    assert "cpu=2 is the fastest, and no smaller one is within 90 % of it" in said
    assert "the next larger, cpu=4, is even slower" in said
    assert "cpu=1 is both the smallest and the fastest" in text(found(trial(20), trial(20, cpu=2)))


def test_a_gpu_that_stayed_idle_is_said_plainly() -> None:
    idle = trial(20, cpu=1, gpus=1, gpu=gpu(mean_percent=1.0, active=0))
    said = text(found(trial(19, cpu=1), idle))
    assert "cpu=1 gpu=1: the GPU stayed idle (1 % busy on average): others could use it" in said
    busy = trial(200, cpu=1, gpus=1, gpu=gpu())
    assert "colleague" not in text(found(trial(19, cpu=1), busy))
    glimpsed = trial(20, cpu=1, gpus=1, gpu=gpu(mean_percent=0.0, looks=1))
    assert "use a longer --for" in text(found(glimpsed))


def test_trials_that_failed_are_no_evidence() -> None:
    killed = trial(None, cpu=1, memory=64, state="memory", reason="killed at 70 of 64 MiB")
    findings = found(killed, trial(10, cpu=1, memory=128), trial(10, cpu=1, memory=256))
    assert findings.verdict == (1, 1, 2, None)
    assert findings.note(0) == "too little memory: killed at 70 of 64 MiB"


def test_a_trial_that_took_more_cores_than_it_asked_for_says_nothing_of_them() -> None:
    loose = trial(20, cpu=1, cores_p95=2.0)
    assert found(loose, trial(20, cpu=2)).verdict == (1, 1, None, None)
    findings = found(loose)
    assert findings.verdict is None
    assert "every trial used more cores than requested" in text(findings)


def test_a_single_one_has_nothing_to_compare_with() -> None:
    assert "no other to compare it with" in text(found(trial(10), trial(None, cpu=2, state="failed", reason="oh")))


@pytest.mark.parametrize(
    ("trials", "metric", "words"),
    [
        ([trial(None, state="failed", reason="no")], None, "no trial ran long enough"),
        ([trial(5)], "samples", "no trial tracked `samples` in its second half"),
        ([trial(None)._replace(speeds=Speeds({}, None, None))], None, "the program tracks nothing, did not finish"),
    ],
)
def test_it_refuses_to_recommend_without_evidence(trials: list[Trial], metric: str | None, words: str) -> None:
    findings = found(*trials, metric=metric)
    assert findings.verdict is None
    assert words in text(findings)
    assert findings.as_data()["ok"] is False


def test_lines_of_log_are_said_to_be_weak() -> None:
    talking = trial(None)._replace(speeds=Speeds({}, None, 3.0))
    assert "by log lines per second, which is unreliable" in text(found(talking, talking._replace(choice={"cpu": 2})))


def test_what_was_interrupted_is_said() -> None:
    cut = trial(None, cpu=2, state="interrupted", reason="interrupted")
    said = text(found(trial(9), cut, not_run=[{"cpu": 4}]))
    assert "interrupted: these are the results so far; 1 trials were not started" in said


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(0, 1e6)),
            st.floats(0.1, 64),
            st.integers(0, 4),
            st.sampled_from(["measured", "failed"]),
        ),
        max_size=12,
    ),
    st.floats(0.01, 1),
)
def test_nothing_cheaper_than_the_recommended_one_is_fast_enough(rows: list[Any], within: float) -> None:
    trials = [trial(speed, cpu=cpu, gpus=gpus, state=state) for speed, cpu, gpus, state in rows]
    speeds = [row[0] for row in rows]
    verdict = recommend(trials, speeds, within)
    indices = [n for n, row in enumerate(rows) if row[0] and row[3] == "measured"]
    assert (verdict is None) == (not indices)
    if verdict is not None:
        best = max(speeds[n] for n in indices)
        assert speeds[verdict.best] == best
        without = [n for n in indices if not trials[n].cost.gpus]
        fair = max((speeds[n] for n in without), default=0)
        pays = not without or best >= PAYS * fair
        measured = best if pays else fair
        assert speeds[verdict.chosen] >= within * measured
        asked = indices if pays else without
        assert all(trials[n].cost >= trials[verdict.chosen].cost for n in asked if speeds[n] >= within * measured)


def test_a_gpu_must_pay_for_what_it_blocks() -> None:
    slow, fast = trial(10), trial(12, gpus=1)
    verdict = recommend([slow, fast], [10, 12], 0.9)
    assert verdict is not None
    assert (verdict.chosen, verdict.best) == (0, 1)
    assert "better left to others" in text(found(slow, fast))
    verdict = recommend([slow, trial(16, gpus=1)], [10, 16], 0.9)
    assert verdict is not None
    assert verdict.chosen == 1


def test_a_machine_that_was_busy_with_other_work_gives_rough_speeds() -> None:
    assert "rough" not in text(found(trial(10, others_cores=0.1), trial(20, cpu=2)))
    disturbed = found(trial(10, others_cores=1.3), trial(20, cpu=2))
    assert "other work used up to 1.3 cores" in text(disturbed)
    assert disturbed.note(0) == "other work used 1.3 cores meanwhile"


def test_what_cores_did_is_read_from_the_kernel(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  1 1 1 1 1 1 1 1 1 1\n"
        "cpu0 100 20 30 9999 9999 1 2 47 50 0\n"
        "cpu1 300 0 0 9999 0 0 0 0 0 0\n"
        "cpu10 9999 0 0 0 0 0 0 0 0 0\n"
        "intr 12\n"
    )
    ticks = os.sysconf("SC_CLK_TCK")
    assert busy_s({0, 1}, stat) == pytest.approx(500 / ticks)
    assert busy_s({7}, stat) is None
    assert busy_s({0}, tmp_path / "nothing") is None
    assert (busy_s(os.sched_getaffinity(0)) or 0) > 0


# holding them to their cores -----------------------------------------------------------------------------------------


def command_of(document: dict[str, Any]) -> str:
    loaded = spec.load([("file", to_yaml(document).encode())])
    assert loaded.command is not None
    return loaded.command


def test_a_replica_runs_on_the_cores_that_it_asks_for() -> None:
    document = file({"resources": {"cpu": {"requests": 1}}}, run={"cmd": "taskset -cp $$"})
    held = held_to_cores(document, planned(document), [0, 1], "taskset")
    assert held is not None
    answer = subprocess.run(["bash", "-c", command_of(held)], capture_output=True, text=True, check=True)
    assert answer.stdout.rstrip().endswith(": 0")


def test_each_replica_has_cores_of_its_own() -> None:
    environment = {
        "resources": {"cpu": {"requests": 2}},
        "replicas": {"n_workers": 2, "default_worker": {"resources": {"cpu": {"limits": 1.5}}}},
    }
    document = file(environment, framework="pytorch", run={"cmd": ["echo a", "echo b"]})
    held = held_to_cores(document, planned(document), range(6), "/usr/bin/taskset")
    assert held is not None
    assert held["run"]["cmd"][1:] == ["echo a", "echo b"]
    for name, cores in (("master-0", "0,1"), ("worker-0", "2,3"), ("worker-1", "4,5")):
        assert f"{name}) /usr/bin/taskset -cp {cores} $$;;" in command_of(held)
    assert held_to_cores(document, planned(document), range(5), "taskset") is None


def test_a_run_section_that_is_a_template_cannot_be_held() -> None:
    document = file({"resources": {"cpu": {"requests": 1}}}, run="{{ {'cmd': 'x'} }}")
    assert held_to_cores(document, planned(document), [0, 1], "taskset") is None


def test_ranks_of_a_launcher_cannot_be_held() -> None:
    document = file({"replicas": {"n_workers": 2, "launcher": "mpirun"}}, framework="mpi")
    assert held_to_cores(document, planned(document), range(8), "taskset") is None
