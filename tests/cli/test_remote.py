"""The verbs when a server is meant: the same words, the same answers, from a laptop that has nothing but a token."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from phalanx.cli import phalanx
from tests.cli.homes import THREE, Place, ended, wait_for
from tests.cli.running import COMMAND, Answer
from tests.client.answers import said, somebody

TRAIN = """
import os, sys
from phalanx import tracking
import helper

name = os.environ["PHALANX_REPLICA"]
print(helper.WORD, name, flush=True)
for step in range(20):
    tracking.log(loss=1 / (step + 1), step=step)
with open(os.path.join(os.environ["PHALANX_OUTPUTS"], name + ".csv"), "w") as stream:
    stream.write("a,b\\n1,2\\n")
"""

NAMES = ("PHALANX_SERVER", "PHALANX_TOKEN")


class Laptop:
    """Where people sit: a folder with code, and no home."""

    def __init__(self, base: Path, url: str, token: str) -> None:
        self.folder = base / "work"
        self.base = base
        self.url = url
        self.token = token
        self.folder.mkdir(parents=True)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
        kept |= {"HOME": str(self.base), "XDG_CONFIG_HOME": str(self.base / "config")}
        return {**kept, "PHALANX_SERVER": self.url, "PHALANX_TOKEN": self.token, **more}

    def call(self, *arguments: str, **environment: str) -> Answer:
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            capture_output=True,
            check=False,
            timeout=120,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def quick(self, *arguments: str, stdin: str = "", **environment: str | None) -> Answer:
        """The same inside this process, many times as fast. What is None is not set."""
        env = {"PHALANX_HOME": None, "PHALANX_RUN_ID": None, **self.environment(), **environment}
        result = CliRunner().invoke(phalanx, arguments, input=stdin, env=env)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def finds(self, query: str) -> int:
        return int(self.quick("ps", "-q", query, "--json").data["count"])

    def file(self, command: str, **fields: Any) -> str:
        content = {"version": 1, "kind": "experiment", "run": {"cmd": command}, **fields}
        (self.folder / "polyaxonfile.yml").write_text(json.dumps(content))
        return "polyaxonfile.yml"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, str]]:
    """A home that `phalanx serve` serves, and its address."""
    place = Place(tmp_path_factory.mktemp("server"))
    process = place.start("serve", "--port", "0", "--json")
    assert process.stdout is not None
    url = str(json.loads(process.stdout.readline())["url"])
    yield place, url
    process.send_signal(signal.SIGTERM)
    ended(process)
    shutil.rmtree(place.home, ignore_errors=True)
    for pid in place.processes():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def laptop(server: tuple[Place, str], tmp_path: Path) -> Laptop:
    place, url = server
    return Laptop(tmp_path, url, (place.home / "token").read_text().strip())


@pytest.fixture(scope="module")
def trained(server: tuple[Place, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Answer, Laptop]:
    """A distributed run from a folder of the laptop, and what `phalanx run` said of it."""
    place, url = server
    laptop = Laptop(tmp_path_factory.mktemp("laptop"), url, (place.home / "token").read_text().strip())
    (laptop.folder / "train.py").write_text(TRAIN)
    (laptop.folder / "helper.py").write_text('WORD = "from the laptop"')
    (laptop.folder / "junk.bin").write_bytes(b"x")
    (laptop.folder / ".polyaxonignore").write_text("junk*\n")
    laptop.file("python3 train.py", framework="pytorch", environment=THREE, name="trained", params={"lr": 1})
    answer = laptop.call("run", "-P", "lr=2", "--tags", "far")
    assert answer.code == 0, answer.err
    (row,) = laptop.quick("ps", "-q", "name:trained", "--json").data["runs"]
    return str(row["id"]), answer, laptop


def test_a_run_from_a_laptop_streams_by_and_says_its_end(
    server: tuple[Place, str], trained: tuple[str, Answer, Laptop]
) -> None:
    run_id, answer, laptop = trained
    assert sorted(answer.out.splitlines()) == [
        f"[{name}] from the laptop {name}" for name in ("master-0", "worker-0", "worker-1")
    ]
    assert f"run {run_id}: succeeded: finished" in answer.err
    assert f"outputs: phalanx outputs {run_id}" in answer.err
    code = sorted(path.name for path in (server[0].home / "runs" / run_id / "code").iterdir())
    assert [name for name in code if not name.startswith(("__pycache__",))] == [
        ".polyaxonignore",
        "helper.py",
        "polyaxonfile.yml",
        "train.py",
    ]
    assert not (laptop.base / ".phalanx").exists()


@pytest.mark.parametrize(
    "words",
    [
        "ps",
        "show RUN",
        "statuses RUN",
        "metrics RUN",
        "metrics RUN loss --buckets 5",
        "metrics RUN loss --over-ranks",
        "logs RUN",
        "logs RUN --rank 1 --tail 1",
        "logs RUN --errors",
        "outputs RUN",
        "outputs RUN outputs",
        "outputs RUN --show outputs/master-0.csv",
        "artifacts RUN",
        "models",
        "compare RUN RUN",
        "advise RUN",
        "advise RUN RUN",
        "show nothing",
        "metrics RUN nothing",
        "logs RUN --replica nobody",
        "outputs RUN nothing",
        "ps -q nothing:1",
    ],
)
def test_a_server_answers_as_its_home_does(
    server: tuple[Place, str], trained: tuple[str, Answer, Laptop], words: str
) -> None:
    run_id, _, laptop = trained
    arguments = words.replace("RUN", run_id).split()
    for more in ([], ["--json"]):
        here, there = server[0].quick(*arguments, *more), laptop.quick(*arguments, *more)
        assert there.code == here.code
        if more and words.split(maxsplit=1)[0] != "logs":
            assert comparable(there.data) == comparable(here.data)
        elif not more:
            assert without_place(there.out) == without_place(here.out)


def comparable(data: Any) -> Any:
    """Without what is different by nature: where it is, and what a server does not tell."""
    apart = ("folder", "server", "also_in", "url")
    if isinstance(data, dict):
        return {name: comparable(value) for name, value in data.items() if name not in apart and name != "errors"}
    return [comparable(value) for value in data] if isinstance(data, list) else data


def without_place(text: str) -> list[str]:
    """The lines without the paths and with all times alike: a run is older at the second look."""
    apart = ("  folder ", "  server ")
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith(apart)]
    return [re.sub(r"\b\d+ s( +)", "N s ", line) for line in lines]


def test_points_come_as_they_were_logged(server: tuple[Place, str], trained: tuple[str, Answer, Laptop]) -> None:
    run_id, _, laptop = trained
    there = laptop.quick("metrics", run_id, "loss", "--csv")
    assert there.out == server[0].quick("metrics", run_id, "loss", "--csv").out
    assert len(there.out.splitlines()) == 61


def test_events_agree_as_far_as_a_server_knows(server: tuple[Place, str], trained: tuple[str, Answer, Laptop]) -> None:
    run_id, _, laptop = trained
    here = server[0].quick("events", run_id, "--json").data["events"]
    there = laptop.quick("events", run_id, "--json").data["events"]
    names = ("kind", "replica", "attempt")
    assert sorted(str([event[name] for name in names]) for event in there) == sorted(
        str([event[name] for name in names]) for event in here
    )


def test_files_are_looked_into_and_fetched(trained: tuple[str, Answer, Laptop], tmp_path: Path) -> None:
    run_id, _, laptop = trained
    shown = laptop.quick("outputs", run_id, "--show", "outputs/master-0.csv")
    assert shown.code == 0, shown.err
    assert "a" in shown.out
    got = laptop.quick("outputs", run_id, "--get", "outputs", "-o", str(tmp_path / "got"))
    assert got.code == 0, got.err
    assert (tmp_path / "got" / "worker-1.csv").read_text() == "a,b\n1,2\n"
    pushed = laptop.quick("outputs", run_id, "--push", "file:///tmp/x")
    assert pushed.code == 2
    assert "only in a local home, not on http://" in pushed.err


def test_models_are_shown_and_fetched(
    server: tuple[Place, str], trained: tuple[str, Answer, Laptop], tmp_path: Path
) -> None:
    run_id, _, laptop = trained
    made = server[0].quick("models", "register", run_id, "outputs", "--name", "net", "--alias", "best")
    assert made.code == 0, made.err
    for words in (["models"], ["models", "show", "net"], ["models", "show", "net@best"], ["models", "history", "net"]):
        here, there = server[0].quick(*words, "--json"), laptop.quick(*words, "--json")
        assert there.data == here.data
        assert laptop.quick(*words).out == server[0].quick(*words).out
    got = laptop.quick("models", "get", "net/1", "-o", str(tmp_path / "net"))
    assert got.code == 0, got.err
    assert (tmp_path / "net" / "master-0.csv").read_text() == "a,b\n1,2\n"
    missing = laptop.quick("models", "show", "net/7")
    assert "`net` has no version 7; the latest is 1" in missing.err


def test_what_runs_used_is_reported(trained: tuple[str, Answer, Laptop]) -> None:
    run_id, _, laptop = trained
    answer = laptop.quick("advise", run_id)
    assert answer.code == 0, answer.err
    assert "memory" in answer.out
    assert laptop.quick("advise", run_id, "--json").data["runs"][0]["id"] == run_id
    refused = laptop.quick("advise", run_id, "--apply")
    assert "only in a local home" in refused.err


def test_the_exit_code_follows_a_run_that_fails(laptop: Laptop) -> None:
    laptop.file('[ "$PHALANX_RANK" = 1 ] && exit 7; sleep 30', framework="pytorch", environment=THREE)
    answer = laptop.call("run")
    assert answer.code == 7
    assert "worker-0 failed first: exit code 7" in answer.err


def test_ctrl_c_stops_the_run(laptop: Laptop) -> None:
    laptop.file("echo at work; sleep 60", name="interrupted")
    process = subprocess.Popen(
        [COMMAND, "run"],
        cwd=laptop.folder,
        env=laptop.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGINT)
    answer = ended(process)
    assert answer.code == 130
    assert "stopped: stopped by owner" in answer.err


@pytest.mark.slow
def test_a_detached_run_is_followed_stopped_and_removed(laptop: Laptop) -> None:
    laptop.file("echo first; sleep 1; echo second; sleep 60", name="detached")
    run_id = laptop.call("run", "-d").out.strip()
    process = subprocess.Popen(
        [COMMAND, "logs", "-f", run_id],
        cwd=laptop.folder,
        env=laptop.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["first\n", "second\n"]
    (row,) = [row for row in laptop.quick("top", "--json").data["runs"] if row["id"] == run_id]
    assert row["replicas"][0]["status"] == "running"
    refused = laptop.quick("rm", "-y", run_id)
    assert (refused.code, "still active" in refused.err) == (2, True)
    assert laptop.quick("stop", run_id).out == f"{run_id}: stopped: stopped by owner\n"
    assert ended(process).code == 0
    assert laptop.quick("rm", "-y", run_id).out == f"removed {run_id}\n"
    assert laptop.quick("show", run_id).code == 2


@pytest.mark.slow
def test_a_group_is_followed_and_changed(laptop: Laptop) -> None:
    tuning = {"matrix": {"x": {"values": [3, 1, 2]}}, "metric": {"name": "loss", "optimization": "minimize"}}
    small = {"resources": {"cpu": {"requests": 0.01}}}
    log = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}})'"
    file = laptop.file(f"test {{{{ x }}}} = 3 || sleep 60; {log}", kind="group", hptuning=tuning, environment=small)
    group = laptop.call("run", "-f", file, "-d", "--json").data["id"]
    wait_for(lambda: laptop.quick("group", "best", group, "--json").data["trials"])
    assert laptop.quick("group", "pause", group, "--json").data["status"] == "warning"
    assert laptop.quick("group", "set", group, "concurrency=2").code == 0
    assert laptop.quick("group", "add", group, "x=9").code == 0
    assert "not in the matrix" in laptop.quick("group", "add", group, "y=9").err
    shown = laptop.quick("group", "show", group)
    assert "grid_search, 2 at a time" in shown.out
    assert "best         trial 0, run " in shown.out
    assert laptop.quick("group", "stop", group, "--pending").code == 0
    assert laptop.quick("group", "stop", group, "--json").data["status"] == "stopped"
    rows = laptop.quick("group", "trials", group, "-s", "value", "--json").data["trials"]
    assert [(row["trial"], row["state"]) for row in rows] == [(0, "reported"), (1, "stopped")]
    assert "x=3" in laptop.quick("group", "trials", group).out


@pytest.mark.slow
def test_many_runs_are_queued_by_one_call(laptop: Laptop) -> None:
    for name in ("a", "b"):
        content = {"version": 1, "kind": "experiment", "name": f"many-{name}", "run": {"cmd": "true"}}
        (laptop.folder / f"{name}.yml").write_text(json.dumps(content))
    answer = laptop.call("run", "--each", "a.yml", "b.yml", "--times", "2", "--json")
    assert answer.code == 0, answer.err
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert len({row["id"] for row in rows}) == 4
    wait_for(lambda: laptop.finds("name:many-a|many-b, status:succeeded") == 4)
    (laptop.folder / "b.yml").write_text("version: 1\nkind: experimnt\n")
    answer = laptop.call("run", "--each", "a.yml", "b.yml")
    assert (answer.code, answer.out) == (1, "")
    assert "b.yml:2:" in answer.err


def test_runs_are_made_again(trained: tuple[str, Answer, Laptop]) -> None:
    run_id, _, laptop = trained
    for verb in ("restart", "copy"):
        answer = laptop.quick(verb, run_id, "-d", "--json")
        assert answer.code == 0, answer.out
        new = str(answer.data["id"])
        assert laptop.quick("show", new, "--json").data["original"] == run_id
        done = f"id:{new}, status:succeeded"
        wait_for(partial(laptop.finds, done))
    assert laptop.quick("resume", new, "--json").data["attempt"] == 2


def test_what_is_wrong_with_a_file_is_reported_with_its_place(laptop: Laptop) -> None:
    (laptop.folder / "polyaxonfile.yml").write_text("version: 1\nkind: job\nrun: {cmdd: x}\n")
    answer = laptop.call("run")
    assert answer.code == 1
    assert "polyaxonfile.yml:3" in answer.err


# trouble -------------------------------------------------------------------------------------------------------------


def test_a_wrong_token_and_a_dead_server_are_reported_with_what_to_do(laptop: Laptop) -> None:
    wrong = laptop.quick("ps", PHALANX_TOKEN="wrong")
    assert (wrong.code, wrong.out) == (2, "")
    assert "rejected the token" in wrong.err
    dead = laptop.call("ps", "--json", PHALANX_SERVER="http://127.0.0.1:9")
    assert dead.code == 2
    assert "cannot connect to http://127.0.0.1:9" in dead.data["errors"][0]["message"]
    assert "Traceback" not in wrong.err + dead.err


def test_a_server_that_is_older_says_so(laptop: Laptop) -> None:
    (laptop.folder / "polyaxonfile.yml").write_text("version: 1\nkind: job\nrun: {cmd: x}\n")
    message = {"error": {"message": "no such path"}}
    with somebody(lambda *_: said(404, message)) as (url, _):
        answer = laptop.call("run", PHALANX_SERVER=url)
    assert answer.code == 2
    assert f"{url} runs an older Phalanx that cannot do this: upgrade the server" in answer.err


# login ---------------------------------------------------------------------------------------------------------------


def test_a_login_makes_a_server_the_one_that_is_asked(laptop: Laptop, trained: tuple[str, Answer, Laptop]) -> None:
    def bare(*arguments: str, stdin: str = "", **environment: str) -> Answer:
        return laptop.quick(*arguments, stdin=stdin, **{**dict.fromkeys(NAMES), **environment})

    assert bare("login", laptop.url, stdin="wrong\n").code == 2
    answer = bare("login", laptop.url, stdin=f"{laptop.token}\n")
    assert answer.out == f"logged in to {laptop.url} as owner, admin\n"
    assert laptop.token not in answer.out + answer.err
    kept = laptop.base / "config" / "phalanx" / "servers.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert bare("show", trained[0], "--json").data["server"] == laptop.url
    status = bare("login", "--status", "--json").data
    assert (status["url"], status["by"], status["name"]) == (laptop.url, "phalanx login", "owner")
    assert bare("ps", "--json", PHALANX_HOME=str(laptop.base / "own")).data["count"] == 0
    assert bare("ps", "--json", PHALANX_RUN_ID="abc").data["count"] == 0
    assert bare("token", "list").code == 2
    assert bare("doctor").code == 0
    assert bare("logout").out == f"logged out of {laptop.url}\n"
    assert bare("ps", "--json").data["count"] == 0


@pytest.mark.parametrize(
    "words", ["doctor", "token list", "export abc -o x", "rerun abc", "models delete abc", "site list"]
)
def test_what_is_only_done_at_home_says_so(laptop: Laptop, words: str) -> None:
    answer = laptop.quick(*words.split())
    assert answer.code == 2
    assert f"only in a local home, not on {laptop.url}" in answer.err
    assert laptop.quick(*words.split()[:-1] if "list" in words else words.split(), "--help").code == 0


@pytest.mark.parametrize("words", ["check", "plan", "convert", "schema"])
@pytest.mark.slow
def test_files_are_read_here_for_any_server(laptop: Laptop, words: str) -> None:
    laptop.file("true")
    answer = laptop.call(words, "--json", PHALANX_SERVER="http://127.0.0.1:9")
    assert answer.code == 0, answer.err
