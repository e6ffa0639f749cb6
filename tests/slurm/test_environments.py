"""The Python that a run asks for, on nodes that have none of it: made once on each, or elsewhere, or there already."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.cli.homes import wait_for
from tests.slurm import debian
from tests.slurm.cluster import Cluster
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import (
    HERE,
    ON_SLURM,
    AtOnce,
    folder,
    job_of,
    log,
    over,
    ran,
    rank_outputs,
    submit,
    submit_with,
)

SHOWING = f"python -c 'import tiny; print(tiny.WORDS)' && python {HERE / 'showing.py'} 0"
MADE = 'sed -n "s/^[$] /made: /p" "$(dirname "$VIRTUAL_ENV")/log"'  # by whom ever, on this node
SMALL: dict[str, Any] = {"resources": {"memory": {"limits": 300}}}


def write_wheel(house: Path) -> None:
    house.mkdir()
    about = "tiny-1.0.dist-info"
    with ZipFile(house / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "WORDS = 'from the wheelhouse'\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def write_venv(venv: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (inside,) = venv.glob("lib/python*/site-packages")
    (inside / "tiny.py").write_text("WORDS = 'from the venv'\n")


WANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "on-nodes": (
        f"{SHOWING} && {MADE}",
        {
            "framework": "pytorch",
            "environment": {
                **SMALL,
                "replicas": {"n_workers": 3, "default_worker": SMALL},
                "slurm": {"replicas_per_node": 2},
                "python": {"requirements": ["tiny==1.0"], "wheelhouse": "wheel house"},
            },
        },
    ),
    "missing": (
        SHOWING,
        {
            "framework": "pytorch",
            "environment": {
                **SMALL,
                "replicas": {"n_workers": 1, "default_worker": SMALL},
                "slurm": {"replicas_per_node": 2},
                "python": {"requirements": ["tiny", "huge==7"], "wheelhouse": "wheel house"},
            },
        },
    ),
    "venv": (SHOWING, {"environment": {**SMALL, "python": {"venv": "$PWD/my venv"}}}),
    "no-venv": (
        SHOWING,
        {"environment": {**SMALL, "python": {"venv": "/not/there"}, "slurm": {"constraint": "rack2"}}},
    ),
}
ON_LOGIN: dict[str, Any] = {
    **SMALL,
    "slurm": {"directives": {"hold": ""}},
    "python": {"requirements": ["tiny"], "wheelhouse": "other house", "build_on": "login"},
}


@pytest.fixture(name="at_once", scope="module")
def at_once_fixture(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[AtOnce]:
    """All of them at the same time. What is made on the login node is used when its wheelhouse is gone."""
    place = SlurmPlace(tmp_path_factory.mktemp("environments"), cluster)
    write_wheel(place.folder / "wheel house")
    write_wheel(place.folder / "other house")
    write_venv(place.folder / "my venv")
    try:
        runs = {name: submit(place, command, "--unchecked", **fields) for name, (command, fields) in WANTED.items()}
        runs["on-login"] = submit(place, SHOWING, environment=ON_LOGIN)
        shutil.rmtree(place.folder / "other house")
        cluster.ask("scontrol", "release", job_of(place, runs["on-login"]))
        yield AtOnce(place, dict(zip(runs, over(place, *runs.values()), strict=True)))
    finally:
        place.close()


def packages(place: SlurmPlace, run: str) -> dict[str, list[str]]:
    """What is on record as installed, by node."""
    found = json.loads((folder(place, run) / "job" / "attempt-1.packages.json").read_text())
    return {node: [line.partition(" ")[0] for line in lines] for node, lines in found.items()}


def test_requirements_are_installed_once_on_each_node(at_once: AtOnce) -> None:
    """From a wheelhouse, into the node's own storage, for all ranks there; what was installed is on record."""
    place, found = at_once.place, at_once.succeeded("on-nodes")
    ranks, job = rank_outputs(place, found["id"]), job_of(place, found["id"])
    hosts = {rank["host"] for rank in ranks.values()}
    assert (len(ranks), len(hosts)) == (4, 2)
    for name, rank in ranks.items():
        scratch = rank["environment"]["SLURM_TMPDIR"]
        assert scratch.endswith(f"/{job}")
        assert rank["python"].startswith(f"{scratch}/phalanx-{job}-"), name
        lines = log(place, found["id"], name).splitlines()
        assert "from the wheelhouse" in lines
        assert sum("-m venv" in line for line in lines if line.startswith("made: ")) == 1
        assert sum("pip install" in line for line in lines if line.startswith("made: ")) == 1
    assert len({(rank["host"], rank["python"]) for rank in ranks.values()}) == 2
    recorded = packages(place, found["id"])
    assert set(recorded) == hosts
    assert all("tiny==1.0" in lines for lines in recorded.values()), recorded
    left = [place.cluster.state / "local" / node / "scratch" / job for node in place.cluster.nodes]
    wait_for(lambda: not any(path.exists() for path in left))


