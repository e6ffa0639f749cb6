"""Probes the current cluster: runs each Slurm command once and builds a Site from the output."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from phalanx.errors import CallError, SpecErrors, SystemFault
from phalanx.sites import slurm_output
from phalanx.sites.model import GpuKind, Site, is_slice
from phalanx.sites.profile_search import shipped

PATIENCE_S = 60.0


class CommandOutput(NamedTuple):
    """The output of a command. `why`: why there is none; empty on success."""

    text: str = ""
    why: str = ""
    is_absent: bool = False  # there is no such command


Ask = Callable[[Sequence[str]], CommandOutput]


class ProbeResult(NamedTuple):
    """A site, and remarks for the user about how it was found."""

    site: Site
    remarks: tuple[str, ...]
    comments: Mapping[str, str]


def ask(command: Sequence[str]) -> CommandOutput:
    """The output of a command, in the C locale and without the user's own output formats."""
    if shutil.which(command[0]) is None:
        return CommandOutput(why=f"there is no `{command[0]}` on this machine", is_absent=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SINFO_", "SACCTMGR_"))}
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**kept, "LC_ALL": "C"},
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CommandOutput(why=f"`{command[0]}` did not respond within {PATIENCE_S:g} s")
    except OSError as fault:
        return CommandOutput(why=f"`{command[0]}` cannot be started: {(fault.strerror or str(fault)).lower()}")
    text, said = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    if done.returncode:
        lines = [line.strip() for line in (said + "\n" + text).splitlines() if line.strip()]
        worst = next((line for line in lines if "fatal" in line), lines[0] if lines else f"exit code {done.returncode}")
        return CommandOutput(why=f"`{command[0]}` failed: {worst[:300]}")
    return CommandOutput(text)


def probe(user: str, environ: Mapping[str, str], asked: Ask = ask, name: str | None = None) -> ProbeResult:
    """The site of this cluster. Raises CallError where there is none, SystemFault when it does not answer."""
    rows = asked(["sinfo", "-h", "-N", "-o", slurm_output.NODES_FORMAT])
    if rows.is_absent:
        others = ", ".join(shipped())
        where = "run this on a login node of the cluster, or use the profile of another site"
        raise CallError(f"{rows.why}: {where} (there are {others})")
    if rows.why:
        raise SystemFault(_no_answer(rows.why), transient=True)
    kinds = slurm_output.nodes(rows.text)
    remarks: list[str] = [] if kinds else ["`sinfo` lists no node in a known format"]
    config = slurm_output.configuration(_text(asked, ["scontrol", "show", "config"], remarks))
    parts = slurm_output.partitions_in_full(_text(asked, ["scontrol", "show", "partition", "-o"], remarks))
    if not parts:
        parts = slurm_output.partitions(_text(asked, ["sinfo", "-h", "-o", slurm_output.PARTITIONS_FORMAT], remarks))
    cluster = _word(config.get("ClusterName", ""))
    base = _published(cluster, remarks)
    site = base._replace(
        name=name or cluster or "here",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        source="phalanx site init" + (f", and the profile {base.name} of {base.date}" if base.name else ""),
        nodes=kinds,
        partitions=parts,
        gpus=_gpu_kinds(base, Site("", nodes=kinds).gpu_types),
        default_memory_mib=_default_memory(config) or base.default_memory_mib,
    )
    site = _with_accounts(site, asked, user, config, remarks)
    comments = _comments(site, config, environ, asked, remarks)
    return ProbeResult(site, tuple(remarks), comments)


def _no_answer(why: str) -> str:
    known = ", ".join(shipped())
    return f"{why}; check that the cluster is up and that this is a login node, or use another profile ({known})"


def _text(asked: Ask, command: list[str], remarks: list[str]) -> str:
    answer = asked(command)
    if answer.why:
        remarks.append(answer.why)
    return answer.text


def _word(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in text)[:100]


