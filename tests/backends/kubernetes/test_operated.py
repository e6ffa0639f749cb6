"""The engine beside an operator that does as training-operator does: it makes pods again, and has its own verdicts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.contract import ENDED, Observation
from phalanx.backends.kubernetes.observe import states
from tests.backends.kubernetes.runs import GANG, SERVED, Works, log_lines, read_end, until, works
from tests.kubernetes.rest import Rest
from tests.kubernetes.training import KINDS, Training

STOPPED = {"cause": "stopped", "message": "stopped"}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Works]:
    with works(tmp_path) as found:
        found.server.is_graceful = True
        yield found


class Operated:
    """A run that an operator runs."""

    def __init__(self, there: Works, text: str) -> None:
        self.there, self.engine = there, there.engine("kubeflow")
        self.attempt_folder = there.run(text, on="kubeflow")
        self.handle = there.submit(self.engine, self.attempt_folder)
        self.reconcile()
        self.engine.fetch(self.attempt_folder, self.handle)

    def reconcile(self) -> None:
        """Once with all that there is."""
        for kind in KINDS[:2]:
            for name in self.there.server.names(kind.name):
                job = self.there.server.get(kind.name, name)
                assert job is not None
                mine = [
                    [one for each in self.there.server.names(what) if (one := self.there.server.get(what, each))]
                    for what in ("Pod", "Service")
                ]
                pods, services = ([one for one in many if _is_of(one, job)] for many in mine)
                operator = Rest.of(self.there.config)
                Training(operator, kind, job, pods, services).do()
                operator.close()

    def pod(self, name: str) -> str:
        return f"phalanx-{self.attempt_folder.run_id}-{name}"

    def begin(self, **pods: str) -> None:
        """Pods by the names that the operator gives them, and the replicas in them."""
        for pod, name in pods.items():
            self.there.server.set_pod_phase(self.pod(pod.replace("_", "-")), "Running")
            self.there.say(self.pod(pod.replace("_", "-")), *log_lines(name, b"x\n"))
            until((self.attempt_folder.folder(name) / "log").exists)
        self.reconcile()

    def delete(self, pod: str) -> None:
        """As anybody may."""
        api = Rest.of(self.there.config)
        api.delete(f"/api/v1/namespaces/default/pods/{self.pod(pod)}")
        api.close()

    def give_up(self) -> None:
        """As the operator does when one was started again too often: all pods go."""
        server = self.there.server
        for name in server.names("Pod"):
            pod = server.get("Pod", name)
            assert pod is not None
            (box,) = pod["status"]["containerStatuses"]
            server.put({**pod, "status": {**pod["status"], "containerStatuses": [{**box, "restartCount": 2}]}})
        self.reconcile()
        left = [server.get("Pod", name) for name in server.names("Pod")]
        assert all(pod is not None and pod["metadata"]["deletionTimestamp"] for pod in left)

    def send_signal(self, *names: str, number: int = signal.SIGTERM) -> None:
        self.engine.signal(self.attempt_folder, self.handle, names, number)

    def stop(self, pod: str, name: str) -> None:
        """As an agent does that is told to."""
        self.there.say(self.pod(pod), *log_lines(name, b"", STOPPED)[-1:])
        self.there.server.set_pod_phase(self.pod(pod), "Failed", exit_code=143)

    def finish(self, pod: str, name: str) -> None:
        self.there.say(self.pod(pod), *log_lines(name, b"", {})[-1:])
        self.there.server.set_pod_phase(self.pod(pod), "Succeeded")

    def fail(self, pod: str, name: str) -> None:
        end = {"cause": "error", "code": 7, "message": "exit code 7"}
        self.there.say(self.pod(pod), *log_lines(name, b"", end)[-1:])
        self.there.server.set_pod_phase(self.pod(pod), "Failed", exit_code=7)

    def end(self, name: str) -> Any:
        return until(lambda: read_end(self.attempt_folder, name))

    def over(self) -> Observation:
        def seen() -> Observation | None:
            found = self.engine.observe([self.handle]).get(self.handle)
            return found if found is not None and found.state == ENDED else None

        found: Observation = until(seen)
        return found


def _is_of(one: dict[str, Any], job: dict[str, Any]) -> bool:
    return any(owner["uid"] == job["metadata"]["uid"] for owner in one["metadata"].get("ownerReferences") or ())


def test_a_job_that_goes_on_is_deleted_when_its_replicas_are_asked_to_end(there: Works) -> None:
    """Or its operator would make the pods again that are gone. One of them still waits for a node."""
    run = Operated(there, GANG)
    run.begin(master_0="master-0", worker_0="worker-0")
    run.send_signal("master-0", "worker-0", number=signal.SIGQUIT)
    assert not there.server.names("PyTorchJob")
    for pod in ("master-0", "worker-0"):
        document = there.server.get("Pod", run.pod(pod))
        assert document is not None
        assert document["metadata"]["deletionTimestamp"]
        run.stop(pod, pod)
    run.reconcile()
    assert run.end("master-0")["cause"] == "stalled"
    assert run.end("worker-0")["cause"] == "stalled"
    assert run.over().why == "stopped", "by us"
    assert run.end("worker-1")["message"] == "stopped"


def test_a_job_that_is_over_stays_and_only_pods_go(there: Works) -> None:
    run = Operated(there, GANG.replace("environment: {", "environment: {kubernetes: {ttl: 1h}, "))
    run.begin(master_0="master-0", worker_0="worker-0", worker_1="worker-1")
    run.fail("worker-1", "worker-1")
    run.reconcile()
    assert run.end("worker-1")["code"] == 7
    until(lambda: _conditions(there, "PyTorchJob") == {"Created", "Failed"})
    run.engine.controller.mirror.wait(-1, 1.0)
    until(lambda: _is_known_to_have_failed(run))
    run.send_signal("master-0", "worker-0")
    assert there.server.names("PyTorchJob")
    for pod in ("master-0", "worker-0"):
        run.stop(pod, pod)
    run.reconcile()
    assert run.over().why == "exit code 7"
    assert there.server.names("PyTorchJob") == ["phalanx-abc"]


def test_servers_are_notified_when_the_replicas_they_serve_are_done(there: Works) -> None:
    run = Operated(there, SERVED)
    run.begin(chief_0="master-0", worker_0="worker-0", ps_0="ps-0")
    for pod, name in (("chief-0", "master-0"), ("worker-0", "worker-0")):
        run.finish(pod, name)
        run.end(name)
    run.send_signal("ps-0")  # before its operator has seen that the chief has finished
    assert not there.server.names("TFJob")
    run.stop("ps-0", "ps-0")
    run.reconcile()
    assert run.end("ps-0")["cause"] == "stopped"
    run.over()
    until(lambda: not there.server.names("Pod"))


AGAIN = GANG.replace("environment: {", "environment: {max_restarts: 2, kubernetes: {restart_policy: OnFailure}, ")


def test_a_replica_that_its_kubelet_starts_again_has_not_ended(there: Works) -> None:
    """Its pod goes on, and so does its log; what counts is how it ends when it is not started again."""
    run = Operated(there, AGAIN)
    run.begin(master_0="master-0", worker_0="worker-0", worker_1="worker-1")
    failed = {"cause": "error", "code": 7, "message": "exit code 7"}
    there.say(run.pod("worker-0"), *log_lines("worker-0", b"", failed)[-1:])
    until(lambda: (tracked := _tracked(run, "worker-0")) and tracked.held)
    there.say(run.pod("worker-0"), *log_lines("worker-0", b"x\nagain\n"))
    until(lambda: (run.attempt_folder.folder("worker-0") / "log").read_bytes() == b"x\nagain\n")
    assert not _tracked(run, "worker-0").held
    assert read_end(run.attempt_folder, "worker-0") is None
    run.finish("worker-0", "worker-0")
    assert run.end("worker-0")["cause"] == "finished"


def test_a_replica_that_is_not_started_again_has_ended_as_it_said(there: Works) -> None:
    run = Operated(there, AGAIN)
    run.begin(master_0="master-0", worker_0="worker-0", worker_1="worker-1")
    run.fail("worker-0", "worker-0")  # evicted, or its job has given up
    end = run.end("worker-0")
    assert (end["cause"], end["code"]) == ("error", 7)


@pytest.mark.slow
def test_an_operator_that_gives_up_is_not_a_user_who_deleted_pods(there: Works) -> None:
    run = Operated(there, AGAIN)
    run.begin(master_0="master-0", worker_0="worker-0", worker_1="worker-1")
    failed = {"cause": "error", "code": 7, "message": "exit code 7"}
    there.say(run.pod("worker-0"), *log_lines("worker-0", b"", failed)[-1:])
    until(lambda: _tracked(run, "worker-0").held)
    run.give_up()
    for name in ("master-0", "worker-1"):
        run.stop(name, name)
        assert run.end(name)["message"] != states.NOT_BY_US
    there.server.set_pod_phase(run.pod("worker-0"), "Failed", exit_code=7)
    assert run.end("worker-0")["code"] == 7
    assert run.over().why != states.NOT_BY_US


ELASTIC = GANG.replace("cmd: python", "cmd: torchrun").replace(
    "environment: {", "environment: {kubernetes: {min_workers: 1, max_workers: 2}, "
)


def test_an_elastic_job_is_done_without_those_that_never_had_a_node(there: Works) -> None:
    run = Operated(there, ELASTIC)
    run.begin(worker_0="master-0", worker_1="worker-0")
    run.finish("worker-0", "master-0")
    run.finish("worker-1", "worker-0")
    run.reconcile()
    assert run.end("master-0")["cause"] == run.end("worker-0")["cause"] == "finished"
    assert run.over().cause == "finished"
    assert run.end("worker-1")["message"] == "it was not needed"


def test_workers_whose_master_does_not_come_say_so(there: Works) -> None:
    """training-operator has them wait in a container of its own, which fails in the end."""
    run = Operated(there, GANG)
    worker = there.server.get("Pod", run.pod("worker-0"))
    assert worker is not None
    steps = [step["name"] for step in worker["spec"]["initContainers"]]
    assert steps == ["prepare", "init-pytorch"], "ours is done before"
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    outcome = states.pod_end(
        {**worker, "status": {"phase": "Failed", "initContainerStatuses": [{"name": steps[1], "state": ended}]}}
    )
    assert outcome is not None
    assert (outcome.cause, outcome.message.partition(":")[0]) == ("meeting", "its master did not start in time")


def _tracked(run: Operated, name: str) -> Any:
    kept = run.engine.controller.kept[run.attempt_folder.run_id, run.attempt_folder.attempt]
    return next((one for one in kept.attempt.pods.values() if name in one.names), None)


def test_an_outside_end_is_remembered_when_we_end_the_others(there: Works) -> None:
    run = Operated(there, GANG)
    run.begin(master_0="master-0", worker_0="worker-0", worker_1="worker-1")
    run.delete("worker-1")
    run.stop("worker-1", "worker-1")
    assert run.end("worker-1")["message"] == states.NOT_BY_US
    run.send_signal("master-0", "worker-0")
    for pod in ("master-0", "worker-0"):
        run.stop(pod, pod)
    run.reconcile()
    assert run.over().why == states.NOT_BY_US


def _conditions(there: Works, kind: str) -> set[str]:
    job = there.server.get(kind, there.server.names(kind)[0])
    assert job is not None
    return {one["type"] for one in job["status"]["conditions"] if one["status"] == "True"}


def _is_known_to_have_failed(run: Operated) -> bool:
    group = run.engine.controller.groups().get((run.attempt_folder.run_id, run.attempt_folder.attempt))
    return group is not None and any(
        one["type"] == "Failed" for work in group.works for one in (work.get("status") or {}).get("conditions") or ()
    )
