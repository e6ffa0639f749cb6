"""This machine: what is rendered, and what happens when it is started."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from phalanx.backends import find, names
from phalanx.errors import CallError
from tests.backends.golden import assert_as_agreed
from tests.backends.starting import (
    PYTHON,
    environment,
    experiment,
    launch,
    log,
    put_away,
    rendered,
    run,
    survivors,
    wait_for,
    written,
)
from tests.examples import examples
from tests.leftovers import PATIENCE_S, Moment, marked

HOSTILE = [
    "it's", '"', "'\"'\"'", "a\nb", "a\r\nb\n", "\t x ", "", "$(touch pwned)", "`touch pwned`", "${HOME}", "$HOME",
    "\\", "\\\\'\\", "; touch pwned", "&& touch pwned #", "| touch pwned", "> pwned", "<master-0>", '{"host": "x"}',
    '{"parts": [{"host": "x"}]}', "*", "~", "!!", "%s %d", "{}", "{run_id}", "\x07\x1b[31m\x7f", "é日本\U0001f600",
    "-n", "--", "$((1+1))", "$'\\n'", "a  b", "\u2028", "\x85", "'; touch pwned; '", '"; touch pwned; "',
    "\\'; touch pwned #",
]  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "one-process": {
        "version": 1,
        "kind": "job",
        "name": "report",
        "params": {"title": 'it\'s "so" $(here)'},
        "environment": {"env_vars": [["QUOTED", "it's"], ["EMPTY", ""]], "resources": {"cpu": {"requests": 2}}},
        "run": {"cmd": ["make data", "make report TITLE='{{ title }}'"]},
    },
    "pytorch": {
        "version": 1,
        "kind": "experiment",
        "framework": "pytorch",
        "params": {"lr": 0.1},
        "environment": {
            "resources": {"cpu": {"requests": 1, "limits": 2}},
            "replicas": {"n_workers": 1, "default_worker": {"env_vars": {"ROLE_OF": "a worker"}}},
        },
        "run": {"cmd": "python train.py --lr={{ lr }}"},
    },
    "tensorflow": {
        "version": 1,
        "kind": "experiment",
        "framework": "tensorflow",
        "environment": {"data_refs": ["images"], "replicas": {"n_workers": 1, "n_ps": 1, "master_task": "master"}},
        "run": {"cmd": "python train.py"},
    },
    "mpi": {
        "version": 1,
        "kind": "experiment",
        "framework": "mpi",
        "environment": {"replicas": {"n_workers": 2}},
        "run": {"cmd": "./solve"},
    },
}


# rendering --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_a_rendered_job_is_as_it_was_agreed(case: str) -> None:
    assert_as_agreed(rendered(CASES[case]), case)


@pytest.mark.parametrize("case", CASES)
def test_rendering_asks_nothing_of_the_machine_and_leaves_nothing_behind(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rendered(CASES[case])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHALANX_BASE_PORT", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "99")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert rendered(CASES[case]) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", CASES)
def test_rendered_scripts_are_accepted_by_bash(case: str) -> None:
    for name, text in rendered(CASES[case]).files.items():
        if name.endswith(".sh"):
            assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_a_replica_that_waits_for_the_launcher_gets_no_script() -> None:
    scripts = [name for name in rendered(CASES["mpi"]).files if name.startswith("replicas/")]
    assert scripts == ["replicas/launcher-0.sh"]


def test_the_run_id_cannot_break_out_of_the_scripts() -> None:
    hostile = 'x"; touch pwned; "\n$(touch pwned)\n`touch pwned`'
    for name, text in rendered(CASES["pytorch"], hostile).files.items():
        if name == "start.sh":
            assert "touch pwned" not in text
        elif name.endswith(".sh"):
            assert not [line for line in text.splitlines() if line.startswith("#") and "touch pwned" in line]


def test_the_local_backend_is_installed_and_others_are_distinguished() -> None:
    assert "local" in names()
    with pytest.raises(CallError, match=r"no backend `nowhere` is installed; installed: .*local"):
        find("nowhere")


# the real thing -----------------------------------------------------------------------------------------------------

ALL_REDUCE = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(address) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
    total = sum(int(peer.recv(16)) for peer in peers)
    for peer in peers:
        peer.sendall(str(total).encode())
else:
    for _ in range(400):
        try:
            peer = socket.create_connection(address, timeout=10)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    peer.sendall(str(10 ** rank).encode())
    total = int(peer.recv(16))
print(f"rank {rank} of {size}: {total}", flush=True)
"""


