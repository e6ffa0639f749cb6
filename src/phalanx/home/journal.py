"""Journals: what happened to a run that consists of other runs (a group, a pipeline), and what was decided for it.

runs/<id>/journal     what happened and what was decided, each record synced to disk before it is acted upon
runs/<id>/requests/   changes that users ask for; the scheduler takes them into the journal
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import read_json, write_atomic
from phalanx.errors import CallError
from phalanx.home.run_folder import RunFolder
from phalanx.spool import Reader, Writer
from phalanx.tracking.external_folder import new_id

Record = dict[str, Any]


class JournaledFolder(RunFolder):
    """The folder of a run that has a journal."""

    @property
    def journal_file(self) -> str:
        return str(self.path / run_paths.JOURNAL)

    def records(self) -> list[Record]:
        """The journal up to its last whole record. Raises CallError if one before that is damaged."""
        return RunJournal(self.journal_file).read()

    def ask(self, what: str, **fields: Any) -> str:
        """Leave a request for the scheduler. Returns its name. Raises OSError."""
        folder = self.path / run_paths.REQUESTS
        folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{time.time_ns():020d}-{new_id()}.json"
        write_atomic(folder / name, json.dumps({"what": what, **fields}).encode())
        return name

    def requests(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The requests that were not taken yet, oldest first, each with its name."""
        folder = self.path / run_paths.REQUESTS
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and name[0].isdigit())
        except FileNotFoundError:
            return []
        found = [(name, read_json(folder / name)) for name in names]
        return [(name, content) for name, content in found if isinstance(content, dict)]

    def forget_request(self, name: str) -> None:
        (self.path / run_paths.REQUESTS / name).unlink(missing_ok=True)


class RunJournal:
    """Numbered records. `read` first, then `append`: the rest of a record that was cut off is removed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seq = 0  # of the last record
        self.size = 0  # of the whole records
        self.is_cut = False
        self.writer: Writer | None = None

    def read(self) -> list[Record]:
        """The records since the last call. Raises CallError if one is damaged."""
        reader = Reader(self.path, self.size)
        found: list[Record] = []
        for record in reader.poll():
            content = record.data()
            if content["seq"] != self.seq + len(found) + 1:
                break
            found.append(content)
        else:
            self.size, self.seq, self.is_cut = reader.offset, self.seq + len(found), True
            if not reader.skipped_bytes:
                return found
        raise CallError(f"{self.path} is damaged after record {self.seq + len(found)}: restore it from a backup")

    def news(self) -> list[Record]:
        """The whole records since the last read, which another process has appended."""
        reader = Reader(self.path, self.size)
        found = [content for record in reader.poll() if (content := record.data())["seq"] > self.seq]
        self.size = reader.offset
        self.seq = found[-1]["seq"] if found else self.seq
        return found

    def append(self, contents: Iterable[Mapping[str, Any]]) -> list[Record]:
        """Number the records and write them to disk, all before it returns. Raises OSError."""
        records: list[Record] = []
        for content in contents:
            records.append({"seq": self.seq + len(records) + 1, "at": round(time.time(), 3), **content})
        if not records:
            return []
        if self.writer is None:
            if self.is_cut and os.path.exists(self.path):
                os.truncate(self.path, self.size)
            self.writer = Writer(self.path)
        try:
            for record in records:
                self.writer.append_json(record)
            self.writer.sync()
        except OSError:
            self.close()  # read again before the next attempt: a part may have been written
            raise
        self.seq += len(records)
        return records

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
