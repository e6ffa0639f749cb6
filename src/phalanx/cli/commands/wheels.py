"""phalanx wheels"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import FILE_IS_WRONG, print_json, print_lines, printable, table
from phalanx.errors import CallError, SystemFault
from phalanx.sites import find, wheels
from phalanx.sites.wheels import Wheel, normal_pattern, paths_in, supported

PATIENCE_S = 120.0


@click.command("wheels")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--wheelhouse",
    "folders",
    multiple=True,
    metavar="DIR",
    help="Folder of wheels, searched recursively. Repeatable. Default: the folders of the site profile and of pip.",
)
@click.option("--index", "by_index", is_flag=True, help="Query pip's package index instead of folders.")
@click.option("--all-versions", is_flag=True, help="List all versions, not only the newest.")
@click.option("--all", "show_all", is_flag=True, help="Also list unusable wheels, with the reason.")
@click.option("--python", metavar="VERSION", help="Version of Python, such as 3.11. Default: the running one.")
@json_option
def command(
    names: tuple[str, ...],
    folders: tuple[str, ...],
    by_index: bool,
    all_versions: bool,
    show_all: bool,
    python: str | None,
    as_json: bool,
) -> None:
    """List the wheels that a wheelhouse, folder or index has for this Python.

    NAME may be a pattern such as 'torch*'; case is ignored, and `-` and `_` are equal. Exit code 1: a name has no
    usable wheel.
    """
    if by_index:
        if folders or show_all:
            raise CallError("--index cannot be combined with --wheelhouse or --all")
        missing = _from_index(names, python, all_versions=all_versions, as_json=as_json)
    else:
        missing = _from_folders(names, folders, python, all_versions=all_versions, show_all=show_all, as_json=as_json)
    sys.exit(FILE_IS_WRONG if missing else 0)


def _from_folders(
    names: tuple[str, ...],
    given: tuple[str, ...],
    python: str | None,
    *,
    all_versions: bool,
    show_all: bool,
    as_json: bool,
) -> bool:
    """Print the wheels in folders. Returns whether a name has none."""
    for_python = wheels.supported(python)
    folders, notes = (list(given), []) if given else _usual_folders()
    if not folders:
        raise CallError("no wheel folder is configured: name one with --wheelhouse, or query an index with --index")
    found, known = wheels.listed(wheels.files_in(folders), names, for_python)
    usable = found if all_versions or show_all else wheels.newest(found)
    shown = usable if show_all else [wheel for wheel in usable if wheel.why_not is None]
    hidden = [wheel for wheel in found if wheel.why_not is not None] if not show_all else []
    faults = [fault for name in names if (fault := _missing(name, found, known, for_python.words))]
    if as_json:
        rows = [{**wheel._asdict(), "path": os.path.join(wheel.folder, wheel.file)} for wheel in shown]
        answer = {"ok": not faults, "python": for_python.words, "folders": folders, "wheels": rows}
        print_json({**answer, "faults": faults, "notes": notes})
        return bool(faults)
    for note in notes:
        click.echo(f"{click.style('note', fg='yellow')}: {printable(note)}", err=True)
    if shown:
        print_lines(_table(shown))
    for fault in faults:
        click.echo(f"{click.style('error', fg='red', bold=True)}: {printable(fault)}", err=True)
    if hidden and not faults:
        click.echo(f"{len(hidden)} more are not usable with {for_python.words} here; --all lists them", err=True)
    if not shown and not faults:
        click.echo(f"no wheels for {for_python.words} in {printable(', '.join(folders))}", err=True)
    return bool(faults)


def _missing(name: str, found: Sequence[Wheel], known: set[str], python: str) -> str | None:
    """Why a requested name has no usable wheel; None if it has one."""
    from phalanx.spec.suggestions import did_you_mean

    pattern = normal_pattern(name)
    mine = [wheel for wheel in found if fnmatchcase(wheel.name, pattern)]
    if any(wheel.why_not is None for wheel in mine):
        return None
    if mine:
        return f"`{name}`: no wheel for {python} here; {mine[0].file} is {mine[0].why_not}"
    hint = did_you_mean(pattern, known)
    return f"no wheel of `{name}`" + (f": {hint}" if hint else "")


def _table(wheels: Iterable[Wheel]) -> list[str]:
    rows = [["NAME", "VERSION", "BUILD", "PYTHON", "ABI", "PLATFORM", "FOLDER", "WHY NOT"]]
    for wheel in wheels:
        cells = (wheel.name, wheel.version or wheel.file, wheel.build, wheel.python, wheel.abi, wheel.platform)
        rows.append([printable(cell or "-") for cell in (*cells, wheel.folder, wheel.why_not or "")])
    kept = [column for column in range(len(rows[0])) if any(row[column] != "-" for row in rows[1:])]
    return table([[row[column] for column in kept] for row in rows])


def _usual_folders() -> tuple[list[str], list[str]]:
    """The existing wheel folders of the site profile and of pip, and notes on missing ones."""
    from phalanx.home.home import default_home
    from phalanx.sites.profile_reader import WHEELHOUSE_JOINT

    site = find(None, default_home())
    named = site.wheelhouse.split(WHEELHOUSE_JOINT) if site is not None and site.wheelhouse else []
    named += paths_in(os.environ.get("PIP_FIND_LINKS", ""))
    named += [path for text in _pip_links() for path in paths_in(text)]
    every = list(dict.fromkeys(named))
    there = [folder for folder in every if os.path.isdir(folder)]
    return there, [f"the wheel folder {folder} does not exist" for folder in every if folder not in there]


def _pip(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run pip of this Python. Raises CallError."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color", *arguments]
    try:
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise SystemFault(f"pip did not finish within {PATIENCE_S:g} s", transient=True) from None
    except OSError as fault:
        raise CallError(f"cannot start pip: {(fault.strerror or str(fault)).lower()}") from None


def _pip_links() -> list[str]:
    """The `find-links` of pip's configuration."""
    import ast

    done = _pip(["config", "list"])
    values = []
    for line in done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else ():
        key, equals, value = line.partition("=")
        if equals and key.rpartition(".")[2] == "find-links":
            try:
                values.append(str(ast.literal_eval(value)))
            except (ValueError, SyntaxError):
                values.append(value.strip("'\""))
    return values


