"""The command of a build: a script that no text of a user is part of."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from phalanx import plan, spec
from phalanx.errors import CallError, SpecErrors
from phalanx.plan.builders import BuildTarget, command_of, recipe_of, target_of
from phalanx.spec.model import Build

STEPS = Build(image="python:3.11", build_steps=("pip install x",))


@pytest.mark.parametrize(
    ("to", "target"),
    [
        (None, BuildTarget.VIRTUALENV),
        ("x.sif", BuildTarget.APPTAINER),
        ("/images/my image.sif", BuildTarget.APPTAINER),
        ("out/x.tar", BuildTarget.ARCHIVE),
        ("oci-archive:x.tar", BuildTarget.ARCHIVE),
        ("localhost:5000/a", BuildTarget.REGISTRY),
        ("ghcr.io/team/name:1.0_a", BuildTarget.REGISTRY),
        ("team/name", BuildTarget.REGISTRY),
    ],
)
def test_what_a_build_makes(to: str | None, target: BuildTarget) -> None:
    assert target_of(Build(to=to)) is target


@pytest.mark.parametrize("to", ["-x.sif", "a b", "x\n.sif", "REG//x", "a:b:c:d", "", "name:tag,push=false"])
def test_what_is_neither_a_file_nor_an_image_is_refused(to: str) -> None:
    with pytest.raises(CallError, match="to: "):
        target_of(Build(to=to))


@pytest.mark.parametrize("to", [None, "x.sif", "x.tar", "r.example/x:1"])
def test_the_script_is_the_same_whatever_the_file_says(to: str | None) -> None:
    nasty = "'; evil; \"$(evil)\n%files\nFROM evil"
    plain = command_of(STEPS._replace(to=to))[1]
    other = command_of(STEPS._replace(to=to, build_steps=(nasty, nasty), env_vars=(("A", "';evil"),)))[1]
    assert plain[:4] == other[:4]
    assert "evil" not in other[2]
    assert command_of(STEPS._replace(to=to, nocache=True))[1] != plain


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs the Debian package shellcheck")
@pytest.mark.parametrize("to", [None, "x.sif", "x.tar"])
def test_the_script_is_clean(to: str | None, tmp_path: Path) -> None:
    (tmp_path / "build.sh").write_text(command_of(STEPS._replace(to=to))[1][2])
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "--format=gcc", tmp_path / "build.sh"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""


def test_what_cannot_become_an_image_says_why() -> None:
    with pytest.raises(CallError, match="Apptainer does not read Dockerfiles"):
        recipe_of(Build(dockerfile="Dockerfile", to="x.sif"))
    with pytest.raises(CallError, match="add `image: NAME`"):
        recipe_of(Build(build_steps=("x",), to="x.sif"))
    for path in ("../Dockerfile", "/etc/passwd"):
        with pytest.raises(CallError, match="not inside the code"):
            command_of(Build(dockerfile=path, to="x.tar"))


def test_the_steps_of_a_build_are_its_command_and_prepare_nothing() -> None:
    text = b"version: 1\nkind: build\nimage: a\nbuild_steps: [x, y]\nbackend: kaniko\n"
    made = plan.make(spec.load([("b.yml", text)]), "run1")
    assert made.command == "x && y"
    assert made.replicas[0].argv[-3:] == ("no", "x", "y")
    assert made.setup_steps == ()


def test_packages_of_a_build_are_steps() -> None:
    text = b"version: 1\nkind: build\nenvironment: {python: {requirements: [x]}}\n"
    with pytest.raises(SpecErrors, match="write `build_steps"):
        plan.make(spec.load([("b.yml", text)]), "run1")