def test_replicas_really_meet_and_reduce_over_tcp(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALL_REDUCE, encoding="utf-8")
    job = written(experiment(f"{PYTHON} train.py", n_workers=3), tmp_path / "job")
    ended = run(job, 4)
    assert (ended.code, ended.err) == (0, "")
    for rank, name in enumerate(["master-0", "worker-0", "worker-1", "worker-2"]):
        assert log(job, name) == f"rank {rank} of 4: 1110\n"
    assert "ended with code 0" in ended.out
    assert str(job / "logs") in ended.out


EVERYONE_TO_EVERYONE = """
import json, os, socket, sys, time
cluster = json.loads(os.environ["PHALANX_CLUSTER"])
mine = cluster[os.environ["PHALANX_ROLE"]][int(os.environ["PHALANX_INDEX"])]
others = [address for addresses in cluster.values() for address in addresses if address != mine]
host, _, port = mine.rpartition(":")
server = socket.create_server((host, int(port)))
for address in others:
    host, _, port = address.rpartition(":")
    for _ in range(400):
        try:
            socket.create_connection((host, int(port)), timeout=10).sendall(mine.encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
heard = sorted(server.accept()[0].recv(64).decode() for _ in others)
print(heard == sorted(others), len(heard), flush=True)
"""


def test_every_replica_is_reached_at_the_address_that_the_cluster_gives(tmp_path: Path) -> None:
    (tmp_path / "talk.py").write_text(EVERYONE_TO_EVERYONE, encoding="utf-8")
    job = written(experiment(f"{PYTHON} talk.py", "plain", n_workers=2, n_ps=1), tmp_path / "job")
    # a parameter server is ended with the others, so that only theirs is sure to be complete
    assert run(job, 4).code == 0
    assert [log(job, name) for name in ("master-0", "worker-0", "worker-1")] == ["True 3\n"] * 3


LEAVES_ITS_ID = """
import json, os, pathlib, signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
file = pathlib.Path(os.environ["PHALANX_REPLICA"] + ".pid")
file.with_suffix(".new").write_text(str(os.getpid()))
file.with_suffix(".new").rename(file)
if os.environ["PHALANX_REPLICA"] in sys.argv:
    cluster = json.loads(os.environ["PHALANX_CLUSTER"])
    everyone = [f"{role}-{index}.pid" for role in cluster for index in range(len(cluster[role]))]
    while not all(map(os.path.exists, everyone)):
        time.sleep(0.02)
    sys.exit(int(sys.argv[1]))
time.sleep(600)
"""  # exits with the code given when it is named, once everyone is there; all others stay for ever


def stubborn(tmp_path: Path, arguments: str, framework: str = "plain", **replicas: Any) -> Path:
    (tmp_path / "stay.py").write_text(LEAVES_ITS_ID, encoding="utf-8")
    return written(experiment(f"exec {PYTHON} stay.py {arguments}", framework, **replicas), tmp_path / "job")


@pytest.mark.parametrize("who", ["master-0", "worker-1"])
def test_one_replica_that_fails_ends_all_others_and_gives_its_code(tmp_path: Path, who: str) -> None:
    job = stubborn(tmp_path, f"3 {who}", n_workers=2, n_ps=1)
    ended = run(job, 4)
    assert survivors(tmp_path) == []
    assert ended.code == 3
    assert "ended with code 3" in ended.out


def test_parameter_servers_that_never_exit_do_not_hold_the_run_up(tmp_path: Path) -> None:
    job = stubborn(tmp_path, "0 master-0 worker-0", "tensorflow", n_workers=1, n_ps=2)
    ended = run(job, 4)
    assert survivors(tmp_path) == []
    assert ended.code == 0


def test_a_parameter_server_that_fails_ends_the_run(tmp_path: Path) -> None:
    job = stubborn(tmp_path, "5 ps-0", "tensorflow", n_workers=1, n_ps=1)
    try:
        ended = run(job, 3, limit_s=12)
    finally:
        left = survivors(tmp_path)
    assert left == []
    assert ended.code == 5


def test_replicas_whose_command_has_several_steps_leave_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "stay.py").write_text(LEAVES_ITS_ID, encoding="utf-8")
    steps = [f"{PYTHON} stay.py 3 worker-0", "echo done"]  # bash stays in between, waiting for the first
    job = written(experiment(steps, "plain", n_workers=2), tmp_path / "job")
    ended = run(job, 3)
    assert survivors(tmp_path) == []
    assert ended.code == 3


@pytest.mark.slow
def test_replicas_that_are_deaf_to_a_polite_end_are_ended_all_the_same(tmp_path: Path) -> None:
    job = stubborn(tmp_path, "3 worker-0 deaf", n_workers=1)
    try:
        ended = run(job, 2, limit_s=20)
    finally:
        left = survivors(tmp_path)
    assert left == []
    assert ended.code == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ending_the_script_ends_all_replicas(tmp_path: Path, number: signal.Signals) -> None:
    job = stubborn(tmp_path, "0", n_workers=2)
    process = launch(job, 3)
    try:
        wait_for([tmp_path / f"{name}.pid" for name in ("master-0", "worker-0", "worker-1")])
        process.send_signal(number)
        process.communicate(timeout=10)
    finally:
        left = survivors(tmp_path)
        put_away(process)
    assert left == []
    assert process.returncode != 0


