"""What a real Slurm refused, or let wait for ever, is told by its own profile beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.plan import Plan
from phalanx.sites.model import NodeKind
from tests.sites.making import findings, resources, run
from tests.sites.test_probe import recorded_site

RECORDED = sorted((Path(__file__).parent.parent / "backends" / "recorded").glob("slurm-*/refused.json"))
FINE: dict[str, Any] = {"timeout": "10m", "slurm": {"account": "research"}, **resources(cpu=1, memory="100Mi")}
ONE_NODE = resources(cpu=4, memory="1Gi")
CASES: dict[str, Plan] = {
    "invalid account": run(**{**FINE, "slurm": {"account": "nobody"}}),
    "invalid partition": run(**{**FINE, "slurm": {"partition": "nowhere"}}),
    "too much memory": run(timeout="10m", **resources(cpu=1, memory="64000Mi")),
    "too many GPUs": run(timeout="10m", **resources(cpu=1, memory="100Mi", gpu=3)),
    "unknown type of GPU": run(timeout="10m", slurm={"gpu_type": "h100"}, **resources(cpu=1, memory="100Mi", gpu=1)),
    "invalid qos": run(**{**FINE, "slurm": {"qos": "golden"}}),
    "time too long": run(**{**FINE, "timeout": "31m", "slurm": {"partition": "short"}}),
    "longer than the qos allows": run(**{**FINE, "timeout": "21m", "slurm": {"qos": "limited"}}),
    "more CPUs than the qos allows": run(
        1, worker=resources(cpu=3), timeout="10m", slurm={"qos": "limited"}, **resources(cpu=3)
    ),
    "too many nodes": run(8, worker=ONE_NODE, timeout="10m", **ONE_NODE),
    "too many CPUs of a node": run(**{**FINE, **resources(cpu=9)}),
    "unknown feature": run(**{**FINE, "slurm": {"constraint": "rack9"}}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("file", RECORDED, ids=lambda file: str(file.parent.name))
def test_what_slurm_refused_is_reported_beforehand(file: Path, case: str) -> None:
    answers = json.loads(file.read_text())
    if case not in answers:
        pytest.skip("this version was not asked")
    answer = answers[case]
    assert answer["code"] != 0 or answer.get("then"), "refused, or waiting for what will never be"
    assert findings(CASES[case], recorded_site(file.parent / "site"))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: str(file.parent.name))
def test_what_slurm_takes_is_not_refused(file: Path) -> None:
    assert findings(run(**FINE), recorded_site(file.parent / "site")) == {}


def test_the_cases_are_wrong_on_such_a_cluster_and_nothing_else_is(tmp_path: Path) -> None:
    """The same without a recording: a cluster of four nodes, as the recorded ones are."""
    folder = tmp_path / "site"
    folder.mkdir()
    rows = [f"node{n}|{part}|4|4000|gpu:fake:2|rack1|idle" for n in range(1, 5) for part in ("main*", "short")]
    for name, text in {
        "sinfo-nodes": "\n".join(rows),
        "sinfo-partitions": "main*|infinite|n/a|4|1-infinite|up\nshort|30:00|n/a|4|1-infinite|up",
        "partitions": "PartitionName=main Default=YES MaxTime=UNLIMITED State=UP\n"
        "PartitionName=short Default=NO MaxTime=00:30:00 State=UP",
        "config": "ClusterName = test\nAccountingStorageType = accounting_storage/slurmdbd",
        "associations": "research|limited,normal,urgent||",
        "qos": "normal||\nlimited|00:20:00|cpu=4,gres/gpu=2\nurgent||",
    }.items():
        (folder / f"{name}.txt").write_text(text)
    site = recorded_site(folder)
    assert site.nodes == (NodeKind(4, 4, 4000.0, 2, "fake", ("rack1",), ("main", "short")),)
    assert findings(run(**FINE), site) == {}
    assert [case for case, made in CASES.items() if not findings(made, site)] == []
