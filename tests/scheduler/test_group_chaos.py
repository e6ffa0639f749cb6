from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DRILL = Path(__file__).resolve().parents[2] / "scripts" / "group_chaos.py"


@pytest.mark.slow
def test_groups_whose_scheduler_is_killed_end_as_those_that_are_left_alone() -> None:
    command = [sys.executable, str(DRILL), "--kills", "1", "--seed", "4"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("ended as without") == 4
