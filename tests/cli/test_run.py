from __future__ import annotations

import json
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.homes import ALL_CPUS, THREE, Place, ended, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.running import is_silent_about_itself

GREEDY = {"resources": {"memory": {"requests": 100_000_000}}}  # MiB: what no machine has


@pytest.mark.slow
def test_the_output_streams_by_and_a_table_ends_it(place: Place) -> None:
    answer = place.run("echo hello")
    assert answer.code == 0
    assert answer.out == "hello\n"
    assert "master-0  0     succeeded" in answer.err
    assert "succeeded: finished" in answer.err


@pytest.mark.slow
def test_every_line_has_the_name_of_its_replica(place: Place) -> None:
    answer = place.run("echo I am rank $RANK", framework="pytorch", environment=THREE)
    assert answer.code == 0
    assert sorted(answer.out.splitlines()) == [
        "[master-0] I am rank 0",
        "[worker-0] I am rank 1",
        "[worker-1] I am rank 2",
    ]


@pytest.mark.slow
def test_it_prints_what_following_the_logs_prints(place: Place) -> None:
    answer = place.run("echo Epoch 1; echo I am $RANK", framework="pytorch", environment=THREE)
    run_id = place.call("ps", "--json").data["runs"][0]["id"]
    followed = place.call("logs", run_id, "-f")
    assert sorted(answer.out.splitlines()) == sorted(followed.out.splitlines())
    assert "[master-0, worker-0..1 x3] Epoch 1" in answer.out.splitlines()


def test_json_says_the_run_its_replicas_and_statuses(place: Place) -> None:
    answer = place.run("echo hidden", "--json", framework="pytorch", environment=THREE)
    assert answer.code == 0
    data = answer.data
    assert (data["ok"], data["status"], data["attempt"]) == (True, "succeeded", 1)
    assert [row["name"] for row in data["replicas"]] == ["master-0", "worker-0", "worker-1"]
    assert [change["status"] for change in data["statuses"]][:2] == ["created", "scheduled"]
    assert data["statuses"][-1]["status"] == "succeeded"
    assert "hidden" not in answer.out


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 3", 3),
        ("kill -9 $$", 137),
        pytest.param("true", 0, marks=pytest.mark.slow),
        pytest.param("kill -SEGV $$", 139, marks=pytest.mark.slow),
    ],
)
def test_the_exit_code_is_that_of_the_command(place: Place, command: str, code: int) -> None:
    assert place.run(command).code == code


def test_the_exit_code_is_that_of_the_replica_that_failed_first(place: Place) -> None:
    command = 'if [ "$RANK" = 2 ]; then sleep 0.3; exit 7; fi; trap "exit 9" TERM; sleep 30 & wait'
    answer = place.run(command, framework="pytorch", environment=THREE)
    assert answer.code == 7
    assert "failed: worker-1: exit code 7" in answer.err


@pytest.mark.slow
def test_a_command_that_does_not_exist_fails_with_what_the_shell_says(place: Place) -> None:
    answer = place.run("no-such-program-anywhere")
    assert answer.code == 127
    assert "no-such-program-anywhere" in answer.out
    assert is_silent_about_itself(answer)


@pytest.mark.slow
def test_a_stopped_run_ends_as_ctrl_c_does(place: Place) -> None:
    process, run_id = place.begun()
    assert place.call("stop", run_id).code == 0
    answer = ended(process)
    assert answer.code == 130
    assert "stopped by its user" in answer.err


def test_ctrl_c_stops_the_run(place: Place) -> None:
    process, run_id = place.begun(then="echo $$ > pid; exec sleep 60")
    pid = int(wait_for(lambda: _text(place.folder / "pid")))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the whole foreground
    answer = ended(process)
    assert answer.code == 130
    assert "stopped: interrupted" in answer.err
    assert place.status(run_id) == "stopped"
    assert not Path(f"/proc/{pid}").exists()
    assert is_silent_about_itself(answer)


@pytest.mark.slow
def test_a_closed_terminal_leaves_the_run_to_go_on(place: Place) -> None:
    process, run_id = place.begun(then="while [ ! -e go ]; do sleep 0.05; done; echo done")
    os.killpg(process.pid, signal.SIGHUP)
    assert ended(process).code == 129
    wait_for(lambda: place.status(run_id) == "running")  # another scheduler takes over
    (place.folder / "go").touch()
    assert place.until(run_id, "succeeded", "failed", "stopped") == "succeeded"
    assert (place.attempt(run_id) / "log").read_text() == "done\n"


