"""phalanx wheels"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.running import called, is_silent_about_itself, quick

MINE = f"cp{sys.version_info[0]}{sys.version_info[1]}"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheelhouse of two folders, and a home and a pip that know nothing of it."""
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_FIND_LINKS", "PHALANX_SITE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "wheelhouse"
    for file in (
        "generic/torch-2.1.0+site-py3-none-any.whl",
        f"x86-64-v3/torch-2.3.0-1-{MINE}-none-any.whl",
        "x86-64-v3/torch-2.4.0-cp27-cp27m-linux_x86_64.whl",
        "generic/Torch_Geometric-2.0-py3-none-any.whl",
        "generic/PyYAML-6.0-py3-none-win_amd64.whl",
        "generic/strange.whl",
        "generic/a\x1b[2Jb-1-py3-none-any.whl",
    ):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return folder


def test_the_newest_that_can_be_used(house: Path) -> None:
    answer = quick("wheels", "torch", "--wheelhouse", str(house))
    assert answer.code == 0
    head, row = answer.out.splitlines()
    assert head.split() == ["NAME", "VERSION", "BUILD", "PYTHON", "ABI", "PLATFORM", "FOLDER"]
    assert row.split() == ["torch", "2.3.0", "1", MINE, "none", "any", str(house / "x86-64-v3")]
    assert "1 more are not usable" in answer.err


def test_patterns_all_versions_and_why_not(house: Path) -> None:
    answer = quick("wheels", "Torch*", "--all-versions", "--wheelhouse", str(house))
    assert [line.split()[:2] for line in answer.out.splitlines()[1:]] == [
        ["torch", "2.3.0"], ["torch", "2.1.0+site"], ["torch-geometric", "2.0"],
    ]  # fmt: skip
    everything = quick("wheels", "--all", "--wheelhouse", str(house))
    assert "for cp27, not Python 3" in everything.out
    assert "not a wheel name" in everything.out
    assert "\x1b[2J" not in everything.out, "a file's name does not command the terminal"


def test_names_that_are_not_there(house: Path) -> None:
    typo = quick("wheels", "tocrh", "--wheelhouse", str(house))
    assert (typo.code, typo.out) == (1, "")
    assert typo.err == "error: no wheel of `tocrh`: did you mean `torch`?\n"
    unfit = quick("wheels", "pyyaml", "torch", "--wheelhouse", str(house))
    assert unfit.code == 1
    assert "PyYAML-6.0-py3-none-win_amd64.whl is for win_amd64, not this machine" in unfit.err
    assert "torch" in unfit.out


def test_json(house: Path) -> None:
    data = quick("wheels", "torch", "nothing", "--wheelhouse", str(house), "--json").data
    assert data["ok"] is False
    assert data["faults"] == ["no wheel of `nothing`"]
    (wheel,) = data["wheels"]
    assert wheel["path"] == str(house / "x86-64-v3" / f"torch-2.3.0-1-{MINE}-none-any.whl")
    assert (wheel["name"], wheel["version"], wheel["build"], wheel["why_not"]) == ("torch", "2.3.0", "1", None)


@pytest.mark.slow
def test_folders_of_the_site_and_of_pip(house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no wheel folder is configured" in quick("wheels", "torch").err
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "site.yml").write_text(f"name: x\nwheelhouse: [{house / 'generic'}, /missing/wheels]")
    mine = quick("wheels", "torch")
    assert "2.1.0+site" in mine.out
    assert "the wheel folder /missing/wheels does not exist" in mine.err
    (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {house / 'x86-64-v3'} https://wheels.example/\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert "2.3.0" in quick("wheels", "torch").out
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(house / "x86-64-v3"))
    assert "2.3.0" in quick("wheels", "torch").out


def test_another_python(house: Path) -> None:
    assert "2.4.0" in quick("wheels", "torch", "--python", "2.7", "--wheelhouse", str(house), "--all").out
    wrong = quick("wheels", "torch", "--python", "3.x", "--wheelhouse", str(house))
    assert (wrong.code, wrong.err) == (2, "error: --python '3.x': write a version, such as 3.11\n")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    answer = quick("wheels", "--wheelhouse", str(tmp_path / "missing"))
    assert answer.code == 2
    assert "the wheel folder" in answer.err


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index in a folder: a package with two versions, and one for another Python alone."""
    for name, version, tags in (
        ("mine", "1.0", "py3-none-any"),
        ("mine", "1.10", "py3-none-any"),
        ("old", "1", "cp27-cp27m-any"),
    ):
        folder = tmp_path / "simple" / name
        folder.mkdir(parents=True, exist_ok=True)
        file = f"{name}-{version}-{tags}.whl"
        with zipfile.ZipFile(folder / file, "w") as wheel:
            wheel.writestr(
                f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
        links = "".join(f'<a href="{found.name}">{found.name}</a>' for found in sorted(folder.glob("*.whl")))
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    return tmp_path


@pytest.mark.usefixtures("index")
@pytest.mark.slow
def test_an_index_is_asked_through_pip() -> None:
    assert quick("wheels", "--index", "mine").out == "NAME  VERSION\nmine  1.10\n"
    every = quick("wheels", "--index", "--all-versions", "mine", "--json").data
    assert every["wheels"] == [{"name": "mine", "version": "1.10"}, {"name": "mine", "version": "1.0"}]
    missing = quick("wheels", "--index", "old", "nothing")
    assert missing.code == 1
    assert "`old`: the index has no wheel for this Python" in missing.err
    assert "`nothing`: the index has no wheel for this Python" in missing.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--index",), "--index needs names"),
        (("--index", "torch*"), "not patterns"),
        (("--index", "--wheelhouse", "/x", "torch"), "cannot be combined with"),
        (("--index", "--", "--upgrade"), "not patterns"),
    ],
)
def test_what_an_index_cannot_be_asked(arguments: tuple[str, ...], said: str) -> None:
    answer = quick("wheels", *arguments)
    assert answer.code == 2
    assert said in answer.err


def test_the_installed_command(house: Path) -> None:
    answer = called("wheels", "torch", "--wheelhouse", str(house))
    assert answer.code == 0
    assert "2.3.0" in answer.out
    assert is_silent_about_itself(called("wheels", "torch", "--wheelhouse", "\udcff/x"))
