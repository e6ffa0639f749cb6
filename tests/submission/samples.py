"""Submissions as the command line makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.plan.framework_checks import load
from phalanx.submission.model import CodeSource, Submission

PLAIN = b"version: 1\nkind: experiment\nrun: {cmd: 'true'}\n"


def submission_of(
    file: bytes | Mapping[str, Any] = PLAIN,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **fields: Any,
) -> Submission:
    """Of a file, or of what would stand in it; without a folder the run starts in an empty one."""
    text = file if isinstance(file, bytes) else json.dumps(file).encode()
    loaded, tree = load([("p.yml", text)], {})
    return Submission(spec=loaded, tree=tree, environment=environment or {}, code=CodeSource(folder), **fields)
