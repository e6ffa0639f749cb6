"""The page about sites is true: its examples are what the command prints, and it has every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phalanx.sites.profile_reader import GPU_TYPE, NODES, PARTITION, POLICY, PROFILE, QOS, load
from tests.cli.running import quick

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "clusters" / "sites.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_profile_of_the_page_is_one() -> None:
    (profile,) = [block for block in blocks("yaml") if block.startswith("name:")]
    site = load("page", profile.encode())
    assert site.gpu_types == ("a100", "a100_1g.5gb")


@pytest.mark.parametrize(
    "record", [PROFILE, NODES, PARTITION, GPU_TYPE, QOS, POLICY], ids=lambda record: str(record.name)
)
def test_the_page_has_every_field(record: object) -> None:
    text = PAGE.read_text()
    assert [key for key in getattr(record, "fields", {}) if f"`{key}`" not in text] == []


def test_what_the_page_says_that_a_check_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "home"))
    for name in ("PHALANX_SITE", "SBATCH_ACCOUNT", "SBATCH_TIMELIMIT", "SBATCH_PARTITION", "SBATCH_QOS"):
        monkeypatch.delenv(name, raising=False)
    (document,) = [block for block in blocks("yaml") if block.startswith("version:")]
    (tmp_path / "train.yml").write_text(document)
    shown = next(block for block in blocks("console") if "phalanx check" in block)
    command, _, said = shown.partition("\n")
    answer = quick(*command.removeprefix("$ phalanx ").split())
    assert answer.out + answer.err == said


def test_what_the_page_says_that_the_list_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path))
    monkeypatch.delenv("PHALANX_SITE", raising=False)
    shown = next(block for block in blocks("console") if "phalanx site list" in block)
    rows = quick("site", "list").out.splitlines()[:-1]
    assert shown.splitlines()[1:-1] == rows
