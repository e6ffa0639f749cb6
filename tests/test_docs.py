"""The documentation is correct: generated parts are current, example files load, links and anchors resolve."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts.pypi_readme import pypi_readme

from phalanx import __version__, plan, spec
from phalanx.cli import VERBS
from phalanx.spec.groups import first_suggestion

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("**/*.md"))]
LINKING = [
    *PAGES,
    *sorted(page for folder in ("benchmarks", "deploy", "examples") for page in (ROOT / folder).glob("**/*.md")),
]
REFERRING = {".md", ".py", ".service", ".sh", ".ts", ".tsx", ".yaml", ".yml"}
CODE_BLOCK = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)  # a longer fence may contain shorter ones


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text of a page without its code blocks."""
    return CODE_BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def write_docs() -> ModuleType:
    found = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_reference_of_the_file_is_what_the_schema_says() -> None:
    page = DOCS / "reference" / "polyaxonfile.md"
    assert write_docs().current(page.read_text()) == page.read_text(), "run `make docs`"


def test_the_page_of_the_command_line_has_every_verb_and_option() -> None:
    text = (DOCS / "reference" / "cli.md").read_text()
    verbs = write_docs().verbs()
    assert all(f"## phalanx {verb}" in text for verb in VERBS), "run `make docs`"
    options = set(re.findall(r"(?<!\w)--[a-z]+", verbs))
    assert len(options) > 5
    assert options <= set(re.findall(r"(?<!\w)--[a-z]+", text)), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_whole_file_in_the_docs_is_read_without_a_note(page: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        if block.startswith("version:"):
            loaded = spec.load([(page.name, block.encode())])
            assert loaded.notes == ()
            for one in [op.spec for op in loaded.pipeline.ops] if loaded.pipeline is not None else [loaded]:
                assert one is not None
                plan.make(first_suggestion(one) if one.search else one, "run")


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_every_relative_link_and_anchor_resolves(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), f"{target}#{anchor}"


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    pages = {str(page.relative_to(DOCS)) for page in DOCS.glob("*/*.md")} | {"architecture.md"}
    assert sorted(page for page in pages if f"]({page})" not in index) == []


def test_every_page_that_code_refers_to_exists() -> None:
    folders = ("benchmarks", "deploy", "examples", "scripts", "src", "tests", "web/src")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in REFERRING]
    files += [ROOT / "Makefile", ROOT / "deploy" / "Containerfile", *PAGES]
    mentioned = {found for file in files for found in re.findall(r"\bdocs/[a-z/-]+\.md", file.read_text())}
    assert "docs/clusters/sites.md" in mentioned
    assert sorted(path for path in mentioned if not (ROOT / path).exists()) == []


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
