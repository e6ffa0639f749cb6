"""A run that can never start from here is refused at once, and leaves nothing in the home."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from phalanx.backends.slurm.engine import COMMANDS
from tests.backends.kubernetes.apiserver import FakeApiServer
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.running import Answer, is_silent_about_itself


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with nothing on it: the machine itself may have Slurm."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return str(folder)


def assert_nothing_is_left(place: Place) -> None:
    kept = ("runs", "environments", "resumes", "agents", "builds")
    assert [path for name in kept for path in (place.home / name).glob("*")] == []
    assert place.call("ps", "--json").data["runs"] == []
    assert place.processes() == []


def refusal(answer: Answer) -> str:
    assert (answer.code, answer.out) == (2, "")
    assert is_silent_about_itself(answer)
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    return answer.err


@pytest.mark.parametrize("options", [(), ("--detach",)])
def test_without_sbatch_a_run_on_slurm_is_refused_with_what_to_do(
    place: Place, path: str, options: tuple[str, ...]
) -> None:
    said = refusal(place.call("run", "-f", place.file("true"), "--on", "slurm", *options, PATH=path))
    assert f"`sbatch` is not on the PATH of {socket.gethostname()}" in said
    assert "login node" in said
    assert "`phalanx plan --on slurm -o job`" in said
    assert_nothing_is_left(place)


def test_nothing_is_built_for_a_run_that_is_refused(place: Place, path: str) -> None:
    python = {"requirements": ["there-is-no-such-package"], "build_on": "login"}
    file = place.file("true", environment={"python": python})
    refusal(place.call("run", "-f", file, "--on", "slurm", "--detach", PATH=path))
    assert_nothing_is_left(place)


def test_programs_are_reported_in_json(place: Place, path: str) -> None:
    answer = place.call("run", "-f", place.file("true"), "--on", "slurm", "-d", "--json", PATH=path)
    assert (answer.code, answer.data["ok"]) == (2, False)
    assert "sbatch" in answer.data["errors"][0]["message"]


@pytest.mark.slow
def test_trials_on_slurm_are_refused_as_well(place: Place, path: str) -> None:
    file = place.file("true")
    said = refusal(place.call("size", "-f", file, "--on", "slurm", "--try", "cpu=1", "--for", "1s", PATH=path))
    assert "sbatch" in said
    assert_nothing_is_left(place)


@pytest.mark.slow
@pytest.mark.parametrize("on", ["kubernetes", "kubeflow"])
@pytest.mark.parametrize("options", [(), ("--detach",)])
def test_without_a_kubeconfig_a_run_on_kubernetes_is_refused(place: Place, on: str, options: tuple[str, ...]) -> None:
    missing = str(place.folder / "no-config")
    said = refusal(place.call("run", "-f", place.file("true"), "--on", on, *options, KUBECONFIG=missing))
    assert "error: no kubeconfig" in said
    assert "--kubeconfig FILE" in said
    assert_nothing_is_left(place)


@pytest.mark.slow
@pytest.mark.parametrize("on", ["kubernetes", "kubeflow"])
def test_a_cluster_that_does_not_answer_is_refused_with_the_reason(place: Place, on: str) -> None:
    with FakeApiServer() as server:
        config = server.kubeconfig(place.folder / "config")
    file = place.file("true")
    said = refusal(place.call("run", "-f", file, "--on", on, "--detach", KUBECONFIG=str(config)))
    assert "no response from http" in said
    assert "connection refused" in said
    assert_nothing_is_left(place)


@pytest.mark.slow
def test_a_cluster_that_answers_takes_the_run(place: Place) -> None:
    with FakeApiServer() as server:
        config = server.kubeconfig(place.folder / "config")
        file = place.file("true")
        answer = place.call("run", "-f", file, "--on", "kubernetes", "--detach", KUBECONFIG=str(config))
        assert answer.code == 0, answer.err
        assert place.run_ids() == [answer.out.strip()]
        place.call("stop", answer.out.strip(), KUBECONFIG=str(config))
        again = place.call("resume", answer.out.strip(), "--detach", KUBECONFIG=str(config))
        assert again.code == 0, again.err
    gone = place.call("restart", answer.out.strip(), "--detach", KUBECONFIG=str(config))
    assert gone.code == 2
    assert "connection refused" in gone.err
    assert len(place.run_ids()) == 1


@pytest.mark.parametrize("on", ["kubernetes", "kubeflow"])
def test_without_its_package_a_run_on_kubernetes_names_the_extra(place: Place, on: str) -> None:
    hidden = place.folder / "hidden"
    hidden.mkdir()
    (hidden / "kubernetes.py").write_text("raise ModuleNotFoundError('hidden', name='kubernetes')")
    said = refusal(place.call("run", "-f", place.file("true"), "--on", on, "-d", PYTHONPATH=str(hidden)))
    assert "pip install 'phalanx[kubernetes]'" in said
    assert_nothing_is_left(place)


@pytest.mark.slow
def test_a_run_on_slurm_is_not_repeated_where_there_is_no_sbatch(place: Place, path: str, tmp_path: Path) -> None:
    commands = tmp_path / "slurm"
    commands.mkdir()
    for name in COMMANDS:
        (commands / name).write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: x' >&2\nexit 1\n")
        (commands / name).chmod(0o755)
    (commands / "squeue").write_text("#!/bin/sh\n")
    there = f"{commands}:/usr/bin:/bin"
    refused = place.call("run", "-f", place.file("true"), "--on", "slurm", "--detach", PATH=there)
    assert refused.code == 1
    assert "sbatch refuses the job: invalid partition specified: x" in refused.err
    assert_nothing_is_left(place)
    failed = place.call("run", "-f", place.file("true"), "--on", "slurm", "--unchecked", PATH=there)
    assert failed.code == 1, failed.err
    (run_id,) = place.run_ids()

    def state() -> tuple[list[str], str, list[Path]]:
        (run,) = place.call("ps", "--json", PATH=path).data["runs"]
        return place.run_ids(), run["status"], list((place.home / "resumes").iterdir())

    before = state()
    assert before[1] == "failed"
    for verb in ("restart", "resume", "copy", "rerun"):
        answer = place.call(verb, run_id, "--detach", PATH=path)
        assert answer.code == 2
        assert "`sbatch` is not on the PATH" in answer.err.splitlines()[-1]
        assert state() == before
