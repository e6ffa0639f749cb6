"""What users change about runs after their submission: name, note, tags, and whether they are archived.

A change is an event in the run's folder, as if its code had tracked it, and then in the store.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import make_private
from phalanx.errors import CallError, disk_fault
from phalanx.home.home import Home
from phalanx.ingest.external_runs import append_event
from phalanx.locks import locked
from phalanx.naming import has_control_characters
from phalanx.store import Run, Store
from phalanx.tracking.external_folder import REPLICA

LONGEST_NAME = 500
LONGEST_TAG = 500
LONGEST_NOTE = 100_000
MOST_TAGS = 1_000
_WRITER = "user"  # base name of the file; servers have files of their own


class RunEdit(NamedTuple):
    """None: stays as it is. `tags` replaces all tags, before `added` and `removed` count."""

    name: str | None = None
    description: str | None = None
    tags: Sequence[str] | None = None
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    archived: bool | None = None

    def events(self) -> list[dict[str, Any]]:
        described = {"name": self.name, "description": self.description}
        found: list[dict[str, Any]] = []
        if any(text is not None for text in described.values()):
            found.append({"kind": "describe", **{name: text for name, text in described.items() if text is not None}})
        if self.tags is not None or self.added or self.removed:
            whole = {} if self.tags is None else {"set": list(self.tags)}
            found.append({"kind": "tags", **whole, "add": list(self.added), "remove": list(self.removed)})
        if self.archived is not None:
            found.append({"kind": "archive", "archived": self.archived})
        return found

    def apply(self, store: Store, run_id: str) -> None:
        """Change the row of the run. Raises CallError when it does not exist."""
        with store.transaction():
            before = store.find(run_id).tags if self.tags is None else self.tags
            tags = [tag for tag in dict.fromkeys([*before, *self.added]) if tag not in self.removed]
            store.update(
                run_id,
                name=... if self.name is None else self.name,
                description=... if self.description is None else self.description,
                archived=... if self.archived is None else self.archived,
                tags=tags,
            )


def check_change(change: RunEdit) -> None:
    """Raises CallError for names and tags that are too long or contain control characters, or empty tags."""
    for name in (change.name or "", *(change.tags or ()), *change.added):
        if has_control_characters(name):
            raise CallError(f"a name or tag must not contain line breaks or other control characters: {name[:100]!r}")
    if len(change.name or "") > LONGEST_NAME:
        raise CallError(f"a name may have at most {LONGEST_NAME} characters")
    if len(change.description or "") > LONGEST_NOTE:
        raise CallError(f"a note may have at most {LONGEST_NOTE:,} characters")
    tags = [*(change.tags or ()), *change.added, *change.removed]
    if len(tags) > MOST_TAGS:
        raise CallError(f"at most {MOST_TAGS:,} tags can be changed at once")
    for tag in tags:
        if not tag.strip() or len(tag) > LONGEST_TAG:
            raise CallError(f"a tag has 1 to {LONGEST_TAG} characters, not `{tag[:100]}`")


def change_runs(home: Home, store: Store, runs: Iterable[Run], change: RunEdit) -> list[Run]:
    """Change runs of a home without a server. Returns the changed runs. Raises CallError, SystemFault."""
    check_change(change)
    found = []
    for run in runs:
        folder = place_of(home, run)
        try:
            make_private(folder, home.run(run.id).path)
            with locked(folder / f"{_WRITER}.lock"):
                for event in change.events():
                    append_event(folder, _WRITER, {"at": time.time(), **event})
                change.apply(store, run.id)
        except OSError as fault:
            raise disk_fault(f"the change of run {run.id} cannot be kept", fault) from None
        found.append(store.find(run.id))
    return found


def place_of(home: Home, run: Run) -> Path:
    """The folder of a run's attempt that has what is written about the run from outside."""
    return home.run(run.id).path / run_paths.attempt_folder(REPLICA, max(1, run.attempt))


def require_archivable(runs: Iterable[Run]) -> None:
    """Raises CallError if one of the runs is still active: it would use resources that no list shows."""
    active = [run.id for run in runs if not run.is_done]
    if active:
        raise CallError(f"still active: {', '.join(active[:10])}; only runs that have ended can be archived")
