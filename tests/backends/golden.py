"""Jobs as they were agreed: one folder of files for each case."""

from __future__ import annotations

import os
from pathlib import Path

from phalanx.backends.contract import Job

AGREED = Path(__file__).with_name("agreed")
UPDATE = "PHALANX_UPDATE_GOLDEN"


def assert_as_agreed(job: Job, case: str) -> None:
    folder = AGREED / case
    if os.environ.get(UPDATE):
        for old in [path for path in folder.rglob("*") if path.is_file()]:
            old.unlink()
        for name, text in job.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    agreed = {
        path.relative_to(folder).as_posix(): path.read_bytes().decode() for path in folder.rglob("*") if path.is_file()
    }
    assert sorted(job.files) == sorted(agreed), f"{UPDATE}=1 writes the files again"
    for name, text in job.files.items():
        assert text == agreed[name], f"{case}/{name}: {UPDATE}=1 writes the files again"
