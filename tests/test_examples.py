"""Every example is a file without faults, and the quickstart really trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx import plan, spec
from phalanx.backends.local.backend import BACKEND
from phalanx.cli.commands.plan import write_job
from phalanx.spec.groups import first_suggestion
from tests.ports import free_port

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FILES = sorted(EXAMPLES.glob("*/*.yml"))
# Some show how the documents of Polyaxon write it.
OF_A_DIALECT = re.compile(r"`environment\.\w+` read as `framework: \w+` and `environment\.replicas`")


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_an_example_is_read_without_a_note(file: Path) -> None:
    loaded = spec.load([(file.name, file.read_bytes())])
    assert [note.message for note in loaded.notes if not OF_A_DIALECT.search(note.message)] == []
    for one in [op.spec for op in loaded.pipeline.ops] if loaded.pipeline is not None else [loaded]:
        assert one is not None
        assert plan.make(first_suggestion(one) if one.search is not None else one, "run").command


@pytest.mark.slow
def test_the_quickstart_trains_and_its_ranks_agree(tmp_path: Path) -> None:
    file = EXAMPLES / "quickstart" / "polyaxonfile.yml"
    loaded = spec.load([(file.name, file.read_bytes())], {"steps": "30"})
    write_job(BACKEND.render(plan.make(loaded, "run")), tmp_path / "job")
    port = free_port()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", str(tmp_path / "job" / "start.sh")],
        check=True,
        cwd=file.parent,
        env={**os.environ, "PATH": path, "PHALANX_BASE_PORT": str(port)},
        timeout=120,
    )
    logs = [log.read_text() for log in (tmp_path / "job" / "logs").iterdir()]
    ends = [re.search(r"rank (\d) of 4 done, weights (.*)", log) for log in logs]
    assert sorted(end[1] for end in ends if end) == ["0", "1", "2", "3"]
    assert len({end[2] for end in ends if end}) == 1
    losses = [float(loss) for log in logs for loss in re.findall(r"loss ([\d.]+)", log)]
    assert losses[-1] < losses[0] / 3
