"""phalanx run and plan of `kind: build` files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name

# Stands in for `python -m venv`, which takes seconds
PYTHON = """#!/bin/bash
mkdir -p "${@: -1}/bin" && ln -s /bin/true "${@: -1}/bin/python"
"""
STEPS = ["echo $WORD >>$VIRTUAL_ENV/steps", "echo 'a \"quoted\" step'"]


def file(place: Place, **fields: Any) -> str:
    path = place.folder / "build.yml"
    content = {"version": 1, "kind": "build", "image": "python:3.11", "env_vars": {"WORD": "hello"}, **fields}
    path.write_text(json.dumps({"build_steps": STEPS, **content}))
    return str(path)


@pytest.fixture(name="python")
def python_fixture(place: Place) -> str:
    path = place.folder / "quick-python"
    path.write_text(PYTHON)
    path.chmod(0o755)
    return str(path)


def steps_of(place: Place) -> list[str]:
    return [path.read_text() for path in (place.home / "builds").glob("*/venv/steps")]


def test_a_build_is_a_run_whose_content_is_reused_and_that_others_name(place: Place, python: str) -> None:
    answer = place.call("run", "-f", file(place), "--name", "tools", PHALANX_PYTHON=python)
    assert answer.code == 0, answer.err
    assert "step 1 of 2: echo $WORD" in answer.out
    assert "note: a virtual environment is made; the image `python:3.11` is not used" in answer.err
    again = place.call("run", "-f", file(place), PHALANX_PYTHON=python)
    assert again.out.startswith("the same content was built before: ")
    assert steps_of(place) == ["hello\n"]
    fresh = place.call("run", "-f", file(place, nocache=True), PHALANX_PYTHON=python)
    assert "step 2 of 2" in fresh.out
    builds = place.call("ps", "-q", "kind:build, status:succeeded", "--json").data["runs"]
    assert len(builds) == 3
    used = place.run("cat $VIRTUAL_ENV/steps; which python", build={"ref": "tools"})
    assert used.code == 0, used.err
    assert used.out.splitlines()[0] == "hello"
    assert used.out.splitlines()[1].startswith(str(place.home / "builds"))
    cloned = place.call("restart", place.call("ps", "-q", "kind:experiment", "--json").data["runs"][0]["id"])
    assert cloned.code == 0, cloned.err


@pytest.mark.slow
def test_a_step_that_fails_ends_the_build_with_its_log_and_what_names_it_is_refused(place: Place, python: str) -> None:
    answer = place.call(
        "run",
        "-f",
        file(place, build_steps=["echo before", "exit 7", "echo after"]),
        "--name",
        "x",
        PHALANX_PYTHON=python,
    )
    assert answer.code == 1
    assert "phalanx: step 2 failed with code 7: exit 7" in answer.out
    assert "\nafter" not in answer.out
    assert not list((place.home / "builds").glob("*/done"))
    refused = place.run("true", build={"ref": "x"})
    assert refused.code == 2
    assert "is failed, not succeeded: `phalanx logs" in refused.err


def gated_build(place: Place, python: str, *steps: str) -> tuple[str, Path]:
    """The id of a build that waits for a file, and that file."""
    gate = place.folder / "gate"
    steps = (f"until [ -e {gate} ]; do sleep 0.05; done", *steps)
    answer = place.call("run", "-f", file(place, build_steps=steps), "--name", "tools", "-d", PHALANX_PYTHON=python)
    assert answer.code == 0, answer.err
    return answer.out.strip(), gate


def changes(place: Place, run_id: str) -> list[tuple[str, str]]:
    found = place.call("statuses", run_id, "--json").data["statuses"]
    return [(change["status"], change["reason"]) for change in found]


def test_a_run_is_building_until_the_build_that_it_names_has_succeeded(place: Place, python: str) -> None:
    build, gate = gated_build(place, python, "echo made >>$VIRTUAL_ENV/steps")
    used = place.queued("cat $VIRTUAL_ENV/steps", build={"ref": "tools"})
    waits = f"waits for build {build} (tools)"
    row = place.call("ps", "-q", "status:building", "--json").data["runs"][0]
    assert (row["id"], row["reason"], row["waits_for"]) == (used, waits, waits)
    assert f"waits for build {build}" in place.call("show", used).out
    assert "building" in place.call("ps").out
    gate.touch()
    assert place.until(used, "succeeded", "failed") == "succeeded"
    assert changes(place, used)[:4] == [
        ("created", "submitted"),
        ("building", waits),
        ("created", f"build {build} (tools) succeeded"),
        ("scheduled", "attempt 1"),
    ]
    assert place.call("logs", used).out == "made\n"


@pytest.mark.slow
def test_a_run_whose_build_fails_has_failed_for_the_same_reason_and_one_that_is_stopped_ends_at_once(
    place: Place, python: str
) -> None:
    build, gate = gated_build(place, python, "exit 7")
    used, stopped = (place.queued("echo never", build={"ref": build}) for _ in range(2))
    assert place.call("stop", stopped).code == 0
    assert place.until(stopped, "stopped") == "stopped"
    gate.touch()
    assert place.until(used, "succeeded", "failed") == "failed"
    status, reason = changes(place, used)[-1]
    assert (status, reason.partition(":")[0]) == ("failed", f"build {build} (tools) ended as failed")
    assert "step 2 failed with code 7: exit 7 (exit code 1)" in reason
    assert reason.endswith(f"`phalanx logs {build}` shows its output")


@pytest.mark.slow
def test_plan_prints_the_recipe_and_its_key_and_steps_cannot_escape_it(place: Place) -> None:
    path = file(place, build_steps=["a\nFROM evil\n%files\n"])
    for to, first, count in (("x.tar", "FROM python:3.11", 5), ("x.sif", "Bootstrap: docker", 13)):
        answer = place.call("plan", "-f", path, "--to", to)
        assert answer.code == 0, answer.err
        lines = answer.out.splitlines()
        assert (lines[0], len(lines)) == (first, count), answer.out
        found = place.call("plan", "-f", path, "--to", to, "--json").data["recipe"]
        assert found["text"] == answer.out
        assert answer.err.splitlines()[-1] == f"content: {found['key']}"
    key = found["key"]
    (place.folder / "requirements.txt").write_text("x\n")
    assert place.call("plan", "-f", path, "--to", "x.sif", "--json").data["recipe"]["key"] != key
    plain = place.call("plan", "-f", path)
    assert "command: a" in plain.out


@pytest.mark.slow
def test_what_is_wrong_with_a_target_is_an_error_with_its_reason(place: Place) -> None:
    for to in ("a b", "-x", "x\n.sif"):
        answer = place.call("run", "-f", file(place), f"--to={to}")
        assert answer.code == 2
        assert "to: " in answer.err
    answer = place.call("run", "-f", place.file("true"), "--to", "x.sif")
    assert answer.code == 1
    assert "`to` belongs to `kind: build`" in answer.err


def test_a_missing_builder_is_one_sentence(place: Place) -> None:
    bare = place.folder / "bin"
    bare.mkdir()
    for name, words in (("x.sif", "needs `apptainer`"), ("r.example/x:1", "needs `buildah`, `podman`")):
        answer = place.call("run", "-f", file(place), "--to", name, PATH=str(bare))
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert words in answer.err


@pytest.mark.slow
def test_a_real_virtual_environment_has_pip_and_is_reused_by_run_with_build(place: Place) -> None:
    steps = ["pip --version", "echo made >>$VIRTUAL_ENV/steps"]
    answer = place.call("run", "-f", file(place, build_steps=steps))
    assert answer.code == 0, answer.out
    run = place.run(
        "cat $VIRTUAL_ENV/steps",
        "--build",
        build={"image": "python:3.11", "build_steps": steps, "env_vars": {"WORD": "hello"}},
    )
    assert (run.code, run.out) == (0, "made\n"), run.err
    assert Path(steps_of(place)[0]) == Path("made\n")
