"""phalanx advise"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.atomic_files import write_atomic
from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.render.tables import status_text
from phalanx.cli.workspace.base import print_server, require_local_home, selected_server
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError, path_error
from phalanx.insight.amounts import hours_words, memory_words, time_words

if TYPE_CHECKING:
    from phalanx.client.config import ServerChoice
    from phalanx.store import Run

MARK = "# Advised by Phalanx"  # first line of a copy; files without it are never overwritten
_UNSAFE = re.compile(r"[^-.\w]+")


class AdvisedRun(NamedTuple):
    """A run and what is advised for it, as `--json` prints it. `document` is its file with the advice, None when it
    stays as it is."""

    run: Run
    advice: Mapping[str, Any]
    document: Mapping[str, Any] | None


@click.command("advise")
@click.argument("runs", nargs=-1, metavar="RUN…")
@click.option("--apply", "is_applied", is_flag=True, help="Write a copy of the run's file with the advice applied.")
@click.option("-o", "--output", metavar="FILE", help="File to write. Implies --apply.  [default: NAME.advised.yml]")
@click.option("--force", is_flag=True, help="Overwrite a copy written by an earlier --apply.")
@json_option
def command(runs: tuple[str, ...], is_applied: bool, output: str | None, force: bool, as_json: bool) -> None:
    """Compare the resources that runs requested with those they used, and recommend requests.

    Shows for each kind of replica: cores (mean and p95), memory (peak), GPUs and time. The recommendation includes
    headroom: 20% above peak memory, 25% above the run time. It is printed as the `environment` section of the file.
    For a failed run, resources are never reduced. Caveats, such as a short or unfinished run, are listed.

    RUN is an id, a name (the newest run of that name), or the first characters of an id. The original file is
    never changed.
    """
    if not runs:
        raise CallError("name at least one run: `phalanx ps` lists them")
    is_written = is_applied or output is not None
    if is_written:
        require_local_home("a copy of the file is written")
    found = _advised_here(runs) if is_written else advised_runs(runs, quiet=as_json)
    targets = _targets(found, output, force=force) if is_written else {}
    for run, _, document in found:
        if document is not None and run.id in targets:
            write_copy(targets[run.id], document, f"{MARK}, from run {run.id}", force=force)
    _print(found, targets, as_json=as_json)


def advised_runs(names: Sequence[str], *, quiet: bool) -> list[AdvisedRun]:
    """Runs of the home or the server, with advice. Raises CallError, SpecErrors."""
    server = selected_server()
    return _advised_here(names) if server is None else _advised_there(server, names, quiet=quiet)


def _advised_here(names: Sequence[str]) -> list[AdvisedRun]:
    """Raises CallError for a run that was not measured, SpecErrors should its file not bear the advice."""
    from phalanx.scheduler.runner import schedule_once
    from phalanx.submission.advised_spec import advice_for, advice_row, advised_document

    home, store = open_home()
    with store:
        schedule_once(home, store)
        runs = list({run.id: run for run in map(store.find, names)}.values())
    found = []
    for run in runs:
        known = advice_for(home, run)
        document = advised_document(home, run, known)
        found.append(AdvisedRun(run, advice_row(known.advice, document), document))
    return found


def _advised_there(server: ServerChoice, names: Sequence[str], *, quiet: bool) -> list[AdvisedRun]:
    """The server has the files of its runs: only their `environment` comes here."""
    from phalanx.client import Client

    if not quiet:
        print_server(server.url)
    with Client(server.url, server.token) as client:
        runs = list({run.id: run for run in map(client.run, names)}.values())
        return [AdvisedRun(run, client.use(run)["advice"], None) for run in runs]


def _print(found: Sequence[AdvisedRun], targets: Mapping[str, Path], *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, "runs": [advice_json(one, targets.get(one.run.id)) for one in found]})
        return
    for number, one in enumerate(found):
        if number:
            click.echo("")
        print_lines(lines_of(one.run, one.advice))
        if one.run.id in targets:
            click.echo(f"\nwritten to {printable(str(targets[one.run.id]))}")
    if len(found) > 1:
        idle = {unit: sum(one.advice["idle_hours"][unit] for one in found) for unit in found[0].advice["idle_hours"]}
        click.echo(f"\nidle in total: {_idle_words(idle)}")


def advice_json(one: AdvisedRun, target: Path | None = None) -> dict[str, Any]:
    about = {"id": one.run.id, "name": one.run.name, "status": one.run.status}
    return {**about, **one.advice, "written": None if target is None else str(target)}


# for people ----------------------------------------------------------------------------------------------------------


def lines_of(run: Run, advice: Mapping[str, Any]) -> Iterator[str]:
    name = f" ({printable(run.name)})" if run.name else ""
    took_s = advice["time_s"]["used"]
    took = f", took {time_words(took_s)}" if took_s is not None else ""
    yield f"{click.style(f'run {run.id}', bold=True)}{name}: {status_text(run.status)}{took}"
    for caveat in advice["caveats"]:
        yield f"{click.style('caution', fg='yellow')}: {printable(caveat)}"
    yield ""
    yield from table([["REPLICAS", "", "REQUESTED", "USED", "IDLE", "ADVICE"], *_rows(advice)])
    remarks = [remark for role in advice["roles"] for remark in role["remarks"]]
    if remarks:
        yield ""
        yield from (f"* {printable(remark)}" for remark in remarks)
    yield ""
    if advice["environment"] is None:
        yield "no changes recommended" if took_s is not None else "not enough data for advice"
        return
    yield from environment_lines(advice)


def environment_lines(document: Mapping[str, Any]) -> list[str]:
    """The `environment` section to paste into the file."""
    from phalanx.spec.yaml_writer import to_yaml

    if not document.get("environment"):
        return ["environment: {}"]
    return to_yaml({"environment": document["environment"]}).rstrip("\n").split("\n")


def _rows(advice: Mapping[str, Any]) -> Iterator[list[str]]:
    for role in advice["roles"]:
        yield from _role_rows(role)
    time = advice["time_s"]
    if time["used"] is not None:
        asked = _or_dash(time["asked"], time_words)
        yield ["the run", "time", asked, time_words(time["used"]), "", _advice_words(time, time_words)]


def _role_rows(role: Mapping[str, Any]) -> Iterator[list[str]]:
    from phalanx.insight.advice import names_text

    def idle(sizing: Mapping[str, Any], unit: str) -> str:
        return _or_dash(sizing["idle_hours"], lambda hours: hours_words(hours, unit))

    cores, memory, gpus = role["cores"], role["memory_mib"], role["gpus"]
    mean = 0.0 if cores["mean"] is None else cores["mean"]
    yield [
        printable(names_text(role["role"], role["indices"])),
        "cores",
        _or_dash(cores["asked"], _plain),
        _or_dash(cores["used"], lambda used: f"mean {mean:.1f}, p95 {used:.1f}"),
        idle(cores, "core"),
        _advice_words(cores, _plain),
    ]
    yield [
        "",
        "memory",
        _or_dash(memory["asked"], memory_words),
        _or_dash(memory["used"], lambda used: f"peak {memory_words(used)}"),
        idle(memory, "GiB"),
        _advice_words(memory, memory_words),
    ]
    if gpus["asked"]:
        use = gpus["use"]
        used = "-" if use is None else f"mean {use['mean_percent']:.0f} %, peak {memory_words(use['memory_mib'])}"
        yield ["", "GPUs", _plain(gpus["asked"]), used, idle(gpus, "GPU"), _advice_words(gpus, _plain)]


def _plain(value: float) -> str:
    return f"{value:g}"


def _advice_words(sizing: Mapping[str, Any], words: Callable[[float], str]) -> str:
    is_kept = sizing["advised"] is None and sizing["asked"] is not None
    return "keep" if is_kept else _or_dash(sizing["advised"], words)


def _or_dash(value: float | None, words: Callable[[float], str]) -> str:
    return "-" if value is None else words(value)


def _idle_words(idle: Mapping[str, float]) -> str:
    parts = [words for unit, hours in idle.items() if (words := hours_words(hours, unit)) != "-"]
    return ", ".join(parts) or "nothing"


# the copy ------------------------------------------------------------------------------------------------------------


def _targets(found: Sequence[AdvisedRun], output: str | None, *, force: bool) -> dict[str, Path]:
    """The paths of the copies, by run id. Raises CallError with all problems before anything is written."""
    changed = [one for one in found if one.document is not None]
    if output is not None and len(changed) > 1:
        raise CallError("-o names one file, but there are several runs: use --apply, which writes one file per run")
    targets = {
        one.run.id: Path(output) if output is not None else copy_name(one.run.name or one.run.id) for one in changed
    }
    faults = [fault for path in targets.values() if (fault := copy_fault(path, force=force))]
    if len(set(targets.values())) < len(targets):
        faults.append("two of these runs have the same name: run `phalanx advise` for each, with -o")
    if faults:
        raise CallError("; ".join(faults))
    return targets


def copy_name(name: str) -> Path:
    return Path(f"{_UNSAFE.sub('-', name).lstrip('.') or 'run'}.advised.yml")


def copy_fault(path: Path, *, force: bool) -> str | None:
    """Why a copy cannot be written to a path. A file that Phalanx did not write is not overwritten, even with
    `force`."""
    try:
        with path.open("rb") as stream:
            is_ours = stream.read(len(MARK)) == MARK.encode()
    except FileNotFoundError:
        return None if path.parent.is_dir() else f"{path}: there is no folder {path.parent}"
    except (OSError, ValueError) as fault:
        return f"{path}: {(getattr(fault, 'strerror', None) or str(fault)).lower()}"
    if not is_ours:
        return f"{path} exists and was not written by `phalanx advise`: name another file with -o"
    return None if force else f"{path} exists: overwrite it with --force, or name another file with -o"


def write_copy(path: Path, document: Mapping[str, Any], title: str, *, force: bool) -> None:
    """Write the file atomically. Raises CallError."""
    from phalanx.spec.yaml_writer import to_yaml

    fault = copy_fault(path, force=force)
    if fault:
        raise CallError(fault)
    try:
        write_atomic(path, f"{title}\n{to_yaml(document)}".encode(), sync=False, mode=0o666)  # less the umask
    except OSError as problem:
        raise path_error(f"cannot write {path}", problem) from None
