"""Reads the files of W&B's offline runs while they grow: in `wandb` of a replica's attempt, where the agent sends them.

Their data becomes points and events like any other, in our own files: `wandb.points` and `wandb.events`. How far each
file was read is noted after the data. Only the scheduler writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx import run_paths
from phalanx.atomic_files import read_json, write_atomic
from phalanx.spool import PointWriter, Writer
from phalanx.tracking import saved_files
from phalanx.tracking.values import NotANumber

if TYPE_CHECKING:
    from phalanx.formats.wandb_runs import WandbLogReader

NAME = "wandb"
LOOK_S = 2.0  # seconds between two looks at the files


class WandbFollower:
    def __init__(self, run_folder: Path, replicas: Mapping[str, Path]) -> None:
        self.run_folder = run_folder
        self.replicas = replicas
        self.look_at = 0.0
        self.readers: dict[Path, WandbLogReader] = {}
        self.writers: dict[Path, Any] = {}

    def follow(self, *, is_over: bool = False) -> None:
        """Read new data. Raises OSError when it cannot be stored; then it is read again."""
        if time.monotonic() < self.look_at and not is_over:
            return
        self.look_at = time.monotonic() + LOOK_S
        try:
            for folder in self.replicas.values():
                if (folder / NAME).is_dir():
                    self._read(folder, is_over=is_over)
        except OSError:
            self.close()
            raise

    def _read(self, folder: Path, *, is_over: bool) -> None:
        from phalanx.formats.safe_files import FileRefused
        from phalanx.formats.wandb_log import WandbPosition
        from phalanx.formats.wandb_runs import WandbLogReader, logs_in

        state = folder / f"{NAME}.json"
        noted = read_json(state) or {}
        read_to: dict[str, Any] = {}
        for path in logs_in(folder):
            inside = path.name
            reader = self.readers.get(path)
            if reader is None:
                reader = self.readers[path] = WandbLogReader(path, WandbPosition(*noted.get(inside, (0, 0))))
            with suppress(FileRefused):
                for record in reader.poll():
                    self._keep(folder, record)
                if is_over and not noted.get("is_over"):
                    for record in reader.end():
                        self._keep(folder, record)
            read_to[inside] = list(reader.position)
        if is_over:
            read_to["is_over"] = True
        if read_to != noted:
            write_atomic(state, json.dumps(read_to).encode(), sync=False)

    def _keep(self, folder: Path, record: Any) -> None:
        from phalanx.formats.foreign_run import ForeignEvent, ForeignFile, ForeignImage, Points

        if isinstance(record, Points):
            self._writer(PointWriter, folder / f"{NAME}.points").add(record.step, record.time, record.values)
        elif isinstance(record, ForeignEvent):
            self._note(folder, {"at": record.time, "kind": record.kind, **record.data})
        elif isinstance(record, ForeignImage) and isinstance(record.image, Path):
            target = f"{run_paths.MEDIA}/{NAME}-{record.image.name}"
            with suppress(OSError, NotANumber):
                saved_files.copy_file(str(record.image), str(folder / target))
                about = {"name": record.name, "step": record.step, "path": target, "caption": record.caption}
                self._note(folder, {"at": record.time, "kind": "image", **about})
        elif isinstance(record, ForeignFile):
            with suppress(OSError, NotANumber):
                copied = saved_files.copy_into(str(self.run_folder), run_paths.ARTIFACTS, str(record.path), record.name)
                about = {"path": copied.path, "name": record.name, "type": record.type, "size": copied.size}
                self._note(folder, {"at": time.time(), "kind": "artifact", **about})

    def _note(self, folder: Path, event: dict[str, Any]) -> None:
        with suppress(ValueError):  # a record of more than 16 MiB
            self._writer(Writer, folder / f"{NAME}.events").append_json(event)

    def _writer(self, kind: Any, path: Path) -> Any:
        if path not in self.writers:
            self.writers[path] = kind(path)
        return self.writers[path]

    def close(self) -> None:
        """Continue from the last notes."""
        for writer in self.writers.values():
            writer.close()
        self.writers.clear()
        self.readers.clear()
