"""What `phalanx doctor --on kubernetes` says: a cluster in plain words, and what to do about what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.output import printable, table
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.backends.kubernetes.discovering import Need, Survey

ON = ("kubernetes", "kubeflow")
_GANGS = {"kueue": "Kueue", "volcano": "Volcano", "scheduler-plugins": "scheduler-plugins"}
_SHOWN = 40  # of long lists


def surveyed(backend: str, options: dict[str, str | None]) -> Survey:
    """The cluster that the options, the home's kubernetes.yml or kubectl's own settings name. Raises CallError."""
    if backend not in ON:
        raise CallError(
            f"--on {backend}: doctor looks at {' or '.join(ON)}; `phalanx site init` looks at a Slurm cluster"
        )
    from phalanx.backends.kubernetes.api import ApiFault, Unreachable, connect
    from phalanx.backends.kubernetes.discovering import survey
    from phalanx.backends.kubernetes.settings import find, with_options
    from phalanx.scheduler.home import default_home

    api = connect(with_options(find(default_home()), **options), ask=False)
    try:
        return survey(api)
    except (ApiFault, Unreachable) as fault:
        raise CallError(f"{api.server} (context `{api.context}`) did not answer to the end: {fault}") from None
    finally:
        api.close()


def judged(found: Survey, backend: str) -> tuple[list[str], list[str]]:
    """(problems, notes): what keeps runs from running, and what is worth knowing."""
    problems = list(_problems(found, backend))
    return problems, list(_notes(found))


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
    if cluster.gang == "kueue" and not cluster.queues:
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


def say(found: Survey, problems: list[str], notes: list[str]) -> None:
    for line in described(found):
        click.echo(line)
    for note in notes:
        click.echo(f"{click.style('note', fg='yellow')}: {printable(note)}")
    for problem in problems:
        click.echo(f"{click.style('problem', fg='red')}: {printable(problem)}")
    click.echo("runs can run here" if not problems else f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
