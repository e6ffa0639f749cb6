"""Requirements are looked up in the wheelhouse before submission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phalanx.sites.findings import ADVICE, ERROR, SiteFinding
from phalanx.sites.wheelhouse_checks import wheelhouse_findings
from phalanx.spec.model import PythonOptions


@pytest.fixture(name="house")
def house_fixture(tmp_path: Path) -> Path:
    house = tmp_path / "wheels"
    house.mkdir()
    for name in (
        "tinynet-1.0-py3-none-any.whl",
        "Torch_Geometric-2.5+computecanada-py3-none-any.whl",
        "old-pkg-0.9.tar.gz",
    ):
        (house / name).touch()
    return house


def found(house: Path | None, *requirements: str, **more: Any) -> list[SiteFinding]:
    houses = (str(house),) if house is not None else ()
    return wheelhouse_findings(PythonOptions(requirements=requirements, wheelhouse=houses, **more), houses, None, {})


def test_what_is_there_is_fine(house: Path) -> None:
    assert found(house, "tinynet", "torch-geometric>=2", "old_pkg==0.9", "TinyNet[all]~=1.0") == []
    assert found(house, "./local", "x @ https://example.org/x.whl", "missing; python_version < '3'") == []
    assert found(None, "tinynet") == []


def test_all_that_is_missing_is_named_at_once(house: Path) -> None:
    (fault,) = found(house, "tinynte", "tinynet>=2", "old-pkg", "mxnet")
    assert (fault.severity, fault.path) == (ERROR, "environment.python.requirements")
    for word in ("`tinynte` (did you mean `tinynet`?)", "`tinynet>=2` (only 1.0)", "`mxnet`"):
        assert word in fault.message
    assert "old-pkg" not in fault.message


def test_requirement_files_are_read(house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("# packages\ntinynet==1.0  # fine\nmxnet\n-c constraints.txt\n")
    (fault,) = found(house, "requirements.txt")
    assert "not in the wheelhouse: `mxnet` (in" in fault.message
    (tmp_path / "requirements.txt").write_text("--find-links elsewhere\nmxnet\n")
    assert found(house, "requirements.txt") == []


def test_a_wheelhouse_that_does_not_exist(tmp_path: Path) -> None:
    (fault,) = found(tmp_path / "gone", "tinynet")
    assert (fault.severity, fault.path) == (ERROR, "environment.python.wheelhouse")
    (fault,) = found(Path("gone"), "tinynet")
    assert fault.severity == ADVICE


def test_folders_that_only_pip_knows_give_advice(house: Path) -> None:
    asked = PythonOptions(requirements=("mxnet",), no_index=True)
    (fault,) = wheelhouse_findings(asked, (), None, {"PIP_FIND_LINKS": str(house)})
    assert fault.severity == ADVICE
    assert wheelhouse_findings(asked, (), None, {}) == []
