"""phalanx outputs"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.render.progress import ProgressMeter, bytes_text, count_text
from phalanx.cli.workspace.base import find_run, open_workspace, require_local_home
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.artifacts.outputs import OutputEntry
    from phalanx.artifacts.previews import Preview
    from phalanx.cli.workspace.base import RunFiles
    from phalanx.home.home import Home
    from phalanx.store import Run

SHOWN_PER_FOLDER = 50


@click.command("outputs")
@click.argument("run")
@click.argument("path", default="")
@click.option("--show", metavar="PATH", help="Preview a file: text, tables, images, arrays, tensors.")
@click.option("--get", metavar="PATH", help="Download a file or folder and verify its digest.")
@click.option("-o", "--to", "target", default=".", metavar="TARGET", help="Target of --get. Default: current folder.")
@click.option("--force", is_flag=True, help="Let --get overwrite existing files.")
@click.option("--push", metavar="URL", help="Upload everything to s3://…, gs://…, az://… or file:///….")
@click.option("--free", is_flag=True, help="Delete local files, after verifying all copies in remote storage.")
@click.option("--restore", is_flag=True, help="Download freed files again.")
@json_option
def command(
    run: str,
    path: str,
    show: str | None,
    get: str | None,
    target: str,
    force: bool,
    push: str | None,
    free: bool,
    restore: bool,
    as_json: bool,
) -> None:
    """List the files of a run: its outputs, and the artifacts and models it logged.

    PATH is a listed file or folder, such as `outputs/best.pt`. Symbolic links that leave the run's folder are listed
    but never followed. Freed files are listed, previewed and downloaded from remote storage.
    """
    asked = {"PATH": path, "--show": show, "--get": get, "--push": push, "--free": free, "--restore": restore}
    given = [name for name, value in asked.items() if value]
    if len(given) > 1:
        raise CallError(f"{' and '.join(given)} cannot be combined")
    if push or free or restore:
        _store_away(run, push, is_freeing=free, as_json=as_json)
        return
    with open_workspace(quiet=as_json) as workspace:
        found = find_run(workspace, run)
        if show:
            _show(workspace.files, found, show, as_json=as_json)
        elif get:
            _get(workspace.files, found, get, Path(target), force=force, as_json=as_json)
        else:
            _list(workspace.files, found, path, as_json=as_json)


def _list(files: RunFiles, run: Run, path: str, *, as_json: bool) -> None:
    from phalanx.artifacts.outputs import entry_row

    entries = files.entries(run, path)
    if as_json:
        url = files.storage(run)
        print_json({"ok": True, "run": run.id, "url": url, "entries": [entry_row(entry) for entry in entries]})
        return
    if not entries:
        click.echo(f"run {run.id} has no files: they are written to $PHALANX_OUTPUTS, or logged as artifacts")
        return
    print_lines(table([["SIZE", "TIME", "SHA-256", "PATH"], *_rows(entries, run.id)]))


def _rows(entries: Sequence[OutputEntry], run_id: str) -> Iterator[list[str]]:
    """The rows of the tree; folders with many entries are cut."""
    counts: defaultdict[str, int] = defaultdict(int)
    hidden: set[str] = set()
    first = entries[0].path.count("/")
    for entry in entries:
        above = entry.path.rpartition("/")[0]
        counts[above] += 1
        if above in hidden or counts[above] > SHOWN_PER_FOLDER:
            hidden.add(entry.path)
            if counts[above] == SHOWN_PER_FOLDER + 1 and above not in hidden:
                total = sum(other.path.rpartition("/")[0] == above for other in entries)
                where = printable(f"phalanx outputs {run_id} {above} --json")
                yield [
                    "",
                    "",
                    "",
                    f"{'  ' * (entry.path.count('/') - first)}… {total - SHOWN_PER_FOLDER} more: {where}",
                ]
            continue
        yield _row(entry, first)


def _row(entry: OutputEntry, first: int) -> list[str]:
    from phalanx.artifacts.outputs import REMOTE

    depth = entry.path.count("/") - first
    name = printable(entry.path if not depth else entry.path.rpartition("/")[2])
    if entry.kind == "folder":
        name += "/"
    elif entry.kind == "link":
        name += f" -> {printable(str(entry.target))}" + ("" if entry.leads_to else " (leaves the folder: not followed)")
    elif entry.kind == "other":
        name += " (not a file)"
    at = f"{entry.at.astimezone():%Y-%m-%d %H:%M}" if entry.at else "-"
    size = bytes_text(entry.size) if entry.kind in ("file", "folder") else "-"
    remote = " (remote)" if entry.place == REMOTE else ""
    return [size, at, (entry.digest or "-")[:12], f"{'  ' * depth}{name}{remote}"]


def _show(files: RunFiles, run: Run, path: str, *, as_json: bool) -> None:
    found, size = files.look(run, path)
    if as_json:
        print_json({"ok": True, "run": run.id, "path": path, "size": size, **found._asdict()})
        return
    click.echo(click.style(f"{printable(path)}: {found.type}, {bytes_text(size)}{_facts(found)}", bold=True))
    for line in found.lines:
        click.echo(printable(line.expandtabs()))
    if found.is_cut:
        click.echo("…")


def _facts(found: Preview) -> str:
    facts: dict[str, Any] = dict(found.facts)
    if "width" in facts:
        return f", {facts['width']} x {facts['height']}"
    return "".join(f", {name} {printable(str(value))[:200]}" for name, value in facts.items())


def _get(files: RunFiles, run: Run, path: str, target: Path, *, force: bool, as_json: bool) -> None:
    with ProgressMeter(quiet=as_json) as meter:
        taken = files.take(run, path, target, force=force, progress=meter.show)
    if as_json:
        print_json({"ok": True, **taken._asdict(), "target": str(taken.target)})
        return
    for name in taken.left_out:
        click.echo(f"note: {printable(name)} was skipped: it is a link out of the folder, or not a file", err=True)
    checked = "all verified" if not taken.unchecked else f"{taken.unchecked} not verified (no digest)"
    click.echo(f"{printable(str(taken.target))}: {count_text(taken.files)}, {bytes_text(taken.size)}, {checked}")


def _store_away(name: str, url: str | None, *, is_freeing: bool, as_json: bool) -> None:
    """Push, free or restore the files. Only the machine that has the files can do this."""
    from phalanx.scheduler.runner import schedule_once

    require_local_home("`phalanx outputs --push`, --free and --restore work")
    home, store = open_home()
    with store:
        schedule_once(home, store)
        run = store.find(name)
    if url is not None:
        _push(home, run, url, as_json=as_json)
    else:
        _free_or_restore(home, run, is_freeing=is_freeing, as_json=as_json)


def _push(home: Home, run: Run, url: str, *, as_json: bool) -> None:
    from phalanx.artifacts.remote import push

    with ProgressMeter(quiet=as_json) as meter:
        pushed = push(home, run.id, url, meter.show)
    if as_json:
        print_json({"ok": True, "run": run.id, **pushed._asdict()})
        return
    if not run.is_done:
        click.echo("note: the run has not finished; only its current files were uploaded", err=True)
    for name in pushed.left_out:
        click.echo(f"note: {printable(name)} was skipped: it changed while being read, or cannot be read", err=True)
    sent = f"{count_text(pushed.sent, 'object')} uploaded ({bytes_text(pushed.sent_bytes)})"
    click.echo(f"{printable(pushed.url)}: {sent}, {pushed.known} already there")


def _free_or_restore(home: Home, run: Run, *, is_freeing: bool, as_json: bool) -> None:
    from phalanx.artifacts.downloads import free_local, restore

    with ProgressMeter(quiet=as_json) as meter:
        count = (free_local if is_freeing else restore)(home, run.id, meter.show)
    if as_json:
        print_json({"ok": True, "run": run.id, "freed_bytes" if is_freeing else "restored": count})
    elif is_freeing:
        click.echo(f"freed {bytes_text(count)}; restore with `phalanx outputs {run.id} --restore`")
    else:
        click.echo(f"restored {count_text(count)}")
