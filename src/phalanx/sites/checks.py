"""Checks a plan against a site before submission: what it would reject or penalise, what would start sooner. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath

from phalanx.plan.model import Plan
from phalanx.sites.findings import ADVICE, ERROR, SiteFinding, join_names, near
from phalanx.sites.gpu_checks import gpu_type_rule, shares_rule, slices_rule, whole_gpus_rule
from phalanx.sites.model import FORBIDDEN, REQUIRED, Site
from phalanx.sites.node_checks import fewest_nodes, nodes_rule, sizes_rule, whole_nodes_rule
from phalanx.sites.profile_writer import memory_text
from phalanx.sites.request import SiteRequest, asked_of, component_name, role_path
from phalanx.sites.time_checks import time_rule
from phalanx.spec.model import EMPTY

__all__ = ["ADVICE", "ERROR", "SiteFinding", "check", "home_finding"]

Rule = Callable[[SiteRequest], Iterator[SiteFinding]]


def check(plan: Plan, site: Site, environ: Mapping[str, str] = EMPTY) -> list[SiteFinding]:
    """All findings of the site for a plan, errors first. `environ` may hold the variables that sbatch reads
    (such as SBATCH_ACCOUNT)."""
    asked = asked_of(plan, site, environ)
    found = [finding for rule in _RULES for finding in rule(asked)]
    return sorted(dict.fromkeys(found), key=lambda finding: finding.severity != ERROR)


def home_finding(site: Site, home: PurePath, environ: Mapping[str, str]) -> SiteFinding | None:
    """Whether nodes can write to the home of the runs, on sites where only some folders are writable."""
    folders = [environ[name] for name in site.writable if environ.get(name)]
    if not site.writable or any(home.is_relative_to(folder) for folder in folders):
        return None
    names = " or ".join(f"${name}" for name in site.writable)
    message = f"nodes of {site.name} can write only below {names}, but runs are stored in {home}"
    return SiteFinding(ADVICE, "", message, f"set PHALANX_HOME to a folder below {names}")


def _account(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, path = asked.site, "environment.slurm.account"
    if asked.account is None:
        if site.account_required:
            known = f": yours are {join_names(site.accounts)}" if site.accounts else ""
            message = f"{site.name} requires an account"
            yield SiteFinding(ERROR, path, message, f"write `environment: {{slurm: {{account: ...}}}}`{known}")
        elif len(site.accounts) > 1:
            message = f"no account is set: Slurm uses your default, one of {join_names(site.accounts)}"
            yield SiteFinding(ADVICE, path, message)
        return
    # some sites have one account for CPUs and one for GPUs, and accept the name without the suffix
    taken = {
        ending for name in site.accounts for ending in (name, name.removesuffix("_cpu"), name.removesuffix("_gpu"))
    }
    if taken and asked.account not in taken:
        message = f"you have no account `{asked.account}` on {site.name}"
        yield SiteFinding(ERROR, path, message, near(asked.account, site.accounts))


def _partition(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, path = asked.site, "environment.slurm.partition"
    if not asked.partitions:
        if site.partition == REQUIRED:
            known = f": available are {join_names(part.name for part in site.partitions)}" if site.partitions else ""
            message = f"{site.name} requires a partition"
            yield SiteFinding(ERROR, path, message, f"write `environment: {{slurm: {{partition: ...}}}}`{known}")
        return
    if site.partition == FORBIDDEN:
        message = f"{site.name} chooses the partition itself; do not set one"
        yield SiteFinding(ERROR, path, message, "remove `partition`")
        return
    names = [part.name for part in site.partitions]
    for name in asked.partitions if names else ():
        if name not in names:
            yield SiteFinding(ERROR, path, f"there is no partition `{name}` on {site.name}", near(name, names))
    for row in asked.partition_rows:
        if not row.is_up:
            others = [part.name for part in site.partitions if part.is_up]
            message = f"the partition `{row.name}` accepts no jobs"
            yield SiteFinding(ERROR, path, message, f"available: {join_names(others)}" if others else None)
        for value, allowed, what in ((asked.account, row.accounts, "account"), (asked.qos, row.qos, "qos")):
            if value is not None and allowed and value not in allowed:
                message = f"the partition `{row.name}` does not allow the {what} `{value}`"
                yield SiteFinding(ERROR, path, message, f"it allows {join_names(allowed)}")


def _constraint(asked: SiteRequest) -> Iterator[SiteFinding]:
    known = {feature for kind in asked.site.nodes for feature in kind.features}
    wanted = dict(asked.plan.slurm.directives).get("constraint") or asked.plan.slurm.constraint
    if not known or not wanted:
        return
    for name in re.findall(r"[A-Za-z_][\w.+:-]*", re.sub(r"\*[0-9]+", "", wanted)):
        if name not in known:
            message = f"no node of {asked.site.name} has the feature `{name}`"
            yield SiteFinding(ERROR, "environment.slurm.constraint", message, near(name, sorted(known)))


def _qos(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, path = asked.site, "environment.slurm.qos"
    if asked.qos is None or not site.qos:
        return
    found = next((one for one in site.qos if one.name == asked.qos), None)
    if found is None:
        message = f"you have no quality of service `{asked.qos}` on {site.name}"
        yield SiteFinding(ERROR, path, message, near(asked.qos, [one.name for one in site.qos]))
        return
    cpus = sum(part.size.cpus * part.replicas for part in asked.parts)
    nodes = sum(fewest_nodes(asked, part) or 1 for part in asked.parts)
    for limit, number, what in (
        (found.max_gpus, asked.gpus, "GPUs"),
        (found.max_cpus, cpus, "cores"),
        (found.max_nodes, nodes, "nodes"),
    ):
        if limit is not None and number > limit:
            message = f"the run requests {number} {what}, but `{found.name}` allows a user at most {limit} at a time"
            yield SiteFinding(ERROR, path, message, "request less, or use another `qos`")


def _memory(asked: SiteRequest) -> Iterator[SiteFinding]:
    given = asked.site.default_memory_mib
    if (
        given is None
        or asked.site.whole_nodes
        or {"mem", "mem-per-cpu", "mem-per-gpu"} & dict(asked.plan.slurm.directives).keys()
    ):
        return
    for part in asked.parts:
        if part.size.memory_mib is None:
            given_text = f"the default of {asked.site.name} is {memory_text(given)} per core"
            message = f"{component_name(part)}: no memory is requested; {given_text}"
            hint = "request what it needs: `memory: {requests: 16Gi}`"
            yield SiteFinding(ADVICE, f"{role_path(part)}.memory", message, hint)


def _python(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, python = asked.site, asked.plan.python
    if not python.requirements:
        return
    has_wheels = python.no_index or python.wheelhouse or site.wheelhouse or python.build_on == "login"
    if site.internet is False and not has_wheels:
        message = f"nodes of {site.name} have no internet access, but packages are installed there"
        hint = "set `no_index: true` to use the site's wheels, a `wheelhouse`, or `build_on: login`"
        yield SiteFinding(ERROR, "environment.python.requirements", message, hint)
    if site.modules and not python.modules:
        names = ", ".join(site.modules)
        message = f"{site.name} provides Python by modules, but the file loads none"
        yield SiteFinding(ADVICE, "environment.python.modules", message, f"write `modules: [{names}]`")


_RULES: tuple[Rule, ...] = (
    time_rule, _account, _partition, _constraint, _qos, gpu_type_rule, slices_rule, whole_gpus_rule, sizes_rule,
    nodes_rule, shares_rule, whole_nodes_rule, _memory, _python,
)  # fmt: skip