def test_an_environment_made_on_the_login_node_needs_nothing_on_the_nodes(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.succeeded("on-login")
    (rank,) = rank_outputs(place, found["id"]).values()
    assert rank["python"].startswith(rank["environment"]["SLURM_TMPDIR"])
    assert "from the wheelhouse" in log(place, found["id"])
    assert "tiny==1.0" in packages(place, found["id"])[rank["host"]]


def test_all_trials_of_a_size_share_the_environment_of_the_first(place: SlurmPlace) -> None:
    write_wheel(place.folder / "wheel house")
    python = {"requirements": ["tiny"], "wheelhouse": "wheel house"}
    file = place.file(f"{SHOWING}; {MADE}", environment={**SMALL, "python": python})
    answer = place.call("size", "-f", file, *ON_SLURM, "--try", "cpu=1,2", "--try", "gpu=0,7", "--for", "60s", "--json")
    logs = [log(place, trial["run"]) for trial in answer.data["trials"]]
    assert ["from the wheelhouse" in text for text in logs] == [True, True]
    assert ["pip install" in text for text in logs] == [True, False]
    assert ["sbatch refuses the job" in one["why"] for one in answer.data["left_out"]] == [True, True]  # 7 GPUs


def test_a_virtual_environment_that_is_there_is_used(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.succeeded("venv")
    venv = place.folder / "my venv"
    (rank,) = rank_outputs(place, found["id"]).values()
    assert Path(rank["python"]) == venv
    assert rank["environment"]["VIRTUAL_ENV"] == str(venv)
    assert log(place, found["id"]) == "from the venv\n"


def test_a_virtual_environment_that_is_not_there_is_reported(at_once: AtOnce) -> None:
    found = at_once.runs["no-venv"]
    assert found["status"] == "failed"
    assert "/not/there has no bin/python" in found["reason"], found["reason"]
    assert "node3" in found["reason"] or "node4" in found["reason"], found["reason"]


def test_a_package_that_is_missing_is_reported_with_its_node_and_advice(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.runs["missing"]
    assert found["status"] == "failed"
    assert "could not be prepared: `pip install tiny huge==7` failed with code 1" in found["reason"], found["reason"]
    assert any(node in found["reason"] for node in place.cluster.nodes)
    assert "phalanx wheels huge==7" in found["reason"], found["reason"]
    assert "No matching distribution found for huge==7" in place.call("show", found["id"]).out
    assert place.until_accounted(job_of(place, found["id"]), "FAILED", "COMPLETED") == "FAILED"


# modules -------------------------------------------------------------------------------------------------------------


LMOD = "usr/share/lmod"
LUA = ("lua5.3", "lua-posix", "lua-filesystem", "lua-term", "lua-json", "lua-bit32")


@pytest.fixture(name="modules", params=["environment-modules", "lmod"])
def modules_fixture(request: pytest.FixtureRequest, place: SlurmPlace) -> dict[str, str]:
    """The variables of a shell that has modules, with one of our own."""
    tools = place.folder / "modules" / "tool"
    tools.mkdir(parents=True)
    (tools / "1.0").write_text("#%Module1.0\nsetenv TOOL {the one}\nprepend-path PATH /opt/tool/bin\n")
    variables = {"MODULEPATH": str(tools.parent)}
    if request.param == "lmod":
        return {**variables, "LMOD_PKG": str(write_lmod(place.folder / "lmod")), "MODULESHOME": ""}
    if not Path("/etc/profile.d/modules.sh").exists():
        debian.install(["environment-modules"])
    return variables


def write_lmod(folder: Path) -> Path:
    """Lmod cannot be installed beside Environment Modules: its files are unpacked, and know that they are here."""
    debian.install([package for package in (*LUA, "tcl") if not Path("/usr/share/doc", package).exists()])
    debian.unpack(["lmod"], folder)
    for path in (folder / LMOD).rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(path.read_bytes().replace(f"/{LMOD}".encode(), str(folder / LMOD).encode()))
    return folder / LMOD / "lmod"


def test_modules_are_loaded_for_every_rank(place: SlurmPlace, modules: dict[str, str]) -> None:
    replicas = {"n_workers": 1, "default_worker": SMALL}
    environment = {
        **SMALL,
        "replicas": replicas,
        "slurm": {"replicas_per_node": 1},
        "python": {"modules": ["tool/1.0"]},
    }
    command = f"python3 {HERE / 'showing.py'} 0"
    run = submit_with(place, command, modules, framework="pytorch", environment=environment)
    (found,) = over(place, run)
    assert found["status"] == "succeeded", found["reason"]
    for rank in rank_outputs(place, run).values():
        assert rank["environment"]["TOOL"] == "the one"
        assert ("LMOD_VERSION" in rank["environment"]) == ("LMOD_PKG" in modules)
        assert "/opt/tool/bin" in rank["environment"]["PATH"].split(":")


def test_a_module_that_is_missing_is_named(place: SlurmPlace, modules: dict[str, str]) -> None:
    run = submit_with(place, "true", modules, environment={**SMALL, "python": {"modules": ["tool/1.0", "tool/9.9"]}})
    (found,) = over(place, run)
    assert found["status"] == "failed"
    assert "cannot load the modules: tool/1.0 tool/9.9" in found["reason"], found["reason"]


@pytest.fixture(name="without_modules")
def without_modules_fixture(cluster: Cluster) -> Iterator[None]:
    """Nodes that have no modules, even where this machine does."""
    there = {str(path.resolve()) for path in Path("/etc/profile.d").glob("*modules.sh")}
    inside = [["nsenter", "-m", "-p", "-t", first_process(cluster, node)] for node in cluster.nodes]
    for path in there:
        for node in inside:
            subprocess.run([*node, "mount", "--bind", "/dev/null", path], check=True)
    yield
    for path in there:
        for node in inside:
            subprocess.run([*node, "umount", path], check=True)


def first_process(cluster: Cluster, node: str) -> str:
    """The one that has its own processes beside it, unlike whoever made the node."""
    pid = cluster.daemon(node).pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]


@pytest.mark.usefixtures("without_modules")
def test_nodes_without_modules_say_so(place: SlurmPlace) -> None:
    found = ran(place, "true", environment={**SMALL, "python": {"modules": ["python/3.11"]}})
    assert found["status"] == "failed"
    assert "this node has no modules, and the file asks for some" in found["reason"], found["reason"]


def test_a_build_runs_as_a_job_and_later_runs_use_its_environment(place: SlurmPlace) -> None:
    steps = ["echo made >>$VIRTUAL_ENV/steps"]
    built = over(place, submit(place, "", kind="build", build_steps=steps))[0]
    assert built["status"] == "succeeded", log(place, built["id"])
    used = ran(place, "cat $VIRTUAL_ENV/steps; command -v python", build={"ref": built["id"]})
    first, python = log(place, used["id"]).split()
    assert first == "made"
    assert python.startswith(str(place.home / "builds"))