@pytest.mark.parametrize(
    ("before", "number"), [("start *", 1), ("workers+=*", 1), ("helpers+=*", 1), ("helpers+=*", 2), ("code=0 *", 1)]
)
def test_asked_to_end_while_it_starts_them_the_script_ends_all_replicas(
    tmp_path: Path, before: str, number: int
) -> None:
    job = written(experiment("sleep 600", "tensorflow", n_workers=1, n_ps=1), tmp_path / "job")
    moment = Moment(tmp_path, number, before)
    with marked() as here:
        process = here.start(["bash", str(job / "start.sh")], environment(3, **moment.variables))
        assert process.wait(PATIENCE_S) == 143
        assert moment.has_come
        assert here.left() == []


def test_the_code_of_a_single_command_is_the_code_of_the_run(tmp_path: Path) -> None:
    job = written({"version": 1, "kind": "job", "run": {"cmd": "echo to the log; exit 42"}}, tmp_path / "job")
    assert run(job, 1).code == 42
    assert log(job, "master-0") == "to the log\n"


def test_the_command_runs_in_the_folder_of_the_caller_and_outputs_go_beside_the_script(tmp_path: Path) -> None:
    command = (
        'pwd && echo result > "$PHALANX_OUTPUTS/result.txt" && test "$PHALANX_OUTPUTS" = "$POLYAXON_RUN_OUTPUTS_PATH"'
    )
    job = written({"version": 1, "kind": "job", "run": {"cmd": command}}, tmp_path / "job")
    assert run(job, 1).code == 0
    assert log(job, "master-0") == f"{tmp_path}\n"
    assert (job / "outputs" / "result.txt").read_text(encoding="utf-8") == "result\n"


def test_threads_are_a_default_that_the_machines_own_setting_beats(tmp_path: Path) -> None:
    file = {
        "version": 1,
        "kind": "job",
        "environment": {"resources": {"cpu": {"requests": 3}}},
        "run": {"cmd": "echo $OMP_NUM_THREADS"},
    }
    job = written(file, tmp_path / "job")
    run(job, 1)
    assert log(job, "master-0") == "3\n"
    run(job, 1, OMP_NUM_THREADS="7")
    assert log(job, "master-0") == "7\n"


