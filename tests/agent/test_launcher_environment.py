"""The environment of a command whose own launcher starts the ranks."""

from __future__ import annotations

import pytest

from phalanx.agent.launcher import _export_to_steps


@pytest.mark.parametrize(
    ("chosen", "exported"),
    [
        ("NONE", "PHALANX_TRACK,PYTHONPATH"),
        ("HOME,A", "HOME,A,PHALANX_TRACK,PYTHONPATH"),
        ("ALL", "ALL"),
        ("ALL,A=1", "ALL,A=1"),
        (None, None),
    ],
)
def test_steps_of_a_script_get_our_variables_also_if_it_exports_few(chosen: str | None, exported: str | None) -> None:
    environment = {"PHALANX_TRACK": "/t", "PYTHONPATH": "/p", "HOME": "/h"}
    if chosen is not None:
        environment["SLURM_EXPORT_ENV"] = chosen
    _export_to_steps(environment)
    assert environment.get("SLURM_EXPORT_ENV") == exported
