"""GPUs as nvidia-smi tells of them; here by a program of that name, since few test machines have one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.agent.gpus import parse_gpus, sample_gpus
from phalanx.spool import read
from tests.agent.running import Agents

ANSWER = "0, 87, 4096, 81559\n2, 3, 10, 81559\n"


@pytest.fixture(name="path")
def path_fixture(tmp_path: Path) -> str:
    """A PATH on which nvidia-smi answers, and writes down how it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/asked\nprintf '{ANSWER}'\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_the_use_of_the_given_gpus_is_read(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path)
    rows = sample_gpus(["0", "2"])
    assert rows[0] == {"index": 0.0, "percent": 87.0, "memory_mib": 4096.0, "total_mib": 81559.0}
    assert [row["index"] for row in rows] == [0.0, 2.0]
    asked = (Path(path.split(os.pathsep, maxsplit=1)[0]) / "asked").read_text()
    assert asked.rstrip().endswith("-i 0,2")


def test_without_nvidia_smi_there_is_nothing_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sample_gpus(["0"]) == []


@pytest.mark.parametrize("text", ["", "no devices were found\n", "0, [N/A], 1, 2\n", "1, 2\n"])
def test_what_is_no_measurement_is_passed_over(text: str) -> None:
    assert parse_gpus(text) == []


def test_an_agent_writes_the_use_of_its_gpus_to_the_spool(tmp_path: Path, path: str) -> None:
    agents = Agents(tmp_path, "sleep 0.6; echo $CUDA_VISIBLE_DEVICES", gpus={"master-0": ["0", "2"]}).start(PATH=path)
    agents.end()
    samples = [row["gpus"] for record in read(agents.attempt() / "spool") if "gpus" in (row := record.data())]
    assert samples[0][0]["percent"] == 87.0
    assert agents.log() == b"0,2\n"
