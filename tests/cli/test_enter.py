"""`phalanx shell`, `phalanx exec` and `run --hold` on this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.homes import THREE, Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.running import in_terminal, quick


@pytest.fixture(name="running")
def running_fixture(place: Place) -> str:
    run = place.queued("sleep 300", framework="pytorch", environment={**THREE, "env_vars": [["MY_SECRET", "s3cret"]]})
    wait_for(lambda: place.call("exec", run, "--rank", "2", "--", "true").code == 0)
    return run


@pytest.mark.slow
def test_a_command_runs_beside_any_replica_and_its_exit_code_is_passed_on(place: Place, running: str) -> None:
    asked = ("sh", "-c", 'echo "$MY_SECRET $RANK $PHALANX_REPLICA $PWD"; cat; exit 9')
    answer = place.call("exec", running, "--rank", "2", "--", *asked, stdin=b"typed")
    assert (answer.code, answer.out) == (9, f"s3cret 2 worker-1 {place.folder}\ntyped")
    answer = place.call("shell", running, "--replica", "worker-0", stdin=b"echo $RANK; exit 3")
    assert (answer.code, answer.out) == (3, "1\n")
    for words, said in (
        (("--replica", "workr-1", "--", "ls"), "did you mean `worker-1`?"),
        (("--rank", "7", "--", "ls"), "no replica `7`"),
        (("--replica", "worker", "--", "ls"), "means 2 replicas"),
        (("--", "no-such-command"), "cannot start no-such-command"),
    ):
        answer = place.quick("exec", running, *words)
        assert (answer.code, said in answer.err) == (2, True), answer.err
    assert place.quick("exec", running, "--rank", "7", "--json", "--", "ls").data["ok"] is False
    place.call("stop", running)
    answer = place.quick("exec", running, "--", "ls")
    assert (answer.code, "is not running: it is stopped" in answer.err) == (2, True)


@pytest.mark.slow
def test_a_shell_has_a_terminal(place: Place, running: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_HOME", str(place.home))
    code, shown = in_terminal("shell", running, typed='tty; echo "<$MY_SECRET>"; exit 4\n')
    assert code == 4
    assert "/dev/pts/" in shown
    assert "<s3cret>" in shown
    assert "master-0)" in shown, "the prompt says where it is"


def test_over_a_server_the_user_is_told_where_to_type_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_SERVER", "http://127.0.0.1:1")
    monkeypatch.delenv("PHALANX_HOME", raising=False)
    for verb in ("exec", "shell", "notebook"):
        words = ["run1", "--", "ls"] if verb == "exec" else ["run1"] if verb == "shell" else []
        answer = quick(verb, *words)
        assert answer.code == 2
        assert f"`phalanx {verb}` is not offered over a server" in answer.err
        assert "http://127.0.0.1:1" in answer.err


def test_a_group_has_no_replica_to_enter(place: Place) -> None:
    place.remember("aaa1", kind="group")
    answer = place.quick("shell", "aaa1")
    assert (answer.code, "is a group" in answer.err) == (2, True)


# hold ----------------------------------------------------------------------------------------------------------------

FAILING = "[ $RANK = 1 ] && exit 5; sleep 300"


def held(place: Place, run: str) -> str:
    def reason() -> str:
        found = str(place.call("show", run, "--json").data["reason"])
        return found if found.startswith("held until") else ""

    return str(wait_for(reason))


@pytest.mark.slow
def test_a_failed_run_is_held_for_a_shell_until_it_is_stopped_and_has_failed(place: Place) -> None:
    run = place.queued(FAILING, "--hold", "10m", framework="pytorch", environment=THREE)
    assert "worker-0: exit code 5" in held(place, run)
    assert place.call("exec", run, "--rank", "1", "--", "sh", "-c", "echo $RANK").out == "1\n"
    assert place.call("stop", run).code == 0
    found = place.call("show", run, "--json").data
    assert (found["status"], found["reason"]) == ("failed", "worker-0: exit code 5")
    assert {one["name"]: one["status"] for one in found["replicas"]}["worker-0"] == "failed"
    assert found["facts"]["failure"]["replica"] == "worker-0"


@pytest.mark.slow
def test_only_the_last_attempt_is_held_and_the_hold_ends_by_itself(place: Place) -> None:
    answer = place.run("exit 6", environment={"max_restarts": 1, "hold": "1s"})
    assert (answer.code, "held until" in answer.err) == (6, True)
    (run,) = place.run_ids()
    history = [(row["status"], row["attempt"]) for row in place.call("show", run, "--json").data["statuses"]]
    assert history[-3:] == [("running", 2), ("running", 2), ("failed", 2)]
    assert [row for row in history if row[1] == 1][-1] == ("warning", 1)
    assert place.run("true", "--hold", "10m").code == 0, "a run that finishes is not held"


@pytest.mark.slow
def test_a_scheduler_that_was_killed_finds_the_hold_again(place: Place) -> None:
    run = place.queued("exit 6", "--hold", "10m")
    held(place, run)
    for pid in place.processes():
        if b"phalanx.scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert place.call("exec", run, "--", "true").code == 0
    assert place.call("stop", run).code == 0
    rows = place.call("show", run, "--json").data["statuses"]
    assert [row["reason"][:4] for row in rows].count("held") == 1
    assert rows[-1]["reason"] == "master-0: exit code 6"


@pytest.mark.parametrize("text", ["soon", "-1", ""])
def test_a_hold_that_is_no_time_is_refused(place: Place, text: str) -> None:
    answer = place.quick("run", "-f", str(place.folder / place.file("true")), "--hold", text)
    assert answer.code in (1, 2)
    assert "hold" in answer.err
    assert not (place.home / "runs").exists() or not place.run_ids()
