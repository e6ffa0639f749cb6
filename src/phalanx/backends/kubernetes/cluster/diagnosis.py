"""`phalanx doctor --on kubernetes`: what a cluster offers, and how to fix what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from phalanx import plan
from phalanx.backends.contract import Diagnosis, FactTable
from phalanx.backends.kubernetes.cluster.api import Api, ApiFault, ApiUnreachable, connect, kind_of
from phalanx.backends.kubernetes.cluster.discovery import Need, Survey, survey
from phalanx.backends.kubernetes.render import native_jobs
from phalanx.backends.kubernetes.target import ClusterTarget, Settings
from phalanx.errors import CallError, SystemFault
from phalanx.plan.framework_checks import load

_GANGS = {"kueue": "Kueue", "volcano": "Volcano", "scheduler-plugins": "scheduler-plugins"}
_SHOWN = 40  # entries of a long list


_SMALLEST = b"version: 1\nkind: experiment\nrun: {cmd: 'true'}\n"


class DryRunResult(NamedTuple):
    """The cluster's response to a dry-run creation of a Job like that of a run."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()
    unsaid: str = ""  # a setting that a file must name here, such as one of several queues


def diagnose(settings: Settings, *, needs_operators: bool) -> Diagnosis:
    """Diagnose the cluster that these settings name. `needs_operators`: of Kubeflow. Raises CallError."""
    found, trial = _surveyed(settings)
    problems = [*_problems(found, needs_operators=needs_operators)]
    problems += [f"the cluster would reject the Job of a run: {trial.refusal}"] if trial.refusal else []
    notes = [*_notes(found), *(f"the cluster warns about the Job of a run: {text}" for text in trial.warnings)]
    notes += [f"every file must set this to run here: {trial.unsaid}"] if trial.unsaid else []
    return Diagnosis(problems, notes, _facts(found), list(_tables(found)), found.as_json())


def _surveyed(settings: Settings) -> tuple[Survey, DryRunResult]:
    """Raises CallError."""
    api = connect(settings, ask=False)
    try:
        found = survey(api)
        may_try = found.has_namespace is not False and not any(need.resource == "jobs" for need in found.missing)
        return found, _tried(api, ClusterTarget(settings, found.cluster)) if may_try else DryRunResult()
    except (ApiFault, ApiUnreachable) as fault:
        message = f"{api.server} (context `{api.context}`) did not answer to the end: {fault}"
        raise SystemFault(message, transient=fault.transient) from None
    finally:
        api.close()


def _tried(api: Api, target: ClusterTarget) -> DryRunResult:
    """Create a Job as a dry run. Raises ApiFault, ApiUnreachable."""
    made = plan.make(load([("doctor.yml", _SMALLEST)], {})[0], "doctor", "default")
    try:
        rendered = native_jobs.objects(made, target)
    except CallError as fault:
        return DryRunResult(unsaid=str(fault))
    job = next(one for one in rendered if one["kind"] == "Job")
    warned: list[str] = []
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        api.with_warnings(warned.append).request("POST", kind_of(job).path(api.namespace), job, query=query)
    except ApiFault as fault:
        # some webhooks do not take part in a rehearsal, which says nothing of the real thing
        is_rejected = not fault.transient and "dry run" not in fault.message
        return DryRunResult(fault.message if is_rejected else "", tuple(dict.fromkeys(warned)))
    return DryRunResult("", tuple(dict.fromkeys(warned)))


def _problems(found: Survey, *, needs_operators: bool) -> Iterator[str]:
    if found.has_namespace is False:
        yield (
            f"namespace `{found.namespace}` does not exist: run `kubectl create namespace {found.namespace}`, or name "
            f"another with --namespace"
        )
    if found.missing:
        yield (
            f"`{found.user}` may not {_listed_needs(found.missing)}: ask the administrator of the namespace "
            f"`{found.namespace}` for the Role in deploy/kubernetes/base"
        )
    if needs_operators and not _operators(found):
        yield "no Kubeflow operator is installed: install one, or use `backend: native`, which needs none"


