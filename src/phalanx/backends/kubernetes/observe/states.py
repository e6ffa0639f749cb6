"""The meaning of the state of an attempt's objects, as messages for users. Pure functions.

Several signs distinguish a failed program from an evicted one, and not all are present at all times: conditions of
pods, their reasons, those of their containers, and the conditions of their Job.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from phalanx.backends.contract import ENDED, RUNNING, WAITING, Observation
from phalanx.backends.kubernetes.observe.attempt_objects import (
    AttemptObjects,
    Object,
    changed_at,
    condition_of,
    conditions_of,
    container_of,
    containers_of,
    deleted_at,
    has_begun,
    is_build,
    is_helper_pod,
    is_node_away,
    is_suspended,
    labels_of,
    main_state,
    members_of,
    meta_of,
    node_of,
    replicas_of,
    runs_once,
    seconds,
    short,
    toleration_s,
)
from phalanx.backends.kubernetes.observe.pending import (
    held_back,
    listed,
    partly_waiting,
    pod_waits,
    steps_of,
    waiting_for,
)
from phalanx.backends.kubernetes.target import DOMAIN
from phalanx.ends import Cause
from phalanx.naming import SERVING

__all__ = ["AttemptObjects", "PodEnd", "evicted_by", "members_of", "observed", "pod_end", "verdict_of", "waiting_for"]

DELETED = "its pod was deleted, not by Phalanx"
NOT_BY_US = "its pods were deleted, not by Phalanx"
NODES_LISTED = 8
REJECTED = "Pod was rejected"


class PodEnd(NamedTuple):
    """How a pod ended, in the form of a replica's end. `is_outside`: something other than the program ended it."""

    cause: Cause
    message: str
    code: int | None = None
    signal: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    host: str = ""
    is_outside: bool = False


def pod_end(
    pod: Object, works: Iterable[Object] = (), *, is_gone: bool = False, is_stop_requested: bool = False
) -> PodEnd | None:
    """None while it is not over. `is_gone`: the pod no longer exists; `is_stop_requested`: Phalanx stopped it."""
    status = pod.get("status") or {}
    state = main_state(pod).get("terminated")
    if state is not None and _starts_again(pod):
        state = None
    is_over = status.get("phase") in ("Succeeded", "Failed") or state is not None
    if not is_over and not is_gone:
        return None
    facts = {
        "started_at": (seconds(state.get("startedAt")) or None) if state else None,  # 1970: it never started
        "ended_at": (seconds(state.get("finishedAt")) if state else None) or deleted_at(pod) or changed_at(pod),
        "host": node_of(pod),
    }
    outcome = _judged(pod, state, tuple(works), is_stop_requested=is_stop_requested)
    return outcome._replace(**facts)  # type: ignore[arg-type]


def _judged(pod: Object, state: Object | None, works: Sequence[Object], *, is_stop_requested: bool) -> PodEnd:
    """Check the signs from the most to the least reliable."""
    status = pod.get("status") or {}
    if status.get("phase") == "Succeeded" or (state is not None and state.get("exitCode") == 0):
        return PodEnd(Cause.FINISHED, "finished", 0)
    code, number = exit_of(state) if state is not None else (None, None)
    if state is not None and state.get("reason") == "OOMKilled":
        return PodEnd(Cause.MEMORY, _memory_words(pod), None, signal.SIGKILL)
    taken = evicted_by(pod, works)
    if taken is not None:
        return taken._replace(code=code, signal=number)
    init = _failed_init(pod)
    if init is not None:
        return init
    deleted = PodEnd(
        Cause.STOPPED,
        "stopped" if is_stop_requested else DELETED,
        is_outside=not is_stop_requested,
    )
    is_being_deleted = bool(meta_of(pod).get("deletionTimestamp"))
    if state is None or is_unknown(state):
        has_started = state is not None and (state.get("startedAt") or "used to be" in str(state.get("message")))
        if is_stop_requested or state is None or (is_being_deleted and not has_started):
            return deleted
        return PodEnd(Cause.LOST, "its node lost track of its container", is_outside=True)
    if is_being_deleted and number in (signal.SIGTERM, signal.SIGKILL):
        return deleted._replace(code=code, signal=number)
    return _failed(state, code, number)


