"""Real files mean what they meant to the release of Polyaxon that accepted them; the others end in clear errors."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.render.plan_summary import plan_of, summarise
from phalanx.errors import SpecErrors
from phalanx.spec import Kind, load
from tests.corpus.folder import corpus
from tests.spec.helpers import outcome

FILES = corpus() / "files"
CASES = corpus() / "cases"

GPU_REQUEST = "`gpu.request` is read as `requests`; Polyaxon dropped it without a word"
RESOURCES_LISTS = "`*_resources` lists are read; releases 0.2.9 to 0.4.1 ignored them without a word"
SPELLING = "`pytroch` is read as `pytorch`"
INDEX_OUT_OF_RANGE = "an index that no replica has is an error; Polyaxon counted its resources all the same"
INDEX_MISSING = "an entry without an index is an error; Polyaxon counted its resources all the same"
UNDEFINED_NAME = "an undefined name in a template is an error; Polyaxon made it an empty text"

DIFFERENT_FILES = {
    "polyaxon__polyaxon-examples/pytorch__cifar10-ignite__polyaxonfile_third__2018-10-31_20adbfc2.yml": GPU_REQUEST,
    "polyaxon__polyaxon-examples/pytorch__cifar10-ignite__polyaxonfile_train_2__2018-10-31_6afe9c7c.yml": GPU_REQUEST,
    "polyaxon__polyaxon-examples/pytorch__cifar10-ignite__polyaxonfile_train__2018-10-31_355e99f3.yml": GPU_REQUEST,
    (
        "polyaxon__polyaxon-schemas/"
        "tests__fixtures__advanced_file_with_custom_configs_and_resources__2018-06-28_9624aa8c.yml"
    ): RESOURCES_LISTS,
    ("polyaxon__polyaxon-schemas/tests__fixtures__distributed_mxnet_file__2018-06-06_a3a5b52c.yml"): RESOURCES_LISTS,
}
DIFFERENT_CASES = {
    "b_gpu_request.yml": GPU_REQUEST,
    "d2_pytroch_noreplicas.yml": SPELLING,
    "e2_worker_resources_old.yml": RESOURCES_LISTS,
    "k_idx_oob.yml": INDEX_OUT_OF_RANGE,
    "r_undefined_var.yml": UNDEFINED_NAME,
    "seed_000_block0.yml": GPU_REQUEST,
    "seed_000_block2.yml": GPU_REQUEST,
    "seed_001_block0.yml": GPU_REQUEST,
    "seed_001_block2.yml": GPU_REQUEST,
    "x_worker_noindex.yml": INDEX_MISSING,
}
RESOURCES = ("cpu", "memory", "gpu", "tpu")
ALGORITHMS = {"grid": "grid_search", "random": "random_search", "hyperband": "hyperband", "bo": "bo"}


EXPECTED: dict[str, dict[str, Any]] = json.loads((corpus() / "expected.json").read_bytes())
VERDICTS: dict[str, dict[str, dict[str, Any]]] = json.loads((CASES / "VERDICTS.json").read_bytes())
ACCEPTED = [name for name, facts in EXPECTED.items() if facts["accepted_by"]]
SEEDS = [name for name in VERDICTS if name.startswith("seed_")]


def _summary(path: Path) -> dict[str, Any]:
    spec = load([(path.name, path.read_bytes())])
    return summarise(spec, plan_of(spec))


def _resources(facts: dict[str, Any] | None) -> dict[str, Any]:
    """Requests and limits of every resource, with None for whatever was not said."""
    amounts = {name: (facts or {}).get(name) or {} for name in RESOURCES}
    return {name: (amount.get("requests"), amount.get("limits")) for name, amount in amounts.items()}


def _command(written: str | list[str] | None) -> str | None:
    """Polyaxon's command, with the backslashes that it left in it folded."""
    if written is None:
        return None
    line = written if isinstance(written, str) else " && ".join(written)
    return " ".join(line.replace("\\ ", " ").split())


