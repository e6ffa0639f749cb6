"""Pipelines under a real scheduler, with real agents: their ops are commands of a few milliseconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.home.journal import JournaledFolder
from phalanx.scheduler.pipelines.report import PipelineReport
from phalanx.store import Run
from phalanx.submission.ops.factory import op_id
from phalanx.submission.removal import remove
from phalanx.submission.resume import request_resume
from phalanx.submission.submit import submit
from tests.scheduler.working import Works
from tests.submission.samples import submission_of

TRACK = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}})'"


def begin(works: Works, ops: list[dict[str, Any]], templates: dict[str, Any], **fields: Any) -> str:
    content = {
        "version": 1,
        "kind": "pipeline",
        "name": "p",
        "ops": [{"template": {"name": op["name"]}, **op} for op in ops],
        "templates": [{"kind": "job", "name": name, **template} for name, template in templates.items()],
        **fields,
    }
    return submit(works.home, works.store, submission_of(content, folder=works.folder, environment=os.environ)).id


def ops_of(works: Works, pipeline: str) -> dict[str, dict[str, Any]]:
    report = PipelineReport(works.home, works.store, works.run(pipeline))
    return {op["name"]: op for op in report.summary()["ops"]}


def statuses(works: Works, pipeline: str) -> dict[str, str]:
    return {name: op["status"] for name, op in ops_of(works, pipeline).items()}


def run_of(works: Works, pipeline: str, op: str, number: int = 0) -> Run:
    return works.run(op_id(pipeline, op, number))


def cmd(text: str, **more: Any) -> dict[str, Any]:
    return {"run": {"cmd": text}, **more}


def test_ops_run_after_those_that_they_depend_on_and_get_their_outputs(works: Works) -> None:
    pipeline = begin(
        works,
        [
            {"name": "train", "params": {"data": "{{ ops.prepare.outputs.data }}", "n": "{{ ops.prepare.outputs.n }}"}},
            {"name": "prepare"},
            {"name": "report", "dependencies": ["train"]},
        ],
        {
            "prepare": cmd(
                """echo '{"n": 3}' > $PHALANX_OUTPUTS/outputs.json; echo hi > $PHALANX_OUTPUTS/data.txt""",
                outputs=[{"name": "data", "type": "path"}, {"name": "n", "type": "int"}],
            ),
            "train": cmd(
                "cat {{ data }}; echo {{ n + 1 }} $PHALANX_OP $PHALANX_PIPELINE_ID",
                inputs=[{"name": "data", "type": "path"}, {"name": "n", "type": "int"}],
            ),
            "report": cmd("true"),
        },
    )
    run = works.settle(pipeline)
    assert (run.status, run.kind, run.reason) == ("succeeded", "pipeline", "all ops have ended: 3 succeeded")
    assert works.statuses(pipeline) == ["created", "running", "succeeded"]
    train = run_of(works, pipeline, "train")
    assert works.log(train.id) == f"hi\n4 train {pipeline}\n"
    assert (train.group, train.kind, train.name, train.params["n"]) == (pipeline, "job", "p-train", 3)
    first, second, third = (run_of(works, pipeline, name) for name in ("prepare", "train", "report"))
    assert first.finished_at <= second.created_at <= second.finished_at <= third.created_at  # type: ignore[operator]
    data = works.run_folder(first.id).path / "outputs" / "data.txt"
    assert ops_of(works, pipeline)["prepare"]["outputs"] == {"data": str(data), "n": 3}


def test_an_op_may_be_a_group_whose_outputs_are_those_of_its_best_trial(works: Works) -> None:
    search = {"matrix": {"x": {"values": [2, 1, 3]}}, "metric": {"name": "loss", "optimization": "minimize"}}
    pipeline = begin(
        works,
        [{"name": "search"}, {"name": "use", "params": {"loss": "{{ ops.search.outputs.loss }}"}}],
        {
            "search": {**cmd(TRACK, outputs=[{"name": "loss", "type": "metric"}]), "kind": "group", "hptuning": search},
            "use": cmd("echo {{ loss }}"),
        },
    )
    assert works.settle(pipeline).status == "succeeded"
    group = run_of(works, pipeline, "search")
    assert (group.kind, group.group) == ("group", pipeline)
    assert len(works.store.runs(f"group:{group.id}")) == 3
    assert works.log(run_of(works, pipeline, "use").id) == "1.0\n"
    remove(works.home, works.store, [works.run(pipeline)])
    assert works.store.ids() == set()


def test_triggers_decide_what_runs_after_a_failure(works: Works) -> None:
    triggers = ("all_succeeded", "all_failed", "all_done", "one_succeeded", "one_failed", "one_done")
    pipeline = begin(
        works,
        [
            {"name": "good"},
            {"name": "bad"},
            *({"name": one, "dependencies": ["good", "bad"], "trigger": one} for one in triggers),
            {"name": "behind", "dependencies": ["all_succeeded"], "trigger": "all_failed"},
        ],
        {name: cmd("exit 3" if name == "bad" else "true") for name in ("good", "bad", "behind", *triggers)},
    )
    run = works.settle(pipeline)
    assert (run.status, run.reason.split(":")[0]) == ("failed", "op `bad` failed")
    found = statuses(works, pipeline)
    assert found.pop("bad") == "failed"
    assert {name for name, status in found.items() if status == "upstream_failed"} == {"all_succeeded", "all_failed"}
    assert {status for name, status in found.items() if name not in {"all_succeeded", "all_failed"}} == {"succeeded"}
    why = ops_of(works, pipeline)["all_succeeded"]["reason"]
    assert why == "its trigger is `all_succeeded`: op `good` succeeded, op `bad` failed"


def test_an_op_that_needs_one_of_several_does_not_wait_for_the_others(works: Works) -> None:
    pipeline = begin(
        works,
        [{"name": "slow"}, {"name": "fast"}, {"name": "next", "dependencies": ["slow", "fast"], "trigger": "one_done"}],
        {"slow": cmd("sleep 60"), "fast": cmd("true"), "next": cmd("true")},
    )
    works.turn_until(lambda: statuses(works, pipeline).get("next") == "succeeded")
    assert statuses(works, pipeline)["slow"] in ("starting", "running")
    works.run_folder(pipeline).ask_to_stop("enough")
    run = works.settle(pipeline)
    assert (run.status, run.reason) == ("stopped", "enough")
    assert statuses(works, pipeline)["slow"] == "stopped"


def test_an_op_runs_only_if_its_expression_is_true(works: Works) -> None:
    loss = {"loss": "{{ ops.train.outputs.loss }}"}
    pipeline = begin(
        works,
        [
            {"name": "train"},
            {"name": "tune", "params": {**loss, "most": 0.1}, "when": "loss > most"},
            {"name": "publish", "params": loss, "when": "loss > 0.5"},
            {"name": "odd", "params": loss, "when": "loss * 2"},
            {"name": "broken", "params": loss, "when": "loss / 0 > 1"},
        ],
        {
            "train": cmd("echo '{\"loss\": 0.3}' > $PHALANX_OUTPUTS/outputs.json", outputs=[{"name": "loss"}]),
            **{name: cmd(f"touch {works.folder}/{name}") for name in ("tune", "publish", "odd", "broken")},
        },
    )
    assert works.settle(pipeline).status == "failed"
    found = ops_of(works, pipeline)
    assert {name: op["status"] for name, op in found.items()} == {
        "train": "succeeded",
        "tune": "succeeded",
        "publish": "skipped",
        "odd": "failed",
        "broken": "failed",
    }
    assert found["publish"]["reason"] == "its condition is `loss > 0.5`, with loss = 0.3"
    assert found["odd"]["reason"] == ("its condition `loss * 2` cannot be decided: it is '0.6', neither true nor false")
    assert "its condition `loss / 0 > 1` cannot be decided: the template failed" in found["broken"]["reason"]
    assert {name for name in ("tune", "publish", "odd", "broken") if (works.folder / name).exists()} == {"tune"}


def test_conditions_skip_an_op_and_those_that_follow_it(works: Works) -> None:
    is_large = {"kind": "outputs", "op": "count", "exp": "eq", "params": {"n": 5}}
    is_not = {**is_large, "exp": "ne"}
    pipeline = begin(
        works,
        [
            {"name": "count"},
            {"name": "large", "conditions": [is_large]},
            {"name": "small", "conditions": [is_not]},
            {"name": "failed", "conditions": [{"kind": "status", "op": "count", "trigger": "all_failed"}]},
            {"name": "after", "dependencies": ["large"], "skip_on_upstream_skip": True},
            {"name": "anyway", "dependencies": ["large"], "trigger": "all_done"},
            {"name": "blocked", "dependencies": ["large"]},
        ],
        {
            "count": cmd("""echo '{"n": 4}' > $PHALANX_OUTPUTS/outputs.json""", outputs=[{"name": "n", "type": "int"}]),
            **{name: cmd("true") for name in ("large", "small", "failed", "after", "anyway", "blocked")},
        },
    )
    run = works.settle(pipeline)
    assert run.status == "succeeded", run.reason
    found = ops_of(works, pipeline)
    assert {name: op["status"] for name, op in found.items()} == {
        "count": "succeeded",
        "large": "skipped",
        "small": "succeeded",
        "failed": "skipped",
        "after": "skipped",
        "anyway": "succeeded",
        "blocked": "upstream_failed",
    }
    assert found["large"]["reason"] == "its condition is `n = 5` of op `count`, whose `n` is 4"
    assert found["after"]["reason"] == "op `large` was skipped"


@pytest.mark.parametrize(
    ("written", "declared", "why"),
    [
        ("true", {"name": "n", "type": "int"}, "it recorded no param and no metric of that name"),
        ("""echo '{"n": "x"}' > $PHALANX_OUTPUTS/outputs.json""", {"name": "n", "type": "int"}, "must be a whole num"),
        ("""echo '{"n": "{{ x }}"}' > $PHALANX_OUTPUTS/outputs.json""", {"name": "n"}, "looks like a template"),
    ],
)
def test_a_missing_output_fails_the_op_that_needs_it(
    works: Works, written: str, declared: dict[str, Any], why: str
) -> None:
    pipeline = begin(
        works,
        [{"name": "a"}, {"name": "b", "params": {"n": "{{ ops.a.outputs.n }}"}}],
        {"a": cmd("{% raw %}" + written + "{% endraw %}", outputs=[declared]), "b": cmd("echo {{ n }}")},
    )
    run = works.settle(pipeline)
    found = ops_of(works, pipeline)
    assert (run.status, found["a"]["status"], found["b"]["status"]) == ("failed", "succeeded", "failed")
    assert found["b"]["reason"].startswith(f"needs the output `n` of op `a` (run {op_id(pipeline, 'a', 0)}): ")
    assert why in found["b"]["reason"]
    assert found["b"]["run_id"] is None


def test_a_failed_op_is_retried_as_a_new_run(works: Works) -> None:
    command = "echo x >> ../tries; test $(wc -l < ../tries) -ge 3"
    (works.folder / "work").mkdir()
    pipeline = begin(
        works,
        [{"name": "a", "max_retries": 2, "retry_delay": 0.01}, {"name": "b", "dependencies": ["a"]}],
        {"a": cmd(f"cd work; {command}"), "b": cmd("true")},
    )
    assert works.settle(pipeline).status == "succeeded"
    found = ops_of(works, pipeline)["a"]
    assert found["retries"] == 2
    assert [works.run(run_id).status for run_id in found["runs"]] == ["failed", "failed", "succeeded"]
    assert found["run_id"] == op_id(pipeline, "a", 2)


def test_no_more_ops_run_than_the_concurrency_allows(works: Works) -> None:
    names = ["a", "b", "c"]
    templates = {name: cmd("sleep 60") for name in names}
    pipeline = begin(works, [{"name": name} for name in names], templates, concurrency=2)
    works.turn_until(lambda: list(statuses(works, pipeline).values()) == ["running", "running", "waiting"])
    assert ops_of(works, pipeline)["c"]["reason"] == "waits until another op has ended: `concurrency` is 2"
    works.run_folder(run_of(works, pipeline, "a").id).ask_to_stop("not this one")
    works.turn_until(lambda: list(statuses(works, pipeline).values()) == ["stopped", "running", "running"])
    works.run_folder(pipeline).ask_to_stop("enough")
    assert works.settle(pipeline).status == "stopped"
    assert works.store.active() == []


@pytest.mark.slow
def test_a_pipeline_has_a_time_limit(works: Works) -> None:
    ops: list[dict[str, Any]] = [{"name": "a"}, {"name": "b", "dependencies": ["a"]}]
    pipeline = begin(works, ops, {"a": cmd("sleep 60"), "b": cmd("true")}, timeout=0.3)
    run = works.settle(pipeline)
    assert (run.status, run.reason) == ("failed", "its time limit of 0.3 s was reached")
    assert statuses(works, pipeline) == {"a": "stopped", "b": "stopped"}


def test_a_resumed_pipeline_keeps_what_succeeded_and_goes_on_from_what_failed(works: Works) -> None:
    search = {"matrix": {"x": {"values": [1, 2]}}, "max_failed": 0}
    pipeline = begin(
        works,
        [
            {"name": "a"},
            {"name": "b", "dependencies": ["a"]},
            {"name": "g", "dependencies": ["a"]},
            {"name": "c", "dependencies": ["b", "g"]},
        ],
        {
            "a": cmd("true"),
            "b": cmd("echo $PHALANX_ATTEMPT; test -e ready"),
            "g": {**cmd("test -e ready || test {{ x }} = 1"), "kind": "group", "hptuning": search},
            "c": cmd("true"),
        },
    )
    run = works.settle(pipeline)
    assert run.status == "failed"
    before = statuses(works, pipeline)
    assert (before["a"], before["b"], before["c"]) == ("succeeded", "failed", "upstream_failed")
    (works.folder / "ready").touch()
    request_resume(works.home, works.run(pipeline), os.environ)
    works.turn_until(lambda: works.run(pipeline).status == "succeeded")
    assert set(statuses(works, pipeline).values()) == {"succeeded"}
    b = run_of(works, pipeline, "b")
    assert (b.attempt, works.log(b.id, attempt=2)) == (2, "2\n")
    assert run_of(works, pipeline, "a").attempt == 1
    trials = works.store.runs(f"group:{run_of(works, pipeline, 'g').id}", sort="created_at")
    assert [trial.attempt for trial in trials] == [1, 2]


def test_another_scheduler_goes_on_with_a_pipeline(works: Works) -> None:
    pipeline = begin(
        works,
        [{"name": "a"}, {"name": "b", "dependencies": ["a"]}, {"name": "c", "dependencies": ["b"]}],
        {name: cmd("true") for name in "abc"},
    )
    while not works.run(pipeline).is_done:
        works.new_scheduler()
        works.scheduler.run_pass()
    assert works.run(pipeline).status == "succeeded"
    records = JournaledFolder(works.run_folder(pipeline).path).records()
    assert [(record["what"], record["op"]) for record in records] == [
        (what, op) for op in "abc" for what in ("start", "end")
    ]


@pytest.mark.slow
def test_an_op_with_the_same_content_is_not_run_again(works: Works) -> None:
    code = works.folder / "code"
    code.mkdir()
    (code / "train.py").write_text("print(1)")

    def again(x: int = 1, text: str = "1") -> dict[str, dict[str, Any]]:
        content = {
            "version": 1,
            "kind": "pipeline",
            "reuse": True,
            "ops": [
                {"name": "a", "template": {"name": "a"}, "params": {"x": x}},
                {"name": "b", "template": {"name": "b"}, "params": {"data": "{{ ops.a.outputs.data }}"}},
                {"name": "c", "template": {"name": "c"}, "reuse": False},
            ],
            "templates": [
                {"kind": "job", "name": "a", **cmd("echo {{ x }} | cut -c1 > $PHALANX_OUTPUTS/data.txt"),
                 "outputs": [{"name": "data", "type": "path"}]},
                {"kind": "job", "name": "b", **cmd("cat {{ data }}")},
                {"kind": "job", "name": "c", **cmd("true")},
            ],
        }  # fmt: skip
        (code / "train.py").write_text(f"print({text})")
        asked = submission_of(content, folder=code, environment=os.environ)
        pipeline = submit(works.home, works.store, asked).id
        assert works.settle(pipeline).status == "succeeded"
        return ops_of(works, pipeline)

    first = again()
    assert [op["is_reused"] for op in first.values()] == [False, False, False]
    second = again()
    assert [op["is_reused"] for op in second.values()] == [True, True, False]
    assert second["a"]["run_id"] == first["a"]["run_id"]
    assert second["b"]["reason"].startswith(f"the result of run {first['b']['run_id']}")
    third = again(x=12)  # the same content in another file
    assert [op["is_reused"] for op in third.values()] == [False, True, False]
    assert [op["is_reused"] for op in again(text="2").values()] == [False, False, False]
    remove(works.home, works.store, [works.run(first["a"]["run_id"])])
    assert again()["a"]["run_id"] != first["a"]["run_id"]


def test_a_pipeline_waits_for_its_time(works: Works) -> None:
    now = [1_700_000_000.0]
    works.clock = lambda: now[0]
    works.new_scheduler()
    pipeline = begin(works, [{"name": "a"}], {"a": cmd("true")}, execute_at="2023-11-14T22:13:30+00:00")
    works.scheduler.run_pass()
    assert works.run(pipeline).status == "created"
    assert works.store.facts(pipeline)["waiting"] == {"why": "waits until 2023-11-14T22:13:30+00:00 (`execute_at`)"}
    now[0] += 11
    assert works.settle(pipeline).status == "succeeded"


def test_each_tick_of_a_schedule_runs_the_pipeline(works: Works) -> None:
    now = [2_000_000_000.0]
    works.clock = lambda: now[0]
    works.new_scheduler()
    schedule = {"kind": "interval", "frequency": 60, "start_at": "2033-05-18T03:34:00", "end_at": "2033-05-18T03:40:00"}
    parent = begin(works, [{"name": "a"}], {"a": cmd("true")}, schedule=schedule)
    assert works.run(parent).kind == "schedule"

    def pipelines() -> list[Run]:
        return works.store.runs(f"group:{parent}", sort="created_at", limit=None)

    works.scheduler.run_pass()
    assert pipelines() == []  # only a server makes ticks
    assert "phalanx serve" in works.store.facts(parent)["waiting"]["why"]
    works.scheduler.makes_ticks = True
    works.scheduler.run_pass()
    assert pipelines() == []  # the first tick is at 3:34:00, and it is 3:33:20
    now[0] += 45
    works.turn_until(lambda: [run.status for run in pipelines()] == ["succeeded"])
    assert (pipelines()[0].kind, pipelines()[0].name) == ("pipeline", "p")
    now[0] += 185  # three ticks: two of them were missed
    works.turn_until(lambda: [run.status for run in pipelines()] == ["succeeded", "succeeded"])
    ticks = PipelineReport(works.home, works.store, works.run(parent)).summary()
    assert [tick["at"][11:16] for tick in ticks["ticks"]] == ["03:37", "03:34"]
    assert ticks["next_tick"] == "2033-05-18T03:38:00+00:00"
    now[0] += 3600
    run = works.settle(parent)
    assert (run.status, run.reason, len(pipelines())) == ("succeeded", "all its 3 ticks were made", 3)


def test_a_schedule_is_stopped_with_its_pipelines_and_may_wait_for_the_past(works: Works) -> None:
    now = [2_000_000_000.0]
    works.clock = lambda: now[0]
    works.new_scheduler()
    works.scheduler.makes_ticks = True
    schedule = {"kind": "cron", "cron": "* * * * *", "depends_on_past": True, "start_at": "2033-05-18T03:34:00"}
    parent = begin(works, [{"name": "a"}], {"a": cmd("sleep 60")}, schedule=schedule)
    now[0] += 60
    works.turn_until(lambda: len(works.store.runs("status:running, kind:job")) == 1)
    now[0] += 60
    works.scheduler.run_pass()
    assert len(works.store.runs(f"group:{parent}")) == 1
    assert "depends_on_past" in works.store.facts(parent)["waiting"]["why"]
    works.run_folder(parent).ask_to_stop("enough")
    assert works.settle(parent).status == "stopped"
    assert works.store.active() == []


def test_a_pipeline_whose_file_is_gone_fails_and_its_ops_stop(works: Works) -> None:
    pipeline = begin(works, [{"name": "a"}], {"a": cmd("sleep 60")})
    works.turn_until(lambda: statuses(works, pipeline) == {"a": "running"})
    Path(works.run_folder(pipeline).path / "spec.yml").unlink()
    works.new_scheduler()
    run = works.settle(pipeline)
    assert (run.status, run.reason) == ("failed", f"the folder of pipeline {pipeline} has no spec.yml")
    assert works.store.active() == []
