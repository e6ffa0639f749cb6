"""Processes beside the scheduler that work on a home and end by themselves: post-run work, notices, retention."""

from __future__ import annotations

import os
import subprocess
import sys

from phalanx.home.home import Home


def start_module(home: Home, module: str, log_name: str) -> None:
    """Start `python -m MODULE HOME` without waiting for it, with its output in a log of the home. Raises OSError."""
    log = os.open(home.path / log_name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
        process.returncode = 0  # it is not waited for: avoids Python's ResourceWarning
    finally:
        os.close(log)