def is_unknown(state: Object) -> bool:
    """Return whether a kubelet only assumes this end (exit code 137): it found no such container when its pod was
    deleted, or after a restart of the node."""
    return state.get("reason") == "ContainerStatusUnknown"


def evicted_by(pod: Object, works: Iterable[Object] = ()) -> PodEnd | None:
    """What ended a pod from outside, if the cluster reports it. It may do so while the pod is still terminating."""
    status = pod.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    works = tuple(works)
    if reason == "DeadlineExceeded" or any(map(_is_late, works)):
        return PodEnd(Cause.TIMEOUT, "ended by the time limit of its job", is_outside=True)
    if reason in _POD_REASONS:
        return PodEnd(Cause.LOST, _POD_REASONS[reason], is_outside=True)
    if reason == "Terminated" and "shutdown" in message:
        return PodEnd(Cause.LOST, _POD_REASONS["NodeShutdown"], is_outside=True)
    if reason and message.startswith(REJECTED):  # by its kubelet, for any reason
        said = short(message.removeprefix(REJECTED).lstrip(": ")) or reason
        return PodEnd(Cause.LOST, f"its node rejected it: {said}", is_outside=True)
    if reason == "Evicted":
        return _evicted(message)
    if reason.startswith("OutOf") or reason in ("NodeAffinity", "UnexpectedAdmissionError", "NodePorts"):
        return PodEnd(Cause.LOST, f"its node rejected it: {short(message) or reason}", is_outside=True)
    target = condition_of(pod, "DisruptionTarget")
    if target is not None and target.get("status") == "True":
        words = _DISRUPTIONS.get(str(target.get("reason")), f"terminated by the cluster ({target.get('reason')})")
        return PodEnd(Cause.LOST, words, is_outside=True)
    ended = condition_of(pod, "TerminationTarget")
    if ended is not None and ended.get("status") == "True":
        said = short(str(ended.get("message") or ended.get("reason") or ""))
        return PodEnd(Cause.LOST, f"preempted by Kueue: {said}", is_outside=True)
    if any(map(is_suspended, works)):
        return PodEnd(Cause.LOST, "suspended after it had started: by Kueue, if other jobs come first", is_outside=True)
    return None


_POD_REASONS = {
    "NodeLost": "its node was lost",
    "NodeShutdown": "its node was shut down",
    "Shutdown": "its node was shut down",
    "Preempting": "preempted by a critical pod of its node",
    "Preempted": "preempted by a pod of higher priority",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority",
    "PreemptionByKubeScheduler": "preempted by a pod of higher priority",
    "DeletionByTaintManager": "its node was lost or tainted (a taint that it does not tolerate)",
    "EvictionByEvictionAPI": "evicted through the API, for example for node maintenance",
    "DeletionByPodGC": "its node was lost",
    "TerminationByKubelet": "terminated by its node: low on resources, or shut down",
}


def _evicted(message: str) -> PodEnd:
    low = re.search(r"low on resource: ([\w-]+)", message)
    if low is not None:
        what = {"ephemeral-storage": "disk", "pids": "process IDs"}.get(low[1], low[1])
        used = re.search(r"was using (\S+), request is (\S+),", message)
        more = f"; it used {used[1]} and requested {used[2]}" if used is not None else ""
        return PodEnd(Cause.LOST, f"evicted: its node was low on {what}{more}", is_outside=True)
    if re.search(r"exceed(?:s|ed)? (?:the total |its local |the )?(?:limit|ephemeral)|exceeds the limit", message):
        return PodEnd(Cause.ERROR, f"evicted for exceeding its disk limit: {short(message)}")
    return PodEnd(Cause.LOST, f"evicted: {short(message) or 'its node gives no reason'}", is_outside=True)


def _is_late(work: Object) -> bool:
    return any(
        one.get("reason") == "DeadlineExceeded" and one.get("status") == "True"
        for one in conditions_of(work)
        if one.get("type") in ("Failed", "FailureTarget")
    )


def _failed_init(pod: Object) -> PodEnd | None:
    for name, ended in _failed_steps(pod):
        if ended.get("reason") == "OOMKilled":
            return PodEnd(Cause.MEMORY, f"step `{name}` was killed for memory", None, signal.SIGKILL)
        if (said := _word_of_agent(ended)) is not None:
            return said
        code, number = exit_of(ended)
        if name == "init-pytorch":  # added by training-operator to workers
            return PodEnd(
                Cause.MEETING, "its master did not start in time: training-operator waits a few minutes for it"
            )
        how = _unstarted(ended) or f"failed: {exit_words(code, number)}"
        return PodEnd(Cause.SETUP, f"step `{name}` {how}", code, number)
    return None


