"""phalanx plan"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx.stored_plan import read_plan
from tests.cli.running import Answer, called, is_silent_about_itself, quick
from tests.cli.samples import ALL, GROUP, HEAD, MODERN, PIPELINE

SMALL = """\
version: 1
kind: experiment
framework: pytorch
params: {lr: 0.1}
environment:
  env_vars: {HF_TOKEN: hush-hush, DEPTH: 3}
  replicas:
    n_workers: 2
    default_worker: {resources: {cpu: {requests: 2, limits: 4}, memory: {requests: 2048}, gpu: {limits: 1}}}
    worker: [{index: 1, resources: {cpu: {requests: 1}}}]
run: {cmd: "python train.py --lr={{ lr }}"}
"""


def planned(text: str, *arguments: str) -> Answer:
    return quick("plan", "-f", "-", *arguments, stdin=text)


def tree(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


# text and JSON ----------------------------------------------------------------------------------------------------


def test_the_plan_in_words_shows_who_runs_what(tmp_path: Path) -> None:
    file = tmp_path / "polyaxonfile.yml"
    file.write_text(SMALL, encoding="utf-8")
    answer = called("plan", "-f", str(file))
    assert (answer.code, answer.err) == (0, "")
    rows = {line.split()[0]: line.split() for line in answer.out.splitlines() if line.split()}
    assert rows["REPLICA"] == ["REPLICA", "RANK", "CPU", "MEMORY", "GPU", "RUNS"]
    assert rows["master-0"] == ["master-0", "0", "-", "-", "-", "command"]
    assert rows["worker-0"] == ["worker-0", "1", "2", "to", "4", "2", "GiB", "1", "command"]
    assert rows["worker-1"] == ["worker-1", "2", "1", "-", "-", "command"]
    assert "command: python train.py --lr=0.1" in answer.out
    for variable in ("MASTER_ADDR=<master-0>", "MASTER_PORT=2222", "WORLD_SIZE=3", "RANK=0", "RANK=1", "DEPTH=3"):
        assert f"  {variable}\n" in answer.out


def test_neighbours_that_ask_for_the_same_share_a_row() -> None:
    lines = planned(MODERN).out.splitlines()
    names = [line.split("  ")[0] for line in lines if line.startswith(("master-", "worker-", "server-"))]
    assert names == [
        "master-0", "worker-0 to 1", "worker-2", "worker-3 to 6", "server-0", "server-1 to 2",
    ]  # fmt: skip


def test_the_plan_in_json_has_every_replica_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    file = tmp_path / "polyaxonfile.yml"
    file.write_text(SMALL, encoding="utf-8")
    answer = called("plan", "--json", "-f", str(file))
    assert (answer.code, answer.err, answer.data["ok"]) == (0, "", True)
    assert [(found["role"], found["index"], found["rank"]) for found in answer.data["replicas"]] == [
        ("master", 0, 0), ("worker", 0, 1), ("worker", 1, 2),
    ]  # fmt: skip
    worker = answer.data["replicas"][1]
    assert worker["command"] == "python train.py --lr=0.1"
    assert worker["resources"] == {
        "cpu": {"requests": 2, "limits": 4},
        "memory": {"requests": 2048, "limits": None},
        "gpu": {"requests": None, "limits": 1},
    }
    assert worker["environment"]["RANK"] == "1"
    assert worker["environment"]["OMP_NUM_THREADS"] == "2"
    assert json.loads(worker["environment"]["PHALANX_PARAMS"]) == {"lr": 0.1}
    assert answer.data["resources"]["cpu"] == {"requests": 3, "limits": 4}


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--replica", "worker-0"]])
def test_secrets_are_not_shown(arguments: list[str]) -> None:
    answer = planned(SMALL, *arguments)
    assert answer.code == 0
    assert "hush-hush" not in answer.out
    assert "HF_TOKEN" in answer.out


def test_one_replica_is_shown_with_its_whole_environment() -> None:
    answer = planned(SMALL, "--replica", "worker-1")
    variables = dict(line.strip().split("=", 1) for line in answer.out.splitlines() if line.startswith("  "))
    whole = planned(SMALL, "--json").data["replicas"][2]["environment"]
    assert variables == whole
    assert variables["RANK"] == "2"
    assert "worker-0 " not in answer.out


@pytest.mark.parametrize("name", ["worker-2", "worker", "ps-0"])
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_replica_that_is_not_there_is_a_wrong_call(name: str, arguments: list[str]) -> None:
    answer = planned(SMALL, "--replica", name, *arguments)
    assert answer.code == 2
    assert "master, worker" in answer.err + answer.out


def test_a_group_shows_what_its_first_suggestion_would_run() -> None:
    answer = planned(GROUP)
    assert answer.code == 0
    assert "first suggestion" in answer.out
    assert "--units=64 --dropout=0.1 --epochs=3" in answer.out
    data = planned(GROUP, "--json").data
    assert (data["kind"], data["search"]["algorithm"]) == ("group", "random_search")
    assert [found["rank"] for found in data["replicas"]] == [0, 1]
    assert "{{" not in data["replicas"][0]["command"]


def test_a_pipeline_shows_the_plan_of_every_op() -> None:
    answer = planned(PIPELINE)
    assert answer.code == 0
    assert "op prepare (cleaning)" in answer.out
    assert "op train (training), after prepare" in answer.out
    assert "train --lr=0.1" in answer.out
    ops = {op["name"]: op for op in planned(PIPELINE, "--json").data["ops"]}
    assert ops["train"]["dependencies"] == ["prepare"]
    assert [found["name"] for found in ops["train"]["plan"]["replicas"]] == ["master-0", "worker-0", "worker-1"]
    assert ops["prepare"]["plan"]["command"] == "make clean"
    assert (ops["ship"]["plan"], ops["ship"]["trigger"]) == (None, "all_done")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_every_kind_and_dialect_can_be_planned(name: str, arguments: list[str]) -> None:
    answer = planned(ALL[name], *arguments)
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (HEAD + "environment: {replicas: {n_workers: 2}}\nrun: {cmd: ls}\n", "framework"),
        (HEAD + "framework: pytorch\nenvironment: {replicas: {n_ps: 2}}\nrun: {cmd: ls}\n", "parameter servers"),
        (HEAD + "rnu: 1\n", "`rnu`"),
    ],
)
def test_a_bad_file_is_reported_as_check_says_it(text: str, word: str) -> None:
    answer = planned(text)
    assert (answer.code, answer.out) == (1, "")
    assert word in answer.err
    in_json = planned(text, "--json")
    assert in_json.code == 1
    assert in_json.data == quick("check", "-f", "-", "--json", stdin=text).data


# rendering --------------------------------------------------------------------------------------------------------


def test_a_job_is_written_to_a_folder_and_can_be_started(tmp_path: Path) -> None:
    file, folder = tmp_path / "polyaxonfile.yml", tmp_path / "deep" / "job"
    file.write_text(HEAD + "run: {cmd: 'echo trained > done.txt'}\n", encoding="utf-8")
    answer = called("plan", "-f", str(file), "--on", "local", "-o", str(folder))
    assert (answer.code, answer.err) == (0, "")
    assert sorted(tree(folder)) == ["plan.json", "replicas/master-0.sh", "shared.sh", "start.sh"]
    start = answer.out.splitlines()[-1].rpartition("start it with: ")[2]
    assert subprocess.run(["bash", "-c", start], cwd=tmp_path, check=False, capture_output=True).returncode == 0
    assert (tmp_path / "done.txt").read_text(encoding="utf-8") == "trained\n"


@pytest.mark.parametrize("name", ["my job", "it's", "$(touch pwned)", "a;touch pwned", "-x", "~", "*"])
def test_the_line_that_starts_the_job_can_be_trusted_to_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = planned(HEAD + "run: {cmd: 'echo trained > done.txt'}\n", f"--output={name}")
    assert answer.code == 0
    start = answer.out.splitlines()[-1].rpartition("start it with: ")[2]
    subprocess.run(["bash", "-c", start], check=False, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "done.txt"])


def test_a_folder_alone_means_this_machine(tmp_path: Path) -> None:
    planned(SMALL, "-o", str(tmp_path / "a"))
    planned(SMALL, "-o", str(tmp_path / "b"), "--on", "local")
    assert tree(tmp_path / "a") == tree(tmp_path / "b") != {}


def test_the_written_plan_has_the_secrets_that_the_run_needs(tmp_path: Path) -> None:
    planned(SMALL, "-o", str(tmp_path / "job"))
    data = read_plan(tmp_path / "job")
    assert data.replicas[0].environment["HF_TOKEN"] == "hush-hush"
    assert len(data.replicas) == 3


@pytest.mark.parametrize("mask", [0o022, 0o000, 0o077])
def test_what_is_written_is_private_to_the_user(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        assert planned(SMALL, "-o", str(tmp_path / "job")).code == 0
    finally:
        os.umask(before)
    for path in [tmp_path / "job", *(tmp_path / "job").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() or path.suffix == ".sh" else 0o600), path


def test_nothing_is_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    assert planned(SMALL, "-o", str(folder)).code == 0
    before = tree(folder)
    answer = planned(MODERN, "-o", str(folder))
    assert (answer.code, answer.out) == (2, "")
    assert "name another folder with -o" in answer.err
    assert tree(folder) == before


def test_a_folder_with_other_things_in_it_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious", encoding="utf-8")
    assert planned(SMALL, "-o", str(tmp_path)).code == 0
    assert tree(tmp_path)["mine.txt"] == "precious"


def test_links_that_lead_elsewhere_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "start.sh").symlink_to(outside)
    assert planned(SMALL, "-o", str(tmp_path / "job")).code == 2
    assert not outside.exists()


@pytest.mark.parametrize("kind", ["a file", "below a file", "a system's folder"])
def test_a_folder_that_cannot_be_written_is_a_wrong_call(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    folders = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "job",
        "a system's folder": Path("/proc/job"),
    }
    answer = planned(SMALL, "-o", str(folders[kind]))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: cannot write to {folders[kind]}: ")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"


def test_json_says_which_files_were_written(tmp_path: Path) -> None:
    data: Any = planned(SMALL, "--json", "-o", str(tmp_path / "job")).data
    assert data["job"] == {"files": sorted(tree(tmp_path / "job")), "folder": str(tmp_path / "job")}
    assert planned(SMALL, "--json", "--on", "local").data["job"]["folder"] is None


def test_rendering_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert planned(SMALL, "--on", "local").code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["--json"], ["-o", "job"]])
def test_an_unknown_backend_is_a_wrong_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = planned(SMALL, "--on", "nowhere", *arguments)
    assert answer.code == 2
    assert "no backend `nowhere` is installed" in answer.err + answer.out
    assert "local" in answer.err + answer.out
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_is_not_one_job(tmp_path: Path) -> None:
    answer = planned(PIPELINE, "-o", str(tmp_path / "job"))
    assert (answer.code, answer.out) == (2, "")
    assert "pipeline" in answer.err
    assert not (tmp_path / "job").exists()


def test_a_bad_file_writes_nothing(tmp_path: Path) -> None:
    assert planned(HEAD + "rnu: 1\n", "-o", str(tmp_path / "job")).code == 1
    assert not (tmp_path / "job").exists()


def test_a_param_that_is_not_text_leaves_no_half_a_job(tmp_path: Path) -> None:
    text = (HEAD + "run: {cmd: 'ls {{ x }}'}\n").encode()
    answer = called("plan", "-f", "-", "-P", "x=\udcff", "-o", str(tmp_path / "job"), stdin=text)
    assert answer.code == 2
    assert is_silent_about_itself(answer)
    assert not (tmp_path / "job").exists()


# the characters of the file --------------------------------------------------------------------------------------


WRITTEN = """\
version: 1
kind: experiment
framework: pytorch
params: {commit: 0123456, lr: 1e-3, hash: 1234e56, answer: yes}
environment:
  env_vars: [[REVISION, 1234e56], [NO, 0x1F], [DAY, 2024-01-01], [ON, off]]
  labels: {revision: 0123456, hash: 1234e56, answer: on}
  replicas: {n_workers: 1}
