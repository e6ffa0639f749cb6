"""Resource advice: what a run requested, what it used, and what to request instead. Pure: all inputs are values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from phalanx.ends import Cause
from phalanx.insight.amounts import (
    cores_for,
    memory_for,
    memory_text,
    memory_words,
    more_memory,
    more_time,
    time_for,
    time_text,
    time_words,
)
from phalanx.insight.resource_edits import Change
from phalanx.insight.usage import GpuUsage, ReplicaUsage
from phalanx.naming import LAUNCHER
from phalanx.stored_plan import NO_AMOUNT, ResourceAmount, StoredPlan

DEFAULT_CORES = 1.0  # assumed for a replica that requests nothing
TIGHT = 0.9  # of the request: a higher use is too close to it
WORTH = 0.9  # of the request: a lower use is worth a change
BESIDE_MIB = 512.0  # on a cluster a job also holds our agent and the setup of its Python: never advise less
SHORT_S = 30.0
FEW_LOOKS = 3
IDLE_PERCENT = 10.0  # percent of a GPU: below it, others could use the GPU better
HALF_BUSY_PERCENT = 50.0
SMALL_SHARE = 0.25  # of a GPU's memory: below it, a smaller GPU suffices
SMALL_MIB = 16 * 1024
APART = 1.5  # times all others: an outlier
APART_CORES = 0.5
APART_MIB = 256.0
NAMES_SHOWN = 4

ReplicaKey = tuple[str, int]  # role and index


class Sizing(NamedTuple):
    """One resource: requested, used (the 95th percentile of cores, the maximum of memory, active GPUs, seconds), held
    without use, and what to request instead; None: no change, or unknown."""

    asked: float | None = None
    used: float | None = None
    idle_hours: float | None = None  # in hours of cores, GiB or GPUs
    advised: float | None = None


class RecordedRun(NamedTuple):
    """A run as recorded. `is_batch`: its job held the memory limits of its replicas and agents, for a time that it
    requested (`Backend.is_batch`). `given` are the GPUs that replicas really had."""

    plan: StoredPlan
    status: str
    is_batch: bool
    uses: Mapping[ReplicaKey, ReplicaUsage]
    given: Mapping[ReplicaKey, int]

    @property
    def causes(self) -> set[Cause]:
        return {cause for use in self.uses.values() for cause in use.causes}

    @property
    def timed_out(self) -> bool:
        return self.status == "failed" and Cause.TIMEOUT in self.causes

    @property
    def may_lower(self) -> bool:
        """Whether less may be advised. What a failed run would still have used is unknown. A run that hit its time
        limit was not finished either, but was observed for as long as it was allowed to run."""
        if self.status in ("failed", "upstream_failed", "skipped"):
            return self.timed_out and self.causes <= {Cause.TIMEOUT, Cause.STOPPED, Cause.FINISHED}
        return True


class ResourceGroup(NamedTuple):
    """Replicas of a role with the same request."""

    role: str
    indices: tuple[int, ...]
    asked: Mapping[str, ResourceAmount]  # by resource; only requested ones
    uses: Mapping[int, ReplicaUsage]

    @property
    def names(self) -> str:
        return names_text(self.role, self.indices)


class RoleAdvice(NamedTuple):
    group: ResourceGroup
    cpu: Sizing
    memory: Sizing
    gpu: Sizing
    cores_mean: float | None
    gpu_use: GpuUsage | None
    seconds: float | None
    remarks: tuple[str, ...]


class Advice(NamedTuple):
    """`caveats` are reasons not to trust the advice."""

    roles: tuple[RoleAdvice, ...]
    time: Sizing
    caveats: tuple[str, ...]
    changes: tuple[Change, ...]
    timeout: str | None  # to be written into the file


def advise(seen: RecordedRun) -> Advice:
    judged = [_judged(group, seen) for group in groups_of(seen)]
    time = _time(seen)
    changes = [change for one in judged for change in _changes(one, seen)]
    return Advice(
        roles=tuple(judged),
        time=time,
        caveats=tuple(_caveats(seen)),
        changes=tuple(changes),
        timeout=time_text(time.advised) if time.advised is not None else None,
    )


def groups_of(seen: RecordedRun) -> list[ResourceGroup]:
    """The replicas of a plan, grouped by request. A replica that only launches the others is not included."""
    found: dict[tuple[str, str], tuple[Mapping[str, ResourceAmount], list[int]]] = {}
    for replica in seen.plan.replicas:
        if replica.local or replica.role == LAUNCHER:
            continue
        asked = {name: amount for name, amount in replica.resources.items() if amount != NO_AMOUNT}
        key = (replica.role, repr(sorted(asked.items())))
        found.setdefault(key, (asked, []))[1].append(replica.number)
    return [
        ResourceGroup(role, tuple(indices), asked, {n: seen.uses[role, n] for n in indices if (role, n) in seen.uses})
        for (role, _), (asked, indices) in found.items()
    ]


def held(group: ResourceGroup, resource: str, *, by_limit: bool = False) -> float | None:
    """The amount reserved for a replica: its request, or its limit where only that is given, or where that counts."""
    amount = group.asked.get(resource, NO_AMOUNT)
    first, second = (amount.limits, amount.requests) if by_limit else (amount.requests, amount.limits)
    return second if first is None else first


# resource by resource ------------------------------------------------------------------------------------------------


def _judged(group: ResourceGroup, seen: RecordedRun) -> RoleAdvice:
    uses = list(group.uses.values())
    if seen.plan.launch == "own" and sum(seen.plan.roles.values()) > 1:
        said = f"{group.names}: the command starts its ranks itself, so they were not measured individually"
        return RoleAdvice(group, Sizing(), Sizing(), Sizing(), None, None, None, (said,))
    cpu, memory, gpu = _cpu(group, seen), _memory(group, seen), _gpu(group, seen)
    used = gpus_of(uses)
    total_s = sum(use.held_s for use in uses)
    remarks = [*_missing(group), *_memory_remarks(group), *_cpu_remarks(group, cpu), *_gpu_remarks(group, seen, gpu)]
    return RoleAdvice(
        group=group,
        cpu=cpu,
        memory=memory,
        gpu=gpu,
        cores_mean=sum(use.cpu_s for use in uses) / total_s if total_s else None,
        gpu_use=used,
        seconds=max((use.seconds for use in uses), default=None),
        remarks=tuple(remarks),
    )


def _cpu(group: ResourceGroup, seen: RecordedRun) -> Sizing:
    asked = held(group, "cpu")
    if not group.uses:
        return Sizing(asked)
    used = max(use.cores_p95 for use in group.uses.values())
    have = DEFAULT_CORES if asked is None else asked
    idle = sum(max(0.0, have * use.held_s - use.cpu_s) for use in group.uses.values()) / 3600
    needed = cores_for(used)
    advised = None
    if round(used, 1) > have or (asked is not None and needed < have and seen.may_lower):
        advised = float(needed)
    return Sizing(asked, used, idle, advised)


def _memory(group: ResourceGroup, seen: RecordedRun) -> Sizing:
    asked = held(group, "memory", by_limit=seen.is_batch)
    used = max((use.memory_mib for use in group.uses.values() if use.memory_mib is not None), default=None)
    if used is None:
        return Sizing(asked)
    idle = None
    if asked is not None:
        idle = sum(max(0.0, asked - use.memory_mean_mib) * use.held_s for use in group.uses.values()) / 1024 / 3600
    needed = max(float(memory_for(used)), BESIDE_MIB if seen.is_batch else 0.0)
    advised: float | None = None
    if any(Cause.MEMORY in use.causes for use in group.uses.values()):
        limit = group.asked.get("memory", NO_AMOUNT).limits
        advised = float(more_memory(max(used, asked or 0.0, limit or 0.0)))
    elif asked is None:
        advised = needed if seen.may_lower else None
    elif used > TIGHT * asked or (needed <= WORTH * asked and seen.may_lower):
        advised = needed
    return Sizing(asked, used, idle, advised)


def _gpu(group: ResourceGroup, seen: RecordedRun) -> Sizing:
    asked = held(group, "gpu")
    use = gpus_of(list(group.uses.values()))
    if not asked or use is None:
        return Sizing(asked or None)
    idle = sum(
        asked * one.held_s * (1 - one.gpu.mean_percent / 100) for one in group.uses.values() if one.gpu is not None
    )
    is_known = use.looks >= FEW_LOOKS and use.gpus >= asked and all(one.gpu for one in group.uses.values())
    is_less = use.active < asked and len(group.uses) == len(group.indices)
    advised = float(use.active) if is_known and is_less and seen.may_lower else None
    return Sizing(asked, float(use.active), idle / 3600, advised)


def _time(seen: RecordedRun) -> Sizing:
    """A run in segments has a time limit per segment, which does not apply to the whole run."""
    asked = seen.plan.timeout_s
    used = max((use.seconds for use in seen.uses.values()), default=None)
    if used is None or seen.plan.segment_s:
        return Sizing(asked, used)
    advised = None
    if seen.timed_out:
        advised = more_time(max(asked or 0.0, used))
    elif seen.status == "succeeded":
        needed = time_for(used)
        if asked is None:
            advised = needed if seen.is_batch else None
        elif used > TIGHT * asked or needed <= WORTH * asked:
            advised = needed
    return Sizing(asked, used, None, None if advised is None else float(advised))


def gpus_of(uses: Sequence[ReplicaUsage]) -> GpuUsage | None:
    """Over all replicas of a group: their mean, and the maximum."""
    return merged_gpus([use.gpu for use in uses if use.gpu is not None])


def merged_gpus(known: Sequence[GpuUsage]) -> GpuUsage | None:
    if not known:
        return None
    return GpuUsage(
        gpus=min(use.gpus for use in known),
        active=max(use.active for use in known),
        mean_percent=sum(use.mean_percent for use in known) / len(known),
        busiest_percent=max(use.busiest_percent for use in known),
        memory_mib=max(use.memory_mib for use in known),
        total_mib=max(use.total_mib for use in known),
        looks=min(use.looks for use in known),
    )


# in words ------------------------------------------------------------------------------------------------------------


def names_text(role: str, indices: Sequence[int]) -> str:
    """`worker-0..3, worker-5`."""
    rows: list[list[int]] = []
    for index in sorted(indices):
        if rows and rows[-1][1] == index - 1:
            rows[-1][1] = index
        else:
            rows.append([index, index])
    ranges = [f"{role}-{first}" if first == last else f"{role}-{first}..{last}" for first, last in rows[:NAMES_SHOWN]]
    more = sum(last - first + 1 for first, last in rows[NAMES_SHOWN:])
    return ", ".join(ranges) + (f" and {more} more" if more else "")


def _missing(group: ResourceGroup) -> Iterator[str]:
    unknown = [index for index in group.indices if index not in group.uses]
    if unknown:
        yield f"{names_text(group.role, unknown)}: nothing was measured"


def _apart(
    group: ResourceGroup, value: Callable[[ReplicaUsage], float | None], floor: float
) -> tuple[str, float, float] | None:
    """The one replica that used far more than all others, its use, and the maximum of the others."""
    known = sorted((found, index) for index, use in group.uses.items() if (found := value(use)) is not None)
    if len(known) < 2:
        return None
    (others, _), (most, index) = known[-2:]
    if most > APART * others and most - others > floor:
        return f"{group.role}-{index}", most, others
    return None


def _memory_remarks(group: ResourceGroup) -> Iterator[str]:
    killed = [index for index, use in group.uses.items() if Cause.MEMORY in use.causes]
    if killed:
        said = group.uses[killed[0]].message
        yield f"{names_text(group.role, killed)}: killed for lack of memory ({said}); its real need is unknown"
        return
    apart = _apart(group, lambda use: use.memory_mib, APART_MIB)
    if apart is not None:
        name, most, others = apart
        yield (
            f"{name} used {memory_words(most)} of memory, the others at most {memory_words(others)}: separate "
            f"settings for it (`{_key(group.role)}: [{{index: {name.rpartition('-')[2]}, …}}]`) would save the "
            f"others {memory_words(memory_for(most) - memory_for(others))} each"
        )


def _key(role: str) -> str:
    return "worker" if role == "worker" else "ps"


def _cpu_remarks(group: ResourceGroup, cpu: Sizing) -> Iterator[str]:
    apart = _apart(group, lambda use: use.cores_p95, APART_CORES)
    if apart is not None:
        name, most, others = apart
        yield f"{name} used {most:.1f} cores, the others at most {others:.1f}"
    if cpu.used is None:
        return
    have = DEFAULT_CORES if cpu.asked is None else cpu.asked
    if cpu.advised is not None and cpu.advised > have:
        yield (
            f"{group.names}: used {cpu.used:.1f} cores but requested {have:g}: it will be slower where the request is "
            "enforced"
        )
    elif cpu.advised is None and cpu.used >= TIGHT * have:
        yield f"{group.names}: all cores were busy; check with `phalanx size --try cpu=…` whether more would be faster"


class _GpuWords(NamedTuple):
    """How a sentence names the GPUs of a replica."""

    its: str
    was: str
    it: str

    @classmethod
    def of(cls, asked: float) -> _GpuWords:
        return cls("its GPU", "was", "it") if asked == 1 else cls(f"its {asked:g} GPUs", "were", "them")


def _busy_words(use: GpuUsage) -> str:
    return f"{use.mean_percent:.0f} % busy on average, {use.busiest_percent:.0f} % at most"


def _gpu_memory_words(use: GpuUsage) -> str:
    return f"{memory_words(use.memory_mib)} of {memory_words(use.total_mib)} of memory"


def idle_gpu_remarks(asked: float, use: GpuUsage, *, is_fewer: bool) -> Iterator[str]:
    """What is said about GPUs that a replica does not need; nothing if it used all of them. `is_fewer`: fewer may be
    advised."""
    its, was, it = _GpuWords.of(asked)
    if use.active == 0:
        yield f"{its} {was} idle ({_busy_words(use)}): CPUs suffice, and others could use {it}"
    elif use.mean_percent < IDLE_PERCENT:
        yield (
            f"{its} {was} hardly used ({_busy_words(use)}; {_gpu_memory_words(use)}): CPUs may suffice, and others "
            f"could use {it}; measure the speed without with `phalanx size --try gpu=0,{asked:g}`"
        )
    if is_fewer and use.active:
        yield f"only {use.active} of {its} did any work: others could use the rest"


def _gpu_remarks(group: ResourceGroup, seen: RecordedRun, gpu: Sizing) -> Iterator[str]:
    use, names = gpus_of(list(group.uses.values())), group.names
    if not gpu.asked:
        return
    one = gpu.asked == 1
    its, was, it = _GpuWords.of(gpu.asked)
    if use is None:
        given = max((seen.given.get((group.role, index), 0) for index in group.indices), default=0)
        why = "nvidia-smi did not answer" if given else f"it got {'none' if one else 'none of them'}"
        yield f"{names}: no data about {its}: {why}"
        return
    if use.looks < FEW_LOOKS:
        times = "once" if use.looks == 1 else f"{use.looks} times"
        yield f"{names}: {its} {was} sampled only {times}, which is too few for advice"
        return
    yield from (f"{names}: {remark}" for remark in idle_gpu_remarks(gpu.asked, use, is_fewer=gpu.advised is not None))
    if use.active == 0:
        return
    busy = _busy_words(use)
    if IDLE_PERCENT <= use.mean_percent < HALF_BUSY_PERCENT:
        cores = max((use.cores_p95 for use in group.uses.values()), default=0.0)
        is_fed = cores < TIGHT * (held(group, "cpu") or DEFAULT_CORES)
        hint = "larger batches may fill" if is_fed else "all its cores were busy, and more of them may feed"
        yield f"{names}: {its} {was} {busy}: {hint} {it}"
    elif use.mean_percent >= HALF_BUSY_PERCENT:
        yield f"{names}: {its} {was} well used: {busy}"
    if use.total_mib >= SMALL_MIB and use.memory_mib < SMALL_SHARE * use.total_mib:
        yield f"{names}: {its}: at most {_gpu_memory_words(use)}: a smaller GPU, or a slice of one, suffices"


def _caveats(seen: RecordedRun) -> Iterator[str]:
    seconds = max((use.seconds for use in seen.uses.values()), default=0.0)
    if not seen.uses:
        yield "this run has no measurements yet" if seen.status != "succeeded" else "no measurements"
        return
    if seen.timed_out:
        yield "it hit its time limit: it was not finished, and may have needed more later"
    elif seen.status in ("failed", "upstream_failed"):
        yield "it failed: what it would still have used is unknown, so no amount is lowered"
    elif seen.status == "stopped":
        yield f"it was stopped after {time_words(seconds)}: it may have needed more later"
    elif seen.status != "succeeded":
        yield f"it is still active: this is its use in the first {time_words(seconds)}"
    if seconds < SHORT_S:
        yield f"it was observed for only {time_words(seconds)}, which is too short for advice: use a longer run"
    attempts = max(use.attempts for use in seen.uses.values())
    if attempts > 1:
        yield f"it had {attempts} attempts: the highest use counts"


# what to change ------------------------------------------------------------------------------------------------------


def _changes(one: RoleAdvice, seen: RecordedRun) -> Iterator[Change]:
    group = one.group
    place = (group.role, frozenset(group.indices))
    if one.cpu.advised is not None:
        yield Change(*place, "cpu", group.asked.get("cpu", NO_AMOUNT), one.cpu.advised, int(one.cpu.advised))
    if one.memory.advised is not None:
        killed = any(Cause.MEMORY in use.causes for use in group.uses.values())
        yield Change(
            *place,
            "memory",
            group.asked.get("memory", NO_AMOUNT),
            one.memory.advised,
            memory_text(one.memory.advised),
            is_for_both=killed or seen.is_batch,
        )
    if one.gpu.advised is not None:
        yield Change(*place, "gpu", group.asked.get("gpu", NO_AMOUNT), one.gpu.advised, int(one.gpu.advised))
