"""phalanx site"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.sites.profile_reader import load
from tests.cli.running import called, is_silent_about_itself, quick

SINFO = r"""case "$*" in
*-N*) printf 'n1|main*|8|4000|gpu:fake:2(S:0)|rack1|idle\nn2|main*|8|4000|gpu:fake:2(S:0)|rack1|idle\n' ;;
*) printf 'main*|infinite|n/a|2|1-infinite|up\n' ;;
esac"""
SCONTROL = r"""case "$*" in
*config*) printf 'ClusterName = lab\nSLURM_VERSION = 24.11.5\nAccountingStorageType = accounting_storage/slurmdbd\n' ;;
*) printf 'PartitionName=main Default=YES MaxTime=1-00:00:00 State=UP\n' ;;
esac"""
SACCTMGR = r"""case "$*" in
*assoc*) printf 'research|normal||\n' ;;
*) printf 'normal||\n' ;;
esac"""


class Cluster:
    """A folder of commands that answer as a small cluster does."""

    def __init__(self, folder: Path) -> None:
        self.commands, self.home = folder / "bin", folder / "home"
        self.commands.mkdir()
        for name, body in (("sinfo", SINFO), ("scontrol", SCONTROL), ("sacctmgr", SACCTMGR)):
            self.command(name, body)

    def command(self, name: str, body: str) -> None:
        (self.commands / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.commands / name).chmod(0o755)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    monkeypatch.setenv("PATH", f"{made.commands}:{os.environ['PATH']}")
    monkeypatch.setenv("PHALANX_HOME", str(made.home))
    for name in ("PHALANX_SITE", "LMOD_CMD", "MODULEPATH", "MODULESHOME"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_init_looks_at_the_cluster_and_writes_its_profile(cluster: Cluster) -> None:
    answer = quick("site", "init")
    assert answer.code == 0
    assert "2      8      4000Mi  2 fake  rack1     main" in answer.out
    assert "account     research" in answer.out
    assert f"wrote {cluster.home / 'site.yml'}; next: phalanx check" in answer.out
    text = (cluster.home / "site.yml").read_text()
    assert "Slurm 24.11.5" in text
    assert load("site.yml", text.encode()).name == "lab"
    assert "lab       2      fake          1d" in quick("site", "list").out
    assert quick("site", "show").out.startswith("lab, as of 20")


def test_init_overwrites_only_by_force(cluster: Cluster) -> None:
    assert quick("site", "init", "--name", "first").code == 0
    again = quick("site", "init", "--name", "second")
    assert again.code == 2
    assert " exists: " in again.err
    assert "name: first" in (cluster.home / "site.yml").read_text()
    assert quick("site", "init", "--name", "second", "--force").code == 0
    assert "name: second" in (cluster.home / "site.yml").read_text()
    assert [file.name for file in cluster.home.iterdir() if file.name.startswith(".")] == []


@pytest.mark.usefixtures("cluster")
def test_init_elsewhere_and_as_json(tmp_path: Path) -> None:
    printed = quick("site", "init", "-o", "-")
    assert load("-", printed.out.encode()).name == "lab"
    data = quick("site", "init", "-o", str(tmp_path / "lab.yml"), "--json").data
    assert data["ok"]
    assert data["file"] == str(tmp_path / "lab.yml")
    assert data["site"]["nodes"][0]["gpu_type"] == "fake"
    assert data["text"] == (tmp_path / "lab.yml").read_text()
    assert "cannot write" in quick("site", "init", "-o", str(tmp_path / "no" / "lab.yml")).err
    assert "use letters" in quick("site", "init", "--name", "a b; c").err


def test_init_where_nothing_answers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.command(
        "sinfo", "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    )
    down = quick("site", "init")
    assert down.code == 2
    assert "Unable to contact slurm controller" in down.err
    assert "check that the cluster is up" in down.err
    monkeypatch.setenv("PATH", "/nowhere")
    none = quick("site", "init", "--json")
    assert none.code == 2
    assert "there is no `sinfo` on this machine: run this on a login node" in none.data["errors"][0]["message"]
    assert not (cluster.home / "site.yml").exists()


def test_init_says_what_it_could_not_learn(cluster: Cluster) -> None:
    cluster.command("sacctmgr", "echo 'sacctmgr: error: cannot connect' >&2; exit 1")
    answer = quick("site", "init")
    assert answer.code == 0
    assert "note: `sacctmgr` failed: sacctmgr: error: cannot connect" in answer.out


@pytest.mark.usefixtures("cluster")
def test_show_a_published_site() -> None:
    answer = quick("site", "show", "narval")
    assert answer.code == 0
    assert answer.out.startswith("Narval (Digital Research Alliance of Canada), as of 2026-09-23\n")
    assert "159    48     510000Mi   4 a100" in answer.out
    data = quick("site", "show", "narval", "--json").data
    assert data["shipped"]
    assert data["site"]["policy"]["max_time"] == "7d"


@pytest.mark.usefixtures("cluster")
def test_show_what_is_not_there() -> None:
    assert "no profile is in use" in quick("site", "show").err
    assert "did you mean `narval`?" in quick("site", "show", "narvall").err


def test_show_says_every_fault_of_a_profile(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("nmae: x\nnodes: [{cpus: 4, memroy: 1Gi}]\n")
    answer = quick("site", "show", str(tmp_path / "bad.yml"))
    assert answer.code == 1
    assert "did you mean `name`?" in answer.err
    assert "did you mean `memory`?" in answer.err
    assert "4 errors" in answer.err
    assert len(quick("site", "show", str(tmp_path / "bad.yml"), "--json").data["errors"]) == 4
    cluster.home.mkdir(exist_ok=True)
    (cluster.home / "site.yml").write_text("nmae: x")
    listed = quick("site", "list")
    assert listed.code == 0
    assert "unknown key `nmae`" in listed.out


def test_list_says_which_one_is_in_use(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "No profile is in use" in quick("site", "list").out
    monkeypatch.setenv("PHALANX_SITE", "fir")
    used = [row["name"] for row in quick("site", "list", "--json").data["sites"] if row["used"]]
    assert used == ["fir"]
    (tmp_path / "lab.yml").write_text("name: lab\n")
    monkeypatch.setenv("PHALANX_SITE", str(tmp_path / "lab.yml"))
    assert "lab       -      -             -         -           file     in use" in quick("site", "list").out
    monkeypatch.setenv("PHALANX_SITE", "nowhere")
    assert quick("site", "list").code == 0
    (cluster.home / "sites").mkdir(parents=True)
    (cluster.home / "sites" / "club.yml").write_text("name: club\n")
    assert "club      -      -             -         -           home" in quick("site", "list").out


@pytest.mark.slow
def test_the_installed_command(cluster: Cluster) -> None:
    assert called("site", "init").code == 0
    assert called("site", "show").out.startswith("lab")
    assert is_silent_about_itself(called("site", "show", "\udcff"))
    assert is_silent_about_itself(called("site", "show", "a\x00b".replace("\x00", "")))
    assert cluster.home.stat().st_mode & 0o077 == 0
