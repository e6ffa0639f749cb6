"""Results of earlier ops, found by the content of what they ran: `reuse: true`.

<home>/reuse/<key>    the id of a run that succeeded; the key is a hash of its file, params, code and inputs
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.spec.model import Operation
from phalanx.store import Run, Store
from phalanx.store.statuses import Status
from phalanx.submission.ops.factory import OpFactory
from phalanx.submission.ops.submissions import digest_of_file, reuse_key, reuses

_PATHS = ("path", "uri")


class ReusableRuns:
    def __init__(self, home: Home, store: Store, factory: OpFactory) -> None:
        self.folder = home.path / "reuse"
        self.home, self.store, self.factory = home, store, factory

    def find(self, op: Operation, values: Mapping[str, Any]) -> Run | None:
        """The run of an earlier op that would do the same; None if there is none, or the op does not reuse. Raises
        CallError, SpecErrors."""
        if not reuses(op, self.factory.spec):
            return None
        try:
            run_id = (self.folder / self._key(op, values)).read_text()
            run = self.store.find(run_id)
        except (OSError, CallError):
            return None
        is_there = self.home.run(run.id).path.is_dir()
        return run if run.id == run_id and run.status == Status.SUCCEEDED and is_there else None

    def add(self, op: Operation, run: Run, values: Mapping[str, Any]) -> None:
        """Keep a run that succeeded."""
        if reuses(op, self.factory.spec):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            write_atomic(self.folder / self._key(op, values), run.id.encode())

    def _key(self, op: Operation, values: Mapping[str, Any]) -> str:
        asked = self.factory.asked(op, 0, values)
        inputs = {name: _content(value) for name, value in values.items()}
        return reuse_key(asked, str(self.factory.settings.get("code")), inputs)


def _content(value: Any) -> Any:
    """A value that is the same for equal content: the hash of a file or folder instead of its path."""
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    try:
        return {"content": digest_of_file(Path(value))}
    except OSError:
        return value
