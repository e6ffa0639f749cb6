"""The reconciler of an attempt: collects the output of its replicas and records their ends.

A replica's agent reports its own end. If there is no agent, or it was killed before it could, the end is derived from
the pod's status, in the agent's format. Once all ends are recorded, the attempt's objects are no longer needed.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from phalanx import atomic_files, run_paths
from phalanx.agent.interactive.hold import CAUSES, read_hold
from phalanx.agent.supervisor import ENDS_KEPT
from phalanx.backends.contract import ENDED, RUNNING, Observation
from phalanx.backends.kubernetes.cluster.api import Api, ApiFault, ApiUnreachable
from phalanx.backends.kubernetes.engine.launcher_hosts import HOSTLESS_S, LauncherHosts, is_own_fault
from phalanx.backends.kubernetes.engine.pod_logs import (
    LogReaderPool,
    PodLogReader,
    read_positions,
    stamped,
    write_positions,
)
from phalanx.backends.kubernetes.engine.replica_ends import ReplicaEnds
from phalanx.backends.kubernetes.observe import states
from phalanx.backends.kubernetes.observe.attempt_objects import (
    AttemptObjects,
    Object,
    annotations_of,
    conditions_of,
    container_of,
    deleted_at,
    grace_s,
    has_run,
    is_build,
    is_node_away,
    is_suspended,
    members_of,
    meta_of,
    node_of,
    starts_again,
)
from phalanx.backends.kubernetes.observe.states import PodEnd, evicted_by, observed, pod_end, verdict_of
from phalanx.backends.kubernetes.observe.stuck_pods import StuckPodTracker
from phalanx.backends.kubernetes.target import MEMBERS
from phalanx.ends import Cause, End
from phalanx.frames import PREFIX
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder
from phalanx.naming import is_launcher

SETTLES_S = 10.0  # for an agent's report to arrive by another way than its pod's log
HELD_S = 3.0  # for the cluster to report why an agent was stopped
SILENT_S = 20.0  # then a running container has no agent, or one without a connection
AGENT_S = 3.0  # the same if agents report first of all
STUCK_S = 30.0  # past its grace period: then the pod's node does not respond
CANCELLED_S = 15.0  # past the grace period, for replicas to end after a cancellation
POSITIONS_S = 2.0
OF_PEACE = (Cause.FINISHED, Cause.STOPPED)
WITH_ANOTHER = "stopped: its Job ends all pods when one has failed"


class TrackedPod:
    """A pod in its last known state, and which of its data has arrived."""

    def __init__(self, pod: Object, names: tuple[str, ...]) -> None:
        self.pod, self.names = pod, names
        self.is_gone = False
        self.over_at: float | None = None  # since when it is known to be over
        self.begun_at: float | None = None
        self.reader: PodLogReader | None = None
        self.held: dict[str, tuple[float, End]] = {}  # ends whose reason is not known yet

    @property
    def is_stuck(self) -> bool:
        ends_at = deleted_at(self.pod)
        return ends_at is not None and time.time() > ends_at + STUCK_S


class AttemptReconciler:
    """One attempt of a run, from its first observation until nothing of it is left in the cluster.

    `courier`: the transport of agents' reports. `by_launcher`: one replica starts the others, whose ends are its end.
    `deciding`: the replicas that do not only serve; all of them if it is empty.
    """

    def __init__(  # noqa: PLR0913 - what there is to know of one
        self,
        api: Api,
        log_readers: LogReaderPool,
        attempt_folder: AttemptFolder,
        handle: str,
        *,
        courier: str = "frames",
        by_launcher: bool = False,
        deciding: Sequence[str] = (),
    ) -> None:
        self.api, self.log_readers, self.attempt_folder, self.handle = api, log_readers, attempt_folder, handle
        self.courier, self.by_launcher = courier, by_launcher
        self.deciding = deciding or attempt_folder.replicas
        self.pods: dict[str, TrackedPod] = {}
        self.signalled: dict[str, int] = {}  # the signals that were requested for replicas
        self.is_cancel_requested = False
        self.cancelled_at: float | None = None  # since when the cluster has accepted that
        self.failed_at: float | None = None  # since when it is known to fail
        self.works_over_at: float | None = None
        self.is_past_limit = False  # one of its Jobs removed its pods because one had failed
        self.hostless_at: float | None = None  # since when a launcher lacks a pod of its ranks
        self.works: Sequence[Object] = ()
        self.processes: dict[str, list[str]] = {}  # by replica
        for name in attempt_folder.replicas:
            self.processes.setdefault(name.partition(".")[0], []).append(name)
        self.hosts = LauncherHosts()
        self.is_seen = False
        self.stuck_pods = StuckPodTracker()
        self.ends = ReplicaEnds(attempt_folder)
        self.last = Observation(RUNNING, run_id=attempt_folder.run_id, attempt=attempt_folder.attempt)
        self.concluded: Observation | None = None  # everything is known
        self.over: Observation | None = None  # and reported
        self.positions = read_positions(attempt_folder)
        self.kept_at = 0.0

    @property
    def is_cancelled(self) -> bool:
        return self.is_cancel_requested or self.cancelled_at is not None

    @property
    def readers(self) -> list[PodLogReader]:
        return [pod.reader for pod in self.pods.values() if pod.reader is not None]

    # what is seen ------------------------------------------------------------------------------------------------

    def reconcile(self, group: AttemptObjects | None) -> None:
        """Process the current objects of the attempt; None: there are none. Raises OSError."""
        now = time.monotonic()
        self.ends.refresh()
        if self.concluded is not None:
            return
        if group is None and not self.is_seen and not self.ends.is_home and not self._is_given_up(now):
            return
        group = group or AttemptObjects(self.attempt_folder.run_id, self.attempt_folder.attempt)
        self.is_seen = self.is_seen or bool(group.works or group.pods or group.builds)
        self.works = group.works or self.works
        self.is_past_limit = self.is_past_limit or _is_past_limit(group)
        self._track(group, now)
        for tracked in self.pods.values():
            self._attend(tracked, now)
        _end_the_absent(self, group, now)
        _follow_launcher(self)
        self.ends.refresh()
        self._keep_positions(now)
        seen = observed(group)
        self.last = seen if seen.state != ENDED else seen._replace(state=RUNNING, why="")
        if self.ends.is_home and not _is_held(self):
            self._conclude(seen)

    def _is_given_up(self, now: float) -> bool:
        """Cancelled, and no object of it was ever seen."""
        return self.cancelled_at is not None and now - self.cancelled_at > HELD_S

    def _track(self, group: AttemptObjects, now: float) -> None:
        """Only the first pod of a replica counts: an operator's replacement comes too late."""
        here = {str(meta_of(pod).get("uid")): pod for pod in group.pods if not is_build(pod)}
        taken = {name for tracked in self.pods.values() for name in tracked.names}
        self.hosts.present = []
        for uid, pod in sorted(here.items(), key=lambda item: str(meta_of(item[1]).get("creationTimestamp"))):
            if uid in self.pods:
                self.pods[uid].pod = pod
                continue
            firsts = members_of(pod)
            names = tuple(name for first in firsts for name in self.processes.get(first, ()))
            if firsts and not names:
                self.hosts.present.append(pod)
            if names and taken.isdisjoint(names):
                self.pods[uid] = TrackedPod(pod, names)
                taken.update(names)
        if any(map(is_suspended, group.works)) and all(pod.begun_at is None for pod in self.pods.values()):
            self.pods = {uid: pod for uid, pod in self.pods.items() if uid in here}  # preempted by Kueue
        for uid, tracked in self.pods.items():
            tracked.is_gone = uid not in here or (tracked.is_stuck and pod_end(tracked.pod) is None)
            if tracked.begun_at is None and has_run(tracked.pod):
                tracked.begun_at = now
            if tracked.over_at is None and self.outcome(tracked) is not None:
                tracked.over_at = now
        _watch_hosts(self, here, now)

    def is_rank(self, tracked: TrackedPod) -> bool:
        return self.by_launcher and not any(map(is_launcher, tracked.names))

    def outcome(self, tracked: TrackedPod) -> PodEnd | None:
        is_stop_requested = self.is_cancelled or any(name in self.signalled for name in tracked.names)
        outcome = pod_end(tracked.pod, self.works, is_gone=tracked.is_gone, is_stop_requested=is_stop_requested)
        if outcome is None or outcome.cause != Cause.STOPPED:
            return outcome
        return _explain_stop(self, tracked, outcome, is_stop_requested=is_stop_requested)

    # one pod -----------------------------------------------------------------------------------------------------

    def _attend(self, tracked: TrackedPod, now: float) -> None:
        is_rank = self.is_rank(tracked)
        if not is_rank:
            self._read(tracked, now)
        missing = self.ends.missing(tracked.names)
        for name in missing:
            self._release(tracked, name, now)
        if tracked.begun_at is not None and missing:
            self._announce(tracked, now, missing)
        outcome = self.outcome(tracked)
        if outcome is None or tracked.over_at is None:
            return
        if is_rank and (taken := self.hosts.taken.get(str(meta_of(tracked.pod).get("uid")))) is not None:
            outcome = taken[1]
        elif is_rank and (not is_own_fault(outcome) or outcome.cause == Cause.STOPPED):
            return
        if self._is_all_said(tracked, now):
            for name in missing:
                if name not in tracked.held:
                    self.ends.write(name, outcome, self._last_lines(tracked, name))

    def _read(self, tracked: TrackedPod, now: float) -> None:
        """Read its log if that is its transport; otherwise only if nothing has arrived."""
        reader = tracked.reader
        if reader is None:
            is_due = tracked.begun_at is not None and bool(self.ends.missing(tracked.names))
            if self.courier != "frames":
                is_due = is_due and self._is_unheard(tracked, now)
            if not is_due or tracked.is_gone:
                return
            uid, name = str(meta_of(tracked.pod).get("uid")), str(meta_of(tracked.pod).get("name"))
            members = tracked.names
            if self.by_launcher:
                members = (
                    *tracked.names,
                    *(rank for rank in self.attempt_folder.replicas if rank not in tracked.names),
                )
            reader = tracked.reader = PodLogReader(
                self.api,
                self.attempt_folder,
                (name, container_of(tracked.pod)),
                members,
                lambda member, file, data: self._heard(tracked, member, file, data),
                kept=self.positions.get(uid),
            )
            self.log_readers.add(reader)
        if tracked.over_at is not None and reader.over_at is None:
            reader.over_at = now
            self.log_readers.wake(reader)
        if reader.over_at is not None and not reader.is_done and now - reader.over_at > SETTLES_S:
            reader.hurry()

    def _is_unheard(self, tracked: TrackedPod, now: float) -> bool:
        """With another transport: return whether nothing, or not the end, has arrived that way. An agent that cannot
        reach its server writes everything to its log."""
        if tracked.over_at is not None:
            has_end = self.courier != "server" and self.ends.has_agent(tracked.names[0])
            return not has_end and now - tracked.over_at > SETTLES_S / 2
        is_quiet = now - (tracked.begun_at or now) > SILENT_S
        return is_quiet and not self.ends.has_agent(tracked.names[0])

    def _is_all_said(self, tracked: TrackedPod, now: float) -> bool:
        """Return whether nothing more is expected from a finished pod."""
        since_s = now - (tracked.over_at if tracked.over_at is not None else now)
        if tracked.reader is not None:
            return tracked.reader.is_done or since_s > 6 * SETTLES_S
        if self.courier == "frames":  # it never started, or was deleted before its log was read
            return tracked.begun_at is None or since_s > HELD_S
        return since_s > SETTLES_S

    def _announce(self, tracked: TrackedPod, now: float, missing: Iterable[str]) -> None:
        """Write the agent's start record for a container that runs without an agent."""
        reader, begun_at = tracked.reader, tracked.begun_at or now
        if self.is_rank(tracked):
            return
        if reader is not None and reader.decoder.has_agent:
            return
        is_agentless = reader is not None and reader.is_agentless
        if not is_agentless and now - begun_at < (AGENT_S if self.courier == "frames" else SILENT_S):
            return
        for name in missing:
            self.ends.write_agent(name, str(meta_of(tracked.pod).get("name")))

    # what agents say ---------------------------------------------------------------------------------------------

    def _heard(self, tracked: TrackedPod, member: str, file: str, data: bytes) -> None:
        """Handle a complete file of a replica. Called from a reader's thread."""
        if member not in self.attempt_folder.replicas:
            return
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            return
        folder = self.attempt_folder.folder(member)
        if file == run_paths.AGENT:
            tracked.held.pop(member, None)  # it is restarted
        if not isinstance(said, dict) or (folder / file).exists():
            return
        atomic_files.make_private(folder, self.attempt_folder.run_folder)
        if file == run_paths.AGENT:
            atomic_files.write_atomic(folder / file, data, sync=False)
        elif (end := End.from_json(said)) is not None:
            end = end._replace(replica=member, attempt=self.attempt_folder.attempt)
            explained = None if _starts_again(self, tracked, end) else self._explain(tracked, member, end)
            if explained is None:
                tracked.held.setdefault(member, (time.monotonic(), end))
            else:
                self.ends.take(member, explained)

    def _explain(self, tracked: TrackedPod, member: str, said: End) -> End | None:
        """The end with why its agent was stopped, or lost its ranks, which the agent does not know. None while it is
        unknown."""
        if said.cause == Cause.ERROR:
            return self._explain_error(tracked, said)
        if said.cause != Cause.STOPPED:
            return said
        number = self.signalled.get(member)
        if number == signal.SIGQUIT:
            return said._replace(cause=Cause.STALLED, message="stalled")
        if number is None and not self.is_cancelled:
            why = evicted_by(tracked.pod, self.works)
            if why is not None:
                return said._replace(cause=why.cause, message=why.message)
            if tracked.over_at is None:
                return None
            if deleted_at(tracked.pod) is not None or tracked.is_gone:
                return said._replace(message=WITH_ANOTHER if self.is_past_limit else states.NOT_BY_US)
        return said

    def _explain_error(self, tracked: TrackedPod, said: End) -> End | None:
        """An error may come from outside: the kernel kills for memory, and a launcher fails if a pod of its ranks is
        lost. The agent sees neither."""
        if self.hosts.present and self.is_cancelled:  # they may go before it is stopped
            return said._replace(cause=Cause.STOPPED, message="stopped")
        outcome = self.outcome(tracked)
        if outcome is not None and outcome.cause == Cause.MEMORY:
            return said._replace(cause=Cause.MEMORY, message=outcome.message)
        for name, host in self.hosts.lost(self.works, time.monotonic()).items():
            return said._replace(cause=host.cause, message=f"{name}: {host.message}")
        is_killed = said.signal == signal.SIGKILL or said.code == 128 + signal.SIGKILL
        return None if self.hosts.present or (is_killed and outcome is None) else said

    def _release(self, tracked: TrackedPod, name: str, now: float) -> None:
        held = tracked.held.get(name)
        if held is None:
            return
        since, said = held
        if _starts_again(self, tracked, said):
            return
        explained = self._explain(tracked, name, said)
        if explained is not None or now - since > HELD_S:
            self.ends.take(name, explained or said)
            tracked.held.pop(name)

    # ends without an agent ---------------------------------------------------------------------------------------

    def _last_lines(self, tracked: TrackedPod, name: str) -> list[str]:
        step = states.failed_init_of(tracked.pod)
        if step is None or tracked.is_gone:
            return attempts.replica_tail(self.attempt_folder, name)
        return tail_of(self.api, str(meta_of(tracked.pod).get("name")), step)

    def fail(self, outcome: PodEnd, lines: Sequence[str]) -> None:
        """No replica of it will ever run. Raises OSError."""
        self.ends.refresh()
        self.ends.write_all(self.attempt_folder.replicas, outcome, lines)
        self.ends.refresh()
        self._conclude(Observation(ENDED, outcome.message, outcome.cause))

    # the end -----------------------------------------------------------------------------------------------------

    def _conclude(self, seen: Observation) -> None:
        outcomes = [outcome for pod in self.pods.values() if (outcome := self.outcome(pod)) is not None]
        ends = self.ends.all.values()
        own = [PodEnd(end.cause, end.message) for end in ends]
        if self.is_cancelled:
            cause, why = Cause.STOPPED, "stopped"
        elif all(end.cause == Cause.FINISHED for end in ends):
            cause, why = Cause.FINISHED, "finished"
        else:
            cause, why = verdict_of(outcomes) or verdict_of(own) or (seen.cause, seen.why)
        self._keep_positions(float("inf"))
        self.concluded = self.last._replace(state=ENDED, cause=cause, why=why)

    def release(self) -> None:
        """Allow the end to be reported. Raises OSError."""
        self.ends.release()
        self.over = self.concluded

    def _keep_positions(self, now: float) -> None:
        if now - self.kept_at < POSITIONS_S:
            return
        self.kept_at = now
        readers = {uid: pod.reader for uid, pod in self.pods.items() if pod.reader is not None}
        kept = {uid: reader.kept() for uid, reader in readers.items()}
        if kept != self.positions and kept:
            self.positions = kept
            with suppress(OSError):
                write_positions(self.attempt_folder, kept)


