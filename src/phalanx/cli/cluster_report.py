"""What `phalanx doctor --on kubernetes` says: a cluster in plain words, and what to do about what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.render.output import printable, table
from phalanx.errors import CallError, SystemFault

if TYPE_CHECKING:
    from phalanx.backends.kubernetes.cluster.api import Api
    from phalanx.backends.kubernetes.cluster.discovery import Need, Survey
    from phalanx.backends.kubernetes.target import ClusterTarget

ON = ("kubernetes", "kubeflow")
_GANGS = {"kueue": "Kueue", "volcano": "Volcano", "scheduler-plugins": "scheduler-plugins"}
_SHOWN = 40  # of long lists


_SMALLEST = b"version: 1\nkind: experiment\nrun: {cmd: 'true'}\n"


class DryRunResult(NamedTuple):
    """What the cluster says of a Job as a run would have, which it goes through the motions of creating."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()
    unsaid: str = ""  # what a file must say here, as which of several queues


def surveyed(backend: str, options: dict[str, str | None]) -> tuple[Survey, DryRunResult]:
    """The cluster that the options, the home's kubernetes.yml or kubectl's own settings name. Raises CallError."""
    if backend not in ON:
        raise CallError(
            f"--on {backend}: doctor looks at {' or '.join(ON)}; `phalanx site init` looks at a Slurm cluster"
        )
    from phalanx.backends.kubernetes.cluster.api import ApiFault, ApiUnreachable, connect
    from phalanx.backends.kubernetes.cluster.discovery import survey
    from phalanx.backends.kubernetes.cluster.settings import find, with_options
    from phalanx.backends.kubernetes.target import ClusterTarget
    from phalanx.home.home import default_home

    settings = with_options(find(default_home()), **options)
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


def _tried(api: Api, place: ClusterTarget) -> DryRunResult:
    """Nothing is created. Raises ApiFault, Unreachable."""
    from phalanx import plan, spec
    from phalanx.backends.kubernetes.backend import KubernetesJobs
    from phalanx.backends.kubernetes.cluster.api import ApiFault, kind_of
    from phalanx.backends.kubernetes.engine.staged_objects import SKELETON

    made = plan.make(spec.load([("doctor.yml", _SMALLEST)]), "doctor", "default")
    try:
        rendered = json.loads(KubernetesJobs().render(made, place).files[SKELETON])
    except CallError as fault:
        return DryRunResult(unsaid=str(fault))
    job = next(one for one in rendered if one["kind"] == "Job")
    warned: list[str] = []
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        api.heeding(warned.append).request("POST", kind_of(job).path(api.namespace), job, query=query)
    except ApiFault as fault:
        # some webhooks do not take part in a rehearsal, which says nothing of the real thing
        is_told = not fault.transient and "dry run" not in fault.message
        return DryRunResult(fault.message if is_told else "", tuple(dict.fromkeys(warned)))
    return DryRunResult("", tuple(dict.fromkeys(warned)))


def judged(found: Survey, trial: DryRunResult, backend: str) -> tuple[list[str], list[str]]:
    """(problems, notes): what keeps runs from running, and what is worth knowing."""
    problems = list(_problems(found, backend))
    problems += [f"the cluster would refuse the Job of a run: {trial.refusal}"] if trial.refusal else []
    notes = [*_notes(found), *(f"of the Job of a run the cluster warns: {text}" for text in trial.warnings)]
    notes += [f"files that say nothing of it do not run here: {trial.unsaid}"] if trial.unsaid else []
    return problems, notes


def _problems(found: Survey, backend: str) -> Iterator[str]:
    if found.has_namespace is False:
        yield (
            f"there is no namespace `{found.namespace}`: kubectl create namespace {found.namespace}, or name another "
            f"with --namespace"
        )
    if found.missing:
        yield (
            f"`{found.user}` may not {_listed_needs(found.missing)}: ask who runs the namespace `{found.namespace}` "
            f"for the Role in deploy/kubernetes/base"
        )
    if backend == "kubeflow" and not _operators(found):
        yield "there is no operator of Kubeflow: install one, or use `backend: native`, which needs none"


