"""Slurm is asked before a job is submitted. What the real one says is tried in tests/slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends import find
from phalanx.backends.contract import Review
from tests.sites.making import resources, run

Asked = Callable[..., Review]


@pytest.fixture(name="ask")
def ask_fixture(tmp_path: Path) -> Asked:
    """Reviews a plan where `sbatch` and `sinfo` answer so."""

    def ask(
        sbatch: str, sinfo: str = "", options: Mapping[str, str | None] | None = None, **environment: Any
    ) -> Review:
        for name, body in (("sbatch", sbatch), ("sinfo", sinfo)):
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / name).chmod(0o755)
        variables = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return find("slurm").review([("", run(**environment))], tmp_path / "home", variables, options or {})

    return ask


def refuses(text: str) -> str:
    return f"echo '{text}' >&2; exit 1"


def test_sbatch_reads_the_script_and_is_only_asked(ask: Asked, tmp_path: Path) -> None:
    answer = ask(f'echo "$@" >{tmp_path}/words; cat >{tmp_path}/script', **resources(cpu=3))
    assert answer.findings == []
    assert "sbatch accepts the job" in (answer.note or "")
    assert (tmp_path / "words").read_text() == "--test-only\n"
    assert "#SBATCH --cpus-per-task=3\n" in (tmp_path / "script").read_text()


@pytest.mark.parametrize(
    ("complaint", "path"),
    [
        ("allocation failure: Requested reservation is invalid", "environment.slurm.reservation"),
        ("allocation failure: Invalid node name specified", "environment.slurm.directives.nodelist"),
        ("allocation failure: Invalid license specification", "environment.slurm.directives.licenses"),
        ("allocation failure: Invalid qos specification", "environment.slurm.qos"),
        ("allocation failure: Requested node configuration is not available", "environment.slurm"),
        ("sbatch: unrecognized option --frobnicate=1", "environment.slurm.directives"),
        ("sbatch: error: Something else", "environment.slurm"),
    ],
)
def test_what_sbatch_refuses_is_an_error_with_its_place(ask: Asked, complaint: str, path: str) -> None:
    (fault,) = ask(refuses(complaint)).findings
    assert (fault.severity, fault.path) == ("error", path)
    words = complaint.rpartition("failure: ")[2].removeprefix("sbatch: ").removeprefix("error: ")
    assert fault.message == f"sbatch refuses the job: {words}"


def test_nodes_that_are_down_are_no_reason_to_refuse(ask: Asked) -> None:
    complaint = refuses("allocation failure: Requested node configuration is not available")
    (advice,) = ask(complaint, "echo 'node[1-2]|idle|up'; echo 'node3|drained|up'").findings
    assert advice.severity == "advice"
    assert "unavailable are node3" in advice.message


@pytest.mark.parametrize(
    "complaint",
    [
        "sbatch: error: Unable to contact slurm controller (connect failure)",
        "sbatch: fatal: Could not establish a configuration source",
    ],
)
def test_a_controller_that_does_not_answer_is_a_note(ask: Asked, complaint: str) -> None:
    answer = ask(refuses(complaint))
    assert answer.findings == []
    assert answer.is_warning
    assert "Slurm could not be asked: sbatch: " in (answer.note or "")


def test_slurm_is_not_asked_about_another_site_or_a_wrong_file(ask: Asked) -> None:
    never = refuses("sbatch: error: asked")
    assert "asked" not in str(ask(never, options={"site": "narval"}, slurm={"account": "x"}, timeout="1h").findings)
    twice = {"slurm": {"directives": {"mem": "1G"}}, **resources(memory="1Gi")}
    (fault,) = ask(never, **twice).findings
    assert "requested twice" in fault.message
