"""phalanx code"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.errors import CallError

SHOWN_FILES = 200


@click.command("code")
@click.argument("run")
@click.option("--get", "target", metavar="DIR", type=click.Path(path_type=Path), help="Write the code to a new folder.")
@json_option
def command(run: str, target: Path | None, as_json: bool) -> None:
    """Print the code of a run: its git commit, the uncommitted changes, and the files of its snapshot.

    --get writes the snapshot to DIR/code, the changes to DIR/changes.diff, and the commit to DIR/git.json. A run has a
    snapshot if it was started with `--snapshot`, or through a server.
    """
    from phalanx.artifacts.code_record import CODE, write_git

    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = find_run(workspace, run)
        record = workspace.code(found)
        if target is not None:
            if record.git is None and not record.has_snapshot:
                raise CallError(f"nothing is recorded about the code of run {found.id}")
            write_git(record, target)
            if record.has_snapshot:
                workspace.get_code(found, target / CODE)
            about = {"run": found.id, "folder": str(target), "files": len(record.files)}
            print_result(about, f"wrote {printable(str(target))}", as_json=as_json)
            return
    if as_json:
        print_json({"ok": True, "run": found.id, **record.as_json()})
    else:
        print_lines(_lines(record.as_json()))


def _lines(about: dict[str, Any]) -> list[str]:
    branch = f" on {printable(about['branch'])}" if about["branch"] else ""
    changed = " with uncommitted changes" if about["dirty"] else ""
    lines = [f"folder: {printable(about['folder'] or 'unknown')}"]
    lines.append(
        f"commit: {printable(about['commit'])}{branch}{changed}" if about["commit"] else "commit: none recorded"
    )
    if about["has_snapshot"]:
        files = about["files"]
        lines += ["", f"snapshot: {len(files):,} files"]
        lines += [f"  {file['size']:>10,}  {printable(file['path'])}" for file in files[:SHOWN_FILES]]
        lines += [f"  and {len(files) - SHOWN_FILES:,} more; --json lists all"] if len(files) > SHOWN_FILES else []
    else:
        lines.append("snapshot: none; `phalanx run --snapshot` takes one")
    if about["diff"]:
        lines += ["", *map(printable, about["diff"].splitlines())]
    return lines