def _failed_steps(pod: Object) -> Iterator[tuple[str, Object]]:
    """The names and final states of init containers that failed."""
    for one in steps_of(pod):
        ended = (one.get("state") or {}).get("terminated")
        if ended is not None and ended.get("exitCode") != 0 and not is_unknown(ended):
            yield str(one.get("name")), ended


def _unstarted(state: Object) -> str | None:
    """Why a container never ran: its command is not in its image, or is built for another processor."""
    if state.get("reason") in ("StartError", "ContainerCannotRun", "RunContainerError"):
        return f"cannot start: {short(str(state.get('message') or '')) or state.get('reason')}"
    return None


def failed_init_of(pod: Object) -> str | None:
    """The init container that failed before the replica could start."""
    return next((name for name, _ in _failed_steps(pod)), None)


def _failed(state: Object, code: int | None, number: int | None) -> PodEnd:
    if (why := _unstarted(state)) is not None:
        return PodEnd(Cause.ERROR, why, 127)
    if state.get("reason") == "DeadlineExceeded":
        return PodEnd(Cause.TIMEOUT, "ended by the time limit of its job", code, number, is_outside=True)
    return _word_of_agent(state) or PodEnd(Cause.ERROR, exit_words(code, number), code, number)


def _word_of_agent(state: Object) -> PodEnd | None:
    """The end that an agent wrote into the status of its pod, in case nothing else arrives."""
    try:
        said = json.loads(state.get("message") or "")
        end = next(iter(said["ends"].values())) if said["phalanx"] == 1 else {}
        code, number = (end[name] if isinstance(end[name], int) else None for name in ("code", "signal"))
        cause, message = Cause(end["cause"]), short(str(end["message"]))
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration, RecursionError):
        return None
    return PodEnd(cause, message, code, number)


def exit_of(state: Object) -> tuple[int | None, int | None]:
    """(code, signal) of a container: shells and runtimes add 128 to a signal's number."""
    code, number = state.get("exitCode"), state.get("signal")
    if number:
        return None, int(number)
    if isinstance(code, int) and code > 128 and signal_name(code - 128):
        return None, code - 128
    return (code if isinstance(code, int) else None), None


def exit_words(code: int | None, number: int | None) -> str:
    if number is not None:
        return f"killed by signal {number} ({signal_name(number) or 'unknown'})"
    return f"exit code {code}" if code is not None else "it failed"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _memory_words(pod: Object) -> str:
    name = container_of(pod)
    ours = (box for box in containers_of(pod) if box.get("name") == name)
    own = (next(ours, {}).get("resources") or {}).get("limits") or {}
    whole = ((pod.get("spec") or {}).get("resources") or {}).get("limits") or {}
    most = own.get("memory") or whole.get("memory")
    if not most:
        return "killed for memory: it has no limit, and its node had none left"
    return f"killed for memory: it used more than its limit of {most}"


def _starts_again(pod: Object) -> bool:
    """Return whether its kubelet will restart a failed container."""
    policy = (pod.get("spec") or {}).get("restartPolicy", "Always")
    is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return policy != "Never" and not is_over and not runs_once(pod)


def end_of_work(work: Object) -> tuple[Cause, str] | None:
    """(cause, message) of a finished Job or operator's job; None while it is not finished."""
    for one in conditions_of(work):
        if one.get("status") != "True":
            continue
        if one.get("type") in ("Complete", "Succeeded", "Completed"):
            return Cause.FINISHED, "finished"
        if one.get("type") == "Failed":
            if one.get("reason") == "DeadlineExceeded":
                return Cause.TIMEOUT, "ended by the time limit of its job"
            return Cause.LOST, short(str(one.get("message") or one.get("reason") or "its job failed"))
    return None


def has_enough(work: Object) -> bool:
    """Return whether it is done, possibly with fewer pods than requested."""
    end = end_of_work(work)
    is_elastic = bool((work.get("spec") or {}).get("elasticPolicy"))
    return is_elastic and end is not None and end[0] == Cause.FINISHED


