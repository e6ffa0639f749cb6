"""What Slurm prints is read, in every version that was written down, and nothing in it can break the reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.sites import slurm_output
from phalanx.sites.model import NodeKind, Partition, Qos
from tests.examples import examples

RECORDED = sorted((Path(__file__).parent.parent / "backends" / "recorded").glob("slurm-*/*/sinfo-nodes.txt"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-00:00:00", 86_400.0),
        ("7-12:30:15", 649_815.0),
        ("1-12", 129_600.0),
        ("2-01:30", 178_200.0),
        ("30:00", 1_800.0),
        ("00:20:00", 1_200.0),
        ("15", 900.0),
        ("12:00:00", 43_200.0),
        ("infinite", None),
        ("UNLIMITED", None),
        ("n/a", None),
        ("NONE", None),
        ("", None),
        ("1:2:3:4", None),
        ("-5", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert slurm_output.seconds(text) == seconds


@pytest.mark.parametrize(
    ("gres", "found"),
    [
        ("gpu:fake:2(S:0)", {"fake": 2}),
        ("gpu:a100:4(S:0-1),gpu:a100_1g.5gb:14", {"a100": 4, "a100_1g.5gb": 14}),
        ("gpu:a100_1g.5gb:14,gpu:a100:4(S:0,1)", {"a100": 4, "a100_1g.5gb": 14}),
        ("gpu:2", {None: 2}),
        ("gpu:p100:1(S:0),gpu:v100:1(S:0)", {"p100": 1, "v100": 1}),
        ("craynetwork:4,gpu:mi250:8", {"mi250": 8}),
        ("gpu:h100:0", {}),
        ("shard:h100:32,gpu:h100:8", {"h100": 8}),
        ("(null)", {}),
        ("", {}),
        ("gpu:h100:many", {}),
    ],
)
def test_gpus_of_a_node(gres: str, found: dict[str | None, int]) -> None:
    assert slurm_output.gpus(gres) == found
    assert list(slurm_output.gpus(gres)) == list(found)


def test_nodes_that_are_alike_are_one_kind() -> None:
    text = """
node1|main*|8|4000|gpu:fake:2|rack1|idle
node1|short|8|4000|gpu:fake:2|rack1|idle
node2|main*|8|4000|gpu:fake:2|rack1|down*
node2|short|8|4000|gpu:fake:2|rack1|down*
cpu1|main*|48|192000|(null)|100G,cascade|idle
old|main*|16+|64000|(null)|(null)|mixed
a line that means nothing
|main*|8|4000|||idle
bad|main*|zero|4000|||idle
"""
    assert slurm_output.nodes(text) == (
        NodeKind(2, 8, 4000.0, 2, "fake", ("rack1",), ("main", "short")),
        NodeKind(1, 48, 192_000.0, 0, None, ("100G", "cascade"), ("main",)),
        NodeKind(1, 16, 64_000.0, 0, None, (), ("main",)),
    )


def test_partitions_of_sinfo() -> None:
    text = "main*|infinite|n/a|4|1-infinite|up\nshort|30:00|10:00|4|1-2|down\nshort|30:00|10:00|2|1-2|down\n"
    assert slurm_output.partitions(text) == (
        Partition("main", None, is_default=True),
        Partition("short", 1800.0, default_time_s=600.0, max_nodes=2, is_up=False),
    )


def test_partitions_of_scontrol() -> None:
    text = (
        "PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES DefaultTime=NONE "
        "MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=node[1-4] OverSubscribe=NO State=UP TRES=cpu=32,mem=16000M\n"
        "PartitionName=big AllowAccounts=ai,hpc AllowQos=high Default=NO DefaultTime=01:00:00 MaxNodes=2 "
        "MaxTime=1-00:00:00 OverSubscribe=EXCLUSIVE State=DOWN\n"
        "nothing here\n"
    )
    assert slurm_output.partitions_in_full(text) == (
        Partition("main", None, is_default=True),
        Partition("big", 86_400.0, False, 3600.0, None, 2, False, True, ("ai", "hpc"), ("high",)),
    )


def test_configuration_accounts_and_qualities() -> None:
    config = slurm_output.configuration(
        "Configuration data as of 2026\nClusterName             = test\nX = a=b\n\nEmpty =\n"
    )
    assert config == {"ClusterName": "test", "X": "a=b", "Empty": ""}
    (first, second) = slurm_output.associations(
        "research|limited,normal||1000\nroot|normal|5|\nroot|normal|5|\nbroken\n"
    )
    assert first == slurm_output.Association("research", ("limited", "normal"), None, 1000)
    assert second.max_jobs == 5
    assert slurm_output.qualities("normal||\nlimited|00:20:00|cpu=4,gres/gpu=2,node=1\n|x|y\nbroken") == (
        Qos("normal"),
        Qos("limited", 1200.0, 2, 1, 4),
    )


def test_modules_of_python() -> None:
    text = "/opt/modules/Core:\npython/\npython/3.10.13\npython/3.11.5(default)\npython-build-bundle/2023\nipython/1\n"
    assert slurm_output.modules(text) == ("python", "python/3.10.13", "python/3.11.5")


READERS = (
    slurm_output.seconds, slurm_output.whole, slurm_output.gpus, slurm_output.nodes, slurm_output.partitions,
    slurm_output.fields, slurm_output.partitions_in_full, slurm_output.configuration,
    slurm_output.associations, slurm_output.qualities,
    slurm_output.modules,
)  # fmt: skip
PIECES = st.lists(
    st.sampled_from(["|", "=", ":", ",", "(", ")", "*", "-", "\n", " ", "gpu", "1", "9" * 5000, "PartitionName"])
    | st.text(max_size=5),
    max_size=40,
).map("".join)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: str(reader.__name__))
@examples(60)
@given(text=PIECES)
def test_no_text_breaks_a_reader(reader: Callable[[str], object], text: str) -> None:
    reader(text)


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.parent.name}-{file.parent.name}")
def test_what_real_clusters_said(file: Path) -> None:
    """Every row of what a real Slurm printed means something, and its two lists of partitions agree."""
    folder = file.parent
    kinds = slurm_output.nodes(file.read_text())
    names = {line.split("|")[0] for line in file.read_text().splitlines()}
    assert sum(kind.count or 0 for kind in kinds) == len(names) > 0
    short = slurm_output.partitions((folder / "sinfo-partitions.txt").read_text())
    full = slurm_output.partitions_in_full((folder / "partitions.txt").read_text())
    assert {(part.name, part.max_time_s, part.is_default, part.is_up) for part in short} == {
        (part.name, part.max_time_s, part.is_default, part.is_up) for part in full
    }
    assert {name for kind in kinds for name in kind.partitions} <= {part.name for part in full}
    config = slurm_output.configuration((folder / "config.txt").read_text())
    assert config["ClusterName"]
    assert folder.parent.name.removeprefix("slurm-") in config["SLURM_VERSION"]
    accounts, qualities = (folder / "associations.txt").read_text(), (folder / "qos.txt").read_text()
    assert len(slurm_output.associations(accounts)) == len({line.split("|")[0] for line in accounts.splitlines()})
    assert len(slurm_output.qualities(qualities)) == len(qualities.splitlines())
