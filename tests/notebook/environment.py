"""The environment with the real JupyterLab, outside of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def jupyter_folder() -> Path:
    """The folder of its programs; built if it is missing."""
    call = [sys.executable, str(ROOT / "scripts" / "environments.py"), "--python", "notebook"]
    return Path(subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()).parent


def with_jupyter(path: str) -> str:
    return f"{jupyter_folder()}{os.pathsep}{path}"
