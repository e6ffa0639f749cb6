"""Files that an op gets from other ops, on a backend whose machines do not see the home: they are sent with its code.

The param then has the path in the working folder of the run, instead of the one in the outputs of the other op.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from phalanx import backends, run_paths
from phalanx.atomic_files import make_private, read_json
from phalanx.errors import CallError, path_error
from phalanx.home.home import Home
from phalanx.submission.model import Submission


class OpInput(NamedTuple):
    """`inside`: its path in the code of the run."""

    path: Path
    inside: str


def to_send(home: Home, asked: Submission, values: Mapping[str, Any]) -> dict[str, OpInput]:
    """The params whose values are files or folders in outputs of runs, if the op runs where these are not. Raises
    CallError if it cannot get them."""
    if asked.is_local or backends.find(asked.backend).shares_files:
        return {}
    paths = {name: value for name, value in values.items() if isinstance(value, str) and value.startswith("/")}
    found = {name: path for name, value in paths.items() if (path := _output(home, asked.project, value)) is not None}
    options = asked.spec.environment.kubernetes
    if found and (options.repository or options.code_claim or options.code not in (None, "auto", "bundle")):
        raise CallError(
            f"`{next(iter(found))}` is a file of another op, and files are sent to pods with the code: this op has its "
            "code from elsewhere (`environment.kubernetes`): pass the file on in a volume (`data_refs`) instead"
        )
    return {name: OpInput(path, _inside(name, path)) for name, path in found.items()}


def _output(home: Home, project: str, value: str) -> Path | None:
    """The file, if it is in the outputs of a run of the project: programs write these values, and must not read
    anything else with them."""
    try:
        path, runs = Path(value).resolve(strict=True), home.runs.resolve(strict=True)
    except OSError:
        return None
    parts = path.relative_to(runs).parts if path.is_relative_to(runs) else ()
    if len(parts) < 3 or parts[1] != run_paths.OUTPUTS:
        return None
    record = read_json(runs / parts[0] / run_paths.RUN) or {}
    return path if record.get("project") == project else None


def _inside(param: str, path: Path) -> str:
    return str(PurePosixPath(run_paths.INPUTS, param, path.name))


def put(inputs: Mapping[str, Path], code: Path) -> None:
    """Copy them into the code of a run, without links. Raises CallError."""
    for inside, path in inputs.items():
        target = code / inside
        make_private(target.parent, code.parent)
        try:
            if path.is_dir():
                shutil.copytree(path, target, symlinks=True, ignore=_links)
            else:
                shutil.copyfile(path, target)
        except OSError as fault:
            raise path_error(f"cannot copy {path}", fault) from None


def _links(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_symlink()]
