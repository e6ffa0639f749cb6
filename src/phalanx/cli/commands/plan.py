"""phalanx plan"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from phalanx import run_paths
from phalanx.cli.options import (
    assume_option,
    cluster_options,
    complete_backend,
    file_options,
    json_option,
    load,
    to_option,
)
from phalanx.cli.render.output import print_json, print_lines, print_notes, printable, table
from phalanx.errors import CallError, path_error
from phalanx.naming import is_launcher

if TYPE_CHECKING:
    from phalanx.backends.contract import Job
    from phalanx.plan import Plan, Replica
    from phalanx.spec import Spec
    from phalanx.submission.trial_jobs import TrialJobs


@click.command("plan")
@file_options
@click.option(
    "--on", "backend", metavar="BACKEND", help="Render the job for this backend.", shell_complete=complete_backend
)
@click.option("-o", "--output", "folder", metavar="DIR", help="Write the rendered job to this folder.")
@cluster_options
@assume_option
@to_option
@click.option("--replica", metavar="NAME", help="Show the full environment of one replica, such as worker-0.")
@json_option
def command(
    files: tuple[str, ...],
    params: tuple[str, ...],
    backend: str | None,
    folder: str | None,
    to: str | None,
    replica: str | None,
    as_json: bool,
    **cluster: str | None,
) -> None:
    """Show each replica's command, resources, rank and environment, without starting anything.

    With --on, prints the job script or manifests. Hosts and folders known only at run time appear in angle brackets,
    such as <master-0>. Values of variables that look like secrets are hidden.

    Of a `kind: build` file with --to, prints the Dockerfile or the definition file of Apptainer.
    """
    from phalanx.cli.render.plan_summary import all_notes, plan_of

    loaded = load(files, params, to)
    made = plan_of(loaded)
    if replica is not None:
        _find_replica(made, replica)
    if folder is not None and printable(folder) != folder:
        raise CallError(f"-o {folder!r}: the folder name contains unprintable characters")
    trial, jobs = made, None
    if loaded.search is not None and made is not None and backend == "slurm":
        jobs, made = _submitted(loaded, made, folder, cluster)
    job = _rendered(loaded, made, backend or ("local" if folder else None), cluster)
    if job is not None and folder is not None:
        write_job(job, Path(folder))
    if as_json:
        search = {} if trial is None else _search_json(loaded, trial, jobs)
        print_json(_as_json(loaded, made, job, folder) | search)
        return
    if job is not None and job.shown is not None and folder is None:
        click.echo(job.files[job.shown], nl=False)
        return
    recipe = _recipe(loaded)
    if recipe is not None and replica is None:
        click.echo(recipe[0], nl=False)
        print_notes(all_notes(loaded, made), err=True)
        click.echo(f"content: {recipe[1]}", err=True)
        return
    print_notes(all_notes(loaded, made))
    print_lines(_lines(loaded, made, replica))
    if job is not None and folder is not None:
        click.echo(f"job written to {printable(folder)}; start it with: {_start_line(job, folder)}")


def _recipe(loaded: Spec) -> tuple[str, str] | None:
    """The recipe of the image that a build makes, and the key of its content in this folder; None if it makes none."""
    from phalanx.spec import Kind

    if loaded.kind is not Kind.BUILD or loaded.build is None:
        return None
    from phalanx.submission.builds import recipe_here

    return recipe_here(loaded.build, Path.cwd())


def _submitted(loaded: Spec, made: Plan, folder: str | None, cluster: dict[str, str | None]) -> tuple[TrialJobs, Plan]:
    """How the trials of a group become jobs, and the plan of the job that is submitted. Raises CallError."""
    from phalanx.cli.earlier_runs import earlier_runs
    from phalanx.cli.render.backend_verdict import jobs_on_slurm

    jobs, submitted = jobs_on_slurm(loaded, made, cluster, earlier_runs(loaded, made))
    if jobs.is_packed and folder is not None:
        raise CallError("the job of packed runs cannot be submitted by hand: `phalanx run --on slurm` does it")
    return jobs, submitted


def _start_line(job: Job, folder: str) -> str:
    """The start command, with the folder name quoted for the shell."""
    return job.start.format(folder=quote(folder if not folder.startswith("-") else f"./{folder}"))


def _rendered(loaded: Spec, made: Plan | None, backend: str | None, options: dict[str, str | None]) -> Job | None:
    if backend is None:
        return None
    if made is None:
        raise CallError("a pipeline consists of several runs and cannot be rendered as one job: leave out --on and -o")
    from phalanx.backends import find
    from phalanx.backends.contract import LOCAL_BACKENDS
    from phalanx.cli.render.plan_summary import plan_of
    from phalanx.home.home import default_home
    from phalanx.submission.model import backend_of

    place = find(backend if backend in LOCAL_BACKENDS else backend_of(made.backend, backend))
    if not place.shares_files:  # job names share a namespace with those of other users: use a specific id
        made = plan_of(loaded, _id_of(made))
        assert made is not None
    job = place.render(made, place.target(default_home(), made, options=options))
    return job if job.completed is None else job.completed(_packed(Path.cwd()) if job.takes_code else None)


def _id_of(made: Plan) -> str:
    """An id derived from the plan, so that applying the same plan twice changes nothing."""
    import hashlib
    import json

    from phalanx.plan.document import document

    return f"plan-{hashlib.sha256(json.dumps([made.name, document(made)]).encode()).hexdigest()[:10]}"


def _packed(folder: Path) -> bytes:
    """The code of a folder, for a job that contains it."""
    from phalanx.submission.snapshots import pack

    target = BytesIO()
    pack(folder, target)
    return target.getvalue()


def _as_json(loaded: Spec, made: Plan | None, job: Job | None, folder: str | None) -> dict[str, Any]:
    from phalanx.cli.render.plan_summary import all_notes
    from phalanx.plan.document import PlanView

    answer: dict[str, Any] = {"ok": True}
    if made is not None:
        answer |= PlanView(made).as_json()
    answer["kind"] = str(loaded.kind)
    if loaded.pipeline is not None:
        from phalanx.scheduler.pipelines.report import edges

        answer["ops"] = [_op_json(op) for op in loaded.pipeline.ops]
        answer["edges"] = list(edges({op.name: op for op in loaded.pipeline.ops}))
    if (recipe := _recipe(loaded)) is not None:
        answer["recipe"] = {"text": recipe[0], "key": recipe[1]}
    if job is not None:
        answer["job"] = {"files": sorted(job.files), "folder": folder}
    answer["notes"] = [note.as_json() for note in all_notes(loaded, made)]
    return answer


def _search_json(loaded: Spec, trial: Plan, jobs: TrialJobs | None) -> dict[str, Any]:
    """What a group costs, and how its trials become jobs. Empty for other files."""
    if loaded.search is None:
        return {}
    from phalanx.cli.earlier_runs import earlier_runs
    from phalanx.cli.render.plan_summary import search_view
    from phalanx.cli.render.search_cost import cost_of, hours_of

    cost = cost_of(loaded.search)
    hours = hours_of(loaded.search, cost, trial, earlier_runs(loaded, trial))
    return {"search": {**search_view(loaded, jobs), "cost": cost, "hours": hours}}


def _op_json(op: Any) -> dict[str, Any]:
    from phalanx.cli.render.plan_summary import plan_of
    from phalanx.plan.document import PlanView

    made = plan_of(op.spec) if op.spec is not None else None
    return {
        "name": op.name,
        "template": dict(op.template),
        "dependencies": list(op.upstream),
        "trigger": op.trigger,
        "plan": PlanView(made).as_json() if made is not None else None,
    }


def write_job(job: Job, folder: Path) -> None:
    """Write the job's files, private to the user, without overwriting anything. Raises CallError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = [name for name in job.files if (folder / name).exists()]
        if taken:
            raise CallError(f"{folder} already contains a job ({taken[0]}): name another folder with -o")
        if job.carries_agent:
            from phalanx.backends.agent_zip import carry

            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                carry(folder / run_paths.JOB, Path(scratch))
        for name, text in job.files.items():
            target = folder / name
            target.parent.mkdir(mode=0o700, exist_ok=True)
            mode = 0o700 if name.endswith(".sh") else 0o600
            with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as fault:
        raise path_error(f"cannot write to {folder}", fault) from None


