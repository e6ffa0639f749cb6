"""The Python that a run asks for, made once per node."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from phalanx.agent import virtualenv
from phalanx.agent.virtualenv import VirtualenvError, pip_words, prepare

NAME = "phalanx_tiny"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    with zipfile.ZipFile(folder / f"{NAME}-1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{NAME}.py", "VALUE = 42\n")
        about = f"{NAME}-1.2.dist-info"
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.2\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return folder


@pytest.mark.slow
def test_packages_come_from_the_wheelhouse_into_a_place_of_the_node(wheels: Path, tmp_path: Path) -> None:
    asked = {"requirements": ["requirements.txt"], "wheelhouse": [str(wheels)], "steps": ["echo made > made"]}
    (tmp_path / "requirements.txt").write_text(f"{NAME}\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    steps: list[str] = []
    prepared = prepare(asked, str(scratch), None, str(tmp_path), steps.append)
    assert steps == ["creating a virtual environment", "pip install requirements.txt", "echo made > made"]
    python = Path(prepared.variables["VIRTUAL_ENV"]) / "bin" / "python"
    answer = subprocess.run([python, "-c", f"import {NAME}; print({NAME}.VALUE)"], capture_output=True, check=True)
    assert answer.stdout == b"42\n"
    assert f"{NAME.replace('_', '-')}==1.2" in [line.replace("_", "-") for line in prepared.packages]
    assert (tmp_path / "made").read_text() == "made\n"
    (tmp_path / "made").unlink()
    assert prepare(asked, str(scratch), None, str(tmp_path)) == prepared  # and is not made again
    assert not (tmp_path / "made").exists()
    virtualenv.leave(prepared.variables)
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_an_environment_of_one_node_works_on_another(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"requirements": [NAME], "wheelhouse": [str(wheels)]}
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    first = prepare(asked, str(tmp_path), None, str(tmp_path))
    archive = tmp_path / "venv.tar"
    virtualenv.pack(first, str(archive))
    virtualenv.leave(first.variables)
    monkeypatch.setenv("SLURM_JOB_ID", "2")
    second = prepare(asked, str(tmp_path), str(archive), str(tmp_path))
    assert second.packages == first.packages
    venv = Path(second.variables["VIRTUAL_ENV"])
    assert not Path(first.variables["VIRTUAL_ENV"]).exists()
    answer = subprocess.run([venv / "bin" / "pip", "list"], capture_output=True, check=True)  # a script
    assert NAME.encode() in answer.stdout.replace(b"-", b"_")


def test_what_belongs_to_others_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "mine" / "venv").mkdir(parents=True)
    virtualenv.leave({"VIRTUAL_ENV": str(tmp_path / "mine" / "venv")})
    virtualenv.leave({})
    assert (tmp_path / "mine" / "venv").exists()


def test_an_existing_environment_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("WHERE", str(tmp_path))
    prepared = prepare({"venv": "$WHERE/env"}, "/nowhere", None, "/")
    assert prepared.variables["VIRTUAL_ENV"] == str(tmp_path / "env")
    assert prepared.variables["PATH"].startswith(f"{tmp_path}/env/bin:")
    assert prepare({"conda": str(tmp_path / "env")}, "/nowhere", None, "/").variables["CONDA_PREFIX"]
    with pytest.raises(VirtualenvError, match=r"environment\.python\.venv.*/no/such has no bin/python"):
        prepare({"venv": "/no/such"}, "/nowhere", None, "/")


def test_a_container_sees_the_folder_of_its_run_and_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, image = tmp_path / "apptainer", tmp_path / "a.sif"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    image.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    before = prepare({"image": str(image)}, "/nowhere", None, "/code").before
    words = [str(program), "exec", "--nv", "--pwd", "/code", "--bind", "/code"]
    assert virtualenv.with_folder(before, "/runs/r1") == [*words, "--bind", "/runs/r1", str(image)]
    assert virtualenv.with_folder([], "/runs/r1") == []


def test_an_image_needs_apptainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VirtualenvError, match="requires apptainer"):
        prepare({"image": "x.sif"}, "/nowhere", None, "/")
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(VirtualenvError, match=r"x\.sif does not exist"):
        prepare({"image": "x.sif"}, "/nowhere", None, "/")
    (tmp_path / "x.sif").touch()
    prepared = prepare({"image": str(tmp_path / "x.sif")}, "/nowhere", None, "/work")
    assert prepared.before[:2] == [str(program), "exec"]
    assert prepared.before[-1] == str(tmp_path / "x.sif")


def test_nothing_is_made_where_nothing_is_asked_for(tmp_path: Path) -> None:
    assert prepare({"modules": ["python"], "requirements": [], "steps": []}, str(tmp_path), None, "/").variables == {}
    assert list(tmp_path.iterdir()) == []


def test_paths_are_expanded_and_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    assert virtualenv.expand("~/env") == "/home/ana/env"
    assert virtualenv.expand("$HOME/$(touch pwned)") == "/home/ana/$(touch pwned)"


def test_pip_uses_no_index_where_there_is_a_wheelhouse() -> None:
    assert pip_words({"requirements": ["a"]})[-1] == "a"
    assert "--no-index" not in pip_words({"requirements": ["a"]})
    assert pip_words({"requirements": ["a", "b.txt"], "wheelhouse": ["/w"]})[-6:] == [
        "--no-index", "--find-links", "/w", "a", "-r", "b.txt",
    ]  # fmt: skip
    assert "--no-index" in pip_words({"requirements": ["a"], "no_index": True})
