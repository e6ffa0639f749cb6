"""Runs made from runs, and what they were made of: restart, copy, resume, rerun, snapshots, builds, records, doctor."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.homes import Place, ended, place_fixture  # noqa: F401 - found by its name

NOTE_ATTEMPTS = 'echo $PHALANX_ATTEMPT >> "$PHALANX_OUTPUTS/attempts"; cat "$PHALANX_OUTPUTS/attempts"'


def outputs(place: Place, run_id: str, name: str = "attempts") -> str:
    return (place.home / "runs" / run_id / "outputs" / name).read_text()


def new_run(place: Place, *arguments: str) -> dict[str, Any]:
    answer = place.call(*arguments, "--json")
    assert answer.code == 0, answer.err
    found: dict[str, Any] = answer.data
    return found


@pytest.mark.slow
def test_a_restarted_run_is_a_new_one_with_outputs_of_its_own(place: Place) -> None:
    first = place.ran(NOTE_ATTEMPTS, "--name", "tiny")
    second = new_run(place, "restart", first)
    assert second["id"] != first
    assert (second["name"], second["original"], second["cloning"]) == ("tiny", first, "restart")
    assert outputs(place, second["id"]) == "1\n"


@pytest.mark.slow
def test_a_copied_run_begins_with_the_outputs_of_the_first(place: Place) -> None:
    first = place.ran(NOTE_ATTEMPTS)
    second = new_run(place, "copy", first)
    assert outputs(place, second["id"]) == "1\n1\n"
    assert outputs(place, first) == "1\n"


@pytest.mark.slow
def test_a_resumed_run_is_the_same_with_its_next_attempt(place: Place) -> None:
    first = place.ran(f"{NOTE_ATTEMPTS}; test $PHALANX_ATTEMPT = 2")
    assert place.status(first) == "failed"
    resumed = new_run(place, "resume", first)
    assert (resumed["id"], resumed["status"], resumed["attempt"]) == (first, "succeeded", 2)
    assert outputs(place, first) == "1\n2\n"
    statuses = [row["status"] for row in resumed["statuses"]]
    assert statuses[statuses.index("failed") + 1] == "resuming"
    assert statuses[-1] == "succeeded"
    assert (place.attempt(first, number=2) / "end.json").exists()


def test_only_a_run_that_is_there_can_be_resumed(place: Place) -> None:
    answer = place.call("resume", "nobody")
    assert answer.code == 2
    assert "nobody" in answer.err


@pytest.mark.slow
def test_a_run_whose_folder_of_work_is_gone_is_reported(place: Place, tmp_path: Path) -> None:
    run_id = place.ran("true")
    shutil.move(place.folder, tmp_path / "moved")
    place.folder.parent.joinpath("elsewhere").mkdir()
    place.folder = place.folder.parent / "elsewhere"
    answer = place.call("restart", run_id)
    assert answer.code == 2
    assert "working folder" in answer.err


@pytest.mark.slow
def test_a_run_whose_folder_of_work_is_gone_is_not_resumed(place: Place) -> None:
    run_id, gone = place.ran("false"), place.folder
    place.folder = place.folder.rename(place.folder.parent / "elsewhere")
    answer = place.call("resume", run_id)
    assert answer.code == 2
    assert f"the working folder of run {run_id} no longer exists: {gone}" in answer.err
    assert place.status(run_id) == "failed"


@pytest.mark.slow
def test_a_snapshot_is_run_again_after_its_home_has_moved(place: Place) -> None:
    (place.folder / "code.txt").write_text("old")
    first = place.ran("cat code.txt; test $PHALANX_ATTEMPT = 2", "--snapshot")
    assert place.status(first) == "failed"
    place.home = place.home.rename(place.home.parent / "moved")
    shutil.rmtree(place.folder)
    place.folder.mkdir()
    assert new_run(place, "resume", first)["status"] == "succeeded"
    for verb in ("restart", "copy", "rerun"):
        again = place.call(verb, first, "--json").data["id"]
        assert (place.attempt(again) / "log").read_text().startswith("old")


@pytest.mark.slow
def test_clones_keep_the_time_limit_of_the_command_line(place: Place) -> None:
    first = place.ran("true", "--timeout", "45m")
    again = [new_run(place, verb, first)["id"] for verb in ("restart", "copy", "rerun")]
    again.append(new_run(place, "restart", again[0])["id"])
    plans = [json.loads((place.home / "runs" / run_id / "plan.json").read_text()) for run_id in again]
    assert [plan["timeout_s"] for plan in plans] == [2700.0] * 4


@pytest.mark.slow
def test_a_snapshot_keeps_the_code_as_it_was(place: Place) -> None:
    (place.folder / "code.txt").write_text("old")
    (place.folder / "secret.txt").write_text("not code")
    (place.folder / ".polyaxonignore").write_text("secret.txt\n")
    run_id = place.ran("cat code.txt; ls", "--snapshot")
    (place.folder / "code.txt").write_text("new")
    log = (place.attempt(run_id) / "log").read_text()
    assert log.startswith("old")
    assert "secret.txt" not in log
    again = new_run(place, "rerun", run_id)
    assert (place.attempt(again["id"]) / "log").read_text().startswith("old")


@pytest.mark.slow
def test_a_run_made_from_a_snapshot_has_a_copy_of_its_own(place: Place) -> None:
    (place.folder / "code.txt").write_text("old")
    first = place.ran("cat code.txt", "--snapshot")
    second = new_run(place, "restart", first)["id"]
    assert place.call("rm", "-y", first).code == 0
    (place.folder / "code.txt").write_text("new")
    third = new_run(place, "restart", second)["id"]
    assert [(place.attempt(run_id) / "log").read_text() for run_id in (second, third)] == ["old", "old"]


@pytest.mark.slow
def test_a_snapshot_of_a_repository_takes_what_git_does_not_ignore(place: Place) -> None:
    git = ["git", "-C", str(place.folder), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (place.folder / ".gitignore").write_text("*.bin\n")
    (place.folder / "kept.txt").write_text("kept")
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "begin"], check=True)
    (place.folder / "kept.txt").write_text("changed")
    (place.folder / "new.txt").write_text("new")
    (place.folder / "large.bin").write_text("junk")
    run_id = place.ran("true", "--snapshot")
    code = place.home / "runs" / run_id / "code"
    assert {path.name for path in code.iterdir()} == {".gitignore", "kept.txt", "new.txt", "polyaxonfile.yml"}
    assert (code / "kept.txt").read_text() == "changed"
    records = json.loads((place.home / "runs" / run_id / "records.json").read_text())
    assert records["git"]["dirty"] is True
    assert "+changed" in records["git"]["diff"]


@pytest.mark.slow
def test_what_it_takes_to_do_a_run_again_is_kept_without_secrets(place: Place) -> None:
    file = place.file("true", params={"seed": 7})
    answer = place.call(
        "run", "-f", file, "--json", HF_TOKEN="hush", DATABASE="postgresql://me:hush@host/db", PLAIN="seen"
    )
    folder = place.home / "runs" / answer.data["id"]
    records = json.loads((folder / "records.json").read_text())
    assert records["environment"]["PLAIN"] == "seen"
    assert records["environment"]["HF_TOKEN"] == "***"
    assert records["seeds"] == {"seed": 7}
    assert records["working"] == str(place.folder)
    kept = [path for path in place.home.rglob("*") if path.is_file() and b"hush" in path.read_bytes()]
    assert kept == []


@pytest.mark.slow
def test_rerun_says_what_has_changed_since(place: Place) -> None:
    run_id = place.ran("true")
    path = place.home / "runs" / run_id / "records.json"
    records = json.loads(path.read_text())
    records["packages"]["torch"] = "0.0.1"
    path.write_text(json.dumps(records))
    answer = place.call("rerun", run_id)
    assert answer.code == 0
    assert "torch 0.0.1" in answer.err


@pytest.mark.slow
def test_build_steps_run_once_and_are_kept_by_their_content(place: Place) -> None:
    steps = {"build": {"build_steps": ["echo built >> builds.txt"]}}
    command = "echo $VIRTUAL_ENV; python -c 'import sys; print(sys.prefix)'"
    first = place.run(command, "--build", **steps)
    assert first.code == 0, first.err
    assert "waits for build " in first.err
    (build,) = place.call("ps", "-q", "kind:build", "--json").data["runs"]
    assert "step 1 of 1: echo built" in place.call("logs", build["id"]).out
    prefix, python = first.out.splitlines()[:2]
    assert prefix == python
    assert place.run(command, "--build", **steps).code == 0
    assert (place.folder / "builds.txt").read_text() == "built\n"


@pytest.mark.slow
def test_a_run_that_was_built_is_run_again_in_its_build(place: Place) -> None:
    first = place.ran("echo $VIRTUAL_ENV", "--build", build={"build_steps": ["true"]})
    second = new_run(place, "restart", first)
    assert (place.attempt(second["id"]) / "log").read_text() == (place.attempt(first) / "log").read_text()
    assert str(place.home) in (place.attempt(second["id"]) / "log").read_text()
    shutil.rmtree(place.home / "builds")
    assert "--build" in place.call("restart", first).err


@pytest.mark.slow
def test_build_steps_that_are_not_run_are_reported_of(place: Place) -> None:
    answer = place.run("true", build={"build_steps": ["false"]})
    assert answer.code == 0
    assert "--build" in answer.err


@pytest.mark.slow
def test_a_build_step_that_fails_shows_its_last_lines(place: Place) -> None:
    answer = place.run("true", "--build", build={"build_steps": ["echo no such thing; exit 9"]})
    assert answer.code == 1
    assert "code 9" in answer.err
    assert "  | no such thing" in answer.err
    statuses = [row["status"] for row in place.call("ps", "--json").data["runs"]]
    assert statuses == ["failed", "failed"]


@pytest.mark.slow
def test_a_healthy_home_is_reported(place: Place) -> None:
    place.ran("true")
    answer = place.call("doctor")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "no problems found")


@pytest.mark.slow
def test_the_database_is_made_again_from_the_folders(place: Place) -> None:
    first = place.ran("exit 3", environment={"max_restarts": 1, "replicas": {"n_workers": 1}}, framework="pytorch")
    second = place.ran("true", "--name", "other", params={"lr": 0.1})
    before = {run_id: place.call("show", run_id, "--json").data for run_id in (first, second)}
    with sqlite3.connect(place.home / "phalanx.db") as database:
        database.execute("DELETE FROM runs")
    assert place.call("doctor").code == 1
    answer = place.call("doctor", "--rebuild", "--json")
    assert (answer.code, answer.data["rebuilt"], answer.data["problems"]) == (0, 2, [])
    for run_id, old in before.items():
        new = place.call("show", run_id, "--json").data
        assert {**new, "replicas": None, "updated_at": None} == {**old, "replicas": None, "updated_at": None}
        assert [row["cause"] for row in new["replicas"]] == [row["cause"] for row in old["replicas"]]


@pytest.mark.parametrize("damage", ["row", "folder", "status"])
@pytest.mark.slow
def test_what_does_not_agree_is_found(place: Place, damage: str) -> None:
    run_id = place.ran("true")
    if damage == "folder":
        shutil.rmtree(place.home / "runs" / run_id)
    else:
        change = "DELETE FROM runs" if damage == "row" else "UPDATE runs SET status = 'failed'"
        with sqlite3.connect(place.home / "phalanx.db") as database:
            database.execute(change)
    answer = place.call("doctor", "--json")
    assert answer.code == 1
    assert run_id in " ".join(answer.data["problems"])


@pytest.mark.slow
def test_a_run_is_resumed_beside_a_server(place: Place) -> None:
    server = place.start("serve", "--port", "0", "--json")
    assert server.stdout is not None
    assert "url" in server.stdout.readline()
    run_id = place.ran("[ $PHALANX_ATTEMPT = 2 ]")
    again = place.call("resume", run_id, "--json")
    assert (again.code, again.data["status"], again.data["attempt"]) == (0, "succeeded", 2)
    server.terminate()
    assert ended(server).code == 0
