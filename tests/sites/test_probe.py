"""A cluster is asked what it is; what it does not tell is said."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from phalanx.errors import CallError, SystemFault
from phalanx.sites.checks import check
from phalanx.sites.model import Site
from phalanx.sites.probe import CommandOutput, ask, probe
from phalanx.sites.profile_reader import load
from phalanx.sites.profile_writer import write
from tests.sites.making import run
from tests.sites.test_slurm_output import RECORDED

ANSWERS = {
    "sinfo -h -N": "n1|main*|8|4000|gpu:fake:2(S:0)|rack1|idle\nn2|main*|8|4000|gpu:fake:2(S:0)|rack1|idle\n",
    "sinfo -h -o": "main*|infinite|n/a|2|1-infinite|up\n",
    "scontrol show config": "ClusterName = test\nSLURM_VERSION = 22.05.8\nDefMemPerCPU = 500\n"
    "AccountingStorageType = accounting_storage/slurmdbd\n",
    "scontrol show partition": "PartitionName=main Default=YES MaxTime=1-00:00:00 State=UP\n"
    "PartitionName=empty Default=NO MaxTime=1:00:00 State=UP\n",
    "sacctmgr -nP show assoc": "research|limited,normal|10|20\n",
    "sacctmgr -nP show qos": "normal||\nlimited|00:20:00|cpu=4,gres/gpu=2\nforeign||\n",
}


class ScriptedCommands:
    """A cluster made of texts."""

    def __init__(self, changes: Mapping[str, CommandOutput] | None = None) -> None:
        self.answers = {**{key: CommandOutput(text) for key, text in ANSWERS.items()}, **(changes or {})}
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str]) -> CommandOutput:
        line = " ".join(command)
        self.asked.append(line)
        found = [answer for key, answer in self.answers.items() if line.startswith(key)]
        return found[-1] if found else CommandOutput(why=f"`{command[0]}` failed: no such thing")


def test_a_cluster_becomes_a_site() -> None:
    commands = ScriptedCommands()
    found = probe("me", {}, commands)
    site = found.site
    assert (site.name, site.default_memory_mib) == ("test", 500.0)
    assert [(kind.count, kind.gpus, kind.gpu_type) for kind in site.nodes] == [(2, 2, "fake")]
    assert [part.name for part in site.partitions] == ["main", "empty"]
    assert site.accounts == ("research",)
    assert [one.name for one in site.qos] == ["normal", "limited"], "not those that one may not use"
    assert (site.max_jobs, site.max_submitted) == (10, 20)
    assert found.remarks == ()
    assert len(commands.asked) == len(set(commands.asked)) == 5
    assert any(line.startswith("sacctmgr -nP show assoc user=me ") for line in commands.asked)
    text = write(site, found.comments)
    assert load("site.yml", text.encode()) == site
    assert "Slurm 22.05.8" in text
    assert "# scratch: SLURM_TMPDIR" in text


def test_without_scontrol_and_sacctmgr_less_is_known_and_said() -> None:
    broken = {
        key: CommandOutput(why=f"`{key.split()[0]}` failed: gone") for key in ANSWERS if not key.startswith("sinfo")
    }
    found = probe("me", {}, ScriptedCommands(broken), name="mine")
    assert found.site.name == "mine"
    assert [part.name for part in found.site.partitions] == ["main"]
    assert found.site.accounts == ()
    assert len(found.remarks) == 4


def test_a_cluster_without_a_database_is_not_asked_for_accounts() -> None:
    commands = ScriptedCommands(
        {"scontrol show config": CommandOutput("ClusterName = x\nAccountingStorageType = accounting_storage/none\n")}
    )
    found = probe("me", {}, commands)
    assert found.remarks == ("the cluster has no accounts, or does not report them",)
    assert not any(line.startswith("sacctmgr") for line in commands.asked)


def test_on_a_machine_without_slurm_the_error_says_where_to_go() -> None:
    with pytest.raises(CallError, match=r"no `sinfo`.*login node.*fir, narval"):
        probe(
            "me",
            {},
            ScriptedCommands({"sinfo -h -N": CommandOutput(why="there is no `sinfo` on this machine", is_absent=True)}),
        )


def test_a_cluster_that_is_down_is_reported() -> None:
    why = "`sinfo` failed: slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    with pytest.raises(SystemFault, match=r"Unable to contact.*check that the cluster is up"):
        probe("me", {}, ScriptedCommands({"sinfo -h -N": CommandOutput(why=why)}))


def test_a_published_policy_goes_with_what_was_measured() -> None:
    config = "ClusterName = narval\nAccountingStorageType = accounting_storage/none\n"
    nodes = "g1|main*|48|510000|gpu:a100:4(S:0-1),gpu:a100_1g.5gb:14|(null)|idle\n"
    found = probe(
        "me", {}, ScriptedCommands({"scontrol show config": CommandOutput(config), "sinfo -h -N": CommandOutput(nodes)})
    )
    site = found.site
    assert site.partition == "forbidden"
    assert site.source is not None
    assert "the profile narval of 2026-09-23" in site.source
    assert [kind.count for kind in site.nodes] == [1], "the nodes are those that are there"
    assert [(kind.name, kind.cpus) for kind in site.gpus] == [("a100", 12), ("a100_1g.5gb", 1)]
    assert "the policy of Narval" in found.remarks[0]


def test_modules_are_looked_at() -> None:
    commands = ScriptedCommands({"sh -c": CommandOutput("/opt/modules:\npython/3.10.2\npython/3.11.5\n")})
    found = probe("me", {"LMOD_CMD": "/opt/lmod"}, commands)
    assert any("Python: python/3.10.2, python/3.11.5" in remark for remark in found.remarks)
    assert "# modules: [python/3.11.5]" in write(found.site, found.comments)
    assert "the cluster has modules" in probe("me", {"MODULEPATH": "/opt"}, ScriptedCommands()).remarks


def test_names_that_a_cluster_gives_itself_do_no_harm() -> None:
    found = probe(
        "me", {}, ScriptedCommands({"scontrol show config": CommandOutput("ClusterName = a b; rm -rf $HOME\n")})
    )
    assert found.site.name == "a_b__rm_-rf__HOME"


def executable(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_commands_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path, "sinfo", 'echo "$*|$LC_ALL|${SINFO_FORMAT-unset}"')
    executable(tmp_path, "scontrol", "echo first line >&2; echo second >&2; exit 1")
    executable(tmp_path, "sacctmgr", "printf '\\377\\n'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SINFO_FORMAT", "%n")
    assert ask(["sinfo", "-h", "%N|%P"]) == CommandOutput("-h %N|%P|C|unset\n")
    assert ask(["scontrol", "show"]) == CommandOutput(why="`scontrol` failed: first line")
    assert ask(["sacctmgr"]).text == "�\n"
    assert ask(["no-such-command"]) == CommandOutput(
        why="there is no `no-such-command` on this machine", is_absent=True
    )


def test_a_command_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path, "sinfo", "exec sleep 30")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("phalanx.sites.probe.PATIENCE_S", 0.2)
    assert "did not respond within 0.2 s" in ask(["sinfo"]).why


def recorded_site(folder: Path) -> Site:
    files = {
        "sinfo -h -N": "sinfo-nodes", "sinfo -h -o": "sinfo-partitions", "scontrol show config": "config",
        "scontrol show partition": "partitions", "sacctmgr -nP show assoc": "associations",
        "sacctmgr -nP show qos": "qos",
    }  # fmt: skip
    commands = ScriptedCommands(
        {key: CommandOutput((folder / f"{file}.txt").read_text()) for key, file in files.items()}
    )
    return probe("root", {}, commands).site


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.parent.name}-{file.parent.name}")
def test_what_real_clusters_said_becomes_a_profile(file: Path) -> None:
    site = recorded_site(file.parent)
    assert load("site.yml", write(site).encode()) == site
    assert site.nodes
    assert any(part.is_default for part in site.partitions)
    check(run(2), site)