def _is_held(of: AttemptReconciler) -> bool:
    """Whether a pod stays after its replica has failed, so that users can enter it."""
    failed = {name for name, end in of.ends.all.items() if end.cause in CAUSES}
    folder = of.attempt_folder
    if of.is_cancelled or not failed or read_hold(str(folder.run_folder), folder.attempt) is None:
        return False
    kept = (pod for pod in of.pods.values() if not failed.isdisjoint(pod.names) and not pod.is_gone)
    return any(of.outcome(pod) is None for pod in kept)


def _explain_stop(of: AttemptReconciler, tracked: TrackedPod, stopped: PodEnd, *, is_stop_requested: bool) -> PodEnd:
    """The end of a pod that was deleted, with what else is known: its node, and its Job."""
    if not of.is_cancelled and is_node_away(tracked.pod):  # the others may have failed from its loss
        message = f"its node {node_of(tracked.pod)} does not respond"
        return stopped._replace(cause=Cause.LOST, message=message, is_outside=True)
    if tracked.is_stuck and not is_stop_requested:
        return stopped._replace(cause=Cause.LOST, message="its node no longer responds", is_outside=True)
    if stopped.is_outside and of.is_past_limit:
        return stopped._replace(message=WITH_ANOTHER, is_outside=False)
    return stopped


