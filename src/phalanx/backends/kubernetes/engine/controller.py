"""The controller of a namespace: one list and watch per kind for all runs, and one thread that processes changes.

A small pool of workers sends requests that change something, so status queries never wait for them. Work that must not
be lost, such as deleting finished objects, completes before this process exits.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import atomic_files, run_paths
from phalanx.backends.contract import EngineUnavailable, JobRejected
from phalanx.backends.kubernetes.cluster.api import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    Api,
    ApiFault,
    ApiUnreachable,
    ResourceKind,
    kind_of,
)
from phalanx.backends.kubernetes.engine import staged_objects
from phalanx.backends.kubernetes.engine.informer import NamespaceCache
from phalanx.backends.kubernetes.engine.pod_logs import LogReaderPool
from phalanx.backends.kubernetes.engine.reconciler import AttemptReconciler, tail_of
from phalanx.backends.kubernetes.observe import states
from phalanx.backends.kubernetes.observe.attempt_objects import (
    ENGINE,
    AttemptObjects,
    Object,
    container_of,
    is_build,
    labels_of,
    meta_of,
    owner_of,
    queued_as,
    topics_of,
)
from phalanx.backends.kubernetes.observe.states import PodEnd
from phalanx.backends.kubernetes.observe.stuck_pods import GIVE_UP_S
from phalanx.backends.kubernetes.render import names, payload
from phalanx.backends.kubernetes.render.native_jobs import TTL_S
from phalanx.backends.kubernetes.target import ATTEMPT, RUN
from phalanx.ends import Cause
from phalanx.home.attempts import AttemptFolder
from phalanx.stored_plan import read_plan

WORKERS = 8  # concurrent requests
FORBIDDEN = 403
SYNC_S = 15.0
CLOSE_S = 5.0  # for the thread to finish its pass
TURN_S, SHORTEST_TURN_S = 0.5, 0.1
RETRY_S = 5.0
LAST_LINES_S = 3.0  # to read the rest of a log after the end in it has arrived
UNTOLD_S = 30.0  # to remove what is left in the cluster before the end is reported
REMEMBERED_S = 3600.0  # how long finished attempts are kept in memory


class AttemptManifest(NamedTuple):
    """The objects of a run according to its files."""

    courier: str
    by_launcher: bool
    deciding: tuple[str, ...]
    works: tuple[tuple[ResourceKind, str], ...]
    gangs: tuple[ResourceKind, ...]
    keep_s: float | None  # how long to keep its objects after its end
    give_up_s: float = GIVE_UP_S


def manifest_of(folder: Path) -> AttemptManifest:
    """Raises OSError, ValueError, KeyError."""
    owner, *others = json.loads((folder / staged_objects.SKELETON).read_bytes())
    plan = read_plan(folder)
    works = [one for one in others if staged_objects.is_work(one) and not is_build(one)]
    asked = {ttl for one in works if (ttl := _ttl(one)) is not None and ttl != TTL_S}
    place = json.loads(owner["data"][payload.PLACE])
    return AttemptManifest(
        str(place.get("courier", "frames")),
        plan.launch == "mpirun",
        plan.deciding,
        tuple((kind_of(one), str(one["metadata"]["name"])) for one in works),
        tuple({kind_of(one) for one in others if one["kind"] == "PodGroup"}),
        max(asked, default=None),
        float(place.get("give_up_s", GIVE_UP_S)),
    )


def _ttl(work: Mapping[str, Any]) -> float | None:
    spec = work["spec"]
    found = spec.get("ttlSecondsAfterFinished", (spec.get("runPolicy") or {}).get("ttlSecondsAfterFinished"))
    return float(found) if isinstance(found, int | float) else None


class ManagedAttempt:
    """An attempt, and the pending work on its objects."""

    def __init__(self, attempt: AttemptReconciler, manifest: AttemptManifest) -> None:
        self.attempt, self.manifest = attempt, manifest
        self.is_ready = False  # all of its kinds are watched
        self.is_busy = False  # a worker is processing it
        self.is_removed = False
        self.over_at: float | None = None
        self.not_before = self.not_staged_before = 0.0

    @property
    def key(self) -> tuple[str, int]:
        return self.attempt.attempt_folder.run_id, self.attempt.attempt_folder.attempt

    @property
    def base(self) -> str:
        return base_of(self.attempt.attempt_folder.run_id)


def base_of(run_id: str) -> str:
    return names.object_name("phalanx", run_id)


class NamespaceController:
    """All Phalanx objects in one namespace, as one user sees them. Runs threads until it is closed."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.mirror = NamespaceCache(api, (PODS, JOBS))
        self.kinds = [JOBS]  # kinds that create pods
        self.gangs: list[ResourceKind] = []
        self.log_readers = LogReaderPool()
        self.pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="phalanx-kubernetes")
        self.closers = ThreadPoolExecutor(4, thread_name_prefix="phalanx-kubernetes-end")
        self.kept: dict[tuple[str, int], ManagedAttempt] = {}
        self.guard = threading.Lock()
        self.trouble = ""
        self._groups: tuple[int, dict[tuple[str, int], AttemptObjects]] = (-1, {})
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Finish pending work, then end all threads and connections. The order matters: a removal waits for the rest of
        the logs."""
        self._stopped.set()
        with self.guard:
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S)
        self.pool.shutdown(wait=True)
        self.closers.shutdown(wait=True)
        self.log_readers.close()
        self.mirror.close()
        self.api.close()

    # what there is -----------------------------------------------------------------------------------------------

    def wait_ready(self) -> None:
        """Raises EngineUnavailable if the state of the cluster is unknown."""
        until, changes = time.monotonic() + SYNC_S, -1
        while not self.mirror.is_synced and not self.mirror.trouble and time.monotonic() < until:
            changes = self.mirror.wait(changes, 1.0)
        if self.mirror.trouble:
            raise EngineUnavailable(self.mirror.trouble)
        if not self.mirror.is_synced:
            raise EngineUnavailable(f"{self.api.server} did not list its pods in {SYNC_S:g} s")

    def refuse_what_is_forbidden(self) -> None:
        """Fail early instead of waiting in vain. Raises JobRejected if the user may not watch the kinds to be
        created."""
        for kind in (PODS, JOBS):
            try:
                self.api.list(kind, selector=RUN)
            except ApiFault as fault:
                if fault.code == FORBIDDEN:
                    raise JobRejected(f"{fault}; `phalanx doctor --on kubernetes` reports what is missing") from None
            except ApiUnreachable:
                return

    def groups(self) -> dict[tuple[str, int], AttemptObjects]:
        """All objects by run and attempt; computed from the cache once per change."""
        changes = self.mirror.changes
        if self._groups[0] != changes:
            self._groups = (changes, self._grouped())
        return self._groups[1]

    def _grouped(self) -> dict[tuple[str, int], AttemptObjects]:
        found: dict[tuple[str, int], dict[str, list[Object]]] = {}
        owners: dict[str, tuple[str, int]] = {}

        def put(one: Object, part: str) -> None:
            key = owner_of(one)
            if key is not None:
                found.setdefault(key, {}).setdefault(part, []).append(one)
                owners[str(meta_of(one).get("uid"))] = owners[queued_as(one)] = key

        for pod in self.mirror.all_of(PODS):
            put(pod, "pods")
        for kind in list(self.kinds):
            for work in self.mirror.all_of(kind):
                if _is_made_by_us(work):
                    put(work, "builds" if is_build(work) else "works")
        for kind in list(self.gangs):
            for gang in self.mirror.all_of(kind):
                put(gang, "gangs")
        for event in self.mirror.events(owners):
            if (key := next(filter(None, map(owners.get, topics_of(event))), None)) is not None:
                found[key].setdefault("events", []).append(event)
        return {key: AttemptObjects(*key)._replace(**parts) for key, parts in found.items()}  # type: ignore[arg-type]

    def watch(self, kind: ResourceKind, *, is_gang: bool = False) -> bool:
        """Watch one more kind of jobs. Return whether that works: not every user may watch it, and this must not break
        the rest."""
        known = self.gangs if is_gang else self.kinds
        if kind not in known:
            try:
                self.api.list(kind, selector=RUN)
            except ApiFault as fault:
                if fault.transient:
                    raise EngineUnavailable(str(fault)) from None
                return False
            except ApiUnreachable as fault:
                raise EngineUnavailable(str(fault)) from None
            self.mirror.add(kind)
            known.append(kind)
        return True

    # attempts ----------------------------------------------------------------------------------------------------

    def manage(self, attempt_folder: AttemptFolder, handle: str) -> ManagedAttempt:
        """Start to manage an attempt. Raises EngineUnavailable if its files cannot be read."""
        key = (attempt_folder.run_id, attempt_folder.attempt)
        with self.guard:
            kept = self.kept.get(key)
            if kept is None:
                try:
                    manifest = manifest_of(attempt_folder.run_folder)
                except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
                    raise EngineUnavailable(
                        f"the files of run {attempt_folder.run_id} cannot be read: {fault}"
                    ) from None
                attempt = AttemptReconciler(
                    self.api,
                    self.log_readers,
                    attempt_folder,
                    handle,
                    courier=manifest.courier,
                    by_launcher=manifest.by_launcher,
                    deciding=manifest.deciding,
                )
                attempt.stuck_pods.give_up_s = manifest.give_up_s
                kept = self.kept[key] = ManagedAttempt(attempt, manifest)
                self._begin()
        return kept

    def _begin(self) -> None:
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="phalanx-kubernetes-turns", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        changes = -1
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self.run_pass()
            except Exception as fault:  # noqa: BLE001 - top level of a thread: one attempt must not break the others
                self.trouble = f"{type(fault).__name__}: {fault}"
            self._stopped.wait(max(SHORTEST_TURN_S, 5 * (time.monotonic() - began)))
            changes = self.mirror.wait(changes, TURN_S)

    def run_pass(self) -> None:
        """Process all attempts once. The cache only counts while the watches work."""
        if not self.mirror.is_synced or self.mirror.trouble:
            return
        groups = self.groups()
        for kept in list(self.kept.values()):
            if not kept.is_ready:
                self._hand(kept, self._make_ready)
                continue
            try:
                kept.attempt.reconcile(groups.get(kept.key))
            except OSError as fault:
                self.trouble = f"run {kept.key[0]}: {fault}"
                continue
            self._stage(kept, groups.get(kept.key))
            self._tidy(kept)

    def _hand(self, kept: ManagedAttempt, act: Callable[[ManagedAttempt], None]) -> None:
        """Run it on a free worker, one task per attempt at a time."""
        if kept.is_busy or time.monotonic() < kept.not_before:
            return
        kept.is_busy = True

        def work() -> None:
            try:
                act(kept)
            except (EngineUnavailable, OSError, ValueError) as fault:
                self.trouble = f"run {kept.key[0]}: {fault}"
                kept.not_before = time.monotonic() + RETRY_S
            finally:
                kept.is_busy = False

        with suppress(RuntimeError):  # shutting down
            (self.closers if act == self._remove else self.pool).submit(work)

    def _make_ready(self, kept: ManagedAttempt) -> None:
        for kind, _ in kept.manifest.works:
            self.watch(kind)
        for kind in kept.manifest.gangs:
            self.watch(kind, is_gang=True)
        kept.is_ready = True

    # an image first ----------------------------------------------------------------------------------------------

    def _stage(self, kept: ManagedAttempt, group: AttemptObjects | None) -> None:
        if group is None or not group.builds or kept.attempt.concluded is not None or kept.attempt.is_cancelled:
            return
        ends = [states.end_of_work(build) for build in group.builds]
        if any(end is not None and end[0] != Cause.FINISHED for end in ends):
            self._hand(kept, self._fail_build)
        elif all(ends) and len(group.works) < len(kept.manifest.works) and time.monotonic() > kept.not_staged_before:
            self._hand(kept, self._go_on)

    def _fail_build(self, kept: ManagedAttempt) -> None:
        group = self.groups().get(kept.key)
        lines: list[str] = []
        for pod in group.pods if group is not None else ():
            if is_build(pod):
                step = states.failed_init_of(pod) or container_of(pod)
                lines = lines or tail_of(self.api, str(meta_of(pod).get("name")), step)
        ended = next((end for build in group.builds if (end := states.end_of_work(build))), None) if group else None
        why = ended[1] if ended is not None else "its Job failed"
        log = log_of(kept.attempt.attempt_folder.run_folder, kept.attempt.attempt_folder.attempt)
        atomic_files.write_atomic(log, "".join(f"{line}\n" for line in lines).encode(), sync=False)
        kept.attempt.fail(PodEnd(Cause.SETUP, f"its image could not be built: {why}"), lines)

    def _go_on(self, kept: ManagedAttempt) -> None:
        """Create the remaining objects. Tokens and secrets were created with the first part."""
        attempt_folder = kept.attempt.attempt_folder
        group = self.groups().get(kept.key)
        owners = [one for build in (group.builds if group else ()) for one in meta_of(build).get("ownerReferences", ())]
        engine = str(labels_of(group.builds[0]).get(ENGINE, "")) if group else ""
        if not owners:
            return
        staged = staged_objects.load(
            attempt_folder.run_folder, {}, attempt=attempt_folder.attempt, engine=engine, server=""
        )
        try:  # with a separate pool: this worker waits for it
            staged_objects.apply_works(self.api, self.closers, staged, str(owners[0]["uid"]))
        except JobRejected as fault:
            kept.attempt.fail(PodEnd(Cause.SETUP, f"the cluster rejected it: {fault}"), ())
        kept.not_staged_before = time.monotonic() + RETRY_S  # the mirror has to see them first

    # when it is over ---------------------------------------------------------------------------------------------

    def _tidy(self, kept: ManagedAttempt) -> None:
        if kept.attempt.concluded is None:
            return
        now = time.monotonic()
        kept.over_at = kept.over_at if kept.over_at is not None else now
        keep_s = 0.0 if kept.attempt.is_cancelled else kept.manifest.keep_s or 0.0
        if kept.attempt.over is None and (keep_s or kept.is_removed or now - kept.over_at > UNTOLD_S):
            kept.attempt.release()
        if kept.is_removed:
            if now - kept.over_at > max(REMEMBERED_S, keep_s):
                self.kept.pop(kept.key, None)
        elif now - kept.over_at >= keep_s:
            self._hand(kept, self._remove)

    def _remove(self, kept: ManagedAttempt) -> None:
        """Read its logs first: deleting the pods deletes them."""
        until = time.monotonic() + LAST_LINES_S
        while time.monotonic() < until and not all(reader.is_done for reader in kept.attempt.readers):
            time.sleep(0.05)
        self.remove(kept.key)
        for reader in kept.attempt.readers:
            reader.finish()
        kept.is_removed = True
        kept.attempt.release()

    def remove(self, key: tuple[str, int]) -> None:
        """Delete all objects of an attempt, but not those of the next. Raises EngineUnavailable."""
        try:
            owner = self.api.get(CONFIG_MAPS, base_of(key[0]))
            if labels_of(owner).get(ATTEMPT) == str(key[1]):
                self.api.delete(CONFIG_MAPS, base_of(key[0]), uid=str(meta_of(owner)["uid"]))
        except ApiFault as fault:
            if fault.code not in (404, 409):
                raise EngineUnavailable(str(fault)) from None
        except ApiUnreachable as fault:
            raise EngineUnavailable(str(fault)) from None

    def delete(self, objects: Iterable[Object], *, grace_s: int | None = None) -> None:
        """Delete exactly these objects and their dependents. Raises EngineUnavailable."""

        def deletion(one: Object) -> Callable[[], object]:
            name, uid = str(meta_of(one)["name"]), str(meta_of(one)["uid"])
            return lambda: self.api.delete(kind_of(one), name, grace_s=grace_s, uid=uid)

        staged_objects.delete_all(self.pool, [deletion(one) for one in objects])


def _is_made_by_us(work: Object) -> bool:
    """Not created by an operator for one of Phalanx's jobs."""
    owners = meta_of(work).get("ownerReferences") or ()
    return all(one.get("kind") == "ConfigMap" for one in owners)


def log_of(folder: Path, attempt: int) -> Path:
    return folder / run_paths.JOB / f"kubernetes-{attempt}.out"
