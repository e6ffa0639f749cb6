"""A group's search as `tune` decides it, and its suggestions as experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from phalanx.spec.loader import load_document
from phalanx.spec.matrix import first_values
from phalanx.spec.model import Kind, Search, Spec, thaw, thaw_written
from phalanx.tune.model import Metric, SearchSettings, StoppingRule
from phalanx.tune.space import Dimension


def suggestion(group: Spec, values: Mapping[str, Any]) -> Spec:
    """The experiment that runs one point of a group's matrix. Its values override params of the same name."""
    document = thaw_written(group.document)
    document.pop("hptuning", None)
    document["kind"] = str(Kind.EXPERIMENT)
    document["params"] = {**(document.get("params") or {}), **thaw_written(_written(group.search, values))}
    declared = {entry["name"] for entry in document.get("inputs") or []}
    if declared:
        document["inputs"] += [{"name": name} for name in values if name not in declared]
    return replace(load_document(group.file, document), places=group.places)


def _written(search: Search | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """A point whose values have the characters of the file again: a journal keeps `0.001` of `1e-3`."""
    found = dict(values)
    for dimension in search.matrix if search is not None else ():
        plain = found.get(dimension.name)
        for written in dimension.values or ():
            value = thaw(written)
            if type(value) is type(plain) and value == plain:
                found[dimension.name] = written
                break
    return found


def first_suggestion(group: Spec) -> Spec:
    """The experiment that a plan of the group shows before anything runs."""
    assert group.search is not None
    return suggestion(group, first_values(group.search))


def search_settings(search: Search, default_seed: str) -> SearchSettings:
    """The search of a group as `tune` decides it. `default_seed`: for files without a seed, such as the group's id."""
    options = thaw(search.settings)
    n = search.n_experiments
    if search.algorithm == "bo":
        n = options["n_initial_trials"] + options["n_iterations"]
    return SearchSettings(
        algorithm=search.algorithm,
        dimensions=tuple(Dimension(*map(_thawed, dimension)) for dimension in search.matrix),
        options=options,
        seed=default_seed if search.seed is None else search.seed,
        n=n,
        metric=None if search.metric is None else _metric(search.metric),
        early_stopping=tuple(_stopping_rule(entry) for entry in search.early_stopping),
        max_failed=search.max_failed,
    )


def _thawed(value: Any) -> Any:
    """A field of a dimension without the characters that its numbers were written with."""
    return tuple(thaw(value)) if isinstance(value, tuple) else thaw(value)


def _metric(entry: Mapping[str, Any]) -> Metric:
    return Metric(entry["name"], entry.get("optimization", "maximize") == "maximize")


def _stopping_rule(entry: Mapping[str, Any]) -> StoppingRule:
    policy = entry.get("policy") or {}
    return StoppingRule(
        _metric({**entry, "name": entry["metric"]}),
        entry.get("value"),
        policy.get("kind"),
        policy.get("evaluation_interval", 1),
        policy.get("percent", 50.0),
    )
