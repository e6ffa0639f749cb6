"""The engine: submits, watches and ends attempts through the cluster's API, with the rights of a namespace user."""

from __future__ import annotations

import shlex
import signal
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from phalanx import atomic_files
from phalanx.backends.contract import (
    ENDED,
    RUNNING,
    Connections,
    Engine,
    EngineUnavailable,
    JobRejected,
    Observation,
    TunnelRequest,
    TunnelStep,
)
from phalanx.backends.kubernetes.cluster.api import JOBS, connect, kind_of
from phalanx.backends.kubernetes.engine import staged_objects
from phalanx.backends.kubernetes.engine.controller import NamespaceController, base_of, log_of
from phalanx.backends.kubernetes.engine.kubectl import kubectl, pod_of
from phalanx.backends.kubernetes.engine.reconciler import STUCK_S, pods_of
from phalanx.backends.kubernetes.observe import states
from phalanx.backends.kubernetes.observe.attempt_objects import (
    ENGINE,
    AttemptObjects,
    Object,
    container_of,
    deleted_at,
    labels_of,
    meta_of,
)
from phalanx.backends.kubernetes.render.pods import START
from phalanx.backends.kubernetes.target import ClusterTarget
from phalanx.errors import CallError, SystemFault
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder

UNKEPT_S = 30.0
RESTARTED = "Kubernetes restarts it"