def _lines(loaded: Spec, made: Plan | None, replica: str | None) -> Iterator[str]:
    from phalanx.cli.render.op_graph import graph_lines
    from phalanx.cli.render.plan_summary import plan_of

    if loaded.pipeline is not None:
        yield from map(printable, graph_lines(loaded.pipeline.ops))
        yield ""
        for op in loaded.pipeline.ops:
            after = f", after {', '.join(op.upstream)}" if op.upstream else ""
            yield click.style(printable(f"op {op.name} ({next(iter(op.template.values()))}){after}"), bold=True)
            if op.spec is not None:
                inner = plan_of(op.spec)
                yield from (f"  {line}" for line in _plan_lines(inner)) if inner else ()
        return
    assert made is not None
    if loaded.search is not None:
        from phalanx.cli.earlier_runs import earlier_runs
        from phalanx.cli.render.search_cost import cost_lines

        yield click.style(f"group: {loaded.search.algorithm}", bold=True)
        yield from cost_lines(loaded, made, earlier_runs(loaded, made))
        yield ""
        yield "its first suggestion runs as:"
    yield from _one_replica(made, replica) if replica else _plan_lines(made)


def _plan_lines(made: Plan) -> Iterator[str]:
    from phalanx.cli.render.plan_summary import replicas_text, resources_text
    from phalanx.plan.document import PlanView

    view = PlanView(made)
    framework = f", {made.framework}" if made.framework else ""
    asked = f"{replicas_text(made.roles)}; {resources_text(made.totals)}"
    yield f"{made.kind}{printable(f'{framework} on {made.backend}')}: {asked}"
    yield f"command: {printable(made.command or 'none')}"
    if made.launch != "each":
        by_mpirun = made.launch == "mpirun"
        starter = made.replicas[-1 if by_mpirun else 0].name
        yield f"launch: {starter} starts all ranks {'with mpirun' if by_mpirun else 'through its command'}"
    yield ""
    yield from table(_rows(made))
    yield ""
    yield click.style("environment of every replica", bold=True)
    yield from _variables(view.variables(made.shared))
    for first in _first_of_each_role(made):
        yield click.style(f"environment of {first.name} only", bold=True)
        yield from _variables(view.variables({**first.defaults, **first.environment}))


