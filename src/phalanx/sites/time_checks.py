"""Time checks: limits that are too long or too short for a site, and what would start sooner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from phalanx.sites.findings import ADVICE, ERROR, SiteFinding, join_names
from phalanx.sites.model import FORBIDDEN, Site
from phalanx.sites.profile_writer import time_text
from phalanx.sites.request import SiteRequest


def _time_path(asked: SiteRequest) -> str:
    segment = asked.plan.slurm.segment_s
    return "environment.slurm.segment" if segment is not None and segment == asked.time_s else "environment.timeout"


def longest_job_s(asked: SiteRequest) -> float | None:
    """The longest job that the site accepts here; None where that is not known."""
    return min((limit for limit, _ in _time_limits(asked)), default=None)


def time_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, time_s = asked.site, asked.time_s
    if time_s is None:
        yield from _no_time(asked)
        return
    path = _time_path(asked)
    over = [(limit, words) for limit, words in _time_limits(asked) if time_s > limit]
    if over:
        limit, words = min(over)
        message = f"{time_text(time_s)} exceeds the limit of {words}: {time_text(limit)}"
        others = _other_qos(asked) if words == _qos_words(asked.qos) else _other_partitions(asked)
        yield SiteFinding(ERROR, path, message, _what_fits(asked, limit) + others)
        return
    own = [row.min_time_s for row in asked.partition_rows if row.min_time_s is not None]
    least = min(own, default=site.min_time_s)
    if least is not None and time_s < least:
        message = f"{time_text(time_s)} is below the minimum of {site.name}: {time_text(least)}"
        yield SiteFinding(ERROR, path, message, f"write `{path}: {time_text(least)}`, or more")
    elif site.wanted_time_s is not None and time_s < site.wanted_time_s and not own:
        message = f"{site.name} prefers jobs of at least {time_text(site.wanted_time_s)}, except tests"
        yield SiteFinding(ADVICE, path, message, "combine several short runs into one")
    yield from _sooner(asked, time_s, path)


def _no_time(asked: SiteRequest) -> Iterator[SiteFinding]:
    if asked.site.time_required:
        message = f"{asked.site.name} requires a time limit"
        yield SiteFinding(ERROR, "environment.timeout", message, "write `environment: {timeout: 3h}`")
        return
    rows = [row for row in asked.partition_rows if row.max_time_s is not None and row.default_time_s is None]
    if rows:
        longest = time_text(max(row.max_time_s or 0 for row in rows))
        message = f"without a `timeout` the job requests the maximum, {longest}, and waits longer"
        yield SiteFinding(ADVICE, "environment.timeout", message, "set a `timeout`; shorter jobs start sooner")


def _time_limits(asked: SiteRequest) -> Iterator[tuple[float, str]]:
    site = asked.site
    if site.max_time_s is not None:
        yield site.max_time_s, site.name
    rows = asked.partition_rows
    if rows and all(row.max_time_s is not None for row in rows):
        words = f"the partition `{rows[0].name}`" if len(rows) == 1 else "any of these partitions"
        yield max(row.max_time_s or 0 for row in rows), words
    for one in site.qos:
        if one.name == asked.qos and one.max_time_s is not None:
            yield one.max_time_s, _qos_words(one.name)


def _qos_words(name: str | None) -> str:
    return f"the quality of service `{name}`"


def _what_fits(asked: SiteRequest, limit: float) -> str:
    assert asked.time_s is not None
    total = asked.plan.timeout_s or asked.time_s
    pieces = math.ceil(total / limit) if limit else 1
    return (
        f"write `environment.slurm.segment: {time_text(limit)}`: the run is split into {pieces} jobs, each resuming "
        "from its last checkpoint"
    )


def _other_qos(asked: SiteRequest) -> str:
    """The qualities of service that allow the time: another partition would not help."""
    assert asked.time_s is not None
    names = [one.name for one in asked.site.qos if asked.time_s <= (one.max_time_s or math.inf)]
    return f"; or use a `qos` that allows it: {join_names(names)}" if names else ""


def _other_partitions(asked: SiteRequest) -> str:
    assert asked.time_s is not None
    ceiling = min((time for time, words in _time_limits(asked) if words == asked.site.name), default=math.inf)
    others = [
        part.name
        for part in asked.site.partitions
        if part not in asked.partition_rows and part.is_up and asked.time_s <= min(part.max_time_s or math.inf, ceiling)
    ]
    if not others or asked.site.partition == FORBIDDEN:
        return ""
    return f"; or use a partition that allows it: {join_names(others)}"


def _sooner(asked: SiteRequest, time_s: float, path: str) -> Iterator[SiteFinding]:
    site = asked.site
    if asked.partitions:
        chosen = asked.partition_rows
        roomier = [
            row.name
            for row in site.partitions
            if row not in chosen
            and row.is_up
            and row.max_time_s is not None
            and time_s <= row.max_time_s
            and all(row.max_time_s < (other.max_time_s or math.inf) for other in chosen)
            and _same_nodes(site, row.name, asked.partitions)
        ]
        if roomier and site.partition != FORBIDDEN:
            both = ",".join([*roomier, *asked.partitions])
            message = f"a job of {time_text(time_s)} also fits into {join_names(roomier)}"
            hint = f"write `partition: {both}`: Slurm uses the one that starts first"
            yield SiteFinding(ADVICE, "environment.slurm.partition", message, hint)
        return
    below = max((step for step in site.time_steps_s if step < time_s), default=None)
    if below is not None:
        text = time_text(below)
        message = f"a job of at most {text} can run on more nodes of {site.name} and starts sooner"
        yield SiteFinding(
            ADVICE, path, message, f"write `{path}: {text}`, or split the run with `slurm.segment: {text}`"
        )


def _same_nodes(site: Site, name: str, chosen: Iterable[str]) -> bool:
    """Whether a partition has nodes of each kind that the chosen ones have."""
    wanted = [kind for kind in site.nodes if set(chosen) & set(kind.partitions)]
    return bool(wanted) and all(name in kind.partitions for kind in wanted)