def _watch_hosts(of: AttemptReconciler, here: Mapping[str, Object], now: float) -> None:
    """Watch the pods of a launcher's ranks while it runs."""
    ranks = {uid: pod.pod for uid, pod in of.pods.items() if of.is_rank(pod)}
    launchers = [pod for uid, pod in of.pods.items() if uid not in ranks]
    is_ending = of.is_cancelled or of.signalled or any(pod.over_at is not None for pod in launchers)
    if not is_ending and any(pod.begun_at is not None for pod in launchers):
        of.hosts.watch(here, ranks, of.works, now)


def _is_past_limit(group: AttemptObjects) -> bool:
    """Jobs with one limit for all of their pods, as before Kubernetes 1.29, delete the running pods when one has
    failed; operators do so after too many restarts."""
    if any(starts_again(work) and _has_failed(work) for work in group.works):
        return True
    conditions = (one for work in group.works for one in conditions_of(work))
    if not any(one.get("reason") in ("BackoffLimitExceeded", "FailedJobs") for one in conditions):  # of a TrainJob
        return False
    outcomes = (pod_end(pod, group.works) for pod in group.pods)
    return any(outcome is not None and not outcome.is_outside and outcome.cause not in OF_PEACE for outcome in outcomes)


def _has_failed(work: Object) -> bool:
    end = states.end_of_work(work)
    return end is not None and end[0] not in OF_PEACE


