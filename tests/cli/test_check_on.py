"""phalanx check --on slurm"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import called, quick

FILE = """\
version: 1
kind: experiment
name: train
framework: pytorch
environment:
  resources: {cpu: {requests: 12}, memory: {requests: 100Gi}, gpu: {requests: 1}}
  timeout: 3h
  slurm: {account: def-me, gpu_type: a100}
  replicas:
    n_workers: 3
    default_worker:
      resources: {cpu: {requests: 12}, memory: {requests: 100Gi}, gpu: {requests: 1}}
run: {cmd: python train.py}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file, and a home without a site."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "home"))
    for name in ("PHALANX_SITE", "SBATCH_ACCOUNT", "SBATCH_TIMELIMIT", "SBATCH_PARTITION", "SBATCH_QOS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file.yml").write_text(FILE)
    return tmp_path


def changed(place: Path, old: str, new: str) -> None:
    text = (place / "file.yml").read_text()
    assert old in text
    (place / "file.yml").write_text(text.replace(old, new))


def test_what_the_site_takes_is_fine() -> None:
    answer = quick("check", "-f", "file.yml", "--on", "slurm", "--site", "narval")
    assert (answer.code, answer.err) == (0, "")
    said = "Narval (Digital Research Alliance of Canada), as of 2026-09-23: no rejection expected\n"
    assert answer.out.startswith(said)
    assert "ok: file.yml: experiment `train`, pytorch" in answer.out


def test_what_the_site_refuses_is_reported_with_its_place_and_what_would_fit(place: Path) -> None:
    changed(place, "timeout: 3h", "timeout: 10d")
    changed(place, "gpu_type: a100", "gpu_type: a10")
    changed(place, "account: def-me, ", "")
    answer = quick("check", "-f", "file.yml", "--on", "slurm", "--site", "narval")
    assert answer.code == 1
    assert "ok:" not in answer.out
    assert (
        "file.yml:7:12: error: environment.timeout: 10d exceeds the limit of narval: 7d\n"
        "  7 |   timeout: 10d\n"
        "    |            ^^^\n"
        "  hint: write `environment.slurm.segment: 7d`: the run is split into 2 jobs"
    ) in answer.err
    assert "file.yml:8:21: error: environment.slurm.gpu_type: narval has no GPU `a10`" in answer.err
    assert "file.yml:8:3: error: environment.slurm.account: narval requires an account" in answer.err
    assert "3 errors" in answer.err


def test_advice_is_no_error(place: Path) -> None:
    changed(place, "timeout: 3h", "timeout: 5d")
    answer = quick("check", "-f", "file.yml", "--on", "slurm", "--site", "narval")
    assert answer.code == 0
    assert "advice: file.yml:7: environment.timeout: a job of at most 3d can run on more nodes of narval" in answer.out


def test_json(place: Path) -> None:
    fine = quick("check", "-f", "file.yml", "--on", "slurm", "--site", "narval", "--json").data
    assert (fine["ok"], fine["site"], fine["advice"]) == (True, "narval", [])
    assert "errors" not in fine
    changed(place, "timeout: 3h", "timeout: 5d")
    changed(place, "gpu_type: a100", "gpu_type: a10")
    answer = quick("check", "-f", "file.yml", "--on", "slurm", "--site", "narval", "--json")
    assert answer.code == 1
    assert answer.data["ok"] is False
    (fault,) = answer.data["errors"]
    assert (fault["path"], fault["line"], fault["suggestion"]) == (
        "environment.slurm.gpu_type", 8, "did you mean `a100`?",
    )  # fmt: skip
    (advice,) = answer.data["advice"]
    assert advice["path"] == "environment.timeout"
    assert advice["suggestion"].startswith("write `environment.timeout: 3d`")
    assert answer.data["replicas"] == {"master": 1, "worker": 3}