def _published(cluster: str, remarks: list[str]) -> Site:
    """The shipped profile of a cluster of that name: its policy, which no command reports."""
    found = shipped().get(cluster.lower())
    if found is None:
        return Site("")
    try:
        base = found.read()
    except SpecErrors:
        return Site("")
    remarks.append(f"the policy of {base.title or base.name} comes from the profile of {base.date}")
    return base


def _gpu_kinds(base: Site, named: tuple[str, ...]) -> tuple[GpuKind, ...]:
    known = [kind for kind in base.gpus if not named or {kind.name, *kind.aliases} & set(named)]
    covered = {name for kind in known for name in (kind.name, *kind.aliases)}
    return (*known, *(GpuKind(name, is_mig=is_slice(name)) for name in named if name not in covered))


def _default_memory(config: Mapping[str, str]) -> float | None:
    found = slurm_output.whole(config.get("DefMemPerCPU", ""))
    return float(found) if found else None


def _with_accounts(site: Site, asked: Ask, user: str, config: Mapping[str, str], remarks: list[str]) -> Site:
    if "slurmdbd" not in config.get("AccountingStorageType", "slurmdbd"):
        remarks.append("the cluster has no accounts, or does not report them")
        return site
    show = ["sacctmgr", "-nP", "show"]
    mine = slurm_output.associations(
        _text(asked, [*show, "assoc", f"user={user}", f"format={slurm_output.ASSOCIATIONS_FORMAT}"], remarks)
    )
    usable = {name for one in mine for name in one.qos}
    listed = slurm_output.qualities(_text(asked, [*show, "qos", f"format={slurm_output.QOS_FORMAT}"], remarks))
    jobs = [one.max_jobs for one in mine if one.max_jobs is not None]
    submitted = [one.max_submitted for one in mine if one.max_submitted is not None]
    return site._replace(
        accounts=tuple(one.account for one in mine),
        qos=tuple(one for one in listed if one.name in usable),
        max_jobs=max(jobs, default=site.max_jobs),
        max_submitted=max(submitted, default=site.max_submitted),
    )


def _comments(
    site: Site, config: Mapping[str, str], environ: Mapping[str, str], asked: Ask, remarks: list[str]
) -> dict[str, str]:
    """Comments on what the user may want to add: facts that no command reports."""
    version = config.get("SLURM_VERSION")
    found = f"Slurm {version}" if version else "Slurm"
    comments = {
        "": f"The profile of this cluster ({found}), written by `phalanx site init`. Correct and add facts\n"
        "as needed; docs/clusters/sites.md lists all fields."
    }
    pythons = _modules(environ, asked)
    if pythons is not None:
        remarks.append("the cluster has modules" + (f"; Python: {', '.join(pythons[:8])}" if pythons else ""))
    missing = {
        "internet": ("internet: false", "whether nodes have internet access"),
        "scratch": ("scratch: SLURM_TMPDIR", "the variable that holds the path of node-local storage"),
        "interface": ("interface: ib0", "the network interface common to all nodes"),
        "wheelhouse": ("wheelhouse: [/opt/wheels]", "folders of wheels for this site"),
    }
    lines = [f"{line}  # {why}" for key, (line, why) in missing.items() if getattr(site, key) is None]
    if pythons and not site.modules:
        lines.append(f"modules: [{pythons[-1]}]  # load these to get Python")
    if lines:
        comments["more"] = "Not reported by any command:\n" + "\n".join(lines)
    return comments


def _modules(environ: Mapping[str, str], asked: Ask) -> tuple[str, ...] | None:
    """The available Python modules; None without a module system."""
    if not any(environ.get(name) for name in ("LMOD_CMD", "MODULESHOME", "MODULEPATH")):
        return None
    command = environ.get("LMOD_CMD")
    if not command:
        return ()
    return slurm_output.modules(asked(["sh", "-c", 'exec "$1" bash -t avail python 2>&1', "-", command]).text)
