"""What a cluster is taken to offer."""

from __future__ import annotations

import pytest

from phalanx.backends.kubernetes.cluster.assumed_offer import OFFLINE, assumed
from phalanx.errors import CallError

V1 = ("kubeflow.org/v1",)
V2 = ("kubeflow.org/v2beta1",)


def test_no_one_asked_means_a_current_cluster_with_the_usual_operators() -> None:
    assert OFFLINE.version == (1, 34)
    assert OFFLINE.is_assumed
    assert OFFLINE.has_indexed_jobs
    assert OFFLINE.kinds["MPIJob"] == V2
    assert {"TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob"} <= set(OFFLINE.kinds)
    assert "MXJob" not in OFFLINE.kinds


def test_the_operator_before_1_9_has_other_kinds() -> None:
    old = assumed("training-operator=1.8")
    assert (old.kinds["MXJob"], old.kinds["MPIJob"]) == (V1, V1)
    assert "JAXJob" not in old.kinds
    assert assumed("training-operator=v1.8.1, mpi=v2beta1").kinds["MPIJob"] == V2
    assert assumed("training-operator=1.9").kinds == OFFLINE.kinds
    assert "PaddleJob" not in assumed("training-operator=1.4").kinds


def test_operators_that_are_named_are_all_there_are() -> None:
    assert set(assumed("trainer").kinds) == {"Job", "TrainJob"}
    assert set(assumed("mpi=v1").kinds) == {"Job", "MPIJob"}
    assert set(assumed("none").kinds) == {"Job"}
    assert assumed("kubernetes=1.25,kueue").kinds == OFFLINE.kinds


def test_versions_queues_and_gangs() -> None:
    cluster = assumed("kubernetes=v1.20.2,kueue=team-a+team-b")
    assert (cluster.version, cluster.gang, cluster.queues) == ((1, 20), "kueue", ("team-a", "team-b"))
    assert not cluster.has_indexed_jobs
    assert assumed("volcano").kinds["PodGroup"] == ("scheduling.volcano.sh/v1beta1",)
    assert assumed("scheduler-plugins").gang == "scheduler-plugins"
    assert assumed("kueue").queues == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty: write for example"),
        ("kuberntes=1.3", "unknown item `kuberntes`; do you mean `kubernetes`"),
        ("zzz", "unknown item `zzz`; choose from: kubernetes, "),
        ("kubernetes", "name a version"),
        ("kubernetes=", "needs a value"),
        ("kubernetes=new", "write a version such as 1.30"),
        ("kubernetes=1.\u0663", "write a version"),
        ("kubernetes=2.0", "only versions 1.x"),
        ("training-operator=2.0", "use `trainer` for 2.x"),
        ("trainer=1.9", "Trainer starts at version 2"),
        ("mpi=v2", "use v1 or v2beta1"),
        ("kueue,volcano", "kueue and volcano: name only one"),
        ("volcano=1.15", "remove `=1.15`"),
        ("kueue,kueue", "`kueue` is given twice"),
        ("none,trainer", "`none` means no operator, and `trainer` is one"),
    ],
)
def test_what_cannot_be_assumed_is_reported_kindly(text: str, words: str) -> None:
    with pytest.raises(CallError) as fault:
        assumed(text)
    assert words in str(fault.value)
    assert str(fault.value).startswith("--assume")
