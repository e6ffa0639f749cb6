"""The commands of docs/start/first-run.md work in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "start" / "first-run.md"
FAILING = "phalanx run -P broken_rank=2"  # exits with 1


def commands(text: str) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_their_order(tmp_path: Path) -> None:
    example, own = PAGE.read_text().split("## 5. ")
    sentences = re.findall(r"^(worker-1 failed first: .*)$", example, re.MULTILINE)
    lines = [f"{line} || true" if line == FAILING else line for line in commands(example)]
    lines += ["mkdir own", "cd own", *(line for line in commands(own) if line != "phalanx run")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env={**kept, "PATH": path, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert len(sentences) == 1
    assert sentences[0] in done.stdout.splitlines()
    assert (tmp_path / "phalanx-quickstart" / "own" / "polyaxonfile.yml").exists()
