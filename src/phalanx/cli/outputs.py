"""phalanx outputs"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json, printable, table
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home
    from phalanx.scheduler.outputs import Entry
    from phalanx.scheduler.previews import Preview
    from phalanx.store import Run

SHOWN_PER_FOLDER = 50


@click.command("outputs")
@click.argument("run")
@click.argument("path", default="")
@click.option("--show", metavar="PATH", help="Look into a file: text, tables, images, arrays, tensors.")
@click.option("--get", metavar="PATH", help="Copy a file or a folder, checked by its digest.")
@click.option("-o", "--to", "target", default=".", metavar="TARGET", help="Where --get puts it; this folder otherwise.")
@click.option("--force", is_flag=True, help="Let --get replace files that are there.")
@click.option("--push", metavar="URL", help="Send everything to s3://…, gs://…, az://… or file:///….")
@click.option("--free", is_flag=True, help="Remove the files here, after all were read back from remote storage.")
@click.option("--restore", is_flag=True, help="Bring freed files back.")
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
    """List what a run left: its outputs, and the artifacts and models that it kept on purpose.

    PATH is a file or a folder as it is listed, such as `outputs/best.pt`. Links that lead out of the run's folder are
    listed, and never followed. Files that were pushed and freed are listed, shown and copied from remote storage.
    """
    with answering(as_json=as_json):
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.serving import settle

        asked = {"PATH": path, "--show": show, "--get": get, "--push": push, "--free": free, "--restore": restore}
        given = [name for name, value in asked.items() if value]
        if len(given) > 1:
            raise CallError(f"{' and '.join(given)}: one at a time")
        home, store = open_home()
        with store:
            settle(home, store)
            found = store.find(run)
        if show:
            _show(home, found, show, as_json=as_json)
        elif get:
            _get(home, found, get, Path(target), force=force, as_json=as_json)
        elif push:
            _push(home, found, push, as_json=as_json)
        elif free or restore:
            _free_or_restore(home, found, is_freeing=free, as_json=as_json)
        else:
            _list(home, found, path, as_json=as_json)


def _list(home: Home, run: Run, path: str, *, as_json: bool) -> None:
    from phalanx.scheduler.outputs import browse, entry_row, read_manifest

    folder = home.run(run.id).path
    entries = browse(folder, path)
    if as_json:
        url = read_manifest(folder).url
        print_json({"ok": True, "run": run.id, "url": url, "entries": [entry_row(entry) for entry in entries]})
        return
    if not entries:
        click.echo(f"run {run.id} left nothing: what it writes to $PHALANX_OUTPUTS, or logs as artifact, is here")
        return
    for line in table([["SIZE", "TIME", "SHA-256", "PATH"], *_rows(entries, run.id)]):
        click.echo(line)


def _rows(entries: Sequence[Entry], run_id: str) -> Iterator[list[str]]:
    """The tree; of folders with very many entries only the first."""
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


def _row(entry: Entry, first: int) -> list[str]:
    from phalanx.scheduler.outputs import REMOTE

    depth = entry.path.count("/") - first
    name = printable(entry.path if not depth else entry.path.rpartition("/")[2])
    if entry.kind == "folder":
        name += "/"
    elif entry.kind == "link":
        name += f" -> {printable(str(entry.target))}" + ("" if entry.leads_to else " (leads out: not followed)")
    elif entry.kind == "other":
        name += " (not a file)"
    at = f"{entry.at.astimezone():%Y-%m-%d %H:%M}" if entry.at else "-"
    size = bytes_text(entry.size) if entry.kind in ("file", "folder") else "-"
    remote = " (remote)" if entry.place == REMOTE else ""
    return [size, at, (entry.digest or "-")[:12], f"{'  ' * depth}{name}{remote}"]


def bytes_text(count: int) -> str:
    """A number of bytes as people say it."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _show(home: Home, run: Run, path: str, *, as_json: bool) -> None:
    from phalanx.scheduler.previews import preview
    from phalanx.scheduler.taking import open_output

    stream, entry = open_output(home, run.id, path)
    size = entry.size
    with stream:
        found = preview(stream, entry.path, size)
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


def _get(home: Home, run: Run, path: str, target: Path, *, force: bool, as_json: bool) -> None:
    from phalanx.scheduler.taking import take

    with Meter(quiet=as_json) as meter:
        taken = take(home, run.id, path, target, force=force, progress=meter.show)
    if as_json:
        print_json({"ok": True, **taken._asdict(), "target": str(taken.target)})
        return
    for name in taken.left_out:
        click.echo(f"note: {printable(name)} was left out: a link that leads elsewhere, or not a file", err=True)
    checked = "all checked" if not taken.unchecked else f"{taken.unchecked} without a digest to check"
    click.echo(f"{printable(str(taken.target))}: {count_text(taken.files)}, {bytes_text(taken.size)}, {checked}")


def count_text(count: int, what: str = "file") -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _push(home: Home, run: Run, url: str, *, as_json: bool) -> None:
    from phalanx.scheduler.remote import push

    with Meter(quiet=as_json) as meter:
        pushed = push(home, run.id, url, meter.show)
    if as_json:
        print_json({"ok": True, "run": run.id, **pushed._asdict()})
        return
    if not run.is_done:
        click.echo("note: the run is not over; sent is what there is now", err=True)
    for name in pushed.left_out:
        click.echo(f"note: {printable(name)} was left out: it changed while it was read, or cannot be", err=True)
    sent = f"{count_text(pushed.sent, 'object')} sent ({bytes_text(pushed.sent_bytes)})"
    click.echo(f"{printable(pushed.url)}: {sent}, {pushed.known} there already")


def _free_or_restore(home: Home, run: Run, *, is_freeing: bool, as_json: bool) -> None:
    from phalanx.scheduler.taking import free, restore

    with Meter(quiet=as_json) as meter:
        count = (free if is_freeing else restore)(home, run.id, meter.show)
    if as_json:
        print_json({"ok": True, "run": run.id, "freed_bytes" if is_freeing else "restored": count})
    elif is_freeing:
        click.echo(f"freed {bytes_text(count)}; `phalanx outputs {run.id} --restore` brings it back")
    else:
        click.echo(f"restored {count_text(count)}")


class Meter:
    """How far long work is, on a terminal's standard error; elsewhere nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet or sys.stderr is None or not sys.stderr.isatty()
        self.shown_at = 0.0
        self.started_at = time.monotonic()

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown_at:
            click.echo("\r\x1b[K", nl=False, err=True)

    def show(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self.quiet or now - self.started_at < 0.5 or now - self.shown_at < 0.1:
            return
        self.shown_at = now
        text = f"{bytes_text(done)} of {bytes_text(total)}  {printable(what)}"
        click.echo(f"\r\x1b[K{text[:100]}", nl=False, err=True)