def _listed_needs(needs: tuple[Need, ...]) -> str:
    """create, get and delete jobs.batch; list events"""
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
        yield "Indexed Jobs begin with Kubernetes 1.24: every replica gets a Job of its own"
    if not _operators(found):
        yield "there is no operator of Kubeflow: files with `backend: kubeflow` do not run here, native ones do"
    elif "MXJob" not in cluster.kinds:
        yield "there is no MXJob, which operators after 1.8 dropped: `backend: native` runs MXNet"
    if cluster.gang == "kueue" and not cluster.queues and not cluster.queues_all:
        yield (
            f"Kueue is there, but no LocalQueue that we see in `{found.namespace}`: runs do not wait in a queue unless "
            f"`environment.kubernetes.queue` names one"
        )
    if cluster.gang is None:
        yield "nobody starts all replicas together or none: those that come first wait for the others"
    if found.nodes == 0:
        yield "there are no nodes now: pods wait until some come"
    elif found.nodes is not None and not found.devices:
        yield "no node offers GPUs: is the device plugin of their maker installed?"
    for row in found.quotas:
        if row["is_used_up"]:
            yield f"the quota `{row['quota']}` is used up: {row['used']} of {row['hard']} {row['resource']}"
    if found.pod_security is None and found.has_namespace:
        yield "the namespace enforces no pod security: our pods keep to `restricted` all the same"
    if found.unhelpful:
        yield f"not seen, as we may not {_listed_needs(found.unhelpful)}; runs do without"


def _operators(found: Survey) -> dict[str, tuple[str, ...]]:
    return {
        kind: served
        for kind, served in found.cluster.kinds.items()
        if served[0].partition("/")[0].endswith("kubeflow.org")
    }


def described(found: Survey) -> Iterator[str]:
    """A cluster for people."""
    cluster = found.cluster
    facts = {
        "cluster": f"{found.server}, Kubernetes {found.version}",
        "context": f"{found.context}, as {found.user}",
        "namespace": found.namespace + (f" (pod security: {found.pod_security})" if found.pod_security else ""),
        "operators": ", ".join(f"{kind} ({', '.join(served)})" for kind, served in _operators(found).items()) or "none",
        "gang": _GANGS.get(cluster.gang or "", "none"),
        "queues": ", ".join(cluster.queues[:_SHOWN]),
        "runtimes": ", ".join(cluster.runtimes[:_SHOWN]),
        "nodes": "not shown to us" if found.nodes is None else str(found.nodes),
    }
    for name, text in facts.items():
        if text:
            yield f"{name:<11} {printable(text)}"
    if found.devices:
        rows = [
            [row["device"], row["model"] or "-", *map(str, (row["nodes"], row["per_node"], row["total"]))]
            for row in found.devices
        ]
        yield from _table(["DEVICE", "MODEL", "NODES", "AT MOST ON ONE", "TOGETHER"], rows)
    if found.quotas:
        rows = [[row["quota"], row["resource"], row["used"], row["hard"]] for row in found.quotas]
        yield from _table(["QUOTA", "RESOURCE", "USED", "OF"], rows)
    if found.limits:
        rows = [[row["range"], str(row["of"]), row["what"], row["resource"], row["value"]] for row in found.limits]
        yield from _table(["LIMIT", "OF A", "WHICH", "RESOURCE", "VALUE"], rows)
    yield ""


def _table(head: list[str], rows: list[list[Any]]) -> Iterator[str]:
    yield ""
    yield from table([head, *([printable(str(cell)) for cell in row] for row in rows[:_SHOWN])])
    if len(rows) > _SHOWN:
        yield f"and {len(rows) - _SHOWN} more; --json has all"


def print_report(found: Survey, problems: list[str], notes: list[str]) -> None:
    for line in described(found):
        click.echo(line)
    for note in notes:
        click.echo(f"{click.style('note', fg='yellow')}: {printable(note)}")
    for problem in problems:
        click.echo(f"{click.style('problem', fg='red')}: {printable(problem)}")
    click.echo("runs can run here" if not problems else f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
