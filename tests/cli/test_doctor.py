"""`phalanx doctor` about the installation: what is there, what is missing, and what needs it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from phalanx import __version__
from phalanx.cli import installation
from phalanx.cli.installation import Part, parts
from phalanx.extras import EXTRAS
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name

TOOLS = ["kubeconfig", "sbatch", "git"]


def test_everything_that_may_be_missing_is_listed(place: Place) -> None:
    answer = place.quick("doctor")
    lines = answer.out.splitlines()
    assert lines[0] == f"phalanx {__version__} (Python {platform.python_version()}, {sys.executable})"
    listed = [line.split()[0] for line in lines[1:] if line.startswith("  ")]
    assert listed == ["page", *EXTRAS, *TOOLS]
    assert (answer.code, lines[-1]) == (0, "no problems found")


def test_programs_get_the_same_as_json(place: Place) -> None:
    answer = place.quick("doctor", "--json")
    installed = answer.data["installed"]
    assert (installed["phalanx"], installed["python"]) == (__version__, platform.python_version())
    assert installed["executable"] == sys.executable
    assert [part["name"] for part in installed["parts"]] == ["page", *EXTRAS, *TOOLS]
    assert {part["kind"] for part in installed["parts"]} == {"page", "extra", "tool"}
    assert answer.data["ok"] is True


def found(home: Path) -> dict[str, Part]:
    return {part.name: part for part in parts(home)}


def test_what_is_missing_says_how_to_get_it_and_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.extras.Extra.version", lambda self: None)
    monkeypatch.setattr(installation, "PAGE", "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    seen = found(tmp_path)
    assert [part.name for part in seen.values() if part.found is not None] == []
    for name, extra in EXTRAS.items():
        assert seen[name].words() == f"missing: {extra.install} (needed for {extra.use})"
    assert seen["sbatch"].words() == "missing: use a login node of the cluster (needed for runs on Slurm)"


def test_what_is_there_says_where_or_which_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.extras.Extra.version", lambda self: "1.2.3")
    for name in ("sbatch", "git"):
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "config").write_text("{}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    seen = found(tmp_path)
    assert seen["series"].words() == "pyarrow 1.2.3"
    assert seen["sbatch"].words() == str(tmp_path / "sbatch")
    assert seen["kubeconfig"].words() == str(tmp_path / "config")


@pytest.mark.slow
def test_a_home_that_cannot_be_opened_is_a_problem_beside_what_is_installed(place: Place) -> None:
    answer = place.call("doctor", "--json", PHALANX_DATABASE="mysql://host/db")
    assert (answer.code, answer.data["ok"], answer.data["runs"]) == (1, False, None)
    assert "postgresql://" in answer.data["problems"][0]
    assert answer.data["installed"]["phalanx"] == __version__
    in_words = place.call("doctor", PHALANX_DATABASE="mysql://host/db")
    assert (in_words.code, in_words.out.splitlines()[-2]) == (1, f"home {place.home}")
    assert in_words.out.splitlines()[-1].startswith("problem: ")


@pytest.mark.slow
def test_a_storage_of_outputs_that_lacks_its_package_is_a_problem(place: Place, tmp_path: Path) -> None:
    (tmp_path / "s3fs.py").write_text("raise ModuleNotFoundError('hidden', name='s3fs')")
    hidden = {"PHALANX_OUTPUTS_URL": "s3://bucket/runs", "PYTHONPATH": str(tmp_path)}
    (problem,) = place.call("doctor", "--json", stdin=b"", **hidden).data["problems"]
    assert problem.startswith("PHALANX_OUTPUTS_URL: storage on s3:// needs")
    assert problem.endswith(EXTRAS["s3"].install)
    assert place.call("doctor", PHALANX_OUTPUTS_URL=f"file://{tmp_path}").code == 0


@pytest.mark.slow
def test_slurm_is_fit_where_its_commands_are(place: Place, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    answer = place.call("doctor", "--on", "slurm", PATH=str(programs))
    assert answer.code == 1
    assert "problem: `sbatch` is not on the PATH of" in answer.out
    assert "note: no site profile: `phalanx site init` writes one" in answer.out
    for name in ("sbatch", "squeue", "scancel"):
        (programs / name).touch(mode=0o755)
    answer = place.call("doctor", "--on", "slurm", PATH=str(programs), PHALANX_SITE="narval")
    assert answer.code == 0, answer.out
    assert answer.out.startswith("site        Narval")
    assert answer.out.endswith("ready for runs\n")