def _starts_again(of: AttemptReconciler, tracked: TrackedPod, said: End) -> bool:
    """Return whether that end is not final: its kubelet restarts it as long as its job exists."""
    if said.cause == Cause.FINISHED or tracked.over_at is not None or deleted_at(tracked.pod) is not None:
        return False
    return any(starts_again(work) and states.end_of_work(work) is None for work in of.works)


def _follow_launcher(of: AttemptReconciler) -> None:
    """The ranks of a launcher run while it runs, and end with it."""
    if not of.by_launcher:
        return
    launcher = next((name for name in of.attempt_folder.replicas if is_launcher(name)), None)
    if launcher is None:
        return
    ranks = [name for name in of.attempt_folder.replicas if not is_launcher(name)]
    end = of.ends.all.get(launcher)
    for name in ranks:
        if end is not None and of.ends.missing([name]):
            outcome = PodEnd(end.cause, end.message, end.code, end.signal, end.started_at, end.ended_at, end.host or "")
            of.ends.write(name, outcome)
        elif end is None and of.ends.has_agent(launcher):
            of.ends.write_agent(name, launcher)


def _end_the_absent(of: AttemptReconciler, group: AttemptObjects, now: float) -> None:
    """End replicas whose pods have not started, and will not."""
    absent = _podless(of)
    if of.by_launcher:
        absent = [name for name in absent if is_launcher(name)]
    pods = list(of.pods.values())
    is_quiet = all(pod.over_at is not None for pod in pods)
    is_known = bool(of.works) or of.is_cancelled or (bool(pods) and all(pod.is_gone for pod in pods))
    if is_known and not group.works and not group.builds and is_quiet:
        is_ours = of.is_cancelled or bool(of.signalled)
        of.ends.write_all(
            absent, PodEnd(Cause.STOPPED, "stopped" if is_ours else states.NOT_BY_US, is_outside=not is_ours)
        )
        return
    _end_what_waits_in_vain(of, now)
    _end_what_cannot_start(of, group, now)
    _end_what_cannot_come(of, group, absent, now, is_quiet=is_quiet)
    _end_what_is_not_needed(of, now)
    grace = grace_s(tracked.pod for tracked in of.pods.values())
    if of.cancelled_at is not None and now - of.cancelled_at > grace + CANCELLED_S and is_quiet:
        of.ends.write_all(of.attempt_folder.replicas, PodEnd(Cause.STOPPED, "stopped"))