def observed(group: AttemptObjects) -> Observation:
    known: dict[str, Any] = {"nodes": nodes_of(group.pods), "run_id": group.run_id, "attempt": group.attempt}
    if not group.works and group.builds:
        return _building(group, known)
    if is_over(group):
        cause, words = _verdict(group)
        return Observation(ENDED, words, cause, **known)
    if any(map(has_begun, group.pods)):
        return Observation(RUNNING, _incomplete(group), **known)
    return Observation(WAITING, waiting_for(group), **known)


def _incomplete(group: AttemptObjects) -> str:
    """What keeps an attempt from running as a whole; empty if nothing does, or if it is ending."""
    if any(deleted_at(pod) is not None for pod in group.pods):
        return _away(group)
    has_failed = any(end.cause != Cause.FINISHED for pod in group.pods if (end := pod_end(pod, group.works)))
    return "; ".join(filter(None, (_away(group), "" if has_failed else partly_waiting(group))))


def _away(group: AttemptObjects) -> str:
    """The nodes that the cluster has lost contact with, and whose pods they have."""
    names: dict[str, list[str]] = {}
    spans: dict[str, float | None] = {}
    for name, pod in replicas_of(group).items():
        if pod is not None and is_node_away(pod):
            node = node_of(pod)
            names.setdefault(node, []).append(name)
            spans[node] = toleration_s(pod)
    return "; ".join(
        f"node {node} is not ready, with {listed(members)}"
        + (f": the cluster gives up on it after {spans[node]:g} s" if spans[node] is not None else "")
        for node, members in names.items()
    )


def _building(group: AttemptObjects, known: dict[str, Any]) -> Observation:
    """The observation while the image is being built. There are no pods yet."""
    for build in group.builds:
        end = end_of_work(build)
        if end is not None and end[0] != Cause.FINISHED:
            return Observation(ENDED, f"its image could not be built: {end[1]}", Cause.SETUP, **known)
    waits = [
        words for pod in group.pods if is_build(pod) and not has_begun(pod) for words in [pod_waits(pod, group).words]
    ]
    waits += filter(None, (held_back(build, group) for build in group.builds))
    why = f"its image is being built{': ' + waits[0] if waits else ''}"
    return Observation(WAITING, why, is_building=True, **known)


def is_over(group: AttemptObjects) -> bool:
    """Return whether nothing of it runs and nothing will start. Servers run forever: they do not count."""
    pods = [pod for pod in group.pods if not is_build(pod) and not is_helper_pod(pod)]
    if any(pod_end(pod, group.works) is None for pod in pods):
        return False
    essential = [work for work in group.works if labels_of(work).get(f"{DOMAIN}/role") not in SERVING]
    return bool(pods or essential) and all(end_of_work(work) is not None for work in essential)


def _verdict(group: AttemptObjects) -> tuple[Cause, str]:
    outcomes = [
        outcome for pod in group.pods if not is_build(pod) if (outcome := pod_end(pod, group.works)) is not None
    ]
    return verdict_of(outcomes) or next(
        (end for work in group.works if (end := end_of_work(work)) is not None and end[0] != Cause.FINISHED),
        (Cause.FINISHED, "finished"),
    )


def verdict_of(outcomes: Iterable[PodEnd]) -> tuple[Cause, str] | None:
    """What ended an attempt: causes from outside take precedence over the replicas' ends. None if nothing failed."""
    bad = [outcome for outcome in outcomes if outcome.cause != Cause.FINISHED]
    first = min(
        bad,
        key=lambda outcome: (not outcome.is_outside, outcome.cause == Cause.STOPPED, outcome.ended_at or 0.0),
        default=None,
    )
    if first is None:
        return None
    if first.cause == Cause.STOPPED:
        return Cause.STOPPED, NOT_BY_US if first.is_outside else "stopped"
    return first.cause if first.is_outside or first.cause in (Cause.MEMORY, Cause.SETUP) else Cause.LOST, first.message


def nodes_of(pods: Iterable[Object]) -> str:
    nodes = sorted({name for pod in pods if (name := node_of(pod))})
    more = f" and {len(nodes) - NODES_LISTED} more" if len(nodes) > NODES_LISTED else ""
    return ",".join(nodes[:NODES_LISTED]) + more
