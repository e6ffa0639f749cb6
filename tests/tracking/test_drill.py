from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DRILL = Path(__file__).resolve().parents[2] / "scripts" / "track_chaos.py"


@pytest.mark.slow
def test_no_tracked_record_is_lost_whichever_process_is_killed() -> None:
    command = [sys.executable, str(DRILL), "--rounds", "8", "--seconds", "8"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "no violation" in answer.stdout