def _end_what_waits_in_vain(of: AttemptReconciler, now: float) -> None:
    """A launcher starts once the pods of its ranks are ready: never, if one of them has failed. A launcher that exists
    may itself wait for such a pod; a running one gets some time to notice."""
    ended = [
        (pod, outcome)
        for pod in of.hosts.present
        if (outcome := pod_end(pod, of.works)) and outcome.cause != Cause.FINISHED
    ]
    if not ended or of.is_cancelled:
        of.hostless_at = None
        return
    pod, outcome = next((one for one in ended if is_own_fault(one[1])), ended[0])
    of.hostless_at = of.hostless_at if of.hostless_at is not None else now
    is_due = is_own_fault(outcome) and now - of.hostless_at > HOSTLESS_S
    if names := of.ends.missing(of.attempt_folder.replicas) if is_due else _podless(of):
        step = states.failed_init_of(pod) or container_of(pod)
        lines = tail_of(of.api, str(meta_of(pod).get("name")), step)
        of.ends.write_all(names, outcome._replace(message=f"{members_of(pod)[0]}: {outcome.message}"), lines)


def _end_what_cannot_start(of: AttemptReconciler, group: AttemptObjects, now: float) -> None:
    """A pod has been unable to start until the timeout. A launcher waits for all of its ranks."""
    for uid, outcome in of.stuck_pods.overdue(group, now) if not of.is_cancelled else ():
        names = of.pods[uid].names if uid in of.pods else _podless(of)
        of.ends.write_all(of.attempt_folder.replicas if of.by_launcher else names, outcome)


