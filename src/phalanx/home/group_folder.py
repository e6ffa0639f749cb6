"""The folder of a group: that of a run, with a journal of its search."""

from __future__ import annotations

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.home.journal import JournaledFolder
from phalanx.tracking.external_folder import derived_id

PACKED, ARRAY, SINGLE = "packed", "array", "single"  # how trials become jobs of Slurm


def trial_id(group_id: str, number: int, repeat: int = 0) -> str:
    """The id of a trial's run: derived, so that a trial that is made again after a crash is the same run."""
    return derived_id("trial", group_id, number, *([repeat] if repeat else []))


def allocation_id(group_id: str) -> str:
    """The id of the run that is the allocation of a packed group; its attempts are jobs."""
    return derived_id("allocation", group_id)


class GroupFolder(JournaledFolder):
    @property
    def trials(self) -> str:
        """How its trials become jobs: those of a packed group run in an allocation, whose job writes the journal."""
        settings = read_json(self.path / run_paths.GROUP)
        found = settings if isinstance(settings, dict) else {}
        return next((way for way in (PACKED, ARRAY) if way in found), SINGLE)

    @property
    def is_packed(self) -> bool:
        return self.trials == PACKED
