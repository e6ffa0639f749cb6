"""A backend of another package, through the installed command. Nothing of ours names it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from tests.backends.third_party.installation import install
from tests.cli.homes import Place, wait_for
from tests.cli.running import Answer, is_silent_about_itself

NICE = {"shell": {"nice": 5}}


class ShellPlace(Place):
    """A home on a machine where the package is installed."""

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{"PYTHONPATH": str(self.folder.parent / "site"), **more})

    def call(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Answer:
        found = super().call(*arguments, stdin=stdin, **environment)
        assert is_silent_about_itself(found), found.err
        return found

    def _only_reads(self, arguments: tuple[str, ...]) -> bool:
        return False  # this process does not have the package


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path) -> Iterator[ShellPlace]:
    install(tmp_path / "site")
    place = ShellPlace(tmp_path)
    yield place
    place.close()


def test_a_run_goes_from_start_to_end_with_its_log_and_statuses(place: ShellPlace) -> None:
    answer = place.run("nice; echo in $PHALANX_RUN_ID", "--on", "shell", environment=NICE)
    assert answer.code == 0, answer.err
    (run_id,) = place.run_ids()
    assert f"in {run_id}" in answer.out
    shown = place.call("show", run_id, "--json").data
    assert (shown["status"], shown["backend"]) == ("succeeded", "shell")
    said = place.call("logs", run_id).out
    assert str(min(os.nice(0) + 5, 19)) in said.split()  # the settings of the file reached the job
    assert "running" in place.call("statuses", run_id).out
    handle = json.loads((place.home / "runs" / run_id / "job" / "attempt-1.handle").read_text())["handle"]
    assert handle == f"shell:{run_id}.1"


@pytest.mark.slow
def test_several_replicas_find_each_other(place: ShellPlace) -> None:
    command = 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR"'
    answer = place.run(command, "--on", "shell", framework="pytorch", environment={"replicas": {"n_workers": 1}})
    assert answer.code == 0, answer.err
    assert "0 of 2 at 127.0.0.1" in answer.out
    assert "1 of 2 at 127.0.0.1" in answer.out


@pytest.mark.slow
def test_a_failed_command_fails_the_run(place: ShellPlace) -> None:
    answer = place.run("echo broken >&2; exit 3", "--on", "shell")
    assert answer.code == 3
    (run_id,) = place.run_ids()
    assert "code 3" in place.call("show", run_id, "--json").data["reason"]


@pytest.mark.slow
def test_a_run_is_stopped(place: ShellPlace) -> None:
    run_id = place.queued("touch ready; sleep 600", "--on", "shell")
    wait_for((place.folder / "ready").exists)
    assert place.call("stop", run_id).code == 0
    assert place.until(run_id, "stopped") == "stopped"
    wait_for((place.home / "shell" / f"{run_id}.1.pid.code").exists)


@pytest.mark.slow
def test_check_says_what_the_backend_refuses(place: ShellPlace) -> None:
    file = place.file("true", backend="shell", environment=NICE)
    fine = place.call("check", "-f", file, "--on", "shell")
    assert (fine.code, fine.err) == (0, "")
    file = place.file("true", environment={"resources": {"gpu": {"requests": 1}}})
    for call in (("check", "-f", file, "--on", "shell"), ("run", "-f", file, "--on", "shell")):
        refused = place.call(*call)
        assert refused.code == 1
        assert "the shell has no GPUs: remove `resources.gpu`" in refused.err


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"shell": {"nice": 50}}, "environment.shell.nice: expected a whole number from 0 to 19"),
        ({"shell": {"nicer": 5}}, "did you mean `nice`?"),
        ({"shel": {"nice": 5}}, "did you mean `shell`?"),
    ],
)
def test_the_section_of_the_file_is_validated(place: ShellPlace, environment: object, said: str) -> None:
    answer = place.call("check", "-f", place.file("true", environment=environment))
    assert answer.code == 1
    assert said in answer.err


def test_the_schema_has_the_section(place: ShellPlace) -> None:
    validator = jsonschema.Draft202012Validator(place.call("schema").data)
    file = {"version": 1, "kind": "experiment", "run": {"cmd": "true"}}
    assert validator.is_valid({**file, "environment": NICE})
    assert not validator.is_valid({**file, "environment": {"shell": {"nicer": 5}}})


@pytest.mark.slow
def test_plan_shows_and_writes_the_job(place: ShellPlace) -> None:
    file = place.file("true", environment=NICE)
    assert "nice -n 5 python3" in place.call("plan", "-f", file, "--on", "shell").out
    answer = place.call("plan", "-f", file, "--on", "shell", "-o", "job")
    assert "start it with: sh job/run.sh job 1 job.pid" in answer.out
    assert (place.folder / "job" / "job" / "agent.pyz").exists()


def test_doctor_looks_at_the_backend(place: ShellPlace, tmp_path: Path) -> None:
    fine = place.call("doctor", "--on", "shell")
    assert (fine.code, fine.out) == (0, "ready for runs\n")
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    answer = place.call("doctor", "--on", "shell", "--json", PATH=str(nothing))
    assert answer.code == 1
    assert answer.data["problems"] == ["`nice` is not on the PATH: install it"]


@pytest.mark.slow
def test_a_backend_that_cannot_be_loaded_is_reported(place: ShellPlace) -> None:
    install(place.folder.parent / "site", module="import there_is_no_such_module\n", name="broken")
    said = "the backend `broken` (phalanx_broken:BACKEND) cannot be loaded: No module named 'there_is_no_such_module'"
    refused = place.call("run", "-f", place.file("true"), "--on", "broken")
    assert refused.code == 2
    assert said in refused.err
    parts = place.call("doctor", "--json").data["installed"]["parts"]
    assert next(part for part in parts if part["name"] == "broken")["fix"] == said
    assert place.call("check", "-f", place.file("true")).code == 0  # other files do not need it
