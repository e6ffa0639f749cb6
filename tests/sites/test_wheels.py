"""Wheels are found, compared and judged as pip does it, whatever their files are called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import sys_tags

from phalanx.errors import CallError
from phalanx.sites.wheels import Wheel, files_in, listed, newest, normal, paths_in, supported
from tests.examples import examples

MINE = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PLATFORM = next(iter(sys_tags())).platform
PYTHON = supported()


def wheels(*files: str, names: tuple[str, ...] = (), python: str | None = None) -> list[Wheel]:
    found, _ = listed([("/w", file) for file in files], names, supported(python) if python else PYTHON)
    return found


def test_wheels_for_this_python_and_others() -> None:
    found = wheels(
        "torch-2.1.0+site-py3-none-any.whl",
        f"torch-2.10.0-1-{MINE}-{MINE}-{PLATFORM}.whl",
        "torch-2.9.0-cp38-cp38-linux_x86_64.whl",
        f"torch-2.8.0-{MINE}-{MINE}-win_amd64.whl",
        f"torch-2.7.0-{MINE}-{MINE}zzz-{PLATFORM}.whl",
    )
    assert [(wheel.version, wheel.build) for wheel in found] == [
        ("2.10.0", "1"), ("2.9.0", ""), ("2.8.0", ""), ("2.7.0", ""), ("2.1.0+site", ""),
    ]  # fmt: skip
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert [wheel.why_not for wheel in found] == [
        None,
        f"for cp38, not {here}",
        "for win_amd64, not this machine",
        f"for {MINE}-{MINE}zzz, not {here}",
        None,
    ]
    assert [wheel.version for wheel in newest(found)] == ["2.10.0"]


def test_of_one_version_what_fits_best_comes_first() -> None:
    found = wheels("a-1-py3-none-any.whl", f"a-1-{MINE}-{MINE}-{PLATFORM}.whl", "a-1-cp37-abi3-win32.whl")
    assert [wheel.python for wheel in found] == [MINE, "py3", "cp37"]
    assert len(newest(found)) == 2


def test_names_are_compared_as_pip_compares_them() -> None:
    files = ("Torch_Geometric-1-py3-none-any.whl", "torch-1-py3-none-any.whl", "numpy-1-py3-none-any.whl")
    assert [wheel.name for wheel in wheels(*files, names=("TORCH.geometric",))] == ["torch-geometric"]
    assert [wheel.name for wheel in wheels(*files, names=("torch*",))] == ["torch", "torch-geometric"]
    assert [wheel.name for wheel in wheels(*files, names=("Torch_*", "numpy"))] == ["numpy", "torch-geometric"]
    assert len(wheels(*files)) == 3
    assert normal("A__b.-c") == "a-b-c"


def test_another_python_may_be_asked_about() -> None:
    files = (
        f"x-1-cp38-cp38-{PLATFORM}.whl",
        f"x-1-cp39-abi3-{PLATFORM}.whl",
        "x-1-py3-none-any.whl",
        "x-1-py2-none-any.whl",
    )
    assert {wheel.python for wheel in wheels(*files, python="3.8") if wheel.why_not is None} == {"cp38", "py3"}
    usable = {wheel.python for wheel in wheels(*files, python="3.12") if wheel.why_not is None}
    assert usable == {"cp39", "py3"}
    assert supported("3.12.4").words == "Python 3.12"
    for wrong in ("3", "three", "3.x", "-1.2", "3.99999"):
        with pytest.raises(CallError, match="write a version"):
            supported(wrong)


STRANGE = (
    ".whl", "-.whl", "a.whl", "a-b-c-d-e-f-g.whl", "x-1..0-py3-none-any.whl", "x-1-b-py3-none-any.whl",
    "é-1-py3-none-any.whl", "a\nb-1-py3-none-any.whl", "x" * 5000 + "-1-py3-none-any.whl", "x-1-py3-none-any-.whl",
    "x-1-\udcff-none-any.whl",
)  # fmt: skip


@pytest.mark.parametrize("file", STRANGE, ids=range(len(STRANGE)))
def test_strange_names_are_no_wheels_and_no_error(file: str) -> None:
    (found,) = wheels(file)
    assert found.why_not or found.version


@examples(150)
@given(st.text(max_size=60).map(lambda text: f"{text}.whl"))
def test_no_name_breaks_the_list(file: str) -> None:
    assert len(wheels(file, "torch-1-py3-none-any.whl")) == 2


def test_folders_are_looked_at_with_all_below_them_and_once(tmp_path: Path) -> None:
    (tmp_path / "generic").mkdir()
    (tmp_path / "avx2" / "deep").mkdir(parents=True)
    (tmp_path / "generic" / "a-1-py3-none-any.whl").touch()
    (tmp_path / "avx2" / "deep" / "b-1-py3-none-any.whl").touch()
    (tmp_path / "readme.txt").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    found = list(files_in([str(tmp_path), str(tmp_path / "generic")]))
    assert sorted(name for _, name in found) == ["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"]
    with pytest.raises(CallError, match=r"the wheel folder .* does not exist"):
        list(files_in([str(tmp_path / "missing")]))


def test_links_of_pip_are_folders_or_not_ours() -> None:
    assert paths_in("/a/b file:///c https://wheels.example/x\n/d") == ["/a/b", "/c", "/d"]
    assert paths_in("~/w") == [str(Path.home() / "w")]
