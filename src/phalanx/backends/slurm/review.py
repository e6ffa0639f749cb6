"""Reviews plans before submission: directives, the site profile, the wheelhouse, and Slurm itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from phalanx.agent.virtualenv import expand
from phalanx.backends.contract import EngineUnavailable, JobRejected, Review
from phalanx.backends.slurm.engine import SlurmEngine
from phalanx.errors import CallError
from phalanx.plan.model import Plan
from phalanx.sites.checks import ADVICE, ERROR, SiteFinding, check, home_finding
from phalanx.sites.directive_checks import directive_findings
from phalanx.sites.gpu_checks import idle_gpus
from phalanx.sites.model import Site
from phalanx.sites.profile_search import locate
from phalanx.sites.wheelhouse_checks import wheelhouse_findings

NO_PROFILE = "no site profile found: create one with `phalanx site init` on the cluster, or name one with --site"
ACCEPTED = "sbatch accepts the job"
_SLURM = "environment.slurm"
_PLACES = (  # what sbatch complains about, where that is in the file, and what to do
    ("reservation", f"{_SLURM}.reservation", "`scontrol show reservation` lists yours"),
    ("node name", f"{_SLURM}.directives.nodelist", "`sinfo -N` lists the nodes"),
    ("licen[sc]e", f"{_SLURM}.directives.licenses", "`scontrol show licenses` lists them"),
    ("account", f"{_SLURM}.account", "`sacctmgr show associations user=$USER` lists yours"),
    ("qos", f"{_SLURM}.qos", "`sacctmgr show qos` lists them"),
    ("partition", f"{_SLURM}.partition", "`sinfo -s` lists them"),
    ("feature", f"{_SLURM}.constraint", "`sinfo -o '%f'` lists them"),
    ("gres", f"{_SLURM}.gpu_type", "`sinfo -o '%G'` lists the GPUs"),
    (
        "node configuration",
        _SLURM,
        "no node has what one replica requests (CPUs, memory, GPUs of this type), or there are too few nodes: "
        "`sinfo -o '%D %c %m %G %f'` lists them",
    ),
    ("option", f"{_SLURM}.directives", "`sbatch --help` lists them"),
)


def review(
    plans: Iterable[tuple[str, Plan]],
    home: Path,
    environment: Mapping[str, str],
    named_site: str | None,
    script_of: Callable[[Plan, Site | None], str],
) -> Review:
    """Slurm itself is asked last, if nothing else is wrong: not about another site that the user named. Raises
    CallError, SpecErrors for an invalid profile."""
    judged = list(plans)
    profile = locate(named_site or next((plan.slurm.site for _, plan in judged if plan.slurm.site), None), home)
    site = profile.read() if profile is not None else None
    found: list[SiteFinding] = []
    for prefix, plan in judged:
        for one in _findings(plan, site, environment):
            if one not in found:
                found.append(one._replace(message=f"{prefix}{one.message}"))
    about_home = home_finding(site, home, environment) if site is not None else None
    if about_home is not None:
        found.append(about_home)
    note = NO_PROFILE
    if site is not None:
        dated = f", as of {site.date}" if site.date else ""
        note = f"{site.title or site.name}{dated}: no rejection expected"
    is_warning = site is None
    if named_site is None and not any(one.severity == ERROR for one in found):
        answers = [_asked(prefix, plan, site, environment, script_of) for prefix, plan in judged]
        found += [one for one in answers if isinstance(one, SiteFinding)]
        said = list(dict.fromkeys(one for one in answers if isinstance(one, str)))
        note = "; ".join([note, *said])
        is_warning = is_warning or any(one != ACCEPTED for one in said)
    return Review(found, note, is_warning=is_warning, data={"site": site.name if site is not None else None})


def _findings(plan: Plan, site: Site | None, environment: Mapping[str, str]) -> Iterator[SiteFinding]:
    yield from directive_findings(plan, site)
    yield from idle_gpus(plan, site)
    if site is not None:
        yield from check(plan, site, environment)
    yield from wheelhouse_findings(plan.python, [*map(expand, plan.python.wheelhouse)], site, environment)


def _asked(
    prefix: str,
    plan: Plan,
    site: Site | None,
    environment: Mapping[str, str],
    script_of: Callable[[Plan, Site | None], str],
) -> SiteFinding | str | None:
    """A job that cannot be rendered, or the answer of `sbatch --test-only`: a finding or a note; None on a machine
    without sbatch."""
    try:
        script = script_of(plan, site)
        if shutil.which("sbatch", path=environment.get("PATH")) is None:
            return None
        now = SlurmEngine().test_submission(script, environment)
    except JobRejected as fault:
        place, hint = next(
            ((path, words) for key, path, words in _PLACES if re.search(key, str(fault), re.IGNORECASE)), (_SLURM, None)
        )
        return SiteFinding(ERROR, place, f"{prefix}sbatch refuses the job: {fault}", hint)
    except CallError as fault:
        return SiteFinding(ERROR, _SLURM, f"{prefix}{fault}")
    except EngineUnavailable as fault:
        return f"Slurm could not be asked: {fault}"
    return ACCEPTED if now is None else SiteFinding(ADVICE, _SLURM, f"{prefix}{now}")
