"""A small corpus of our own: every kind and every dialect, several files merged, and files that are refused.

`corpus/NAME.yml` is one case; `corpus/NAME.1.yml`, `NAME.2.yml` and so on are the layers of one. `corpus/NAME.json` is
the expected result: the summary of `phalanx check`, the document of `phalanx convert` and, for a group, the points of
its matrix and the command of a grid's first experiment; or the errors. Of the notes it has only the reader's, and only
their places: their wording is tested beside the code that writes them.

PHALANX_UPDATE_GOLDEN=1 writes the JSON files again. Review the difference by hand: no other test knows what is right.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from phalanx.cli.render.plan_summary import plan_of, summarise
from phalanx.errors import SpecErrors
from phalanx.plan import framework_checks
from phalanx.spec import Kind, Spec
from phalanx.spec.groups import first_suggestion
from phalanx.spec.model import Search, thaw
from phalanx.spec.schema import json_schema
from phalanx.spec.yaml_writer import modern_document
from phalanx.tune.space import Dimension
from tests.backends.golden import UPDATE
from tests.spec.helpers import assert_converts, load_text

FOLDER = Path(__file__).with_name("corpus")
LASTING = ("group-distribution", "job")  # their notes are about what they mean, in the modern form too


def _cases() -> dict[str, list[Path]]:
    """The layers of each case, by its name."""
    cases: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(FOLDER.glob("*.yml")):
        cases[path.name.split(".")[0]].append(path)
    return dict(cases)


CASES = _cases()
REFUSED = [name for name in CASES if name.startswith("refused-")]
ACCEPTED = [name for name in CASES if name not in REFUSED]


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


@cache
def _load(name: str) -> Spec:
    """Read as `phalanx check` reads. Raises SpecErrors."""
    spec, _ = framework_checks.load([(path.name, path.read_bytes()) for path in CASES[name]], {})
    return spec


def _summary(spec: Spec) -> dict[str, Any]:
    places = [f"{note.place.file}:{note.place.line} {note.path}".strip() for note in spec.notes]
    return {**summarise(spec, plan_of(spec)), "notes": places}


def _rounded(value: Any) -> Any:
    """Without the last digits, in which machines may differ."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _points(search: Search) -> dict[str, Any]:
    def of(dimension: Dimension) -> Any:
        values = dimension.values if dimension.values is not None else ()
        return [_rounded(value) for value in thaw(values)] or thaw(dimension.arguments)

    return {dimension.name: of(dimension) for dimension in search.matrix}


def _found(name: str) -> dict[str, Any]:
    """What a case comes to now, in the form of its JSON file."""
    try:
        spec = _load(name)
    except SpecErrors as faults:
        return {"errors": [error.as_json() for error in faults.errors]}
    found: dict[str, Any] = {"summary": _summary(spec), "converted": modern_document(spec)}
    if spec.search is not None:
        found["points"] = _points(spec.search)
    if spec.search is not None and spec.search.algorithm == "grid_search":
        found["first_command"] = first_suggestion(spec).command
    return found


def _laid_out(value: Any, indent: str = "") -> str:
    """JSON whose parts stand on one line where they fit, so that people can review it."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + len(line) <= 110:
        return line
    inner = f"{indent}  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {_laid_out(item, inner)}" for key, item in value.items()]
    else:
        items = [_laid_out(item, inner) for item in value]
    body = ",\n".join(inner + item for item in items)
    return f"{line[0]}\n{body}\n{indent}{line[-1]}"


def _expected(name: str) -> dict[str, Any]:
    path = FOLDER / f"{name}.json"
    if os.environ.get(UPDATE):
        path.write_text(_laid_out(_found(name)) + "\n", encoding="utf-8")
    expected: dict[str, Any] = json.loads(path.read_bytes())
    return expected


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_read_as_agreed(name: str) -> None:
    expected = _expected(name)
    assert ("errors" in expected) == (name in REFUSED)
    assert _found(name) == expected, f"{UPDATE}=1 writes the files again"


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_converted_file_means_the_same_and_fits_the_schema(name: str) -> None:
    spec = _load(name)
    again = load_text(assert_converts(spec, has_notes=name in LASTING))
    assert {**_summary(again), "notes": []} == {**_summary(spec), "notes": []}
    assert [error.message for error in _validator().iter_errors(modern_document(spec))] == []


def test_every_case_has_one_expectation() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.json")) == sorted(f"{name}.json" for name in CASES)
    assert {path.suffix for path in FOLDER.iterdir()} == {".yml", ".json"}


def test_layers_are_numbered_from_one() -> None:
    for name, layers in CASES.items():
        numbered = [f"{name}.{number}.yml" for number in range(1, len(layers) + 1)]
        assert [path.name for path in layers] in ([f"{name}.yml"], numbered)


def test_every_kind_is_there() -> None:
    assert {_load(name).kind for name in ACCEPTED} == set(Kind)
