"""What a run kept, read from its files as they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.spool import JSON, MOMENT, NAME_NUMBER, NAMES, NO_STEP, VALUE, read

Point = tuple[int | None, float]


class Kept:
    """An attempt's folder, of a run that has the place of a real one."""

    def __init__(self, run: Path, replica: str = "master-0") -> None:
        self.run = run
        self.folder = run / "replicas" / replica / "attempt-1"
        self.folder.mkdir(parents=True, exist_ok=True)

    def environment(self, **more: str) -> dict[str, str]:
        """That of a replica."""
        outputs = self.run / "outputs"
        outputs.mkdir(exist_ok=True)
        return {
            "PHALANX_TRACK": str(self.folder),
            "PHALANX_RUN_ID": self.run.name,
            "PHALANX_PROJECT": "vision",
            "PHALANX_OUTPUTS": str(outputs),
            "PHALANX_RANK": "0",
            "PHALANX_WORLD_SIZE": "1",
            **more,
        }

    def series(self) -> dict[str, list[Point]]:
        """Every metric's steps and values, in the order in which they were written."""
        found: dict[str, list[Point]] = {}
        for file in sorted(self.folder.glob("*.points")):
            names: dict[int, str] = {}
            for kind, payload in read(file):
                if kind == NAMES:
                    (number,) = NAME_NUMBER.unpack_from(payload)
                    names[number] = payload[NAME_NUMBER.size :].decode()
                else:
                    step, _ = MOMENT.unpack_from(payload)
                    for number, value in VALUE.iter_unpack(payload[MOMENT.size :]):
                        found.setdefault(names[number], []).append((None if step == NO_STEP else step, value))
        return found

    def events(self, kind: str) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("*.events"))
        rows = [record.data() for file in files for record in read(file) if record.kind == JSON]
        return [row for row in rows if row["kind"] == kind]

    def params(self) -> dict[str, Any]:
        params_now: dict[str, Any] = {}
        for event in self.events("params"):
            params_now = {**({} if event.get("reset") else params_now), **event["values"]}
        return params_now

    def model_files(self) -> list[str]:
        """Of the last model."""
        path = self.run / self.events("model")[-1]["path"]
        return sorted(file.name for file in path.iterdir()) if path.is_dir() else [path.name]

    def dropped(self) -> Mapping[str, int]:
        return {why: count for event in self.events("dropped") for why, count in event["why"].items()}


def outside_run(home: Path) -> Kept:
    """The one run that a script made in a home."""
    (run,) = (home / "runs").iterdir()
    return Kept(run)


def clean_environment(**more: str) -> dict[str, str]:
    """Ours, without what says that it is a run."""
    ours = ("PHALANX_", "POLYAXON_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(ours)}, **more}