def test_nothing_is_stuck_after_kill_9_of_the_foreground(place: Place) -> None:
    process, run_id = place.begun(then="while [ ! -e go ]; do sleep 0.05; done")
    process.kill()
    ended(process)
    (place.folder / "go").touch()
    wait_for((place.attempt(run_id) / "end.json").exists)  # the agent outlives it
    assert place.status(run_id) == "succeeded"


def test_kill_9_of_everything_leaves_a_run_that_ps_settles(place: Place) -> None:
    process, run_id = place.begun()
    for pid in place.processes():
        os.kill(pid, signal.SIGKILL)
    ended(process)
    assert place.until(run_id, "failed") == "failed"
    (row,) = place.call("ps", "--json").data["runs"]
    assert "its agent was killed" in row["reason"]


def test_detached_it_prints_the_id_and_the_run_goes_on(place: Place) -> None:
    answer = place.run("while [ ! -e go ]; do sleep 0.05; done; echo later", "-d")
    assert answer.code == 0
    run_id = answer.out.strip()
    assert run_id in place.run_ids()
    (place.folder / "go").touch()
    assert place.until(run_id, "succeeded", "failed") == "succeeded"
    assert (place.attempt(run_id) / "log").read_text() == "later\n"


@pytest.mark.slow
def test_detached_json_says_the_id(place: Place) -> None:
    data = place.run("true", "--detach", "--json").data
    assert data["ok"] is True
    assert data["id"] in place.run_ids()


@pytest.mark.slow
def test_more_than_the_machine_has_is_warned_of_and_runs(place: Place) -> None:
    answer = place.run("echo small", environment=GREEDY)
    assert (answer.code, answer.out) == (0, "small\n")
    assert "warning: requests more than this machine has" in answer.err


def test_strict_refuses_more_than_the_machine_has(place: Place) -> None:
    answer = place.run("touch ran", "--strict", environment=GREEDY)
    assert answer.code == 2
    assert "more than this machine has" in answer.err
    assert not (place.folder / "ran").exists()
    assert not (place.home / "runs").exists() or place.run_ids() == []


@pytest.mark.slow
def test_strict_lets_run_what_fits(place: Place) -> None:
    assert place.run("true", "--strict").code == 0


@pytest.mark.slow
def test_the_time_limit_ends_it(place: Place) -> None:
    begun = time.monotonic()
    answer = place.run("sleep 60", "--timeout", "1")
    assert time.monotonic() - begun < 45
    assert answer.code == 128 + signal.SIGTERM
    assert "time limit of 1 s" in answer.err
    assert place.call("ps", "-q", "status:failed", "--json").data["count"] == 1


def test_a_time_limit_that_is_no_time_is_a_wrong_call(place: Place) -> None:
    answer = place.run("true", "--timeout", "soon")
    assert answer.code == 2
    assert "--timeout 'soon'" in answer.err


@pytest.mark.slow
def test_higher_priorities_leave_the_queue_first(place: Place) -> None:
    blocker = place.queued("while [ ! -e go ]; do sleep 0.05; done", name="blocker.yml", environment=ALL_CPUS)
    place.until(blocker, "running")
    for name, priority in (("low", "-1"), ("first", "0"), ("second", "0"), ("high", "5")):
        place.queued(f"echo {name} >> order", "--name", name, "--priority", priority, environment=ALL_CPUS)
    assert place.call("ps", "-q", "status:created", "--json").data["count"] == 4
    (place.folder / "go").touch()
    wait_for(lambda: _text(place.folder / "order").count("\n") == 3)
    assert (place.folder / "order").read_text().split() == ["high", "first", "second", "low"]


@pytest.mark.slow
def test_name_tags_description_and_project_are_kept(place: Place) -> None:
    options = ("--name", "mine", "--tags", "a, b,,a", "--description", "why not", "--project", "vision")
    run_id = place.ran("true", *options, tags=["file"], description="of the file")
    data = place.call("show", run_id, "--json").data
    assert (data["name"], data["description"], data["project"]) == ("mine", "why not", "vision")
    assert data["tags"] == ["file", "a", "b"]