def _end_what_cannot_come(
    of: AttemptReconciler, group: AttemptObjects, absent: Sequence[str], now: float, *, is_quiet: bool
) -> None:
    """A Job may fail without a pod for some replica."""
    ends = [states.end_of_work(work) for work in group.works]
    if not ends or None in ends or not is_quiet:
        of.works_over_at = None
        return
    of.works_over_at = of.works_over_at if of.works_over_at is not None else now
    if absent and now - of.works_over_at > SETTLES_S:
        for name in absent:
            cause, message = next(
                (end for work, end in zip(group.works, ends, strict=True) if end and _makes(work, name)),
                (Cause.LOST, "its pod was never created"),
            )
            bad = cause if cause != Cause.FINISHED else Cause.LOST
            of.ends.write(name, PodEnd(bad, message if cause != Cause.FINISHED else "its pod was never created"))


def _end_what_is_not_needed(of: AttemptReconciler, now: float) -> None:
    """When one has failed, or all have finished, replicas that wait for a node need not start."""
    waiting = [pod for pod in of.pods.values() if pod.begun_at is None and pod.over_at is None]
    names = [*(name for pod in waiting for name in pod.names), *_podless(of)]
    if any(map(states.has_enough, of.works)):
        of.ends.write_all(names, PodEnd(Cause.FINISHED, "it was not needed", 0))
    ends = of.ends.all
    causes = {ends[name].cause for name in of.deciding if name in ends}
    is_decided = bool(causes - {Cause.FINISHED, Cause.SEGMENT}) or not of.ends.missing(of.deciding)
    of.failed_at = (of.failed_at or now) if is_decided else None
    if of.failed_at is None or now - of.failed_at < HELD_S or of.by_launcher:
        return
    of.ends.write_all(names, PodEnd(Cause.STOPPED, "stopped before it started"))


def _podless(of: AttemptReconciler) -> list[str]:
    with_pods = {name for pod in of.pods.values() for name in pod.names}
    return [name for name in of.ends.missing(of.attempt_folder.replicas) if name not in with_pods]


def _makes(work: Object, name: str) -> bool:
    listed = str(annotations_of(work).get(MEMBERS, ""))
    return not listed or name.partition(".")[0] in listed.split(",")


def tail_of(api: Api, pod: str, container: str) -> list[str]:
    """The last lines of a container; empty if its log cannot be read."""
    lines: list[str] = []
    with suppress(ApiFault, ApiUnreachable), api.log(pod, container, tail=ENDS_KEPT) as stream:
        said = (text for raw in stream if not (text := stamped(raw)[1]).startswith(PREFIX))
        lines.extend(raw.decode("utf-8", "replace").rstrip("\n")[-400:] for raw in said)
    return [line for line in lines if line.strip()][-ENDS_KEPT:]


def pods_of(attempt: AttemptReconciler, names: Collection[str]) -> list[Object]:
    """The existing pods that run any of these."""
    return [pod.pod for pod in attempt.pods.values() if not pod.is_gone and not set(names).isdisjoint(pod.names)]
