"""phalanx advise"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable, report_errors, table
from phalanx.cli.render.tables import status_text
from phalanx.errors import CallError, path_error

if TYPE_CHECKING:
    from phalanx.client.config import ServerChoice
    from phalanx.store import Run

if TYPE_CHECKING:
    from phalanx.home.home import Home
    from phalanx.insight.advice import Advice, RoleAdvice, Sizing
    from phalanx.spec import Spec
    from phalanx.store import Run

MARK = "# Advised by Phalanx"  # the first line of a copy: only such a file is ever written over
_UNSAFE = re.compile(r"[^-.\w]+")


class AdvisedRun(NamedTuple):
    """A run, what is advised for it, and its file with that; None when the file stays as it is."""

    run: Run
    advice: Advice
    document: dict[str, Any] | None


@click.command("advise")
@click.argument("runs", nargs=-1, metavar="RUN…")
@click.option("--apply", "is_applied", is_flag=True, help="Write a copy of the run's file with the advice in it.")
@click.option("-o", "--output", metavar="FILE", help="Where to write it; NAME.advised.yml unless said. Means --apply.")
@click.option("--force", is_flag=True, help="Write over a copy that was advised before.")
@json_option
def command(runs: tuple[str, ...], is_applied: bool, output: str | None, force: bool, as_json: bool) -> None:
    """Say what runs asked for, what they used and held idle, and what would have done.

    For each kind of replica: cores (on average, and for all but a twentieth of the time), memory (the most), GPUs,
    time. What is advised has head-room: a fifth more memory than the most that was used, a quarter more time. Below
    stands the `environment` to write into the file. For a run that failed nothing less is advised, and whatever speaks
    against the advice (a run that was short, or is not over) is said with it.

    RUN is an id, the beginning of one, or a name. The file that the run was started from is never written.
    """
    with report_errors(as_json=as_json):
        from phalanx.cli.workspace.base import require_local_home, selected_server

        if not runs:
            raise CallError("name a run: `phalanx ps` lists them")
        server = selected_server()
        if server is not None and not (is_applied or output is not None):
            advise_there(server, runs, as_json=as_json)
            return
        require_local_home("a copy of the file is written")
        _advise_here(runs, is_applied, output, force=force, as_json=as_json)


def _advise_here(runs: tuple[str, ...], is_applied: bool, output: str | None, *, force: bool, as_json: bool) -> None:
    from phalanx.cli.workspace.open_home import open_home
    from phalanx.scheduler.runner import schedule_once

    home, store = open_home()
    with store:
        schedule_once(home, store)
        chosen = list({run.id: run for run in map(store.find, runs)}.values())
    found = [advised(home, run) for run in chosen]
    targets: dict[str, Path] = {}
    if is_applied or output is not None:
        targets = _targets(found, output, force=force)
    for run, _, document in found:
        if document is not None and run.id in targets:
            write_copy(targets[run.id], document, f"{MARK}, from run {run.id}", force=force)
    if as_json:
        print_json({"ok": True, "runs": [as_data(one, targets.get(one.run.id)) for one in found]})
        return
    for number, one in enumerate(found):
        if number:
            click.echo("")
        for line in lines_of(one):
            click.echo(line)
        if one.run.id in targets:
            click.echo(f"\nwritten to {printable(str(targets[one.run.id]))}")
    if len(found) > 1:
        click.echo(f"\nall together held idle: {_idle_words(_idle([one.advice for one in found]))}")


def advised(home: Home, run: Run) -> AdvisedRun:
    """Raises CallError for a run that nobody measured, SpecErrors should its file not bear the advice."""
    from phalanx.insight.advice import advise
    from phalanx.insight.resource_edits import changed
    from phalanx.insight.run_usage import read_usage
    from phalanx.spec.yaml_writer import modern_document
    from phalanx.submission.clone import spec_of
    from phalanx.tracking.external_folder import BACKEND as OUTSIDE

    if run.backend == OUTSIDE:
        raise CallError(f"run {run.id} was tracked, not started, by Phalanx: nobody measured what it used")
    try:
        seen = read_usage(home.run(run.id).path, status=run.status, backend=run.backend, attempt=run.attempt)
    except (OSError, ValueError, KeyError, TypeError):
        raise CallError(f"the folder of run {run.id} has no plan that can be read") from None
    advice = advise(seen)
    if not advice.changes and advice.timeout is None:
        return AdvisedRun(run, advice, None)
    document = changed(modern_document(spec_of(home, run)), seen.plan.get("roles", {}), advice.changes, advice.timeout)
    return AdvisedRun(run, advice, modern_document(loads(document, f"the file of run {run.id}, as advised")))


def loads(document: Mapping[str, Any], name: str) -> Spec:
    """A document read as the file that it will be: what is printed or written can be run. Raises SpecErrors."""
    from phalanx import plan, spec
    from phalanx.spec.yaml_writer import to_yaml

    return spec.load([(name, to_yaml(document).encode())], inspect=plan.inspect)


# for people ----------------------------------------------------------------------------------------------------------


def lines_of(one: AdvisedRun) -> Iterator[str]:
    from phalanx.cli.render.tables import status_text
    from phalanx.insight.amounts import time_words

    run, advice, document = one
    name = f" ({printable(run.name)})" if run.name else ""
    took = f", took {time_words(advice.time.used)}" if advice.time.used is not None else ""
    yield f"{click.style(f'run {run.id}', bold=True)}{name}: {status_text(run.status)}{took}"
    for caveat in advice.caveats:
        yield f"{click.style('careful', fg='yellow')}: {printable(caveat)}"
    yield ""
    yield from table([["REPLICAS", "", "ASKED", "USED", "HELD IDLE", "ADVICE"], *_rows(advice)])
    remarks = [remark for role in advice.roles for remark in role.remarks]
    if remarks:
        yield ""
        yield from (f"* {printable(remark)}" for remark in remarks)
    yield ""
    if document is None:
        yield "nothing to change" if advice.time.used is not None else "nothing to advise"
        return
    yield from environment_lines(document)


def environment_lines(document: Mapping[str, Any]) -> list[str]:
    """The section to write into the file."""
    from phalanx.spec.yaml_writer import to_yaml

    if not document.get("environment"):
        return ["environment: {}"]
    return to_yaml({"environment": document["environment"]}).rstrip("\n").split("\n")


def _rows(advice: Advice) -> Iterator[list[str]]:
    from phalanx.insight.amounts import time_words

    for role in advice.roles:
        yield from _role_rows(role)
    time = advice.time
    if time.used is not None:
        yield [
            "the run",
            "time",
            "-" if time.asked is None else time_words(time.asked),
            time_words(time.used),
            "",
            _advice_words(time, time_words),
        ]


def _role_rows(role: RoleAdvice) -> Iterator[list[str]]:
    from phalanx.insight.amounts import hours_words, memory_words

    def idle(sizing: Sizing, unit: str) -> str:
        return "-" if sizing.idle_hours is None else hours_words(sizing.idle_hours, unit)

    cpu, memory, gpu = role.cpu, role.memory, role.gpu
    mean = 0.0 if role.cores_mean is None else role.cores_mean
    yield [
        role.group.names,
        "cores",
        "-" if cpu.asked is None else f"{cpu.asked:g}",
        "-" if cpu.used is None else f"mean {mean:.1f}, p95 {cpu.used:.1f}",
        idle(cpu, "core"),
        _advice_words(cpu, lambda value: f"{value:g}"),
    ]
    yield [
        "",
        "memory",
        "-" if memory.asked is None else memory_words(memory.asked),
        "-" if memory.used is None else f"peak {memory_words(memory.used)}",
        idle(memory, "GiB"),
        _advice_words(memory, memory_words),
    ]
    if gpu.asked:
        use = role.gpu_use
        used = "-" if use is None else f"mean {use.mean_percent:.0f} %, peak {memory_words(use.memory_mib)}"
        yield ["", "GPUs", f"{gpu.asked:g}", used, idle(gpu, "GPU"), _advice_words(gpu, lambda value: f"{value:g}")]


def _advice_words(sizing: Sizing, words: Any) -> str:
    return "keep" if sizing.advised is None and sizing.asked is not None else _or_dash(sizing.advised, words)


def _or_dash(value: float | None, words: Any) -> str:
    return "-" if value is None else str(words(value))


def _idle(advices: Sequence[Advice]) -> dict[str, float]:
    """Hours of cores, GiB and GPUs."""
    total = {"core": 0.0, "GiB": 0.0, "GPU": 0.0}
    for role in (role for advice in advices for role in advice.roles):
        for unit, sizing in zip(total, (role.cpu, role.memory, role.gpu), strict=True):
            total[unit] += sizing.idle_hours or 0.0
    return total


def _idle_words(idle: Mapping[str, float]) -> str:
    from phalanx.insight.amounts import hours_words

    told = [words for unit, hours in idle.items() if (words := hours_words(hours, unit)) != "-"]
    return ", ".join(told) or "nothing"


# for programs --------------------------------------------------------------------------------------------------------


def as_data(one: AdvisedRun, target: Path | None) -> dict[str, Any]:
    run, advice, document = one
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "caveats": list(advice.caveats),
        "roles": [_role_data(role) for role in advice.roles],
        "time_s": advice.time._asdict(),
        "idle_hours": _idle([advice]),
        "environment": None if document is None else document.get("environment", {}),
        "written": None if target is None else str(target),
    }


def _role_data(role: RoleAdvice) -> dict[str, Any]:
    return {
        "role": role.group.role,
        "indices": list(role.group.indices),
        "cores": {**role.cpu._asdict(), "mean": role.cores_mean},
        "memory_mib": role.memory._asdict(),
        "gpus": {**role.gpu._asdict(), "use": None if role.gpu_use is None else role.gpu_use._asdict()},
        "seconds": role.seconds,
        "remarks": list(role.remarks),
    }


# the copy ------------------------------------------------------------------------------------------------------------


def _targets(found: Sequence[AdvisedRun], output: str | None, *, force: bool) -> dict[str, Path]:
    """Where the copies go, by run. All faults are told before anything is written. Raises CallError."""
    changed = [one for one in found if one.document is not None]
    if output is not None and len(changed) > 1:
        raise CallError("-o names one file, and there are several runs: --apply gives each its own")
    targets = {
        one.run.id: Path(output) if output is not None else copy_name(one.run.name or one.run.id) for one in changed
    }
    faults = [fault for path in targets.values() if (fault := copy_fault(path, force=force))]
    if len(set(targets.values())) < len(targets):
        faults.append("two of these runs have the same name: advise them one by one, with -o")
    if faults:
        raise CallError("; ".join(faults))
    return targets


def copy_name(name: str) -> Path:
    return Path(f"{_UNSAFE.sub('-', name).lstrip('.') or 'run'}.advised.yml")


def copy_fault(path: Path, *, force: bool) -> str | None:
    """Why a copy may not be written there: what we did not write is never written over, whoever wishes it."""
    try:
        with path.open("rb") as stream:
            is_ours = stream.read(len(MARK)) == MARK.encode()
    except FileNotFoundError:
        return None if path.parent.is_dir() else f"{path}: there is no folder {path.parent}"
    except (OSError, ValueError) as fault:
        return f"{path}: {(getattr(fault, 'strerror', None) or str(fault)).lower()}"
    if not is_ours:
        return f"{path} is there, and was not advised by us: it stays as it is; -o names another file"
    return None if force else f"{path} is there already: --force writes over it, -o names another file"


def write_copy(path: Path, document: Mapping[str, Any], title: str, *, force: bool) -> None:
    """There completely or not at all. Raises CallError."""
    from phalanx.spec.yaml_writer import to_yaml

    fault = copy_fault(path, force=force)
    if fault:
        raise CallError(fault)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(f"{title}\n{to_yaml(document)}", encoding="utf-8")
        draft.replace(path)
    except OSError as problem:
        draft.unlink(missing_ok=True)
        raise path_error(f"cannot write {path}", problem) from None


def advise_there(server: ServerChoice, names: Sequence[str], *, as_json: bool) -> None:
    from phalanx.cli.workspace.base import print_server
    from phalanx.client import Client

    if not as_json:
        print_server(server.url)
    with Client(server.url, server.token) as client:
        runs = list({run.id: run for run in map(client.run, names)}.values())
        found = [(run, client.use(run)) for run in runs]
    if as_json:
        about = [{"id": run.id, "name": run.name, "status": run.status, **use} for run, use in found]
        print_json({"ok": True, "runs": about})
        return
    for number, (run, use) in enumerate(found):
        for line in ([""] if number else []) + list(_lines(run, use)):
            click.echo(line)


def _lines(run: Run, use: dict[str, Any]) -> Iterator[str]:
    name = f" ({printable(run.name)})" if run.name else ""
    yield f"{click.style(f'run {run.id}', bold=True)}{name}: {status_text(run.status)}"
    yield ""
    rows = [["REPLICAS", "", "ASKED", "MEAN", "P95", "PEAK", "ADVICE"]]
    for role in use["roles"]:
        for place, row in enumerate(role["resources"]):
            cells = [_cell(row, name) for name in ("requested", "mean", "p95", "peak", "advice")]
            rows.append(["" if place else printable(str(role["names"])), printable(str(row["resource"])), *cells])
    yield from table(rows)
    if use["sentences"]:
        yield ""
        yield from (f"* {printable(str(sentence))}" for sentence in use["sentences"])


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, int | float):
        return "-"
    unit = "%" if row["unit"] == "%" else f" {row['unit']}"
    return f"{value:.0f}{unit}" if value >= 100 else f"{value:.3g}{unit}"