@pytest.mark.slow
def test_params_of_the_command_line_win(place: Place) -> None:
    answer = place.run("echo lr {{ lr }}", "-P", "lr=0.5", params={"lr": 0.1})
    assert answer.out == "lr 0.5\n"


@pytest.mark.slow
def test_a_run_that_may_restart_does_so_as_a_whole(place: Place) -> None:
    command = 'echo attempt $PHALANX_ATTEMPT; [ "$PHALANX_ATTEMPT" = 2 ] || [ "$RANK" != 1 ] || exit 4'
    answer = place.run(command, "--json", framework="pytorch", environment={**THREE, "max_restarts": 1})
    assert answer.code == 0
    assert answer.data["attempt"] == 2
    assert "warning" in [change["status"] for change in answer.data["statuses"]]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"kind": "group", "hptuning": {"matrix": {"lr": {"uniform": "0:1"}}}, "run": {"cmd": "true"}},
            "write `random_search: {n_experiments: N}`",
        ),
        (
            {
                "kind": "pipeline",
                "ops": [
                    {"name": "a", "template": {"name": "b"}},
                    {"name": "c", "template": {"name": "b"}},
                    {"name": "d", "template": {"action": "x"}},
                ],
                "templates": [{"kind": "job", "name": "b"}],
            },
            "ops `a`, `c`: nothing to run: the file has no `run: {cmd: ...}`; op `d`: a template by `action` (`x`) is "
            "looked up by Polyaxon's server; write it into `templates`",
        ),
        ({"kind": "experiment"}, "nothing to run"),
    ],
)
def test_what_cannot_run_is_refused_in_words(place: Place, fields: dict[str, Any], said: str) -> None:
    answer = place.call("run", "-f", place.file(None, **fields))
    assert answer.code in (1, 2)
    assert said in answer.err
    assert is_silent_about_itself(answer)


@pytest.mark.parametrize(
    ("option", "value", "said"), [("--timeout", "0", "`timeout`"), ("--project", "*", "all projects")]
)
def test_what_a_server_would_refuse_is_refused(place: Place, option: str, value: str, said: str) -> None:
    answer = place.call("run", "-f", place.file("true"), option, value)
    assert answer.code == 2
    assert said in answer.err


def test_a_file_with_faults_is_refused_before_anything_is_made(place: Place) -> None:
    answer = place.call("run", "-f", place.file("true", enviroment={}))
    assert answer.code == 1
    assert "environment" in answer.err
    assert not place.home.exists()


def test_a_home_that_cannot_be_used_is_a_clear_error(place: Place) -> None:
    (place.folder / "taken").write_text("")
    answer = place.call("run", "-f", place.file("true"), PHALANX_HOME=str(place.folder / "taken"))
    assert answer.code == 2
    assert "set PHALANX_HOME to another folder" in answer.err


def test_secrets_of_the_environment_are_in_no_file_of_ours(place: Place) -> None:
    secret = "hunter2-never-written-down"
    process = place.start(
        "run", "-f", place.file("touch ready; while [ ! -e go ]; do sleep 0.05; done"), API_TOKEN=secret
    )
    wait_for((place.folder / "ready").exists)
    folders = {path.relative_to(place.home).parts[0] for path in _files(place.home) if secret.encode() in _bytes(path)}
    assert folders <= {"environments"}  # private, and only until the run is over
    (place.folder / "go").touch()
    answer = ended(process)
    assert secret not in answer.out + answer.err
    assert [path for path in _files(place.home) if secret.encode() in path.read_bytes()] == []


@pytest.mark.slow
def test_the_command_sees_the_environment_of_its_submitter(place: Place) -> None:
    answer = place.call("run", "-f", place.file("echo $MY_OWN"), MY_OWN="kept")
    assert answer.out == "kept\n"


