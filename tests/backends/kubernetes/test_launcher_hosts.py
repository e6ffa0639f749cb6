"""What a launcher's failure is put down to: pods of its ranks that are deleted, or lose their node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes.engine import reconciler
from phalanx.backends.kubernetes.engine.launcher_hosts import HOSTLESS_S
from phalanx.backends.kubernetes.observe import states
from tests.backends.kubernetes.runs import an_end
from tests.backends.kubernetes.test_reconciler import Seen, running
from tests.backends.kubernetes.test_states import failed


def a_running_host(uid: str = "h", **status: Any) -> dict[str, Any]:
    meta = {"uid": uid, "name": uid, "annotations": {"phalanx.dev/members": "worker-1"}, **status.pop("meta", {})}
    return running("worker-1", meta=meta, **status)


AWAY = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
TAINTED = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([], "worker-1: its pod was deleted, not by Phalanx"),
        ([a_running_host("new")], "worker-1: its pod was deleted, not by Phalanx"),  # mpi-operator replaces it
        ([a_running_host(meta=GOING)], "worker-1: its pod was deleted, not by Phalanx"),
        ([a_running_host(meta=GOING, conditions=TAINTED)], "worker-1: its node was lost or tainted"),
        ([a_running_host(conditions=AWAY)], "worker-1: node node-1 is not ready"),
    ],
)
def test_a_launcher_that_lost_a_host_did_not_fail_by_itself(
    tmp_path: Path, hosts: list[dict[str, Any]], words: str
) -> None:
    seen = Seen(tmp_path, ("worker-0",))
    launcher = running("worker-0")
    seen.attempt.log_readers.close()
    seen.look(launcher, a_running_host())
    seen.look(launcher, *hosts)
    (tracked,) = seen.attempt.pods.values()
    said = an_end("worker-0", cause="error", code=205, message="exit code 205")
    seen.attempt._heard(tracked, "worker-0", "end.json", json.dumps(said).encode())
    seen.look(launcher, *hosts)
    end = seen.end("worker-0")
    assert end["cause"] == "lost"
    assert end["message"].startswith(words), end["message"]


@pytest.mark.parametrize("is_long_ago", [True, False])
def test_hosts_that_an_operator_removes_after_the_launcher_are_not_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_long_ago: bool
) -> None:
    """Nor are those that were replaced long before it failed."""
    seen = Seen(tmp_path, ("worker-0",))
    seen.attempt.log_readers.close()
    launcher = running("worker-0")
    seen.look(launcher, a_running_host())
    if is_long_ago:
        seen.look(launcher, a_running_host("new"))
        seen.later(HOSTLESS_S + 1, monkeypatch)
    over = failed(3, members="worker-0", meta=launcher["metadata"])
    (tracked,) = seen.attempt.pods.values()
    said = an_end("worker-0", cause="error", code=3, message="exit code 3")
    seen.attempt._heard(tracked, "worker-0", "end.json", json.dumps(said).encode())
    seen.look(over)
    seen.later(2 * HOSTLESS_S, monkeypatch)
    seen.look(over)
    assert (seen.end("worker-0")["cause"], seen.end("worker-0")["message"]) == ("error", "exit code 3")


def test_a_rank_whose_pod_is_deleted_is_lost_and_its_launcher_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training-operator's launcher is a pod of its own."""
    names = ("worker-0", "worker-1", "launcher-0")
    seen = Seen(tmp_path, names, by_launcher=True)
    seen.attempt.log_readers.close()
    pods = [running(name) for name in names]
    seen.look(*pods)
    left = [pods[0], pods[2]]
    seen.look(*left)
    seen.later(reconciler.HELD_S + 1, monkeypatch)
    seen.look(*left)
    assert (seen.end("worker-1")["cause"], seen.end("worker-1")["message"]) == ("lost", states.DELETED)
    tracked = next(pod for pod in seen.attempt.pods.values() if "launcher-0" in pod.names)
    said = an_end("launcher-0", cause="error", code=205, message="exit code 205")
    seen.attempt._heard(tracked, "launcher-0", "end.json", json.dumps(said).encode())
    seen.look(*left)
    assert {seen.end(name)["cause"] for name in names} == {"lost"}
