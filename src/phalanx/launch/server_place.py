"""A server as a place for runs: see `phalanx.launch.places`.

The server stores call files and results as bytes and never unpickles them. The keys of results stay on this machine, in
the folder of the user's settings.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import finalize

from phalanx.atomic_files import read_json, write_atomic
from phalanx.client import Client, NotFound, RequestRefused
from phalanx.errors import path_error
from phalanx.launch.places import CallRecord, FailedReplica, no_key, warn_caller
from phalanx.stored_plan import PlanDamaged, decode_plan
from phalanx.tracking.calls import sealed_files
from phalanx.tracking.user_settings import settings_folder

if TYPE_CHECKING:
    from phalanx.store import Run
    from phalanx.submission.model import Submission

KEPT_S = 365 * 86_400  # how long the key of a call is kept


class ServerPlace:
    def __init__(self, url: str, token: str) -> None:
        self.client = Client(url, token)
        finalize(self, self.client.close)  # when its thread ends

    def submit(self, submission: Submission) -> Run:
        added = {}
        if submission.call is not None:
            digest = keep_key(submission.call)
            added[sealed_files.code_name(digest)] = submission.call
        code = self.client.upload_code(submission.code.folder or Path.cwd(), added=added)
        made = self.client.send(submission, code)
        for note in made.notes:
            warn_caller(str(note.get("message", "")))
        return made.run

    def find(self, text: str) -> Run:
        return self.client.details(text).run

    def look(self, run_id: str) -> Run | None:
        try:
            return self.client.status(run_id)
        except NotFound:
            return None

    def trials(self, group_id: str) -> list[Run]:
        from phalanx.client.rows import run_of

        return list(map(run_of, self.client.run_rows(f"group:{group_id}", "created_at", None, archived=True)))

    def stop(self, run: Run) -> None:
        self.client.stop(run)

    def spec(self, run: Run) -> str:
        return self.client.spec(run)

    def call_record(self, run: Run, digest: str) -> CallRecord:
        found = read_json(_keys() / digest)
        if not isinstance(found, dict):
            raise no_key(run.id)
        return CallRecord(bytes.fromhex(found["key"]), int(found["calls"]))

    def read(self, run: Run, path: str) -> bytes | None:
        try:
            return self.client.read(run, path)
        except NotFound:
            return None

    def ranks(self, run: Run) -> list[int]:
        with suppress(RequestRefused, PlanDamaged):
            return sorted(one.rank for one in decode_plan(self.client.plan(run)).with_command if one.rank is not None)
        return []

    def failure(self, run: Run) -> FailedReplica | None:
        answer = self.client.first_error(run)
        if answer["replica"] is None:
            return None
        name = str(answer["replica"])
        hosts = {replica.name: replica.host for replica in self.client.replicas(run)}
        return FailedReplica(name, answer["rank"], hosts.get(name), str(answer["message"]))

    def lines(self, run: Run, tail: int | None, rank: int | None) -> list[str]:
        if not run.attempt:
            return []
        names = []
        if rank is not None:
            planned = decode_plan(self.client.plan(run)).with_command
            names = [replica.name for replica in planned if replica.rank == rank]
        if tail is None:
            return [line.text for line in self.client.lines(run, names, run.attempt)]
        return [line.text for line in self.client.last_lines(run, tail, names, run.attempt)]

    def metrics(self, run: Run) -> list[str]:
        return list(run.summary)

    def values(self, run: Run, metric: str, count: int) -> Sequence[float]:
        buckets = self.client.all_series(run).buckets(metric, count)
        return [bucket.last for bucket in next(iter(buckets.values()), [])]


def keep_key(call: bytes) -> str:
    """Keep the key of a call before it is sent, so that its result can be read even if this process is killed. Returns
    the digest of the call. Raises CallError."""
    digest = sealed_files.digest_of(call)
    found = sealed_files.decode_call(call, digest)
    data = json.dumps({"key": found.key.hex(), "calls": len(found.calls)}).encode()
    folder = _keys()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(folder / digest, data)
        for path in folder.iterdir():
            if time.time() - path.stat().st_mtime > KEPT_S:
                path.unlink(missing_ok=True)
    except OSError as fault:
        raise path_error(f"cannot keep the key of the call in {folder}", fault) from None
    return digest


def _keys() -> Path:
    return Path(settings_folder(os.environ)) / "calls"
