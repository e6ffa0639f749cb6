"""The packages that the sources import are declared, and what needs an extra says which one."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from phalanx import extras
from phalanx.errors import CallError, MissingExtra
from phalanx.extras import EXTRAS, needed
from phalanx.store import Store
from phalanx.tune.decision import packages
from tests.source_trees import FILES, modules_with, tree_of
from tests.test_imports import PORTABLE, imports_of, room_of

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {"yaml": "pyyaml", "sklearn": "scikit-learn", "re2": "google-re2", "markdown_it": "markdown-it-py"}
# An alias of old install lines, and what developers install
NOT_EXTRAS = {"server", "dev"}
# fsspec imports the first three by the scheme of a URL, uvicorn the last if it is installed
BY_OTHERS = {"s3fs", "gcsfs", "adlfs", "httptools"}


def names(requirements: list[str]) -> set[str]:
    return {Requirement(text).name for text in requirements}


DECLARED = names(PROJECT["dependencies"])
OPTIONAL = {name: names(listed) for name, listed in PROJECT["optional-dependencies"].items() if name not in NOT_EXTRAS}


@cache
def imports_by_name() -> set[str]:
    return set(modules_with("import_module"))


def third_party(module: str) -> set[str]:
    """The distributions that a module imports, also by `import_module("name")`."""
    found = set(imports_of(module))
    for node in ast.walk(tree_of(module)) if module in imports_by_name() else ():
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            found |= {str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    tops = {name.partition(".")[0] for name in found}
    return {DISTRIBUTIONS.get(name, name) for name in tops - {*sys.stdlib_module_names, "phalanx"}}


@cache
def used_packages() -> dict[str, set[str]]:
    """The distributions that each module imports, except modules that run beside training code."""
    used = {module: third_party(module) for module in FILES if room_of(module) not in PORTABLE}
    for module in FILES:
        if module.startswith("phalanx.tune.algorithms."):  # imported in a process of their own
            used[module] = {DISTRIBUTIONS.get(name, name) for name in packages(module.rpartition(".")[2])}
    return used


@pytest.mark.slow
def test_every_imported_package_is_declared() -> None:
    known = DECLARED.union(*OPTIONAL.values())
    assert {module: unknown for module, used in used_packages().items() if (unknown := used - known)} == {}


@pytest.mark.slow
def test_every_declared_package_is_imported() -> None:
    used = set().union(*used_packages().values()) | BY_OTHERS
    assert DECLARED - used == set()
    assert set().union(*OPTIONAL.values()) - used == set()


def test_the_table_of_extras_is_that_of_the_project() -> None:
    assert set(EXTRAS) == set(OPTIONAL)
    for name, extra in EXTRAS.items():
        assert extra.name == name
        assert extra.package in OPTIONAL[name]
        assert extra.install == f"pip install 'phalanx[{name}]'"


def test_the_alias_of_old_install_lines_installs_nothing_more() -> None:
    assert PROJECT["optional-dependencies"]["server"] == []


def test_only_the_table_writes_install_lines() -> None:
    written = [module for module, file in FILES.items() if "phalanx[" in file.read_text(encoding="utf-8")]
    assert written == ["phalanx.extras"]


@pytest.mark.parametrize("name", EXTRAS)
def test_a_missing_package_is_one_sentence_with_the_line_to_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = EXTRAS[name]
    monkeypatch.setitem(sys.modules, extra.package, None)
    with pytest.raises(MissingExtra) as raised, needed(name, "this"):
        __import__(extra.package)
    assert str(raised.value) == (
        f"this needs the package `{extra.package}`, which is not installed: pip install 'phalanx[{name}]'"
    )


def test_a_package_that_is_there_and_cannot_be_imported_says_why() -> None:
    with pytest.raises(CallError, match=r"`pytest`, which cannot be imported \(libpq.so: not found\): pip") as raised:
        raise extras.missing("postgres", "this", ImportError("libpq.so: not found\nmore", name="pytest"))
    assert "\n" not in str(raised.value)


def test_postgresql_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=re.escape(EXTRAS["postgres"].install)):
        Store.open(tmp_path, "postgresql://host/runs")


def test_the_page_about_installation_has_the_table() -> None:
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    for extra in EXTRAS.values():
        assert f"| `{extra.name}` | {extra.package} | {extra.use} |\n" in page