def _from_index(names: tuple[str, ...], python: str | None, *, all_versions: bool, as_json: bool) -> bool:
    """Print the versions in the index. Returns whether a name has none."""
    if not names:
        raise CallError("--index needs names: phalanx wheels --index NAME...")
    for name in names:
        if any(character in name for character in "*?[") or name.startswith("-"):
            raise CallError(f"`{name}`: --index takes full names, not patterns")
    rows: list[dict[str, Any]] = []
    faults: list[str] = []
    for name in names:
        versions, fault = _versions(name, python)
        if fault is not None:
            faults.append(fault)
        rows += [{"name": name, "version": version} for version in (versions if all_versions else versions[:1])]
    if as_json:
        print_json({"ok": not faults, "index": True, "wheels": rows, "faults": faults})
        return bool(faults)
    if rows:
        print_lines(
            table([["NAME", "VERSION"], *([printable(row["name"]), printable(row["version"])] for row in rows)])
        )
    for fault in faults:
        click.echo(f"{click.style('error', fg='red', bold=True)}: {printable(fault)}", err=True)
    return bool(faults)


def _versions(name: str, python: str | None) -> tuple[list[str], str | None]:
    """The versions with a usable wheel in the index, newest first, or why there are none."""
    arguments = ["index", "versions", name, "--only-binary=:all:"]
    if python is not None:
        supported(python)  # raises for an invalid version
        arguments.append(f"--python-version={python}")
    done = _pip(arguments)
    text, messages = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Available versions":
            return [version.strip() for version in value.split(",") if version.strip()], None
    lines = [line.strip() for line in messages.splitlines() if line.startswith(("ERROR", "WARNING: Retrying"))]
    first = (
        lines[0].removeprefix("ERROR: ").removeprefix("WARNING: ") if lines else f"pip exited with {done.returncode}"
    )
    return [], f"`{name}`: the index has no wheel for this Python: {first[:300]}"