build: {image: "python:3.11", commit: 1234e56}
run: {cmd: "git checkout {{ commit }} {{ hash }} {{ extra }} && train --lr={{ lr }} --answer={{ answer }}"}
"""
COMMAND = "git checkout 0123456 1234e56 12e4567 && train --lr=1e-3 --answer=yes"
VARIABLES = {"REVISION": "1234e56", "NO": "0x1F", "DAY": "2024-01-01", "ON": "off"}


@pytest.mark.parametrize("backend", ["local", "slurm", "kubernetes", "kubeflow"])
def test_a_job_of_every_backend_has_the_characters_of_the_file(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    offer = ["--assume", "training-operator=1.8"] if backend.startswith("kube") else []
    answer = planned(WRITTEN, "-P", "extra=12e4567", "--on", backend, "-o", "job", *offer)
    assert answer.code == 0, answer.err
    if not offer:
        made = read_plan(tmp_path / "job")
        assert all(replica.argv[-1] == COMMAND for replica in made.replicas)
        assert all(VARIABLES.items() <= dict(replica.environment).items() for replica in made.replicas)
        return
    manifests = (tmp_path / "job" / "manifests.yaml").read_text()
    assert COMMAND in manifests
    maps = list(_maps(list(yaml.safe_load_all(manifests))))
    variables = [item for pod in maps if "containers" in pod for item in pod["containers"][0].get("env", ())]
    assert VARIABLES.items() <= {item["name"]: item.get("value") for item in variables}.items()
    labels = [found["labels"].items() for found in maps if "labels" in found]
    assert any({"revision": "0123456", "hash": "1234e56", "answer": "on"}.items() <= items for items in labels)


def _maps(data: Any) -> Iterator[dict[str, Any]]:
    """All maps in plain data."""
    if isinstance(data, dict):
        yield data
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _maps(item)
