"""The code of a run: its git commit and uncommitted changes, and the files of its snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.artifacts.trees import FILE, Tree
from phalanx.errors import CallError, path_error
from phalanx.home.run_folder import RunFolder

LARGEST = 64 << 20
DIFF, ABOUT, CODE = "changes.diff", "git.json", "code"


class CodeFile(NamedTuple):
    path: str
    size: int


class CodeRecord(NamedTuple):
    """`git`: commit, branch, dirty and diff; None if the code was not in a repository, or that was not recorded."""

    folder: str | None
    git: Mapping[str, Any] | None
    has_snapshot: bool
    files: tuple[CodeFile, ...] = ()

    def as_json(self) -> dict[str, Any]:
        git = self.git or {}
        return {
            "folder": self.folder,
            "has_snapshot": self.has_snapshot,
            "files": [file._asdict() for file in self.files],
            "commit": str(git["commit"]) if git.get("commit") else None,
            "branch": str(git["branch"]) if git.get("branch") else None,
            "dirty": bool(git.get("dirty")),
            "diff": str(git.get("diff") or "") if git.get("commit") else None,
        }


def code_tree(folder: RunFolder) -> Tree | None:
    """The files of its snapshot; None without one."""
    code = folder.code
    return None if code.is_symlink() or not code.is_dir() else Tree(code)


def read_code(folder: RunFolder) -> CodeRecord:
    """What is recorded about the code of a run."""
    submitted, tree = folder.submitted(), code_tree(folder)
    git = submitted.get("git") or _recorded(folder.path).get("git")
    files = tuple(CodeFile(one.path, one.size) for one in tree.walk() if one.kind == FILE) if tree is not None else ()
    source = submitted.get("from")
    return CodeRecord(str(source) if source else None, git if isinstance(git, dict) else None, tree is not None, files)


def _recorded(folder: Path) -> dict[str, Any]:
    try:
        with (folder / run_paths.RECORDS).open("rb") as stream:
            found = json.loads(stream.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_git(record: CodeRecord, target: Path) -> None:
    """Write the commit and the uncommitted changes into a new folder. Raises CallError if it exists."""
    about = record.as_json()
    try:
        target.mkdir(parents=True)
        if record.git is not None:
            kept = {name: about[name] for name in ("commit", "branch", "dirty")}
            (target / ABOUT).write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
            if about["diff"]:
                (target / DIFF).write_bytes(about["diff"].encode("utf-8", "surrogateescape"))
    except FileExistsError:
        raise CallError(f"{target} exists: name a new folder") from None
    except OSError as fault:
        raise path_error(f"cannot write {target}", fault) from None


def copy_code(tree: Tree, target: Path) -> None:
    """Copy the files of a snapshot; links are left out. Raises CallError."""
    try:
        target.mkdir()
        for found in tree.walk():
            if found.kind == FILE:
                (target / found.path).parent.mkdir(parents=True, exist_ok=True)
                with tree.open(found.path) as source, (target / found.path).open("xb") as copy:
                    while piece := source.read(1 << 20):
                        copy.write(piece)
    except OSError as fault:
        raise path_error(f"cannot write {target}", fault) from None