def _find_replica(made: Plan | None, name: str) -> Replica:
    replicas = made.replicas if made is not None else ()
    found = next((replica for replica in replicas if replica.name == name), None)
    if found is None:
        if made is None:
            raise CallError(f"--replica {name}: a pipeline has no replicas; its runs do")
        raise CallError(f"no replica {name}: the roles are {', '.join(made.members)}, numbered from 0")
    return found


def _one_replica(made: Plan, name: str) -> Iterator[str]:
    from phalanx.plan.document import PlanView

    found = _find_replica(made, name)
    view = PlanView(made)
    yield from table(_rows(made, (found,)))
    yield from _variables(view.replica(found, view.variables(made.shared))["environment"])


def _variables(variables: dict[str, str]) -> Iterator[str]:
    for name in sorted(variables):
        yield f"  {name}={printable(variables[name])}"


def _first_of_each_role(made: Plan) -> list[Replica]:
    firsts: dict[str, Replica] = {}
    for replica in made.replicas:
        firsts.setdefault(replica.role, replica)
    return list(firsts.values())


def _rows(made: Plan, replicas: tuple[Replica, ...] | None = None) -> list[list[str]]:
    """One row per group of consecutive replicas with the same role and resources."""
    from phalanx.cli.render.plan_summary import amount_text, memory_text

    rows = [["REPLICA", "RANK", "CPU", "MEMORY", "GPU", "RUNS"]]
    groups: list[list[Replica]] = []
    for replica in replicas or made.replicas:
        first = groups[-1][0] if groups else None
        mine, theirs = ((one.role, one.settings, bool(one.argv)) if one else None for one in (replica, first))
        groups[-1].append(replica) if groups and (replica.local or mine == theirs) else groups.append([replica])
    for group in groups:
        first, final = group[0], group[-1]
        processes = sum(one.index == first.index for one in group)
        asked = first.resources
        rows.append(
            [
                first.name if first.index == final.index else f"{first.name} to {final.index}",
                str(first.rank) if first is final else f"{first.rank} to {final.rank}",
                amount_text(asked.cpu) if asked.cpu else "-",
                amount_text(asked.memory, memory_text) if asked.memory else "-",
                amount_text(asked.gpu) if asked.gpu else "-",
                _runs(first) + (f", {processes} processes" if processes > 1 else ""),
            ]
        )
    return rows


def _runs(replica: Replica) -> str:
    if not replica.argv:
        return "waits for the launcher"
    return "starts the ranks" if is_launcher(replica.name) else "command"
