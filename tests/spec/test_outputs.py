"""`outputs` and `models`: which files are kept, and which of them become models."""

from __future__ import annotations

import pytest

from phalanx.errors import SpecErrors
from phalanx.spec import load_document
from phalanx.spec.model import CollectOptions, ModelOptions, Spec

FILE = {"version": 1, "kind": "experiment", "run": {"cmd": "true"}}


def spec_of(**fields: object) -> Spec:
    return load_document("test", {**FILE, **fields})


def test_a_map_says_what_to_collect_and_a_list_declares_outputs() -> None:
    assert spec_of().collect == CollectOptions(None, 2048.0, 1000)
    found = spec_of(outputs={"collect": ["{{ where }}/**", "*.pt"], "max_size": "1Gi"}, params={"where": "logs"})
    assert found.collect == CollectOptions(("logs/**", "*.pt"), 1024.0, 1000)
    assert spec_of(outputs={"collect": "*.pt"}).collect.collect == ("*.pt",)
    assert spec_of(outputs={"collect": []}).collect.collect == ()
    declared = spec_of(outputs=[{"name": "loss", "type": "float"}])
    assert [variable.name for variable in declared.outputs] == ["loss"]
    assert declared.collect == CollectOptions()


def test_models_have_a_name_a_path_and_perhaps_a_metric() -> None:
    metric = {"name": "loss", "optimization": "minimize"}
    found = spec_of(models=[{"name": "net", "path": "*.pt"}, {"name": "b c", "path": "x/**", "metric": metric}])
    assert found.models == (ModelOptions("net", "*.pt"), ModelOptions("b c", "x/**", "loss", is_largest_best=False))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"outputs": {"collect": ["../secrets"]}}, "`../secrets` is not a pattern of paths below the working folder"),
        ({"outputs": {"collect": ["/etc/**"]}}, "is not a pattern of paths"),
        ({"outputs": {"collect": ["a"] * 101}}, "at most 100 patterns"),
        ({"outputs": {"colect": []}}, "unknown key `colect` in outputs"),
        ({"outputs": "*.pt"}, "expected a map"),
        ({"outputs": {"max_files": -1}}, "expected a whole number"),
        ({"models": [{"name": "a/b", "path": "*.pt"}]}, "expected the name of a model"),
        ({"models": [{"name": "a"}]}, "needs `path`"),
    ],
)
def test_faults_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SpecErrors) as fault:
        spec_of(**fields)
    assert message in str(fault.value)