@pytest.mark.slow
def test_all_that_is_kept_is_private(place: Place) -> None:
    place.ran("echo x; touch $PHALANX_OUTPUTS/mine", framework="pytorch", environment=THREE)
    outputs = next((place.home / "runs").iterdir()) / "outputs"
    kept = [path for path in (place.home, *place.home.rglob("*")) if outputs not in path.parents]
    open_to_others = [str(path) for path in kept if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert open_to_others == []


@pytest.mark.slow
def test_two_homes_know_nothing_of_each_other(place: Place, tmp_path: Path) -> None:
    run_id = place.ran("true")
    other = place.call("show", run_id, PHALANX_HOME=str(tmp_path / "other"))
    assert other.code == 2
    assert "there is no run" in other.err


@pytest.mark.slow
def test_binary_junk_and_endless_lines_stream_by(place: Place) -> None:
    answer = place.run(r"printf '\033[2J\000\377%s\n' end; head -c 300000 /dev/zero | tr '\0' x; echo; echo last")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert "end\n" in answer.out
    assert answer.out.endswith("last\n")


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # a draft, which has become the file meanwhile
        return b""


@pytest.mark.parametrize("code", [1, 2, 3, 255])
@pytest.mark.slow
def test_no_exit_code_is_taken_for_another(place: Place, code: int) -> None:
    assert place.run(f"exit {code}").code == code


@pytest.mark.slow
def test_what_this_machine_does_not_give_is_reported(place: Place) -> None:
    answer = place.run(
        "true",
        build={"image": "tensorflow/tensorflow:1.4.1", "commit": "abc"},
        environment={"secret_refs": ["keys"], "data_refs": ["images"]},
    )
    assert answer.code == 0
    for words in ("tensorflow/tensorflow:1.4.1", "build.commit", "secret_refs", "data_refs"):
        assert words in answer.err
    assert "note: runs in" not in place.run("true").err


# many at once --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_call_queues_a_run_for_each_file_and_so_many_of_each(place: Place) -> None:
    for name in ("a.yml", "b.yml"):
        place.file(f"echo {name} $SHARED", name=name)
    (place.folder / "shared.yml").write_text(
        "version: 1\nkind: experiment\nenvironment: {env_vars: [[SHARED, both]]}\n"
    )
    answer = place.call("run", "-f", "shared.yml", "--each", "a.yml", "b.yml", "--times", "2")
    assert answer.code == 0, answer.err
    runs = answer.out.split()
    assert len(set(runs)) == 4
    for run in runs:
        place.until(run, "succeeded")
    said = [place.call("logs", run).out for run in runs]
    assert said == ["a.yml both\n"] * 2 + ["b.yml both\n"] * 2


@pytest.mark.slow
def test_many_at_once_are_one_object_each(place: Place) -> None:
    place.file("true")
    answer = place.call("run", "--times", "3", "--json")
    assert answer.code == 0, answer.err
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert [row["ok"] for row in rows] == [True] * 3
    assert {row["id"] for row in rows} == {run["id"] for run in place.call("ps", "--json").data["runs"]}


@pytest.mark.slow
def test_the_faults_of_all_files_are_reported_and_nothing_is_queued(place: Place) -> None:
    place.file("true", name="good.yml")
    place.file("true", name="bad.yml", environmen={})
    place.file(None, name="worse.yml", run={"cmd": ""}, enviroment={})
    answer = place.call("run", "--each", "good.yml", "bad.yml", "worse.yml")
    assert answer.code == 1
    assert "bad.yml" in answer.err
    assert "worse.yml" in answer.err
    assert answer.out == ""
    assert place.call("run", "--each", "good.yml", "no-1.yml", "no-2.yml").err.count("no such file") == 2
    assert place.call("ps", "--json").data["runs"] == []


def test_if_one_run_is_refused_none_is_queued(place: Place) -> None:
    place.file("true", name="good.yml")
    place.file("true", name="greedy.yml", environment=GREEDY)
    answer = place.call("run", "--strict", "--each", "good.yml", "greedy.yml", "--times", "2")
    assert (answer.code, answer.out) == (2, "")
    assert "nothing was queued: greedy.yml: the run requests more than this machine has" in answer.err
    assert place.call("ps", "--json").data["runs"] == []


@pytest.mark.slow
def test_files_without_a_word_before_them_are_asked_about(place: Place) -> None:
    place.file("true", name="a.yml")
    answer = place.call("run", "a.yml")
    assert answer.code == 2
    assert "-f" in answer.err
    assert "--each" in answer.err
    assert place.call("run", "--each").code == 2
