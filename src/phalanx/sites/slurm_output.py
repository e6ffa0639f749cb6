"""Parses the output of Slurm commands. Pure: text in, values out; unreadable lines are skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phalanx.sites.model import NodeKind, Partition, Qos

NODES_FORMAT = "%N|%P|%c|%m|%G|%f|%T"
PARTITIONS_FORMAT = "%P|%l|%L|%D|%s|%a"
ASSOCIATIONS_FORMAT = "Account,QOS,MaxJobs,MaxSubmit"
QOS_FORMAT = "Name,MaxWall,MaxTRESPU"

_TIME = re.compile(r"(?:(?P<days>[0-9]{1,9})-)?(?P<rest>[0-9]{1,9}(?::[0-9]{1,9}){0,2})\Z")
_FIELD = re.compile(r"(?:^| )([A-Za-z][\w/:]*)=")
_GRES = re.compile(r"gpu(?::(?P<type>[^:(]+))?:(?P<count>[0-9]{1,9})\Z")
_NOTHING = frozenset(["", "(null)", "N/A", "n/a", "none", "NONE", "None"])
_FOR_ALL = frozenset(["ALL", "all", *_NOTHING])


def seconds(text: str) -> float | None:
    """A time in Slurm's format; None where there is no limit, or none is reported."""
    match = _TIME.match(text.strip())
    if match is None:
        return None  # infinite, UNLIMITED, n/a, NONE, Partition_Limit
    parts = [int(part) for part in match["rest"].split(":")]
    if match["days"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, rest = (*parts, 0, 0)[:3]
        return float(((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + rest)
    if len(parts) == 3:
        return float((parts[0] * 60 + parts[1]) * 60 + parts[2])
    return float(parts[0] * 60 + (parts[1] if len(parts) == 2 else 0))  # minutes[:seconds]


def whole(text: str) -> int | None:
    """A number; 4 for `4+`, with which sinfo means that some nodes have more."""
    match = re.match(r"\s*([0-9]{1,18})\+?\s*\Z", text)
    return int(match[1]) if match else None


def gpus(gres: str) -> dict[str | None, int]:
    """The GPUs of a node by type, most first: `gpu:a100:4(S:0-1),gpu:a100_1g.5gb:14`. The type may be missing."""
    found: dict[str | None, int] = {}
    for item in re.split(r",(?![^(]*\))", gres):
        match = _GRES.match(re.sub(r"\(.*?\)", "", item).strip())
        if match is not None and int(match["count"]):
            found[match["type"]] = found.get(match["type"], 0) + int(match["count"])
    return dict(sorted(found.items(), key=lambda pair: (-_is_whole(pair[0]), -pair[1], pair[0] or "")))


def _is_whole(gpu_type: str | None) -> bool:
    from phalanx.sites.model import is_slice

    return gpu_type is None or not is_slice(gpu_type)


def _names(text: str) -> tuple[str, ...]:
    return () if text.strip() in _NOTHING else tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def nodes(text: str) -> tuple[NodeKind, ...]:
    """The kinds of nodes in the output of `sinfo -h -N -o NODES_FORMAT`: a row for each node of each partition."""
    rows: dict[str, tuple[int, int, str, str]] = {}
    partitions: dict[str, set[str]] = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) != 7:
            continue
        name, partition, cpus, memory, gres, features, _state = (cell.strip() for cell in cells)
        count, size = whole(cpus), whole(memory)
        if not name or not count or size is None:
            continue
        rows[name] = (count, size, gres, features)
        partitions.setdefault(name, set()).add(partition.rstrip("*"))
    kinds: dict[NodeKind, int] = {}
    for name, (cpus_here, memory_here, gres, features) in rows.items():
        (gpu_type, number), *others = gpus(gres).items() or [(None, 0)]
        kind = NodeKind(
            count=None,
            cpus=cpus_here,
            memory_mib=float(memory_here),
            gpus=number,
            gpu_type=gpu_type,
            features=_names(features),
            partitions=tuple(sorted(partitions[name] - {""})),
            other_gpus=tuple((other or "gpu", count) for other, count in others),
        )
        kinds[kind] = kinds.get(kind, 0) + 1
    return tuple(kind._replace(count=number) for kind, number in kinds.items())


def partitions(text: str) -> tuple[Partition, ...]:
    """The partitions in the output of `sinfo -h -o PARTITIONS_FORMAT`; a partition may have several rows."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 6 or not cells[0].rstrip("*"):
            continue
        name, longest, usual, _nodes, sizes, state = cells
        found[name.rstrip("*")] = Partition(
            name=name.rstrip("*"),
            max_time_s=seconds(longest),
            is_default=name.endswith("*"),
            default_time_s=seconds(usual),
            max_nodes=whole(sizes.rpartition("-")[2]),
            is_up=state == "up",
        )
    return tuple(found.values())


def fields(line: str) -> dict[str, str]:
    """`Name=value` of one line of `scontrol show … -o`. Values may contain spaces."""
    starts = list(_FIELD.finditer(line))
    ends = [match.start() for match in starts[1:]] + [len(line)]
    return {match[1]: line[match.end() : end].strip() for match, end in zip(starts, ends, strict=False)}


def partitions_in_full(text: str) -> tuple[Partition, ...]:
    """The partitions in the output of `scontrol show partition -o`."""
    found = []
    for line in text.splitlines():
        settings = fields(line)
        name = settings.get("PartitionName")
        if not name:
            continue
        found.append(
            Partition(
                name=name,
                max_time_s=seconds(settings.get("MaxTime", "")),
                is_default=settings.get("Default") == "YES",
                default_time_s=seconds(settings.get("DefaultTime", "")),
                max_nodes=whole(settings.get("MaxNodes", "")),
                is_up=settings.get("State", "UP") == "UP",
                whole_nodes=settings.get("OverSubscribe", settings.get("Shared", "")).startswith("EXCLUSIVE"),
                accounts=_only(settings.get("AllowAccounts", "")),
                qos=_only(settings.get("AllowQos", "")),
            )
        )
    return tuple(found)


def _only(text: str) -> tuple[str, ...]:
    return () if text.strip() in _FOR_ALL else _names(text)


def configuration(text: str) -> Mapping[str, str]:
    """The output of `scontrol show config`: `Key = value`."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}


class Association(NamedTuple):
    """One account that a user may use."""

    account: str
    qos: tuple[str, ...] = ()
    max_jobs: int | None = None
    max_submitted: int | None = None


def associations(text: str) -> tuple[Association, ...]:
    """The associations in the output of `sacctmgr -nP show assoc format=ASSOCIATIONS_FORMAT`, one per account."""
    found: dict[str, Association] = {}
    for cells in _cells(text, 4):
        account, names, jobs, submitted = cells
        if account:
            found.setdefault(account, Association(account, _names(names), whole(jobs), whole(submitted)))
    return tuple(found.values())


def qualities(text: str) -> tuple[Qos, ...]:
    """The output of `sacctmgr -nP show qos format=QOS_FORMAT`."""
    found = []
    for name, wall, limits in _cells(text, 3):
        trackable = dict(item.partition("=")[::2] for item in limits.split(",") if "=" in item)
        found.append(
            Qos(
                name=name,
                max_time_s=seconds(wall),
                max_gpus=whole(trackable.get("gres/gpu", "")),
                max_nodes=whole(trackable.get("node", "")),
                max_cpus=whole(trackable.get("cpu", "")),
            )
        )
    return tuple(one for one in found if one.name)


def _cells(text: str, count: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == count:
            yield cells


def modules(text: str) -> tuple[str, ...]:
    """The Python modules in the output of `module -t avail python`: one name per line, between folders and marks."""
    names = (re.sub(r"\(.*?\)", "", line).strip().rstrip("/") for line in text.splitlines())
    return tuple(dict.fromkeys(name for name in names if re.match(r"python3?(/[\w.+-]+)*\Z", name)))