class KubernetesEngine(Engine):
    """`name`: kubernetes, or kubeflow if operators create the pods. Both use the same namespace."""

    slowest_poll_s = 0.5  # the state is in memory
    needs_token = makes_room = True

    def __init__(self, target: ClusterTarget, connections: Connections, name: str = "kubernetes") -> None:
        self.target, self.connections, self.name = target, connections, name
        self._controller: NamespaceController | None = None
        self._unkept: dict[str, float] = {}  # finished attempts that no call has asked for, and since when
        self._guard = threading.Lock()

    @property
    def controller(self) -> NamespaceController:
        """The controller that all engines of the namespace share. Raises EngineUnavailable if the cluster is
        unreachable."""
        with self._guard:
            if self._controller is None:
                try:
                    api = connect(self.target.settings, ask=False)
                except (CallError, SystemFault) as fault:
                    raise EngineUnavailable(str(fault)) from None
                self._controller = self.connections.get(
                    (NamespaceController, *api.key), lambda: NamespaceController(api)
                )
            return self._controller

    def handle(self, run_id: str, attempt: int) -> str:
        return f"{self.name}:{self.controller.api.namespace}/{base_of(run_id)}.{attempt}"

    def preflight(self, environment: Mapping[str, str]) -> None:  # noqa: ARG002 - credentials are those of this process
        """Sends one request, unless the cluster has just been discovered."""
        if self.target.cluster.is_assumed:
            connect(self.target.settings).close()

    # starting ----------------------------------------------------------------------------------------------------

    def submit(  # noqa: PLR0913
        self,
        folder: Path,
        run_id: str,
        attempt: int,
        first: int,  # noqa: ARG002 - agents count the time
        *,
        working: Path,  # noqa: ARG002 - the objects carry the code
        environment: Mapping[str, str],
    ) -> str:
        controller = self.controller
        try:
            controller.wait_ready()
        except EngineUnavailable:
            controller.refuse_what_is_forbidden()
            raise
        self._make_room(run_id, attempt)
        try:
            server = self.target.settings.server
            staged = staged_objects.load(folder, environment, attempt=attempt, engine=self.name, server=server)
            log = log_of(folder, attempt)
            atomic_files.make_private(log.parent, folder)
            log.touch(mode=0o600)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            raise JobRejected(f"the files of the run cannot be read: {fault}") from None
        warned: list[str] = []
        staged_objects.apply(controller.api.with_warnings(warned.append), controller.pool, staged)
        with suppress(OSError), log.open("a", encoding="utf-8") as stream:
            stream.writelines(f"the cluster warns: {' '.join(text.split())}\n" for text in dict.fromkeys(warned))
        for kind in {kind_of(one) for one in staged.works}:
            controller.watch(kind)
        return self.handle(run_id, attempt)

    def _make_room(self, run_id: str, attempt: int) -> None:
        """Remove the pods of an earlier attempt first. Pods on a lost node are deleted by force. Raises
        EngineUnavailable."""
        older = [
            pod
            for (run, number), group in self.controller.groups().items()
            if run == run_id and number < attempt
            for pod in group.pods
            if states.pod_end(pod) is None
        ]
        if not older:
            return
        stuck = [pod for pod in older if (at := deleted_at(pod)) is not None and time.time() > at + STUCK_S]
        self.controller.delete(stuck, grace_s=0)
        if len(stuck) < len(older):
            numbers = {key[1] for key in self.controller.groups() if key[0] == run_id and key[1] < attempt}
            for number in numbers:
                self.controller.remove((run_id, number))
            raise EngineUnavailable("the pods of the previous attempt have not ended yet")

    # watching ----------------------------------------------------------------------------------------------------

    def observe(self, handles: Collection[str]) -> dict[str, Observation]:
        controller = self.controller
        controller.wait_ready()
        asked = set(handles)
        found = {}
        for key, group in controller.groups().items():
            if _engine_of(group) == self.name:
                handle = self.handle(*key)
                if group.is_whole or handle in asked:
                    found[handle] = states.observed(group)
        ended = {handle for handle, seen in found.items() if seen.state == ENDED}
        kept = {one.attempt.handle: one.attempt for one in list(controller.kept.values())}
        now = time.monotonic()
        self._unkept = {handle: self._unkept.get(handle, now) for handle in ended - set(kept)}
        # A finished attempt counts as over once its files have been fetched, so it must be managed until then.
        for handle, since in self._unkept.items():
            if now - since < UNKEPT_S:
                found[handle] = found[handle]._replace(state=RUNNING, why="")
        for handle, attempt in kept.items():
            if attempt.over is not None and handle in asked | set(found):
                found[handle] = attempt.over
            elif handle in ended or (handle in asked and handle not in found and attempt.is_seen):
                found[handle] = attempt.last
        return found

    def why_restarted(self, handle: str) -> str:  # noqa: ARG002
        return RESTARTED

    def log_of(self, folder: Path, handle: str) -> Path:
        """The log from before any replica started: that of the image build."""
        number = handle.rpartition(".")[2]
        return log_of(folder, int(number) if number.isdigit() else 0)

    def fetch(self, attempt_folder: AttemptFolder, handle: str) -> None:
        """Does nothing: the controller's threads fetch files continuously, so callers do not wait."""
        self.controller.manage(attempt_folder, handle)

    def entry(
        self, attempt_folder: AttemptFolder, replica: str, argv: Sequence[str], *, is_terminal: bool
    ) -> list[str]:
        """A call of kubectl: the cluster checks whether this user may execute commands in its pods."""
        pod = pod_of(self.target.settings, attempt_folder, replica)
        terminal = ["--stdin", "--tty"] if is_terminal else ["--stdin"]
        place = [str(meta_of(pod)["name"]), "--container", container_of(pod), "--"]
        return [*kubectl(self.target.settings), "exec", *terminal, *place, *START, "enter", replica, *argv]

    def tunnel(self, attempt_folder: AttemptFolder, replica: str, asked: TunnelRequest) -> list[TunnelStep]:
        """Wherever kubectl and the same credentials are: the cluster passes the connection on."""
        pod = str(meta_of(pod_of(self.target.settings, attempt_folder, replica))["name"])
        ports = f"{asked.port}:{asked.address.rpartition(':')[2]}"
        call = [*kubectl(self.target.settings), "port-forward", f"pod/{pod}", ports]
        return [TunnelStep("a machine with this kubeconfig", shlex.join(call))]

    # ending ------------------------------------------------------------------------------------------------------

    def signal(self, attempt_folder: AttemptFolder, handle: str, names: Collection[str], number: int) -> None:
        """Delete the pods of these replicas: Kubernetes has no other way to send a signal. An operator would replace
        them while its job exists, so the job is deleted with all of its pods. On a shared volume, agents also find a
        request there, on which a program can print where it hangs."""
        controller = self.controller
        kept = controller.manage(attempt_folder, handle)
        for name in names:
            kept.attempt.signalled.setdefault(name, number)
        if number == signal.SIGQUIT and kept.manifest.courier == "volume":
            for name in names:
                attempts.request_end(attempt_folder.folder(name), number)
            return
        group = controller.groups().get(kept.key)
        mending = [work for work in group.works if _is_mended(work)] if group is not None else []
        for name in kept.attempt.ends.missing(kept.attempt.attempt_folder.replicas) if mending else ():
            kept.attempt.signalled.setdefault(name, signal.SIGTERM)
        controller.delete(mending or [pod for pod in pods_of(kept.attempt, names) if deleted_at(pod) is None])

    def cancel(self, handles: Collection[str]) -> None:
        """Delete the objects that create pods first, and with them the pods, which have their grace period to report
        their ends. The rest follows once they have ended. Pods that are still there at the next call are deleted
        one by one."""
        controller = self.controller
        groups = controller.groups()
        known = {self.handle(*key): key for key in (*groups, *controller.kept)}
        for handle in handles:
            key = known.get(handle)
            if key is None:
                continue
            kept = controller.kept.get(key)
            is_new = kept is not None and kept.attempt.cancelled_at is None and kept.attempt.concluded is None
            if kept is not None and is_new:
                kept.attempt.is_cancel_requested = True
            group = groups.get(key)
            if kept is not None and group is not None:
                kept.attempt.is_seen = True
            works = [*group.works, *group.builds] if group is not None else []
            controller.delete(works)
            if kept is None or not works:
                pods = group.pods if group is not None else ()
                controller.delete([pod for pod in pods if deleted_at(pod) is None and states.pod_end(pod) is None])
                controller.remove(key)
            if kept is not None and is_new:
                kept.attempt.cancelled_at = time.monotonic()


def _is_mended(work: Object) -> bool:
    """Return whether a controller replaces deleted pods."""
    return kind_of(work) != JOBS and states.end_of_work(work) is None


def _engine_of(group: AttemptObjects) -> str:
    found = next((one for part in (group.works, group.builds, group.pods) for one in part), None)
    return str(labels_of(found).get(ENGINE, "kubernetes")) if found is not None else "kubernetes"
