"""Groups under a real scheduler, with real agents: their trials are commands of a few milliseconds."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.contract import ENDED, RUNNING
from phalanx.errors import StoreError
from phalanx.home.group_folder import GroupFolder, trial_id
from phalanx.home.journal import RunJournal
from phalanx.scheduler import groups, journaled_run
from phalanx.scheduler.search.group_report import GroupReport
from phalanx.store import Run, StatusChange
from phalanx.submission.model import CodeSource
from phalanx.submission.removal import remove
from phalanx.submission.resume import request_resume
from phalanx.submission.submit import submit
from tests.scheduler.scripted_engine import Cluster
from tests.scheduler.working import Works
from tests.submission.samples import submission_of

X3 = {"matrix": {"x": {"values": [1, 2, 3]}}}
LOG_X = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}})'"
SEED = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}} + {{{{ seed }}}})'"
LOSS = {"metric": {"name": "loss", "optimization": "minimize"}}


def begin(works: Works, command: str, tuning: dict[str, Any], **fields: Any) -> str:
    content = {"version": 1, "kind": "group", "hptuning": tuning, "run": {"cmd": command}, **fields}
    return submit(works.home, works.store, submission_of(content, folder=works.folder, environment=os.environ)).id


def trial(works: Works, group: str, number: int) -> Run:
    return works.run(trial_id(group, number))


def trials(works: Works, group: str) -> list[Run]:
    return works.store.runs(f"group:{group}", sort="created_at", limit=None)


def records(works: Works, group: str, *what: str) -> list[dict[str, Any]]:
    found = GroupFolder(works.run_folder(group).path).records()
    return [record for record in found if not what or record["what"] in what]


def ask(works: Works, group: str, what: str, **fields: Any) -> None:
    GroupFolder(works.run_folder(group).path).ask(what, **fields)


def outputs(works: Works, run_id: str) -> str:
    return (works.run_folder(run_id).path / "outputs" / "seen").read_text()


def test_a_grid_runs_every_point_with_the_last_key_fastest(works: Works) -> None:
    matrix = {"lr": {"values": [0.1, 0.2]}, "width": {"values": [1, 2]}}
    group = begin(works, "echo {{ lr }}-{{ width }}", {"concurrency": 2, "matrix": matrix})
    run = works.settle(group)
    assert (run.status, run.kind, run.group) == ("succeeded", "group", None)
    assert works.statuses(group) == ["created", "running", "succeeded"]
    found = [trial(works, group, number) for number in range(4)]
    assert [works.log(one.id) for one in found] == ["0.1-1\n", "0.1-2\n", "0.2-1\n", "0.2-2\n"]
    assert [one.params for one in found] == [{"lr": lr, "width": width} for lr in (0.1, 0.2) for width in (1, 2)]
    assert {(one.status, one.group, one.attempt, one.kind) for one in found} == {("succeeded", group, 1, "experiment")}
    assert len(trials(works, group)) == 4


def test_no_more_trials_run_than_the_concurrency_allows(works: Works) -> None:
    group = begin(works, "echo up; sleep 60", {**X3, "concurrency": 2})
    works.turn_until(lambda: [one.status for one in trials(works, group)] == ["running"] * 2)
    assert len(trials(works, group)) == 2
    ask(works, group, "concurrency", n=3)
    works.turn_until(lambda: [one.status for one in trials(works, group)] == ["running"] * 3)
    works.run_folder(group).ask_to_stop("enough")
    run = works.settle(group)
    assert (run.status, run.reason) == ("stopped", "enough")
    assert {(one.status, one.reason) for one in trials(works, group)} == {("stopped", "enough")}


def test_every_decision_is_recorded_with_its_reason_before_its_run_exists(works: Works) -> None:
    group = begin(works, "true", {"matrix": {"x": {"values": [1, 2]}}})
    works.settle(group)
    for record in records(works, group, "create"):
        made_at = trial(works, group, record["trial"]).created_at.timestamp()
        assert record["at"] <= made_at + 0.001
        assert record["why"]
        assert record["seen_up_to"] < record["seq"]
    assert [record["seq"] for record in records(works, group)] == list(range(1, len(records(works, group)) + 1))


def test_a_recorded_decision_is_carried_out_and_the_search_is_not_asked_again(works: Works) -> None:
    group = begin(works, "echo {{ x }}", X3)
    journal = RunJournal(GroupFolder(works.run_folder(group).path).journal_file)
    journal.read()
    journal.append([{"what": "create", "trial": 0, "params": {"x": 77}, "seen_up_to": 0, "why": "recorded by another"}])
    journal.close()
    works.settle(group)
    assert works.log(trial_id(group, 0)) == "77\n"
    assert [record["trial"] for record in records(works, group, "create")] == [0, 1, 2]


HYPERBAND: dict[str, Any] = {
    "concurrency": 4,
    "seed": 3,
    "matrix": {"x": {"uniform": "0:1"}},
    "hyperband": {"max_iter": 3, "eta": 3, "resource": {"name": "epochs", "type": "int"}, "resume": True, **LOSS},
}
SEEN = 'echo "$PHALANX_ATTEMPT $PHALANX_TRIAL_RUNG $PHALANX_TRIAL_RESOURCE {{ epochs }}" >> $PHALANX_OUTPUTS/seen; '


def test_a_rung_is_the_next_attempt_of_the_same_run_with_more_of_the_resource(works: Works) -> None:
    group = begin(works, SEEN + LOG_X, HYPERBAND)
    assert works.settle(group).status == "succeeded"
    (promoted,) = records(works, group, "promote")
    run = trial(works, group, promoted["trial"])
    assert outputs(works, run.id) == "1 0 1 1\n2 1 3 3\n"
    assert (run.attempt, run.params["epochs"]) == (2, 3)
    assert run.params["x"] == min(
        one.params["x"] for one in trials(works, group) if one.params["epochs"] == 1 or one == run
    )
    assert works.statuses(run.id)[4:6] == ["succeeded", "resuming"]
    assert len(trials(works, group)) == 5  # 3 at 1, of which 1 at 3; 2 at 3
    assert works.run_folder(run.id).read() == works.store.find(run.id)._replace(
        summary={}, best={}, started_at=None, finished_at=None
    )


@pytest.mark.slow
def test_without_resume_a_rung_starts_without_the_outputs_of_the_one_before(works: Works) -> None:
    group = begin(works, SEEN + LOG_X, {**HYPERBAND, "hyperband": {**HYPERBAND["hyperband"], "resume": False}})
    works.settle(group)
    (promoted,) = records(works, group, "promote")
    run_id = trial_id(group, promoted["trial"])
    assert outputs(works, run_id) == "2 1 3 3\n"
    assert (works.run_folder(run_id).path / "outputs-attempt-1" / "seen").read_text() == "1 0 1 1\n"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["queue_next_attempt", "planned_rung"])
def test_a_promotion_that_was_cut_off_is_made_once(works: Works, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    group = begin(works, SEEN + LOG_X, HYPERBAND)
    original, calls = getattr(groups, point), []

    def cut_off(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError("the disk is away")
        return original(*arguments)

    monkeypatch.setattr(groups, point, cut_off)
    monkeypatch.setattr(journaled_run, "AGAIN_S", 0.05)
    assert works.settle(group).status == "succeeded"
    (promoted,) = records(works, group, "promote")
    assert outputs(works, trial_id(group, promoted["trial"])) == "1 0 1 1\n2 1 3 3\n"


@pytest.mark.slow
def test_a_promotion_that_the_store_does_not_know_is_no_end_of_its_rung(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = begin(works, SEEN + LOG_X, HYPERBAND)
    record = works.store.record
    faults: list[StatusChange] = []

    def cut_off(change: StatusChange) -> bool:
        if change.status == "resuming" and not faults:
            faults.append(change)
            raise StoreError("the scheduler is killed here")
        return record(change)

    monkeypatch.setattr(works.store, "record", cut_off)
    monkeypatch.setattr(journaled_run, "AGAIN_S", 0.05)
    assert works.settle(group).status == "succeeded"
    (promoted,) = records(works, group, "promote")
    assert outputs(works, trial_id(group, promoted["trial"])) == "1 0 1 1\n2 1 3 3\n"
    assert works.statuses(trial_id(group, promoted["trial"])).count("resuming") == 1


def test_a_lost_trial_is_run_again_and_the_search_is_not_told(works: Works) -> None:
    group = begin(works, "echo up; [ $PHALANX_ATTEMPT = 2 ] || sleep 60", {"matrix": {"x": {"values": [1]}}})
    run_id = trial_id(group, 0)
    works.turn_until(lambda: run_id in works.store.ids())
    works.says(run_id, "up")
    os.kill(works.agent(run_id), signal.SIGKILL)
    assert works.settle(group).status == "succeeded"
    assert [record["what"] for record in records(works, group)] == ["create", "retried", "reported", "finish"]
    assert works.run(run_id).attempt == 2


def test_the_program_of_a_trial_that_fails_counts(works: Works) -> None:
    group = begin(works, "exit $(( {{ x }} == 2 ))", X3)
    run = works.settle(group)
    assert run.status == "succeeded"
    (failed,) = records(works, group, "failed")
    assert (failed["trial"], failed["cause"]) == (1, "master-0: exit code 1")


def test_first_trials_that_fail_alike_pause_the_group_and_resuming_it_goes_on(works: Works) -> None:
    group = begin(works, "[ -e fixed ]", {"matrix": {"x": {"values": [1, 2, 3, 4, 5]}}})
    works.until(group, "warning")
    assert works.run(group).reason == "paused: the first 3 trials failed with the same error: master-0: exit code 1"
    (works.folder / "fixed").touch()
    request_resume(works.home, works.run(group), os.environ)
    assert works.settle(group).status == "succeeded"
    assert {one.status for one in trials(works, group)} == {"succeeded"}
    assert [one.attempt for one in trials(works, group)] == [2, 2, 2, 1, 1]


def test_more_failures_than_allowed_end_the_group_with_its_running_trials(works: Works) -> None:
    tuning = {**X3, "concurrency": 3, "max_failed": 1}
    group = begin(works, "echo up; [ {{ x }} = 3 ] && sleep 60; sleep 0.3; exit {{ x }}", tuning)
    run = works.settle(group)
    assert (run.status, run.reason) == ("failed", "2 trials failed; `max_failed` allows 1")
    assert [one.status for one in trials(works, group)] == ["failed", "failed", "stopped"]


def test_an_invalid_point_is_replaced_and_not_counted(works: Works) -> None:
    command = (
        f"{sys.executable} -c 'from phalanx import tracking; import sys; {{{{ x }}}} == 1 and "
        f'(tracking.invalid("one is odd"), sys.exit(3))\''
    )
    group = begin(works, command, {**X3, "seed": 1, "random_search": {"n_experiments": 2}})
    assert works.settle(group).status == "succeeded"
    invalid = records(works, group, "invalid")
    assert {record["why"] for record in invalid} <= {"one is odd"}
    assert len(trials(works, group)) == 2 + len(invalid)
    assert works.store.count(f"group:{group}, status:succeeded") == 2


def test_a_metric_that_reaches_its_value_ends_the_group_while_trials_run(works: Works) -> None:
    script = "from phalanx import tracking; import time; tracking.log(acc={{ x }} / 3); time.sleep({{ x }} // 2 * 60)"
    tuning = {**X3, "concurrency": 3, "early_stopping": [{"metric": "acc", "value": 0.99}]}
    group = begin(works, f'{sys.executable} -c "{script}"', tuning)
    run = works.settle(group)
    assert run.status == "succeeded"
    assert run.reason.startswith("early stopping: acc of trial 2 is 1")
    assert works.store.count(f"group:{group}, status:stopped") == 2


def test_a_stopped_group_resumes_what_was_stopped_and_goes_on(works: Works) -> None:
    group = begin(works, "echo up; [ -e quick ] || sleep 60", X3)
    works.turn_until(lambda: [one.status for one in trials(works, group)] == ["running"])
    works.run_folder(group).ask_to_stop("later")
    assert works.settle(group).status == "stopped"
    (works.folder / "quick").touch()
    request_resume(works.home, works.run(group), os.environ)
    works.turn_until(lambda: works.run(group).status == "succeeded")
    assert [one.attempt for one in trials(works, group)] == [2, 1, 1]


@pytest.mark.slow
def test_a_resumed_group_runs_no_more_of_its_failed_trials_at_a_time_than_its_concurrency(works: Works) -> None:
    group = begin(works, "test -e mended", {**X3, "concurrency": 1})
    works.turn_until(lambda: works.run(group).status == "warning")
    (works.folder / "mended").touch()
    request_resume(works.home, works.run(group), os.environ)
    most = 0

    def is_over() -> bool:
        nonlocal most
        most = max(most, sum(not one.is_done for one in trials(works, group)))
        return works.run(group).status == "succeeded"

    works.turn_until(is_over)
    assert (most, [one.attempt for one in trials(works, group)]) == (1, [2, 2, 2])


@pytest.mark.slow
def test_a_finished_group_is_extended_to_a_total_and_takes_points_of_users(works: Works) -> None:
    tuning = {"matrix": {"x": {"values": [1, 2, 3, 4]}}, "grid_search": {"n_experiments": 2}}
    group = begin(works, "echo {{ x }}", tuning)
    works.settle(group)
    assert len(trials(works, group)) == 2
    ask(works, group, "extend", n=3)
    ask(works, group, "add", params={"x": 9})
    ask(works, group, "nonsense")
    request_resume(works.home, works.run(group), os.environ)
    works.turn_until(lambda: works.run(group).status == "succeeded" and len(trials(works, group)) == 4)
    assert sorted(one.params["x"] for one in trials(works, group)) == [1, 2, 3, 9]


@pytest.mark.slow
def test_a_used_budget_ends_the_search_and_lets_running_trials_end(works: Works) -> None:
    tuning = {"matrix": {"x": {"values": [1, 2, 3, 4]}}, "budget": {"core_hours": 0.0001}}
    group = begin(works, "sleep 0.3", tuning, environment={"resources": {"cpu": {"requests": 2}}})
    run = works.settle(group)
    assert run.status == "succeeded"
    assert run.reason.startswith("the budget is used: 0.000")
    assert [one.status for one in trials(works, group)] == ["succeeded"]


@pytest.mark.slow
def test_a_search_starts_with_the_results_of_an_earlier_group_and_does_not_run_them_again(works: Works) -> None:
    first = begin(works, LOG_X, {"matrix": {"x": {"values": [1, 2, 9]}}, "concurrency": 3, **LOSS})
    works.settle(first)
    tuning = {"matrix": {"x": {"values": [1, 2, 3]}}, "warm_start": [first], "reuse": True, **LOSS}
    group = begin(works, LOG_X, tuning)
    assert works.settle(group).status == "succeeded"
    (run,) = trials(works, group)
    assert run.params == {"x": 3}
    (earlier,) = records(works, group, "earlier")
    assert [one["value"] for one in earlier["trials"]] == [1.0, 2.0]  # 9 is not in the matrix
    found = works.store.facts(group)["search"]
    assert (found["best"]["value"], found["best"]["run"]) == (1.0, trial_id(first, 0))
    assert [record.get("reused") for record in records(works, group, "create")] == [1.0, 2.0, None]


def test_trials_are_whole_gangs(works: Works) -> None:
    fields = {"framework": "pytorch", "environment": {"replicas": {"n_workers": 1}}}
    group = begin(works, "echo $RANK of $WORLD_SIZE", {"matrix": {"x": {"values": [1]}}}, **fields)
    works.settle(group)
    run_id = trial_id(group, 0)
    assert [works.log(run_id, name) for name in ("master-0", "worker-0")] == ["0 of 2\n", "1 of 2\n"]


def test_values_that_cannot_run_fail_their_trial_only(works: Works) -> None:
    fields = {"framework": "pytorch", "environment": {"replicas": {"n_workers": "{{ x }}"}}}
    group = begin(works, "true", {"matrix": {"x": {"values": [1, -1]}}}, **fields)
    assert works.settle(group).status == "succeeded"
    (failed,) = records(works, group, "failed")
    assert failed["trial"] == 1
    assert "n_workers" in failed["cause"]
    assert [one.status for one in trials(works, group)] == ["succeeded"]


@pytest.mark.slow
def test_a_group_is_removed_with_its_runs(works: Works) -> None:
    group = begin(works, "true", X3)
    works.settle(group)
    remove(works.home, works.store, [works.run(group)])
    assert works.store.ids() == set()
    assert works.home.run_ids() == []


def test_the_next_scheduler_finds_everything_in_the_folders(works: Works) -> None:
    group = begin(works, "sleep 0.1; echo {{ x }}", {**X3, "concurrency": 2})
    while not works.run(group).is_done:
        works.new_scheduler().run_pass()
    assert [works.log(trial_id(group, number)) for number in range(3)] == ["1\n", "2\n", "3\n"]
    assert [record["what"] for record in records(works, group)].count("create") == 3


@pytest.mark.slow
def test_the_next_scheduler_finds_the_repeats_in_the_folders(works: Works) -> None:
    group = begin(works, SEED, {"matrix": {"x": {"values": [1, 2]}}, "concurrency": 3, "repeat": 2, **LOSS})
    while not works.run(group).is_done:
        works.new_scheduler().run_pass()
    assert sorted(record["value"] for record in records(works, group, "reported")) == [1.5, 2.5]
    assert len(trials(works, group)) == len(records(works, group, "repeated")) == 4


def test_trials_are_jobs_of_an_engine_and_a_rung_is_a_new_job(cluster: Cluster) -> None:
    works = cluster.works
    content = {
        "version": 1,
        "kind": "group",
        "hptuning": HYPERBAND,
        "run": {"cmd": "train {{ x }} --epochs={{ epochs }}"},
    }
    asked = submission_of(content, folder=Path("/"), environment=os.environ, on="slurm")
    group = submit(works.home, works.store, asked).id
    cluster.turn()
    for number in range(5):
        cluster.turn()
        run_id = trial_id(group, number)
        assert cluster.run(run_id).status == "scheduled"
        works.store.put_summaries(run_id, {"loss": 5.0 - number})
        cluster.became(str(cluster.handle(run_id)), RUNNING)
        cluster.agent(run_id)
        cluster.turn()
        cluster.end(run_id, "finished")
        cluster.turn()
        cluster.became(str(cluster.handle(run_id)), ENDED)
    cluster.turn()
    (promoted,) = records(works, group, "promote")
    run_id = trial_id(group, promoted["trial"])
    assert cluster.run(run_id).attempt == 2
    script, plan = (works.run_folder(run_id).path / name for name in ("run.sh", "plan.json"))
    assert script.stat().st_mode & 0o777 == 0o700
    assert "--epochs=3" in plan.read_text()
    assert cluster.engine.submissions == 6


def test_every_point_is_repeated_with_other_seeds_and_ranked_by_the_mean(works: Works) -> None:
    seen = 'echo "$PHALANX_TRIAL_SEED {{ seed }}" > $PHALANX_OUTPUTS/seen; '
    group = begin(works, seen + SEED, {**X3, "concurrency": 4, "repeat": 3, **LOSS})
    most = 0

    def is_over() -> bool:
        nonlocal most
        most = max(most, sum(not one.is_done for one in trials(works, group)))
        return works.run(group).is_done

    works.turn_until(is_over)
    assert most == 4  # runs, not points
    assert len(trials(works, group)) == 9
    for number in range(3):
        runs = [trial_id(group, number, repeat) for repeat in range(3)]
        assert [outputs(works, run) for run in runs] == ["0 0\n", "1 1\n", "2 2\n"]
        assert [works.run(run).params["seed"] for run in runs] == [0, 1, 2]
    assert [record["value"] for record in records(works, group, "reported")] == [2.0, 3.0, 4.0]
    best = GroupReport(works.home, works.store, works.run(group)).ranked()[0]
    assert (best["trial"], best["value"], best["runs"][1]) == (0, 2.0, trial_id(group, 0, 1))
    assert best["interval"] == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5))


@pytest.mark.slow
def test_all_repeats_of_a_point_go_on_to_the_next_rung(works: Works) -> None:
    group = begin(works, SEEN + SEED, {**HYPERBAND, "repeat": 2})
    assert works.settle(group).status == "succeeded"
    (promoted,) = records(works, group, "promote")
    runs = [trial_id(group, promoted["trial"], repeat) for repeat in range(2)]
    assert [outputs(works, run) for run in runs] == ["1 0 1 1\n2 1 3 3\n"] * 2
    assert len(trials(works, group)) == 10
    assert all(record["value"] > 0.5 for record in records(works, group, "reported"))


@pytest.mark.slow
def test_a_point_counts_with_the_repeats_that_reported_and_fails_if_all_fail(works: Works) -> None:
    fails = f"test {{{{ x }}}}{{{{ seed }}}} != 10 && test {{{{ x }}}} != 2 && {SEED}"
    group = begin(works, fails, {**X3, "concurrency": 6, "repeat": 2, **LOSS})
    assert works.settle(group).status == "succeeded"
    assert sorted((one["trial"], one["value"]) for one in records(works, group, "reported")) == [(0, 2.0), (2, 3.5)]
    assert [one["trial"] for one in records(works, group, "failed")] == [1]


@pytest.mark.slow
def test_a_stopped_group_runs_only_the_repeats_again_that_have_no_result(works: Works, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"test {{{{ seed }}}} = 0 || test -e {go} || sleep 60; {SEED}"
    group = begin(works, waits, {"matrix": {"x": {"values": [1]}}, "concurrency": 2, "repeat": 2, **LOSS})
    works.turn_until(lambda: len(records(works, group, "repeated")) == 1)
    works.run_folder(group).ask_to_stop("enough")
    assert works.settle(group).status == "stopped"
    assert [one["value"] for one in records(works, group, "stopped")] == [1.0]
    go.touch()
    request_resume(works.home, works.run(group), os.environ)
    works.turn_until(lambda: works.run(group).status == "succeeded")
    assert [(one.attempt, one.status) for one in map(works.run, [trial_id(group, 0), trial_id(group, 0, 1)])] == [
        (1, "succeeded"),
        (2, "succeeded"),
    ]
    assert [one["value"] for one in records(works, group, "reported")] == [1.5]


@pytest.mark.slow
def test_trials_of_a_copy_of_the_code_work_in_folders_of_their_own(works: Works) -> None:
    """At the same time in one folder, none of them could own `model.pt`."""
    (works.folder / "weights").write_text("x")
    command = "echo {{ x }} >> model.pt; cat weights model.pt > $PHALANX_OUTPUTS/seen; " + LOG_X
    hyperband = {**HYPERBAND, "hyperband": {**HYPERBAND["hyperband"], "resume": False}, "matrix": X3["matrix"]}
    content = {"version": 1, "kind": "group", "hptuning": hyperband, "run": {"cmd": command}}
    sent = submission_of(content, folder=works.folder, environment=os.environ)
    group = submit(works.home, works.store, replace(sent, code=CodeSource(works.folder, is_snapshot=True))).id
    assert works.settle(group).status == "succeeded"
    for run in trials(works, group):
        assert outputs(works, run.id) == f"x{run.params['x']}\n"  # also that of the second attempt
        assert (works.run_folder(run.id).path / "outputs" / "model.pt").exists()
    assert [one.attempt for one in trials(works, group)].count(2) == 1
    assert not (works.folder / "model.pt").exists()
    assert not (works.run_folder(group).path / "code" / "model.pt").exists()


POLYAXON = """
from polyaxon_client.tracking import Experiment, Group
experiment = Experiment()
assert experiment.group_id == Group().group_id == os.environ["PHALANX_GROUP_ID"]
assert experiment.get_experiment_info()["experiment_group_name"] == "default." + experiment.group_id
experiment.log_metrics(loss=experiment.get_params()["x"])
"""


@pytest.mark.slow
def test_a_script_of_polyaxon_finds_its_group_and_reports_to_it(works: Works) -> None:
    (works.folder / "train.py").write_text(f"import os\n{POLYAXON}")
    tuning = {"concurrency": 2, "matrix": {"x": {"values": [2, 1]}}, **LOSS}
    group = begin(works, f"{sys.executable} train.py --x={{{{ x }}}}", tuning)
    assert works.settle(group).status == "succeeded"
    assert [record["value"] for record in records(works, group, "reported")] in ([1.0, 2.0], [2.0, 1.0])