def test_mpirun_is_given_the_ranks_the_host_file_and_the_command(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    fake = tools / "mpirun"
    fake.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\ncat -- "$4"\nshift 4\nexec "$@"\n', encoding="utf-8")
    fake.chmod(0o755)
    job = written(experiment('echo solved "it\'s"', "mpi", n_workers=3), tmp_path / "my job")
    assert run(job, 3, PATH=f"{tools}:{os.environ['PATH']}").code == 0
    assert log(job, "launcher-0").splitlines() == [
        "-np", "3", "--hostfile", str(job / "hostfile"), "bash", "-c", "echo solved \"it's\"",
        "127.0.0.1 slots=3",
        "solved it's",
    ]  # fmt: skip
    assert [file.name for file in (job / "logs").iterdir()] == ["launcher-0.log"]


def test_a_variable_named_ifs_does_not_split_the_line_that_starts_a_notebook(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    fake = tools / "jupyter"
    fake.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    fake.chmod(0o755)
    file = {
        "version": 1,
        "kind": "notebook",
        "build": {"image": "jupyter:1"},
        "environment": {"env_vars": [["IFS", "abow"]]},
    }
    job = written(file, tmp_path / "job")
    assert run(job, 1, PATH=f"{tools}:{os.environ['PATH']}").code == 0
    assert log(job, "master-0").splitlines() == ["lab", "--no-browser"]  # the agent adds where it listens


# hostile text -------------------------------------------------------------------------------------------------------

DUMP = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "environment": dict(os.environ)}), flush=True)
"""


def test_hostile_text_arrives_byte_exact_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "dump.py").write_text(DUMP, encoding="utf-8")
    words = [text for text in HOSTILE if text and text == " ".join(text.split()) and text != "\\"]
    assert len(words) > 25
    variables = {f"MINE_{number}": text for number, text in enumerate(HOSTILE)}
    params = {f"p{number}": text for number, text in enumerate(HOSTILE)}
    file = {
        "version": 1,
        "kind": "experiment",
        "framework": "tensorflow",
        "params": {**params, "nested": {"deep": HOSTILE}},
        "build": {"image": "busybox:1", "env_vars": [[f"BUILD_{name}", text] for name, text in variables.items()]},
        "environment": {"env_vars": list(map(list, variables.items())), "replicas": {"n_workers": 1}},
        "run": {"cmd": f"{PYTHON} dump.py {' '.join(map(shlex.quote, words))}"},
    }
    job = written(file, tmp_path / "job")
    assert run(job, 2).code == 0
    for name in ("master-0", "worker-0"):
        seen = json.loads(log(job, name))
        assert seen["argv"] == words
        found = seen["environment"]
        assert {key: found[key] for key in variables} == variables
        assert {key: found[f"BUILD_{key}"] for key in variables} == variables
        assert json.loads(found["PHALANX_PARAMS"]) == {**params, "nested": {"deep": HOSTILE}}
        assert json.loads(found["TF_CONFIG"])["model_dir"] == str(job / "outputs")
    assert list(tmp_path.rglob("pwned*")) == []


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60)


@examples(30, HealthCheck.function_scoped_fixture)
@given(texts=st.lists(st.one_of(TEXTS, st.lists(st.sampled_from(HOSTILE)).map("".join)), min_size=1, max_size=6))
def test_any_text_arrives_byte_exact(tmp_path: Path, texts: list[str]) -> None:
    variables = {f"MINE_{number}": text.replace("{", "(") for number, text in enumerate(texts)}  # no templates here
    file = {
        "version": 1,
        "kind": "job",
        "params": variables,
        "environment": {"env_vars": list(map(list, variables.items()))},
        "run": {"cmd": "exec env -0"},
    }
    (tmp_path / "replicas").mkdir(exist_ok=True)
    for name in ("shared.sh", "replicas/master-0.sh"):
        (tmp_path / name).write_bytes(rendered(file).files[name].encode())
    answer = subprocess.run(
        ["bash", "replicas/master-0.sh"], cwd=tmp_path, env=environment(1), capture_output=True, check=True
    )
    seen = dict(entry.split("=", 1) for entry in answer.stdout.decode().split("\0") if entry)
    assert {name: seen[name] for name in variables} == variables
    assert json.loads(seen["PHALANX_PARAMS"]) == variables
    assert answer.stderr == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["replicas", "shared.sh"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("here", "/elsewhere"),
        ("base_port", "1"),
        ("base_port", "a[$(touch pwned)]"),
        ("name", "x"),
        ("workers", "x"),
    ],
)
def test_a_variable_of_the_user_is_only_a_variable_with_any_name(tmp_path: Path, name: str, value: str) -> None:
    file = experiment("exec env -0", "tensorflow", n_workers=1)
    file["environment"]["env_vars"] = [[name, value]]
    file["build"] = {"image": "busybox:1", "env_vars": [[name, "of the build"]]}
    job = written(file, tmp_path / "job")
    assert run(job, 2).code == 0
    assert list(tmp_path.rglob("pwned*")) == []
    seen = dict(entry.split("=", 1) for entry in log(job, "worker-0").split("\0") if "=" in entry)
    assert seen[name] == value
    config = json.loads(seen["TF_CONFIG"])
    ports = [int(address.rpartition(":")[2]) for role in config["cluster"].values() for address in role]
    assert ports == [int(seen["PHALANX_BASE_PORT"]), int(seen["PHALANX_BASE_PORT"]) + 1]
    assert config["model_dir"] == seen["PHALANX_OUTPUTS"] == str(job / "outputs")


@pytest.mark.parametrize("name", ["my job", "it's", "$(touch pwned)", "`touch pwned`", "-n", "ünïcode", "a;b&c", "*"])
def test_a_job_works_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    job = written(experiment("exec env -0", "tensorflow", n_workers=1), tmp_path / name)
    assert run(job, 2).code == 0
    seen = dict(entry.split("=", 1) for entry in log(job, "worker-0").split("\0") if "=" in entry)
    assert json.loads(seen["TF_CONFIG"])["model_dir"] == str(job / "outputs")
    assert list(tmp_path.rglob("pwned*")) == []


@pytest.mark.parametrize("name", ['a"b', "a\\b", '", "task": {"x": "'])
def test_a_folder_whose_name_would_break_json_is_refused_or_written_right(tmp_path: Path, name: str) -> None:
    job = written(experiment("exec env -0", "tensorflow", n_workers=1), tmp_path / name)
    ended = run(job, 2)
    if ended.code != 0:
        assert ended.err.strip()
        assert not list(job.glob("logs/*.log"))
        return
    seen = dict(entry.split("=", 1) for entry in log(job, "worker-0").split("\0") if "=" in entry)
    assert json.loads(seen["TF_CONFIG"])["model_dir"] == str(job / "outputs")
