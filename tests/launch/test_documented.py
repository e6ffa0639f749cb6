"""The examples of the page about runs from Python, as they are written there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "run" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
EXPECTED = re.compile(r"print\(.*\)  # (.+)")


@pytest.mark.slow
def test_the_examples_run_and_print_what_the_page_says(working: Path) -> None:
    (working / "train.py").write_text(BLOCKS[0])
    programs = [block for block in BLOCKS[1:] if "import phalanx" in block]
    assert len(programs) == 6
    processes: list[subprocess.Popen[str]] = []
    for number, program in enumerate(programs):
        if "attach" in program:  # after the run that it is about
            processes[0].wait()
        (working / f"example_{number}.py").write_text(program)
        call = [sys.executable, f"example_{number}.py"]
        processes.append(subprocess.Popen(call, cwd=working, stdout=subprocess.PIPE, text=True))
    for program, process in zip(programs, processes, strict=True):
        said, _ = process.communicate(timeout=90)
        assert process.returncode == 0, program
        words = [found for found in EXPECTED.findall(program) if not found.startswith("a name")]
        assert [word for word in words if word not in said.splitlines()] == []


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_python(block: str) -> None:
    compile(block, str(PAGE), "exec")
