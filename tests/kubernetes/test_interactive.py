"""Commands, holds and notebooks in pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.cli.running import Answer
from tests.kubernetes.places import KubernetesPlace

TWO = {"framework": "pytorch", "environment": {"replicas": {"n_workers": 1}, "env_vars": [["MY_SECRET", "s3cret"]]}}
SAY = 'echo "$MY_SECRET $RANK $PHALANX_REPLICA"; cat; exit 9'


class Direct:
    """Calls that lead to the API server itself: kubectl's connections cannot pass the proxies of other tests."""

    def __init__(self, place: KubernetesPlace) -> None:
        self.place = place
        cluster = place.world.cluster
        self.kubeconfig = place.world.kubeconfig if cluster is None else cluster.state / "inner.kubeconfig"
        self.options = ("--namespace", place.world.namespace)

    def call(self, *words: str, stdin: bytes = b"") -> Answer:
        return self.place.call(*words, stdin=stdin, KUBECONFIG=str(self.kubeconfig))

    def submitted(self, command: str, *options: str, **fields: Any) -> str:
        file = self.place.file(command, **fields)
        answer = self.call("run", "-f", file, "-d", "--on", "kubernetes", *self.options, *options)
        assert answer.code == 0, answer.err
        return answer.out.strip()

    def entered(self, run: str, rank: int, *words: str) -> Answer:
        return self.call("exec", run, "--rank", str(rank), "--", *words, stdin=b"typed")


@pytest.fixture(name="direct")
def direct_fixture(place: KubernetesPlace) -> Direct:
    return Direct(place)


@pytest.mark.smoke
def test_a_command_runs_in_the_pod_of_its_replica_and_a_failed_pod_is_held(direct: Direct) -> None:
    run = direct.submitted("while [ ! -e fail ]; do sleep 0.2; done; exit 4", "--hold", "10m", **TWO)
    wait_for(lambda: direct.entered(run, 1, "true").code == 0)
    answer = direct.entered(run, 1, "sh", "-c", SAY)
    assert (answer.code, answer.out) == (9, "s3cret 1 worker-0\ntyped"), answer.err
    assert direct.entered(run, 1, "touch", "fail").code == 0, "in the working folder of the replica"
    reason = wait_for(
        lambda: found if (found := direct.call("show", run, "--json").data["reason"]).startswith("held") else ""
    )
    assert "worker-0: exit code 4" in reason
    answer = direct.entered(run, 1, "sh", "-c", SAY)
    assert (answer.code, answer.out) == (9, "s3cret 1 worker-0\ntyped"), "its command has ended, its pod has not"
    assert direct.call("stop", run).code == 0
    found = direct.call("show", run, "--json").data
    assert (found["status"], found["reason"]) == ("failed", "worker-0: exit code 4")
    answer = direct.entered(run, 1, "true")
    assert (answer.code, "is not running" in answer.err) == (2, True)
