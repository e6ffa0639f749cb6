"""One pod on a node: from what was asked for to processes, and from what they do to the status that is told."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Any

import httpx

from tests.kubernetes import sandboxes
from tests.kubernetes.rest import STRATEGIC, Answered
from tests.kubernetes.sandboxes import MISSING_IMAGE, Network, Process
from tests.kubernetes.volumes import Missing, Resolver

if TYPE_CHECKING:
    from tests.kubernetes.kubelet import Kubelet

RETRY_S = 0.5
UNLOCATED = "The container could not be located when the pod was terminated"
CONDITIONS = ("Initialized", "Ready", "ContainersReady")
USER = "trainer"  # what images call the user that they run as
NSSWITCH = "passwd: files\ngroup: files\nhosts: files\n"  # names are in the pod's own file, and nowhere else


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Pod:
    """Lives in a thread from its binding to a node until it is gone."""

    def __init__(self, kubelet: Kubelet, document: dict[str, Any], number: int) -> None:
        self.kubelet = kubelet
        self.document = document
        self.meta, self.spec = document["metadata"], document["spec"]
        self.uid, self.namespace, self.name = self.meta["uid"], self.meta["namespace"], self.meta["name"]
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.folder: Path = kubelet.state / "pods" / str(self.uid)
        self.network = Network(kubelet.settings, number)
        self.hosts = self.folder / "hosts"
        self.processes: dict[str, Process] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.restarts: dict[str, int] = {}
        self.ending = threading.Event()
        self.verdict: dict[str, Any] | None = None  # what is told instead of how the containers ended
        self.is_lost = False  # with its node
        self.is_finished = threading.Event()
        self._lock = threading.RLock()
        self._started_at = now()

    def start(self) -> None:
        threading.Thread(target=self._live, name=self.name, daemon=True).start()

    def end(self, grace_s: float, verdict: dict[str, Any] | None = None) -> None:
        """SIGTERM to all, SIGKILL to who is still there after the grace."""
        with self._lock:
            if self.ending.is_set() and grace_s > 0:
                return
            self.verdict = self.verdict or verdict
            self.ending.set()
        threading.Thread(target=self._kill, args=(grace_s,), daemon=True).start()

    def lose(self) -> None:
        """The node's power is cut: nobody says anything any more."""
        self.is_lost = True
        self.end(0)

    def log_file(self, container: str, *, is_previous: bool = False) -> Path:
        return self.folder / "logs" / f"{container}.{self.restarts.get(container, 0) - is_previous}"

    # life

    def _live(self) -> None:
        try:
            self.network.up()
            self._write_hosts()
            self._run()
        except Exception as error:  # noqa: BLE001 - the status of the pod is where tests look
            self.verdict = {"phase": "Failed", "reason": "TestKubelet", "message": repr(error)}
            self.publish()
        finally:
            self.is_finished.set()
            if not self.ending.is_set():
                self.network.down()

    def _run(self) -> None:
        containers = [*(self.spec.get("initContainers") or ()), *self.spec["containers"]]
        self.states = {each["name"]: {"waiting": {"reason": "PodInitializing"}} for each in containers}
        files = self._files()
        if files is None:
            return
        for container in self.spec.get("initContainers") or ():
            if not self._keep(container, files):
                if not self.ending.is_set():
                    self.verdict = {"phase": "Failed"}
                self.publish()
                return
        threads = [threading.Thread(target=self._keep, args=(each, files)) for each in self.spec["containers"]]
        for thread in threads:
            thread.start()
        deadline = self.spec.get("activeDeadlineSeconds")
        began = time.monotonic()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2 if deadline else None)
                if deadline and time.monotonic() - began > deadline:
                    late = "Pod was active on the node longer than the specified deadline"
                    self.end(1, {"phase": "Failed", "reason": "DeadlineExceeded", "message": late})
        self.publish()

    def _files(self) -> dict[str, Path] | None:
        """Volumes by name, and files of the pod by path. Waits for what is not there; None when the pod ends first."""
        resolver = self._resolver()
        reported = ""
        while not self.ending.is_set():
            try:
                files = resolver.volumes()
            except Missing as missing:
                if reported != str(missing):
                    reported = str(missing)
                    self.kubelet.event(self, "Warning", "FailedMount", f"MountVolume.SetUp failed : {missing}")
                    self.publish()
                self.ending.wait(RETRY_S)
            else:
                own = ("hosts", "nsswitch.conf", "passwd")
                return {**files, **{f"/etc/{name}": self.folder / name for name in own}}
        return None

    def _keep(self, container: dict[str, Any], files: dict[str, Path]) -> bool:
        """Runs it until it ended for good; whether that was well."""
        name, policy = container["name"], self.spec.get("restartPolicy", "Always")
        while not self.ending.is_set():
            if container.get("image", "").startswith(MISSING_IMAGE):
                self._wait_for_image(container)
                return False
            code = self._execute(container, files)
            is_again = policy == "Always" or (policy == "OnFailure" and code != 0)
            if code is None or not is_again or self.ending.is_set():
                self.publish()
                return code == 0
            if code == 0 and container in (self.spec.get("initContainers") or ()):
                return True
            last = self.states[name]
            wait_s = min(1.0 * 2 ** self.restarts.get(name, 0), 10.0)
            with self._lock:
                self.restarts[name] = self.restarts.get(name, 0) + 1
                words = f"back-off {wait_s:g}s restarting failed container={name} pod={self.name}"
                self.states[name] = {"waiting": {"reason": "CrashLoopBackOff", "message": words}, "last": last}
            self.publish()
            self.ending.wait(wait_s)
        return False

    def _execute(self, container: dict[str, Any], files: dict[str, Path]) -> int | None:
        """Its exit code; None when it did not start."""
        name = container["name"]
        wanted = self._wanted(container, files)
        if wanted is None:
            return None
        memory = sandboxes.memory_of(container, f"{self.network.name}-{name}")
        wanted["groups"] = [str(memory.path)] if memory is not None and memory.path is not None else []
        wanted["root"] = str(self.folder / "roots" / name)
        Path(wanted["root"]).mkdir(parents=True, exist_ok=True)
        log = self.log_file(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        description = sandboxes.write(self.folder / f"{name}.json", wanted)
        began = now()
        with self._lock:
            if self.ending.is_set():
                return None
            process = Process(name, description, self.network.path, log, memory)
            self.processes[name] = process
            before = {key: one for key, one in self.states[name].items() if key == "last"}
            self.states[name] = {"running": {"startedAt": began}, **before}
        self.publish()
        code, exceeded = process.wait()
        reason = "OOMKilled" if exceeded else "Completed" if code == 0 else "Error"
        terminated = {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now()}
        self.states[name] = {"terminated": terminated}
        return code

    def _wanted(self, container: dict[str, Any], files: dict[str, Path]) -> dict[str, Any] | None:
        """The container in detail; waits for what it refers to."""
        resolver = self._resolver()
        context = {**(self.spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
        while not self.ending.is_set():
            try:
                if context.get("runAsNonRoot") and not context.get("runAsUser"):
                    raise Missing("container has runAsNonRoot and image will run as root")
                return sandboxes.specification(self.document, container, resolver, files)
            except Missing as missing:
                waiting = {"reason": "CreateContainerConfigError", "message": str(missing)}
                if self.states[container["name"]] != {"waiting": waiting}:
                    self.states[container["name"]] = {"waiting": waiting}
                    self.kubelet.event(self, "Warning", "Failed", f"Error: {missing}")
                    self.publish()
                self.ending.wait(RETRY_S)
        return None

    def _wait_for_image(self, container: dict[str, Any]) -> None:
        words = f'Back-off pulling image "{container["image"]}"'
        for reason, message in (("ErrImagePull", "manifest unknown"), ("ImagePullBackOff", words)):
            self.states[container["name"]] = {"waiting": {"reason": reason, "message": message}}
            self.kubelet.event(self, "Warning", "Failed", f"Error: {reason}")
            self.publish()
            self.ending.wait(RETRY_S)
        self.kubelet.event(self, "Normal", "BackOff", words)
        self.ending.wait()

    def _resolver(self) -> Resolver:
        self.document["status"] = {
            **self.document.get("status", {}),
            "podIP": self.network.address,
            "hostIP": self.kubelet.settings.gateway,
        }
        return Resolver(self.kubelet.api, self.document, self.folder, self.kubelet.state / "claims")

    def _write_hosts(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.hosts.touch()
        (self.folder / "nsswitch.conf").write_text(NSSWITCH)
        users = [line for line in Path("/etc/passwd").read_text().splitlines() if line.split(":")[2] != "1000"]
        (self.folder / "passwd").write_text("\n".join([*users, f"{USER}:x:1000:1000::/tmp:/bin/sh", ""]))
        self.kubelet.refresh_names(self)

    # end

    def _kill(self, grace_s: float) -> None:
        if grace_s > 0:
            for process in list(self.processes.values()):
                process.signal(SIGTERM)
            deadline = time.monotonic() + grace_s
            while time.monotonic() < deadline and not all(each.is_over for each in list(self.processes.values())):
                time.sleep(0.05)
        with self._lock:
            processes = list(self.processes.values())
        for process in processes:
            process.signal(SIGKILL)
        self.is_finished.wait(10)

    def confirm(self) -> None:
        """Says that nothing is left of a pod that someone deleted; waits until that is so."""
        self.is_finished.wait(60)
        if not self.is_lost:
            self._assume_ends()
            self.publish()
            with suppress(Answered):
                self._patiently("DELETE", self.path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})

    def _assume_ends(self) -> None:
        """As kubelets do: steps that never ended count as killed, and containers after them if all steps succeeded."""
        inits = [each["name"] for each in self.spec.get("initContainers", ())]
        ended = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": UNLOCATED}
        has_begun = all("terminated" in self.states.get(name, {}) for name in inits)
        names = [each["name"] for each in self.spec["containers"]] if has_begun else inits
        with self._lock:
            for name in names:
                if "terminated" not in self.states.get(name, {}):
                    self.states[name] = {"terminated": {**ended, "startedAt": None, "finishedAt": None}}

    def remove(self) -> None:
        """Its logs go with it, as on a real node."""
        self.end(0)
        self.is_finished.wait(20)
        self.network.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    # what is told

    @property
    def phase(self) -> str:
        if self.verdict and "phase" in self.verdict:
            return str(self.verdict["phase"])
        states = [self.states.get(each["name"], {}) for each in self.spec["containers"]]
        if all("terminated" in state for state in states):
            return "Succeeded" if all(state["terminated"]["exitCode"] == 0 for state in states) else "Failed"
        if self.ending.is_set() and self.is_finished.is_set():
            return "Failed"
        is_begun = any("running" in state or "terminated" in state or "last" in state for state in states)
        return "Running" if is_begun else "Pending"

    def publish(self) -> None:
        """The status as the API server shall have it, as often as it takes."""
        if self.is_lost:
            return
        with self._lock:
            phase = self.phase
            is_ready = phase == "Running"
            status: dict[str, Any] = {
                "phase": phase,
                "hostIP": self.kubelet.settings.gateway,
                "podIP": self.network.address,
                "podIPs": [{"ip": self.network.address}],
                "startTime": self._started_at,
                "containerStatuses": [self._told(each) for each in self.spec["containers"]],
                "conditions": self._conditions(is_ready=is_ready),
                **(self.verdict or {}),
            }
            if inits := self.spec.get("initContainers"):
                status["initContainerStatuses"] = [self._told(each) for each in inits]
            status["phase"] = phase
            with suppress(Answered):
                self._patiently("PATCH", f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": status})

    def _conditions(self, *, is_ready: bool) -> list[dict[str, Any]]:
        usual = [
            {
                "type": kind,
                "status": "True" if is_ready or kind == "Initialized" else "False",
                "lastTransitionTime": now(),
            }
            for kind in CONDITIONS
        ]
        return usual + list((self.verdict or {}).pop("conditions", ()))

    def _told(self, container: dict[str, Any]) -> dict[str, Any]:
        name = container["name"]
        state = dict(self.states.get(name) or {"waiting": {"reason": "ContainerCreating"}})
        last = state.pop("last", None)
        return {
            "name": name,
            "image": container.get("image", ""),
            "imageID": "",
            "containerID": f"process://{self.uid}/{name}",
            "ready": "running" in state,
            "started": "running" in state,
            "restartCount": self.restarts.get(name, 0),
            "state": state,
            **({"lastState": last} if last else {}),
        }

    def _patiently(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Servers restart; a kubelet goes on."""
        while True:
            try:
                self.kubelet.api.ask(method, path, body, kind=STRATEGIC if method == "PATCH" else "application/json")
            except (httpx.HTTPError, OSError):
                time.sleep(0.2)
            except Answered as answered:
                if answered.code < 500 and answered.code != 429:
                    raise
                time.sleep(0.2)
            else:
                return
