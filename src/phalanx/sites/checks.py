"""What a site would refuse or punish, before anything is submitted, and what would start sooner. Pure."""

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
    """Everything that the site has to say of a plan, errors first. `environ` may hold the variables that sbatch reads
    (SBATCH_ACCOUNT and its kin)."""
    asked = asked_of(plan, site, environ)
    found = [finding for rule in _RULES for finding in rule(asked)]
    return sorted(dict.fromkeys(found), key=lambda finding: finding.severity != ERROR)


def home_finding(site: Site, home: PurePath, environ: Mapping[str, str]) -> SiteFinding | None:
    """Whether nodes may write to the home of the runs, where only some folders can be written."""
    folders = [environ[name] for name in site.writable if environ.get(name)]
    if not site.writable or any(home.is_relative_to(folder) for folder in folders):
        return None
    names = " or ".join(f"${name}" for name in site.writable)
    message = f"nodes of {site.name} write only below {names}, and runs are kept in {home}"
    return SiteFinding(ADVICE, "", message, f"set PHALANX_HOME to a folder below {names}")


def _account(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, path = asked.site, "environment.slurm.account"
    if asked.account is None:
        if site.account_required:
            known = f": you have {join_names(site.accounts)}" if site.accounts else ""
            message = f"{site.name} takes no job without an account"
            yield SiteFinding(ERROR, path, message, f"write `environment: {{slurm: {{account: ...}}}}`{known}")
        elif len(site.accounts) > 1:
            message = f"no account is named: Slurm takes your default one, of {join_names(site.accounts)}"
            yield SiteFinding(ADVICE, path, message)
        return
    # some sites keep one account for CPUs and one for GPUs, and take the name without its ending
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
            known = f": there are {join_names(part.name for part in site.partitions)}" if site.partitions else ""
            message = f"{site.name} takes no job without a partition"
            yield SiteFinding(ERROR, path, message, f"write `environment: {{slurm: {{partition: ...}}}}`{known}")
        return
    if site.partition == FORBIDDEN:
        message = f"{site.name} chooses the partition itself, and wants none to be named"
        yield SiteFinding(ERROR, path, message, "remove `partition`")
        return
    names = [part.name for part in site.partitions]
    for name in asked.partitions if names else ():
        if name not in names:
            yield SiteFinding(ERROR, path, f"there is no partition `{name}` on {site.name}", near(name, names))
    for row in asked.partition_rows:
        if not row.is_up:
            others = [part.name for part in site.partitions if part.is_up]
            message = f"the partition `{row.name}` takes no jobs"
            yield SiteFinding(ERROR, path, message, f"there are {join_names(others)}" if others else None)
        for value, allowed, what in ((asked.account, row.accounts, "account"), (asked.qos, row.qos, "qos")):
            if value is not None and allowed and value not in allowed:
                message = f"the partition `{row.name}` is not for the {what} `{value}`"
                yield SiteFinding(ERROR, path, message, f"it is for {join_names(allowed)}")


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
            message = f"the run asks for {number} {what}, and `{found.name}` gives a user at most {limit} at a time"
            yield SiteFinding(ERROR, path, message, "ask for less, or name another `qos`")


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
            given_text = f"{asked.site.name} gives {memory_text(given)} for each core"
            message = f"{component_name(part)}: no memory is asked for; {given_text}"
            hint = "say how much it needs: `memory: {requests: 16Gi}`"
            yield SiteFinding(ADVICE, f"{role_path(part)}.memory", message, hint)


def _python(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, python = asked.site, asked.plan.python
    if not python.requirements:
        return
    has_wheels = python.no_index or python.wheelhouse or site.wheelhouse or python.build_on == "login"
    if site.internet is False and not has_wheels:
        message = f"nodes of {site.name} do not reach the internet, and packages are installed there"
        hint = "write `no_index: true` to take the site's wheels, name a `wheelhouse`, or `build_on: login`"
        yield SiteFinding(ERROR, "environment.python.requirements", message, hint)
    if site.modules and not python.modules:
        names = ", ".join(site.modules)
        message = f"{site.name} has its Pythons in modules, and the file loads none"
        yield SiteFinding(ADVICE, "environment.python.modules", message, f"write `modules: [{names}]`")


_RULES: tuple[Rule, ...] = (
    time_rule, _account, _partition, _constraint, _qos, gpu_type_rule, slices_rule, whole_gpus_rule, sizes_rule,
    nodes_rule, shares_rule, whole_nodes_rule, _memory, _python,
)  # fmt: skip
