"""The docs cannot rot: generated parts are current, examples load, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts.pypi_readme import pypi_readme

from phalanx import __version__, plan, spec
from phalanx.cli import VERBS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def write_docs() -> ModuleType:
    found = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_reference_of_the_file_is_what_the_schema_says() -> None:
    page = ROOT / "docs" / "spec.md"
    assert write_docs().current(page.read_text()) == page.read_text(), "run `make docs`"


def test_the_page_of_the_command_line_has_every_verb_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    verbs = write_docs().verbs()
    assert all(f"## phalanx {verb}" in text for verb in VERBS), "run `make docs`"
    options = set(re.findall(r"(?<!\w)--[a-z]+", verbs))
    assert len(options) > 5
    assert options <= set(re.findall(r"(?<!\w)--[a-z]+", text)), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_whole_file_in_the_docs_is_read_without_a_note(page: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        if block.startswith("version:"):
            loaded = spec.load([(page.name, block.encode())])
            assert loaded.notes == ()
            plan.make(loaded, "run")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_the_readme_is_short_and_has_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 110
    assert "\n$ make demo " in text
    assert "\n$ make test " in text


def test_on_pypi_the_readme_has_no_picture_and_no_link_into_the_repository() -> None:
    text = pypi_readme((ROOT / "README.md").read_text())
    assert "pip install phalanx" in text
    assert "[apache-2.0]" not in text.lower()
    assert "<!--" not in text
    assert [target for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith("https://")] == []


def test_the_changelog_has_a_dated_section_for_this_version() -> None:
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)} - \d{{4}}-\d\d-\d\d", sections[1])