def _differences(computed: dict[str, Any], ours: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What Polyaxon computed and what we made of it, where the two are not the same."""
    kind = computed["kind"]
    pairs: dict[str, tuple[Any, Any]] = {
        "kind": (kind, ours["kind"]),
        "tags": (sorted(computed.get("tags", [])), sorted(ours["tags"])),
        "log_level": (computed["log_level"], ours["log_level"]),
    }
    if "backend" in computed:
        pairs["backend"] = (computed["backend"], ours["backend"])
    if kind in (Kind.EXPERIMENT, Kind.JOB):
        pairs["command"] = (_command(computed.get("run_cmd")), ours["command"])
    if kind == Kind.EXPERIMENT:
        pairs["replicas"] = (computed["cluster_def"], ours["replicas"])
        pairs["is_distributed"] = (computed["is_distributed"], ours["is_distributed"])
        pairs["framework"] = (computed.get("framework"), ours["framework"])
        pairs["params"] = (computed.get("params", {}), ours["params"])
        pairs["resources"] = (_resources(computed.get("total_resources")), _resources(ours["resources"]))
    if kind == Kind.GROUP:
        search, found = computed["experiments_def"], ours["search"]
        pairs["algorithm"] = (ALGORITHMS[search["search_algorithm"]], found["algorithm"])
        pairs["concurrency"] = (search["concurrency"], found["concurrency"])
        pairs["n_experiments"] = (search.get("n_experiments"), found["n_experiments"])
        pairs["early_stopping"] = (search["early_stopping"], found["early_stopping"])
        if "matrix_space" in computed:
            pairs["space"] = (computed["matrix_space"], found["space"])
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def test_the_corpus_is_as_large_as_its_readme_says() -> None:
    assert len(EXPECTED) == 336
    assert len(ACCEPTED) == 169
    assert len(SEEDS) == 8


@pytest.mark.parametrize("name", [name for name in ACCEPTED if name not in DIFFERENT_FILES])
def test_a_file_that_polyaxon_accepted_means_what_it_meant_there(name: str) -> None:
    ours = _summary(FILES / name)
    computed = EXPECTED[name].get("computed")
    if computed is not None:
        assert _differences(computed, ours) == {}


@pytest.mark.parametrize("name", DIFFERENT_FILES)
def test_a_file_listed_as_different_differs_in_its_resources_alone(name: str) -> None:
    assert set(_differences(EXPECTED[name]["computed"], _summary(FILES / name))) == {"resources"}


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in ACCEPTED])
def test_a_file_that_no_release_accepted_ends_in_a_spec_or_in_clear_errors(name: str) -> None:
    found = outcome((FILES / name).read_bytes(), name)
    if not isinstance(found, SpecErrors):
        with contextlib.suppress(SpecErrors):
            plan_of(found)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in ACCEPTED])
def test_what_is_wrong_with_a_refused_file_is_reported_with_its_place(name: str) -> None:
    found = outcome((FILES / name).read_bytes(), name)
    if isinstance(found, SpecErrors):
        assert all(error.place.file == name for error in found.errors)
        assert all(len(error.message) < 400 for error in found.errors)
    else:
        assert found.notes or found.kind in tuple(Kind)


def _verdict(name: str) -> dict[str, Any] | None:
    """What the newest release that accepted a case made of it."""
    accepted = [facts for facts in VERDICTS[name].values() if facts["ok"]]
    return accepted[-1] if accepted else None


def _case_differences(name: str) -> set[str]:
    verdict = _verdict(name)
    assert verdict is not None
    try:
        ours = _summary(CASES / name)
    except SpecErrors:
        return {"refused"}
    pairs: dict[str, tuple[Any, Any]] = {"kind": (verdict["kind"], ours["kind"])}
    if "cluster_def" in verdict:
        pairs["replicas"] = (verdict["cluster_def"], [ours["replicas"], ours["is_distributed"]])
        pairs["framework"] = (verdict["framework"], ours["framework"])
        pairs["resources"] = (_resources(verdict["total_resources"]), _resources(ours["resources"]))
    return {key for key, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("name", SEEDS)
def test_every_document_of_our_user_is_accepted(name: str) -> None:
    assert _summary(CASES / name)["ok"]


@pytest.mark.parametrize("name", ["seed_000_block2.yml", "seed_001_block2.yml"])
def test_the_full_example_asks_for_what_its_text_says(name: str) -> None:
    ours = _summary(CASES / name)
    servers = "server" if ours["framework"] == "mxnet" else "ps"
    assert ours["replicas"] == {"master": 1, "worker": 7, servers: 3}
    assert ours["resources"]["cpu"] == {"requests": 11, "limits": 19}
    assert ours["resources"]["memory"] == {"requests": 3072, "limits": 9216}
    assert ours["resources"]["gpu"] == {"requests": 7, "limits": 7}


@pytest.mark.parametrize("name", [name for name in VERDICTS if _verdict(name) and name not in DIFFERENT_CASES])
def test_a_probe_that_some_release_accepted_means_what_it_meant_there(name: str) -> None:
    assert _case_differences(name) == set()


@pytest.mark.parametrize("name", DIFFERENT_CASES)
def test_a_probe_listed_as_different_really_differs(name: str) -> None:
    wanted = {
        GPU_REQUEST: {"resources"},
        RESOURCES_LISTS: {"resources"},
        SPELLING: {"framework"},
        INDEX_OUT_OF_RANGE: {"refused"},
        INDEX_MISSING: {"refused"},
        UNDEFINED_NAME: {"refused"},
    }
    assert _case_differences(name) == wanted[DIFFERENT_CASES[name]]


@pytest.mark.parametrize("name", [name for name in VERDICTS if not _verdict(name)])
def test_a_probe_that_no_release_accepted_ends_in_a_spec_or_in_clear_errors(name: str) -> None:
    found = outcome((CASES / name).read_bytes(), name)
    if isinstance(found, SpecErrors):
        assert all(error.place.line > 0 for error in found.errors)
    else:
        with contextlib.suppress(SpecErrors):
            plan_of(found)
