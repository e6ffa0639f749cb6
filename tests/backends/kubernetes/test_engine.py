"""The engine of Kubernetes: what it says of attempts, what it brings home of them, and how it ends them."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.contract import ENDED, RUNNING, WAITING, EngineUnavailable, Observation
from phalanx.backends.kubernetes.engine import reconciler
from phalanx.backends.kubernetes.engine.engine import KubernetesEngine
from phalanx.backends.kubernetes.target import ClusterTarget
from tests.backends.kubernetes.runs import (
    GANG,
    ONE,
    SERVED,
    Works,
    an_end,
    group_of,
    log_lines,
    mode_of,
    read_end,
    until,
    works,
)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Works]:
    with works(tmp_path) as found:
        yield found


class Attended:
    """A run that is submitted and looked at, as the scheduler does."""

    def __init__(
        self, there: Works, text: str, *, on: str = "kubernetes", phase: str | None = "Running", **more: Any
    ) -> None:
        self.there, self.engine = there, there.engine(on, **more)
        self.attempt_folder = there.run(text, on=on, **more)
        self.handle = there.submit(self.engine, self.attempt_folder)
        self.pods = there.spawn(self.attempt_folder, phase=phase)
        self.engine.fetch(self.attempt_folder, self.handle)

    def seen(self) -> Observation | None:
        return self.engine.observe([self.handle]).get(self.handle)

    def end(self, name: str) -> Any:
        return until(lambda: read_end(self.attempt_folder, name))

    def over(self) -> Observation:
        seen = until(lambda: (found := self.seen()) and found.state == ENDED and found)
        assert isinstance(seen, Observation)
        return seen

    def log(self, name: str) -> bytes:
        try:
            return (self.attempt_folder.folder(name) / "log").read_bytes()
        except OSError:
            return b""


def test_a_run_from_its_start_to_its_end(there: Works) -> None:
    run = Attended(there, GANG, phase=None)
    seen = until(lambda: (found := run.seen()) and found.state == WAITING and found)
    assert (seen.run_id, seen.attempt) == ("abc", 1)
    for name, pod in run.pods.items():
        there.server.set_pod_phase(pod, "Running", node=f"node-{name}")
        there.say(pod, *log_lines(name, b"hello\nworld\n"))
    until(lambda: all(run.log(name) == b"hello\nworld\n" for name in run.attempt_folder.replicas))
    seen = run.seen()
    assert seen is not None
    assert (seen.state, seen.nodes) == (RUNNING, "node-master-0,node-worker-0,node-worker-1")
    for name, pod in run.pods.items():
        there.say(pod, *log_lines(name, b"", {})[-1:])
        there.server.set_pod_phase(pod, "Succeeded")
    assert run.over().cause == "finished"
    for name in run.attempt_folder.replicas:
        assert run.end(name)["peak"] == {"memory_mib": 12.0}  # the agent's own word
        assert json.loads((run.attempt_folder.folder(name) / "agent.json").read_bytes())["pid"] == 7
        assert mode_of(run.attempt_folder.folder(name) / "log") == 0o600
        assert mode_of(run.attempt_folder.folder(name)) == 0o700
    until(lambda: not there.server.names("ConfigMap") and not there.server.names("Pod"))
    assert run.over().state == ENDED  # also when nothing of it is left: the next attempt may come


def test_what_the_cluster_warns_of_is_kept_with_the_run(there: Works) -> None:
    there.server.warnings = ['unknown field "spec.nonsense"']
    run = Attended(there, ONE)
    said = run.engine.log_of(run.attempt_folder.run_folder, run.handle)
    assert said.read_text() == 'the cluster warns: unknown field "spec.nonsense"\n'
    assert mode_of(said) == 0o600


def test_looking_asks_nothing_of_the_server(there: Works) -> None:
    engine = there.engine()
    attempt_folders = [there.run(ONE, f"run-{number}") for number in range(10)]
    handles = [there.submit(engine, attempt_folder) for attempt_folder in attempt_folders]
    for attempt_folder in attempt_folders:
        there.spawn(attempt_folder)
    until(lambda: all(seen.state == RUNNING for seen in engine.observe(handles).values()))
    before = len(there.server.requests)
    for _ in range(50):
        assert len(engine.observe(handles)) == 10
    assert len(there.server.requests) == before


def test_both_engines_see_one_namespace_through_one_watch_each_their_own_runs(there: Works) -> None:
    native, operated = there.engine(), there.engine("kubeflow")
    one, two = there.run(ONE, "one"), there.run(GANG, "two", on="kubeflow")
    handles = there.submit(native, one), there.submit(operated, two)
    assert handles[1] == "kubeflow:default/phalanx-two.1"
    until(lambda: native.observe([]) and operated.observe([]))
    assert list(native.observe([])) == [handles[0]]
    assert list(operated.observe([])) == [handles[1]]
    watches = [request.path for request in there.server.requests if request.is_watch]
    assert len(watches) == len(set(watches))


def test_closing_ends_every_thread_and_stream(there: Works) -> None:
    before = set(threading.enumerate())
    run = Attended(there, GANG)
    for name, pod in run.pods.items():
        there.say(pod, *log_lines(name, b"one\n"))
    until(lambda: all(run.log(name) == b"one\n" for name in run.attempt_folder.replicas))
    names = {thread.name for thread in threading.enumerate()}
    assert names >= {"phalanx-logs", "phalanx-kubernetes-turns", "watch of pods"}  # a log is being followed
    there.connections.close()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if name.startswith(("phalanx", "watch"))}


# ends that no agent told


def test_a_pod_killed_for_memory_leaves_an_end_with_that_cause(there: Works) -> None:
    run = Attended(there, ONE)
    (name, pod), *_ = run.pods.items()
    there.say(pod, *log_lines(name, b"step 1\nstep 2\n"))
    until(lambda: run.log(name) == b"step 1\nstep 2\n")
    there.server.set_pod_phase(pod, "Failed", exit_code=137, container_why="OOMKilled")
    end = run.end(name)
    assert (end["cause"], end["signal"], end["code"]) == ("memory", 9, None)
    assert end["message"] == "killed for memory: it used more than its limit of 2048Mi"
    assert end["last_lines"] == ["step 1", "step 2"]
    assert (end["log_bytes"], end["host"], end["replica"], end["attempt"]) == (14, "node-1", name, 1)
    assert end["started_at"] <= end["ended_at"]
    assert set(end) == set(an_end(name))
    assert run.over().cause == "memory"


def test_an_image_without_python_is_reported_by_the_kubelet(there: Works) -> None:
    run = Attended(there, ONE)
    (name, pod), *_ = run.pods.items()
    there.say(pod, b"phalanx: no Python of at least 3.8 in this image: the command runs without an agent\n", b"42\n")
    until(lambda: b"42\n" in run.log(name))
    until((run.attempt_folder.folder(name) / "agent.json").exists)  # it runs
    there.say(pod, b"bye\n")
    there.server.set_pod_phase(pod, "Failed", exit_code=3)
    end = run.end(name)
    assert (end["cause"], end["code"], end["message"]) == ("error", 3, "exit code 3")
    assert end["last_lines"][-2:] == ["42", "bye"]
    assert run.log(name).endswith(b"42\nbye\n")


def test_a_step_that_failed_before_the_start_says_its_last_lines(there: Works) -> None:
    run = Attended(there, ONE, phase=None)
    (name, pod), *_ = run.pods.items()
    found = there.server.get("Pod", pod)
    assert found is not None
    there.say(pod, b"No matching distribution found for torhc\n")
    step = {"name": "prepare", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    there.server.put({**found, "status": {"phase": "Failed", "initContainerStatuses": [step]}})
    end = run.end(name)
    assert (end["cause"], end["message"]) == ("setup", "step `prepare` failed: exit code 1")
    assert end["last_lines"] == ["No matching distribution found for torhc"]


@pytest.mark.parametrize(("code", "number"), [(None, 9), (137, None)])  # itself, or under a shell
def test_a_kill_that_the_agent_cannot_explain_is_the_kernel_s_for_memory(
    there: Works, code: int | None, number: int | None
) -> None:
    run = Attended(there, ONE)
    (name, pod), *_ = run.pods.items()
    said = {"cause": "error", "code": code, "signal": number, "message": "exit code 137"}
    there.say(pod, *log_lines(name, b"x\n", said))
    there.server.set_pod_phase(pod, "Failed", exit_code=137, container_why="OOMKilled")
    end = run.end(name)
    assert (end["cause"], end["message"]) == ("memory", "killed for memory: it used more than its limit of 2048Mi")
    assert end["peak"] == {"memory_mib": 12.0}


def test_an_agent_that_was_asked_to_end_by_the_cluster_gets_the_cluster_s_reason(there: Works) -> None:
    run = Attended(there, GANG)
    evicted = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    pod = run.pods["worker-0"]
    there.say(pod, *log_lines("worker-0", b"x\n", {"cause": "stopped", "message": "stopped", "code": None}))
    there.server.set_pod_phase(pod, "Failed", exit_code=143, conditions=evicted)
    end = run.end("worker-0")
    assert (end["cause"], end["message"]) == ("lost", "preempted by a pod of higher priority")


def test_pods_deleted_by_others_are_no_failure(there: Works) -> None:
    run = Attended(there, GANG)
    until(lambda: (found := run.seen()) and found.state == RUNNING)
    until(lambda: len(run.engine.controller.kept["abc", 1].attempt.pods) == 3)
    there.server.remove("ConfigMap", "phalanx-abc")
    seen = run.over()
    assert (seen.cause, seen.why) == ("stopped", "its pods were deleted, not by Phalanx")
    assert run.end("master-0")["cause"] == "stopped"


@pytest.mark.slow
def test_what_was_never_seen_is_not_known(there: Works) -> None:
    run = Attended(there, ONE, phase=None)
    until(lambda: run.engine.observe(["kubernetes:default/phalanx-other.1"]).keys() == {run.handle})


def test_replicas_that_still_wait_when_another_fails_need_not_start(
    there: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "HELD_S", 0.2)
    run = Attended(there, GANG, phase=None)
    there.say(
        run.pods["master-0"], *log_lines("master-0", b"x\n", {"cause": "error", "code": 1, "message": "exit code 1"})
    )
    there.server.set_pod_phase(run.pods["master-0"], "Failed")
    assert run.end("worker-1")["message"] == "stopped before it started"
    assert run.end("worker-0")["cause"] == "stopped"
    run.over()
    until(lambda: not there.server.names("Pod"))


def test_what_ended_before_anybody_looked_is_not_over_until_it_is_home(there: Works) -> None:
    engine, attempt_folder = there.engine(), there.run(ONE)
    handle = there.submit(engine, attempt_folder)
    (pod,) = there.spawn(attempt_folder).values()
    there.say(pod, *log_lines("master-0", b"x\n", {"cause": "error", "code": 5, "message": "exit code 5"}))
    there.server.set_pod_phase(pod, "Failed", exit_code=5)
    until(lambda: (group := group_of(engine)) and [pod["status"]["phase"] for pod in group.pods] == ["Failed"])
    assert engine.observe([handle])[handle].state == RUNNING
    engine.fetch(attempt_folder, handle)
    until(lambda: engine.observe([handle])[handle].state == ENDED)
    assert read_end(attempt_folder, "master-0")["code"] == 5


# ending them


def test_a_run_that_is_stopped_has_its_grace(there: Works) -> None:
    there.server.is_graceful = True
    run = Attended(there, ONE)
    (name, pod), *_ = run.pods.items()
    there.say(pod, *log_lines(name, b"x\n"))
    until(lambda: run.log(name))
    run.engine.cancel([run.handle])
    until(lambda: (found := there.server.get("Pod", pod)) and found["metadata"].get("deletionTimestamp"))
    assert there.server.get("ConfigMap", "phalanx-abc")  # its agent reads it
    there.say(pod, *log_lines(name, b"", {"cause": "stopped", "message": "stopped", "code": None})[-1:])
    there.server.set_pod_phase(pod, "Failed", exit_code=143)
    seen = run.over()
    assert (seen.cause, seen.why) == ("stopped", "stopped")
    assert run.end(name)["message"] == "stopped"
    until(lambda: not there.server.names("ConfigMap"))
    run.engine.cancel([run.handle])  # once more is no fault


def test_a_run_that_is_stopped_while_it_waits_is_over_at_once(there: Works) -> None:
    run = Attended(there, GANG, phase=None)
    until(run.seen)
    run.engine.cancel([run.handle])
    assert run.over().cause == "stopped"
    assert {run.end(name)["cause"] for name in run.attempt_folder.replicas} == {"stopped"}


def test_a_run_that_is_stopped_before_anybody_looked_is_removed(there: Works) -> None:
    engine, attempt_folder = there.engine(), there.run(ONE)
    handle = there.submit(engine, attempt_folder)
    until(lambda: engine.observe([handle]))
    engine.cancel([handle])
    until(lambda: not there.server.names("Job") and not there.server.names("ConfigMap"))


def test_replicas_are_asked_to_end_by_deleting_their_pods(there: Works) -> None:
    there.server.is_graceful = True
    run = Attended(there, SERVED)
    assert set(run.attempt_folder.replicas) == {"master-0", "worker-0", "ps-0"}
    for name, pod in run.pods.items():
        there.say(pod, *log_lines(name, b"x\n"))
    until(lambda: all(run.log(name) for name in run.attempt_folder.replicas))
    for name in ("master-0", "worker-0"):
        there.say(run.pods[name], *log_lines(name, b"", {})[-1:])
        there.server.set_pod_phase(run.pods[name], "Succeeded")
        run.end(name)
    assert (seen := run.seen())
    assert seen.state == RUNNING
    run.engine.signal(run.attempt_folder, run.handle, ["ps-0"], signal.SIGTERM)
    server = there.server.get("Pod", run.pods["ps-0"])
    assert server is not None
    assert server["metadata"]["deletionTimestamp"]
    there.say(run.pods["ps-0"], *log_lines("ps-0", b"", {"cause": "stopped", "message": "stopped"})[-1:])
    there.server.set_pod_phase(run.pods["ps-0"], "Failed", exit_code=143)
    assert run.end("ps-0")["message"] == "stopped"
    run.over()


def test_replicas_that_hang_are_stalled(there: Works) -> None:
    there.server.is_graceful = True
    run = Attended(there, ONE)
    (name, pod), *_ = run.pods.items()
    there.say(pod, *log_lines(name, b"x\n"))
    until(lambda: run.log(name))
    run.engine.signal(run.attempt_folder, run.handle, [name], signal.SIGQUIT)
    there.say(pod, *log_lines(name, b"", {"cause": "stopped", "message": "stopped"})[-1:])
    there.server.set_pod_phase(pod, "Failed", exit_code=143)
    assert run.end(name)["cause"] == "stalled"


def test_objects_are_kept_where_the_file_says_so(there: Works) -> None:
    run = Attended(there, ONE.replace("environment: {", "environment: {kubernetes: {ttl: 1h}, "))
    (name, pod), *_ = run.pods.items()
    there.say(pod, *log_lines(name, b"x\n", {}))
    there.server.set_pod_phase(pod, "Succeeded")
    run.over()
    time.sleep(0.5)
    assert there.server.names("Pod") == [pod]


# after we were killed, or could not reach anybody


def anew(there: Works, run: Attended) -> KubernetesEngine:
    """As whoever comes after one that was killed."""
    there.connections.close()
    engine = there.engine()
    engine.fetch(run.attempt_folder, run.handle)
    return engine


def test_the_successor_of_a_killed_reader_reads_on(there: Works) -> None:
    run = Attended(there, GANG)
    for name, pod in run.pods.items():
        there.say(pod, *log_lines(name, b"one\ntwo\n"))
    until(lambda: all(run.log(name) == b"one\ntwo\n" for name in run.attempt_folder.replicas))
    until((run.attempt_folder.run_folder / "job" / "attempt-1.positions.json").exists)
    run.engine = anew(there, run)
    for name, pod in run.pods.items():
        there.say(pod, *log_lines(name, b"one\ntwo\nthree\n")[1:])
    until(lambda: all(run.log(name) == b"one\ntwo\nthree\n" for name in run.attempt_folder.replicas))
    for name, pod in run.pods.items():
        there.say(pod, *log_lines(name, b"", {})[-1:])
        there.server.set_pod_phase(pod, "Succeeded")
    run.over()
    until(lambda: not there.server.names("ConfigMap"))


def test_a_plain_log_goes_on_where_it_was_left(there: Works) -> None:
    run = Attended(there, ONE)
    (name, pod), *_ = run.pods.items()
    there.say(pod, b"one\n", b"two\n")
    until(lambda: run.log(name) == b"one\ntwo\n")
    there.connections.close()
    run.engine = anew(there, run)
    there.say(pod, b"three\n")
    until(lambda: run.log(name) == b"one\ntwo\nthree\n")


def test_what_ended_while_no_one_looked_is_found(there: Works) -> None:
    run = Attended(there, ONE)
    (name, pod), *_ = run.pods.items()
    there.connections.close()
    there.say(pod, *log_lines(name, b"x\n", {}))
    there.server.set_pod_phase(pod, "Succeeded")
    run.engine = anew(there, run)
    assert run.end(name)["cause"] == "finished"
    assert run.log(name) == b"x\n"
    run.over()
    until(lambda: not there.server.names("ConfigMap"))


def test_no_one_hears_that_a_run_is_over_before_nothing_of_it_is_left(there: Works) -> None:
    """Whoever is killed in between leaves a run that is not over, and that the next one ends."""
    run = Attended(there, ONE)
    (name, pod), *_ = run.pods.items()
    there.server.deny("delete", "configmaps")
    there.say(pod, *log_lines(name, b"x\n", {}))
    there.server.set_pod_phase(pod, "Succeeded")
    until((run.attempt_folder.folder(name) / "end.held").exists)
    until(lambda: "delete" in run.engine.controller.trouble or "forbidden" in run.engine.controller.trouble)
    assert read_end(run.attempt_folder, name) is None
    assert (seen := run.seen())
    assert seen.state == RUNNING
    there.connections.close()
    there.server.remove("Pod", pod)  # and its log with it
    there.server.denied.clear()
    run.engine = anew(there, run)
    assert run.end(name)["cause"] == "finished"
    until(lambda: not there.server.names("ConfigMap"))
    assert run.over().cause == "finished"


def test_a_server_that_is_restarted_costs_nothing(there: Works) -> None:
    run = Attended(there, GANG)
    for name, pod in run.pods.items():
        there.say(pod, *log_lines(name, b"one\n"))
    until(lambda: all(run.log(name) == b"one\n" for name in run.attempt_folder.replicas))
    there.server.stop()
    with pytest.raises(EngineUnavailable):
        until(lambda: run.seen() is None)
    for name, pod in run.pods.items():
        there.say(pod, *log_lines(name, b"one\ntwo\n")[1:], *log_lines(name, b"", {})[-1:])
        there.server.set_pod_phase(pod, "Succeeded")
    there.server.start()
    until(lambda: all(read_end(run.attempt_folder, name) for name in run.attempt_folder.replicas), 20.0)
    assert {run.log(name) for name in run.attempt_folder.replicas} == {b"one\ntwo\n"}


def test_a_watch_that_expired_is_no_end(there: Works) -> None:
    run = Attended(there, ONE)
    until(lambda: (found := run.seen()) and found.state == RUNNING)
    there.server.expire_watches()
    there.server.drop_connections()
    (name, pod), *_ = run.pods.items()
    there.say(pod, *log_lines(name, b"x\n", {}))
    there.server.set_pod_phase(pod, "Succeeded")
    until(lambda: read_end(run.attempt_folder, name), 20.0)


def test_a_cluster_that_is_not_there_does_not_answer(tmp_path: Path) -> None:
    with works(tmp_path) as there:
        engine, attempt_folder = there.engine(), there.run(ONE)
        there.server.stop()
        with pytest.raises(EngineUnavailable):
            engine.observe([])
        with pytest.raises(EngineUnavailable):
            there.submit(engine, attempt_folder)
    broken = KubernetesEngine(ClusterTarget(there.settings._replace(kubeconfig="/nowhere")), there.connections)
    with pytest.raises(EngineUnavailable, match="/nowhere"):
        broken.observe([])
