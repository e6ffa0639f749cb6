"""`experiment.outputs_store`: scripts upload files with it. Here an upload is a copy that the run keeps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

from phalanx import run_paths

from .guards import check_no_op, say_once


class OutputsStore:
    def __init__(self, run: Any = None, path: str | None = None) -> None:
        """`path` is where relative names are looked up. Uploads go there too, unless the run keeps them."""
        self.run = run
        self.path = path

    def set_env_vars(self) -> None:
        """Credentials of remote stores; a folder has none."""

    @check_no_op
    def upload_file(self, filename: str, path: str | None = None, **_: Any) -> None:
        if self.run is not None:
            self.run.artifact(filename)
        if self._is_elsewhere(path):
            folder = path or self.path or ""
            os.makedirs(folder, exist_ok=True)
            shutil.copy(filename, folder)

    @check_no_op
    def upload_dir(self, dirname: str, path: str | None = None, **_: Any) -> None:
        name = os.path.basename(os.path.abspath(dirname))
        if self.run is not None:
            self.run.artifacts(dirname, name)
        if self._is_elsewhere(path):
            shutil.copytree(dirname, os.path.join(path or self.path or "", name), dirs_exist_ok=True)

    def _is_elsewhere(self, path: str | None) -> bool:
        target = path or self.path
        if not target:
            return False
        if "://" in target:
            say_once(f"{target} is a remote store: use its own client")
            return False
        return self.run is None or os.path.abspath(target) != os.path.abspath(self.run.outputs)

    @check_no_op
    def ls(self, path: str = "") -> dict[str, list[Any]]:
        """The names of a folder: `{"files": [(name, size)], "dirs": [name]}`."""
        found: dict[str, list[Any]] = {"files": [], "dirs": []}
        for folder in self._folders():
            whole = os.path.join(folder, path)
            for name in sorted(os.listdir(whole)) if os.path.isdir(whole) else ():
                inside = os.path.join(whole, name)
                if os.path.isdir(inside):
                    found["dirs"].append(name)
                else:
                    found["files"].append((name, os.path.getsize(inside)))
        return found

    @check_no_op
    def download_file(self, filename: str, local_path: str | None = None, use_basename: bool = False, **_: Any) -> None:
        target = local_path or filename
        if use_basename and local_path:
            target = os.path.join(local_path, os.path.basename(filename))
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        shutil.copy(self._find(filename), target)

    @check_no_op
    def download_dir(self, dirname: str, local_path: str | None = None, use_basename: bool = False, **_: Any) -> None:
        target = local_path or dirname
        if use_basename and local_path:
            target = os.path.join(local_path, os.path.basename(os.path.normpath(dirname)))
        shutil.copytree(self._find(dirname), target, dirs_exist_ok=True)

    def _find(self, name: str) -> str:
        for folder in self._folders():
            whole = os.path.join(folder, name)
            if os.path.exists(whole):
                return whole
        raise FileNotFoundError(f"{name} is not in the run's outputs")

    def _folders(self) -> Iterator[str]:
        """Where the run's files are: what the training wrote, and what it uploaded."""
        if self.path:
            yield self.path
        if self.run is not None and self.run.folder:
            yield os.path.normpath(os.path.join(self.run.folder, "..", "..", "..", run_paths.ARTIFACTS))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the outputs store has no `{name}`; it has upload_file, upload_dir, download_file, download_dir, ls, path"
        )