def test_without_a_profile_the_file_is_checked_and_the_answer_says_where_to_get_one() -> None:
    answer = quick("check", "-f", "file.yml", "--on", "slurm")
    assert answer.code == 0
    assert "no site profile found: create one with `phalanx site init` on the cluster" in answer.out
    assert quick("check", "-f", "file.yml", "--on", "slurm", "--json").data["site"] is None


def test_the_site_comes_from_the_file_the_variable_or_the_home(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def used() -> str:
        return str(quick("check", "-f", "file.yml", "--on", "slurm", "--json").data["site"])

    (place / "home").mkdir()
    (place / "home" / "site.yml").write_text("name: mine")
    assert used() == "mine"
    monkeypatch.setenv("PHALANX_SITE", "fir")
    assert used() == "fir"
    changed(place, "slurm: {", "slurm: {site: rorqual, ")
    assert used() == "rorqual"
    assert quick("check", "-f", "file.yml", "--on", "slurm", "--site", "nibi", "--json").data["site"] == "nibi"


def test_variables_of_sbatch_count(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(place, "account: def-me, ", "")
    monkeypatch.setenv("SBATCH_ACCOUNT", "def-me")
    assert quick("check", "-f", "file.yml", "--on", "slurm", "--site", "narval").code == 0


def test_a_home_that_nodes_cannot_write_to(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(place, "gpu_type: a100", "gpu_type: h100")
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    answer = quick("check", "-f", "file.yml", "--on", "slurm", "--site", "trillium")
    assert "advice: nodes of trillium can write only below $SCRATCH" in answer.out
    monkeypatch.setenv("SCRATCH", str(place))
    assert "$SCRATCH" not in quick("check", "-f", "file.yml", "--on", "slurm", "--site", "trillium").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--site", "narval"), "--site needs --on slurm"),
        (("--on", "local", "--site", "narval"), "--site needs --on slurm"),
        (("--on", "slrum"), "no backend `slrum` is installed"),
        (("--on", "slurm", "--site", "narvall"), "did you mean `narval`?"),
        (("--on", "slurm", "--site", "/missing.yml"), "cannot read the profile /missing.yml"),
    ],
)
def test_wrong_calls(arguments: tuple[str, ...], said: str) -> None:
    answer = quick("check", "-f", "file.yml", *arguments)
    assert answer.code == 2
    assert said in answer.err


def test_a_wrong_profile_is_reported_in_full(place: Path) -> None:
    (place / "site.yml").write_text("name: x\nnodse: []\npolicy: {tiem: required}\n")
    answer = quick("check", "-f", "file.yml", "--on", "slurm", "--site", "./site.yml")
    assert answer.code == 1
    assert "site.yml:2:1: error: nodse: unknown key" in answer.err
    assert "did you mean `time`?" in answer.err


def test_groups_and_pipelines_are_judged(place: Path) -> None:
    changed(place, "kind: experiment", "kind: group")
    changed(
        place,
        "run: {cmd: python train.py}",
        "run: {cmd: 'python train.py {{ lr }}'}\nhptuning: {matrix: {lr: {values: [1, 2]}}}",
    )
    changed(place, "timeout: 3h", "timeout: 10d")
    assert "10d exceeds" in quick("check", "-f", "file.yml", "--on", "slurm", "--site", "narval").err
    (place / "pipe.yml").write_text(
        """
version: 1
kind: pipeline
ops:
  - {name: first, template: {name: job}}
templates:
  - {version: 1, kind: job, name: job, environment: {timeout: 10d}, run: {cmd: 'true'}}
"""
    )
    answer = quick("check", "-f", "pipe.yml", "--on", "slurm", "--site", "narval")
    assert answer.code == 1
    assert "pipe.yml: error: environment.timeout: op first: 10d exceeds the limit of narval" in answer.err


@pytest.mark.slow
def test_the_installed_command() -> None:
    assert called("check", "-f", "file.yml", "--on", "slurm", "--site", "narval").code == 0
    assert called("check", "-f", "file.yml", "--on", "slurm", "--site", "tamia").code == 1
