"""Pipelines and jobs on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name

JOB = {"kind": "job", "outputs": [{"name": "n", "type": "int"}]}
WRITE = """echo '{"n": 7}' > $PHALANX_OUTPUTS/outputs.json"""


def _file(place: Place, second: str = "echo {{ n }}", **fields: Any) -> str:
    ops = [
        {"name": "a", "template": {"name": "write"}},
        {"name": "b", "template": {"name": "read"}, "params": {"n": "{{ ops.a.outputs.n }}"}},
        {"name": "c", "template": {"name": "write"}, "dependencies": ["a", "b"], "trigger": "all_done"},
    ]
    templates = [
        {**JOB, "name": "write", "run": {"cmd": WRITE}},
        {"kind": "job", "name": "read", "run": {"cmd": second}},
    ]
    return place.file(None, name="pipeline.yml", kind="pipeline", ops=ops, templates=templates, **fields)


def test_a_pipeline_is_drawn_run_shown_and_resumed(place: Place) -> None:
    file = _file(place, "echo {{ n }}; test -e ready")
    plan = place.call("plan", "-f", file)
    assert plan.out.splitlines()[:4] == [
        "a (job)",
        "└─ b (job); n = a.n",
        "   └─ c (job), if all_done, also after a",
        "",
    ]
    drawn = place.call("plan", "-f", file, "--json").data
    assert {"source": "a", "target": "b", "kind": "output"} in drawn["edges"]
    ran = place.call("run", "-f", file, "--name", "nightly", "--json")
    assert (ran.code, ran.data["ok"], ran.data["status"]) == (1, False, "failed")
    assert [op["status"] for op in ran.data["ops"]] == ["succeeded", "failed", "succeeded"]
    shown = place.call("show", "nightly")
    assert "b   job   failed" in shown.out
    (place.folder / "ready").touch()
    again = place.call("resume", "nightly")
    assert again.code == 0, again.err
    assert "op b: succeeded" in again.err
    assert "op a:" not in again.err
    data = place.call("show", "nightly", "--json").data
    assert (data["kind"], data["status"], data["ops"][0]["outputs"]) == ("pipeline", "succeeded", {"n": 7})
    listed = place.call("ps", "-q", "kind:job", "--json").data["runs"]
    assert {run["name"] for run in listed} == {"nightly-a", "nightly-b", "nightly-c"}
    refused = place.call("logs", "nightly")
    assert (refused.code, "a pipeline has no logs" in refused.err) == (2, True)


@pytest.mark.slow
def test_a_schedule_says_that_it_needs_a_server(place: Place) -> None:
    file = _file(place, schedule={"kind": "cron", "cron": "0 3 * * *"})
    checked = place.call("check", "-f", file)
    assert "cron 0 3 * * *; its schedule ticks only while a server runs" in checked.out
    ran = place.call("run", "-f", file, "--json")
    assert ran.code == 0, ran.err
    shown = place.call("show", ran.data["id"], "--json").data
    assert (shown["kind"], shown["ticks"]) == ("schedule", [])
    assert shown["next_tick"][11:] == "03:00:00+00:00"
    assert place.call("stop", ran.data["id"]).code == 0


def test_a_job_runs_without_a_framework_and_with_params(place: Place) -> None:
    file = place.file("echo {{ n + 1 }}", kind="job", inputs=[{"name": "n", "type": "int"}], params={"n": 1})
    ran = place.call("run", "-f", file, "-P", "n=4", "--json")
    assert (ran.code, ran.data["kind"], ran.data["framework"], ran.data["params"]) == (0, "job", None, {"n": 4})
    assert place.call("logs", ran.data["id"]).out == "5\n"


def _two_files(place: Place, train: str, path: str = "parts/train.yml") -> str:
    """A pipeline whose ops run the same file with different params."""
    (place.folder / "parts").mkdir(exist_ok=True)
    (place.folder / "parts" / "train.yml").write_text(train)
    ops = [{"name": f"op-{n}", "template": {"path": path}, "params": {"n": n}} for n in (1, 2)]
    return place.file(None, kind="pipeline", ops=ops)


TRAIN = "version: 1\nkind: job\nname: train\ninputs: [{name: n, type: int}]\nrun: {cmd: 'echo number {{ n }}'}\n"


def test_templates_are_files_that_run_as_ops_and_are_kept_with_the_pipeline(place: Place) -> None:
    answer = place.call("run", "-f", _two_files(place, TRAIN))
    assert answer.code == 0, answer.err
    rows = place.call("ps", "-q", "kind:job", "--json").data["runs"]
    assert sorted(place.call("logs", row["id"]).out for row in rows) == ["number 1\n", "number 2\n"]
    converted = place.call("convert", "-f", "polyaxonfile.yml")
    assert "path:" not in converted.out
    assert "echo number" in converted.out


@pytest.mark.parametrize(
    ("train", "path", "words"),
    [
        (TRAIN.replace("cmd", "cdm"), "parts/train.yml", "parts/train.yml:5:"),
        (TRAIN.replace("kind: job", "kind: pipeline"), "parts/train.yml", "a pipeline cannot be used as a template"),
        ("- 1\n", "parts/train.yml", "parts/train.yml:1:"),
        ("a: [\n", "parts/train.yml", "parts/train.yml:"),
        (TRAIN, "parts/other.yml", "`parts/other.yml` cannot be read: no such file or directory"),
        (TRAIN, "../../etc/passwd", "polyaxonfile.yml:1:"),
        (TRAIN, "/etc/passwd", "`/etc/passwd` is outside of the folder of this file"),
    ],
)
def test_a_fault_of_a_template_is_reported_in_its_file(place: Place, train: str, path: str, words: str) -> None:
    answer = place.call("check", "-f", _two_files(place, train, path))
    assert answer.code == 1, answer
    assert words in answer.out + answer.err
    assert "Traceback" not in answer.err


def test_a_link_out_of_the_folder_is_no_template(place: Place) -> None:
    file = _two_files(place, TRAIN, "parts/link.yml")
    (place.folder / "parts" / "link.yml").symlink_to("/etc/hostname")
    answer = place.call("check", "-f", file)
    assert answer.code == 1
    assert "is outside of the folder of this file" in answer.out + answer.err
