"""Runs that the server of a `Site` starts, and how to wait for them."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

from phalanx.submission.snapshots import pack
from tests.server.site import Site

PATIENCE_S = 90.0
ENDS = ("succeeded", "failed", "stopped")


def file_of(command: str, more: str = "") -> dict[str, str]:
    lines = "\n".join(f"    {line}" for line in command.splitlines())
    return {"name": "polyaxonfile.yml", "text": f"version: 1\nkind: experiment\nrun:\n  cmd: |\n{lines}\n{more}"}


def start(site: Site, command: str, more: str = "", *, token: str | None = None, **fields: Any) -> Any:
    """The row of a run that was submitted. `more`: further sections of its file."""
    answer = site.ask("POST", "/api/v1/runs/submit", token, json={"files": [file_of(command, more)], **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def sent(site: Site, folder: Path, token: str | None = None) -> str:
    """The id of a snapshot of a folder's code."""
    packed = io.BytesIO()
    pack(folder, packed)
    answer = site.ask("POST", "/api/v1/snapshots", token, content=packed.getvalue())
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def until(site: Site, run_id: str, *statuses: str) -> Any:
    """The run once it has one of these statuses; any of an end, unless told."""
    wanted = statuses or ENDS
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        run = site.get(f"/api/v1/runs/{run_id}")
        if run["status"] in wanted:
            return run
        if run["status"] in ENDS:
            break
        time.sleep(0.05)
    raise AssertionError(f"run {run_id} is {run['status']} ({run['reason']}), not {wanted}")


def log_of(site: Site, run_id: str, replica: str = "master-0") -> str:
    return site.ask("GET", f"/api/v1/runs/{run_id}/logs/{replica}").text