def _listed_needs(needs: tuple[Need, ...]) -> str:
    """Format as: create, get and delete jobs.batch; list events"""
    verbs: dict[str, list[str]] = {}
    for need in needs:
        verbs.setdefault(f"{need.resource}{f'.{need.group}' if need.group else ''}", []).append(need.verb)
    joined: dict[str, list[str]] = {}
    for resource, said in verbs.items():
        joined.setdefault(_and(said), []).append(resource)
    return "; ".join(f"{said} {_and(resources)}" for said, resources in joined.items())


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _notes(found: Survey) -> Iterator[str]:
    cluster = found.cluster
    if not cluster.has_indexed_jobs:
        yield "Indexed Jobs need Kubernetes 1.24: here every replica gets a separate Job"
    if not _operators(found):
        yield "no Kubeflow operator is installed: files with `backend: kubeflow` cannot run here; native ones can"
    elif "MXJob" not in cluster.kinds:
        yield "there is no MXJob (removed after operator 1.8): use `backend: native` for MXNet"
    if cluster.gang == "kueue" and not cluster.queues and not cluster.queues_all:
        yield (
            f"Kueue is installed, but no LocalQueue is visible in `{found.namespace}`: runs are not queued unless "
            f"`environment.kubernetes.queue` names one"
        )
    if cluster.gang is None:
        yield "no gang scheduler is installed: replicas start one by one, and the first wait for the others"
    if found.nodes == 0:
        yield "there are no nodes now: pods stay pending until nodes are added"
    elif found.nodes is not None and not found.devices:
        yield "no node offers GPUs: if there should be some, install the vendor's device plugin"
    for row in found.quotas:
        if row["is_used_up"]:
            yield f"the quota `{row['quota']}` is used up: {row['used']} of {row['hard']} {row['resource']}"
    if found.pod_security is None and found.has_namespace:
        yield "the namespace enforces no pod security: the pods of runs comply with `restricted` anyway"
    if found.unhelpful:
        yield f"this report is incomplete: `{found.user}` may not {_listed_needs(found.unhelpful)}; runs do not need it"


def _operators(found: Survey) -> dict[str, tuple[str, ...]]:
    return {
        kind: served
        for kind, served in found.cluster.kinds.items()
        if served[0].partition("/")[0].endswith("kubeflow.org")
    }


def _facts(found: Survey) -> dict[str, str]:
    cluster = found.cluster
    return {
        "cluster": f"{found.server}, Kubernetes {found.version}",
        "context": f"{found.context}, as {found.user}",
        "namespace": found.namespace + (f" (pod security: {found.pod_security})" if found.pod_security else ""),
        "operators": ", ".join(f"{kind} ({', '.join(served)})" for kind, served in _operators(found).items()) or "none",
        "gang": _GANGS.get(cluster.gang or "", "none"),
        "queues": ", ".join(cluster.queues[:_SHOWN]),
        "runtimes": ", ".join(cluster.runtimes[:_SHOWN]),
        "nodes": "unknown: not permitted to list them" if found.nodes is None else str(found.nodes),
    }


def _tables(found: Survey) -> Iterator[FactTable]:
    if found.devices:
        rows = [
            [row["device"], row["model"] or "-", *map(str, (row["nodes"], row["per_node"], row["total"]))]
            for row in found.devices
        ]
        yield FactTable(["DEVICE", "MODEL", "NODES", "MAX PER NODE", "TOTAL"], rows)
    if found.quotas:
        rows = [[row["quota"], row["resource"], row["used"], row["hard"]] for row in found.quotas]
        yield FactTable(["QUOTA", "RESOURCE", "USED", "LIMIT"], rows)
    if found.limits:
        rows = [[row["range"], str(row["of"]), row["what"], row["resource"], row["value"]] for row in found.limits]
        yield FactTable(["LIMIT RANGE", "APPLIES TO", "LIMIT", "RESOURCE", "VALUE"], rows)
