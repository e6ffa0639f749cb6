"""Real files of Polyaxon 1.x and 2.x mean what they meant to the newest release that accepted them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import pytest

from phalanx.cli.render.plan_summary import plan_of
from phalanx.errors import SpecError, SpecErrors
from phalanx.spec import Kind, Spec
from phalanx.spec.groups import suggestion
from phalanx.spec.model import thaw
from phalanx.spec.polyaxon_v1.variables import TYPES
from tests.corpus.later_files import Facts, expected, is_accepted, load
from tests.spec.helpers import converted, load_text

UUID = "0123456789abcdef0123456789abcdef"
PLACES = (  # of the run that the corpus rendered, and what stands for each here
    (f"/plx-context/artifacts/{UUID}/outputs", "${PHALANX_OUTPUTS}"),
    (f"/plx-context/artifacts/{UUID}", "${PHALANX_OUTPUTS}"),
    ("/plx-context/artifacts", "${PWD}"),
    ("${PHALANX_PROJECT}", "project"),
    ("${PHALANX_RUN_ID}", UUID),
)
ACCEPTED = [
    name
    for name, facts in expected().items()
    if is_accepted(facts) and not facts.get("needs") and facts.get("computed")
]
RENDERED = [name for name in ACCEPTED if "render_error" not in expected()[name]]  # Polyaxon itself can run them
SHARE = 0.9  # of these, that mean the same here

OLD_RESOURCES = "resources in the form of 0.x are read; clusters of 1.x ignore them"
LAUNCHER = "the launcher of MPI is no replica: its resources are not requested"
BOOLEAN = "a boolean is rendered as Python writes it, as in 0.x"
TWICE = "an input that is declared twice is an error, and so is a name that is nearly that of an input"
UNSET = "an attribute of a value that is not set is an error; Polyaxon makes it an empty text"
DASK = "runs of Dask have no counterpart"
JOINS = "joins query Polyaxon's server"
MASTERS_OF_PYTORCH = "a PyTorchJob has one master; the operator refuses more"
DIFFERENT = {
    "gmrukwa__polyaxon-python-template/polyaxon__jobs__minimal__2020-10-13_1413e40f.yml": OLD_RESOURCES,
    "polyaxon__polyaxon-examples/in_cluster__mpijob__polyaxonfile__2021-03-10_3d7cb0f3.yml": LAUNCHER,
    "polyaxon__polyaxon/site__integrations__horovod.block1__2025-07-28_96355a2c.yml": LAUNCHER,
    (
        "polyaxon__polyaxon/core__tests__fixtures__typing__required_inputs_with_arg_format__2020-09-28_d4080697.yml"
    ): BOOLEAN,
}
REFUSED = {
    "polyaxon__polyaxon-examples/in_cluster__sklearn__digits__polyaxonfile__2021-03-10_8636a74d.yml": TWICE,
    "polyaxon__polyaxon-hub/dockerizer__1.1__2020-07-28_4d81c0a0.yml": UNSET,
    "polyaxon__polyaxon-hub/dockerizer__latest__2020-07-21_fcafa539.yml": UNSET,
    "polyaxon__cli/cli__tests__fixtures__plain__distributed_dask_file__2023-10-18_41a6d310.yml": DASK,
    "polyaxon__cli/cli__tests__fixtures__plain__distributed_dask_file__2025-11-10_057b965b.yml": DASK,
    "polyaxon__polyaxon-quick-start/joins__map_reduce_tune_join__2021-01-28_ff39de66.yml": JOINS,
    "polyaxon__polyaxon/src__tests__fixtures__pipelines__simple_joins_pipeline__2021-11-26_36db881f.yml": JOINS,
    (
        "polyaxon__polyaxon/src__tests__fixtures__plain__distributed_pytorch_file__2021-11-26_f18ce03f.yml"
    ): MASTERS_OF_PYTORCH,
}
ALGORITHMS = {
    "grid": "grid_search", "random": "random_search", "hyperband": "hyperband", "bayes": "bo", "hyperopt": "tpe",
    "tpe": "tpe", "mapping": "grid_search",
}  # fmt: skip
_ESCAPED = re.compile(r"\$'((?:[^'\\]|\\.)*)'")  # a word with line breaks
MASTERS = {"tfjob": "chief", "pytorchjob": "master", "mpijob": "launcher"}


def _words(text: str) -> str:
    """A text without what differs from run to run."""
    for theirs, ours in PLACES:
        text = text.replace(theirs, ours)
    text = re.sub(r"\$\{(?:OLDPWD|PWD)\}(?:/[\w.-]*(?:polyaxon|examples|repo|quick-start)[\w.-]*)?", "${PWD}", text)
    return " ".join(text.split())


def _argv(ours: str) -> list[str]:
    plain = _ESCAPED.sub(lambda found: shlex.quote(found[1].encode().decode("unicode_escape")), ours)
    return [_words(word) for word in shlex.split(plain.replace('"${', "${").replace('}"', "}"))]


def _is_same_command(argv: list[str], ours: str) -> bool:
    """Whether our command, after the steps before it, is that of the container."""
    shell = len(argv) == 3 and re.match(r"(/bin/)?(ba)?sh\Z", argv[0]) and argv[1] in ("-c", "-ec")
    if shell or len(argv) == 1:
        return _words(ours).replace('"', "").endswith(_words(argv[-1]).replace('"', ""))
    wanted = [_words(word) for word in argv]
    return _argv(ours)[-len(wanted) :] == wanted


def _differences(facts: Facts, spec: Spec) -> dict[str, Any]:
    computed = facts["computed"]
    found: dict[str, Any] = {}
    if computed.get("run_kind") == "dag":
        return _dag_differences(computed, spec)
    pairs: dict[str, tuple[Any, Any]] = {
        "name": (computed.get("name"), spec.name),
        "tags": (sorted(computed.get("tags") or []), sorted(spec.tags)),
        "inputs": (_their_inputs(computed), _our_inputs(spec)),
        "params": _params(computed, facts, spec),
    }
    if computed.get("matrix"):
        pairs |= _matrix(computed["matrix"], spec)
    if computed.get("replicas") and computed["run_kind"] in MASTERS:
        pairs["replicas"] = (_roles(computed), _our_roles(spec))
    if computed.get("sum_resources") or spec.environment.settings.resources:
        pairs["resources"] = (_their_resources(computed, facts), _our_resources(spec))
    found |= {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if spec.kind in (Kind.TENSORBOARD, Kind.NOTEBOOK):  # their commands are ours
        found.pop("inputs", None)
        found.pop("params", None)
    else:
        found |= _command_difference(facts, spec)
    return found


def _command_difference(facts: Facts, spec: Spec) -> dict[str, Any]:
    argv = {role: words for role, words in (facts.get("argv") or {}).items() if words}
    first = (facts["computed"].get("matrix") or {}).get("first")
    if spec.search is not None and not first:
        return {}  # the corpus does not say which values it rendered
    if spec.search is not None:
        assert first is not None
        values = {name: _plain(value) for name, value in first[0].items()}
        point = (
            {"mapping": thaw(spec.search.matrix[0].values)[0]} if spec.search.matrix[0].name == "mapping" else values
        )
        spec = suggestion(spec, point)
    command = spec.command or ""
    if not argv:
        return {}
    if len({tuple(words) for words in argv.values()}) > 1 and "launcher" not in argv:
        wrong = {role: words for role, words in argv.items() if shlex.join(words) not in command}
    else:
        words = argv.get("launcher") or next(iter(argv.values()))
        wrong = {} if _is_same_command(words, command) else {"all": words}
    return {"command": (wrong, command)} if wrong else {}


def _their_inputs(computed: Facts) -> list[tuple[Any, ...]]:
    return [
        (
            entry["name"],
            TYPES.get(entry.get("type") or "any"),
            bool(entry.get("isOptional") or entry.get("delayValidation")) or entry.get("value") is not None,
            _as_text(entry) if TYPES.get(entry.get("type") or "any") == "str" else _plain(entry.get("value")),
            bool(entry.get("isList")),
            bool(entry.get("isFlag")),
        )
        for entry in computed.get("inputs") or []
    ]


def _as_text(entry: Facts) -> Any:
    value = entry.get("value")
    return value if value is None or isinstance(value, list) else str(value)


def _our_inputs(spec: Spec) -> list[tuple[Any, ...]]:
    return [
        (each.name, each.type, each.is_optional, _plain(thaw(each.default)), each.is_list, each.is_flag)
        for each in spec.inputs
        if each.type is not None or each.name not in {*spec.params, *(found.name for found in spec.outputs)}
    ]


def _plain(value: Any) -> Any:
    return value if not isinstance(value, float) or value != int(value) else int(value)


def _params(computed: Facts, facts: Facts, spec: Spec) -> tuple[Any, Any]:
    theirs = {
        name: _plain(entry["value"])
        for name, entry in (computed.get("params") or {}).items()
        if isinstance(entry, dict) and "value" in entry and "ref" not in entry and "{{" not in str(entry["value"])
    }
    return theirs, {name: _plain(spec.params.get(name)) for name in theirs}


def _matrix(matrix: Facts, spec: Spec) -> dict[str, tuple[Any, Any]]:
    search = spec.search
    if search is None:
        return {"matrix": (matrix["kind"], None)}
    pairs: dict[str, tuple[Any, Any]] = {"algorithm": (ALGORITHMS[matrix["kind"]], search.algorithm)}
    if matrix.get("concurrency"):
        pairs["concurrency"] = (matrix["concurrency"], search.concurrency)
    if matrix["kind"] != "hyperband":
        pairs["size"] = (matrix.get("n_suggestions"), search.size)
    if matrix.get("params"):
        pairs["dimensions"] = (sorted(matrix["params"]), sorted(dimension.name for dimension in search.matrix))
    for name, entry in (matrix.get("params") or {}).items():
        ours = next((dimension for dimension in search.matrix if dimension.name == name), None)
        if entry["kind"] == "choice" and ours is not None:
            pairs[f"values of {name}"] = (entry["value"], thaw(ours.values))
    return pairs


def _roles(computed: Facts) -> dict[str, int]:
    counts, kind = dict(computed["replicas"]), computed["run_kind"]
    masters = counts.pop(MASTERS[kind], 0)
    if kind == "mpijob":
        return {"worker": counts.get("worker", 0)}
    if not masters and "worker" in counts:
        counts["worker"] -= 1
    return {role: count for role, count in {"master": 1, **counts}.items() if count}


def _our_roles(spec: Spec) -> dict[str, int]:
    made = plan_of(spec)
    assert made is not None
    return {role: count for role, count in made.roles.items() if count}


_NAMES = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu", "memory_bytes": "memory", "cpu": "cpu"}


def _their_resources(computed: Facts, facts: Facts) -> dict[str, Any]:
    rendered = (facts.get("rendered") or {}).get("sum_resources")
    found = {}
    for name, sides in (rendered or computed.get("sum_resources") or {}).items():
        key = _NAMES.get(name, "tpu" if "tpu" in name else name)
        scale = 1024.0**2 if key == "memory" else 1.0
        found[key] = {side: round(value / scale, 4) for side, value in sides.items()}
    return found


def _our_resources(spec: Spec) -> dict[str, Any]:
    made = plan_of(spec)
    assert made is not None
    amounts = {name: getattr(made.totals, name) for name in ("cpu", "memory", "gpu", "tpu")}
    return {
        name: {side: round(value, 4) for side, value in amount._asdict().items() if value is not None}
        for name, amount in amounts.items()
        if amount is not None
    }


def _dag_differences(computed: Facts, spec: Spec) -> dict[str, Any]:
    assert spec.pipeline is not None
    ours = {op.name: sorted(op.dependencies) for op in spec.pipeline.ops}
    pairs = {
        "ops": ([op["name"] for op in computed.get("dag_ops") or []] or list(ours), list(ours)),
        "order": (computed.get("dag_order") or _levels(ours), _levels(ours)),
        "concurrency": (computed.get("concurrency"), spec.pipeline.concurrency),
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _levels(needs: dict[str, list[str]]) -> list[list[str]]:
    done: set[str] = set()
    levels = []
    while len(done) < len(needs):
        level = sorted(name for name, before in needs.items() if name not in done and done.issuperset(before))
        levels.append(level)
        done |= set(level)
    return levels


@pytest.mark.parametrize("name", [name for name in RENDERED if name not in DIFFERENT and name not in REFUSED])
def test_a_file_that_polyaxon_runs_means_the_same_here(name: str) -> None:
    assert _differences(expected()[name], load(name)) == {}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_file_listed_as_different_differs_in_one_thing(name: str) -> None:
    assert len(_differences(expected()[name], load(name))) == 1


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_listed_as_refused_says_what_to_do(name: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        load(name)
    assert len(caught.value.errors) <= 2
    assert all(error.place.line > 0 for error in caught.value.errors)


def test_nine_of_ten_files_mean_the_same() -> None:
    same = len(set(RENDERED) - set(DIFFERENT) - set(REFUSED))
    assert len(RENDERED) > 170
    assert same / len(RENDERED) >= SHARE, f"{same} of {len(RENDERED)}"
    same += sum(_is_same(name) for name in ACCEPTED if name not in RENDERED)
    assert len(ACCEPTED) > 180
    assert same / len(ACCEPTED) >= SHARE, f"{same} of {len(ACCEPTED)}"


def _is_same(name: str) -> bool:
    try:
        return not _differences(expected()[name], load(name))
    except SpecErrors:
        return False


@pytest.mark.parametrize("name", [name for name in expected() if name not in RENDERED])
def test_any_other_file_ends_in_a_spec_or_in_clear_errors(name: str) -> None:
    errors: Sequence[SpecError] = ()
    try:
        load(name)
    except SpecErrors as faults:
        errors = faults.errors
    assert all(error.place.line > 0 and len(error.message) < 400 for error in errors)


@pytest.mark.parametrize("name", RENDERED)
def test_a_converted_file_reads_back_as_the_same(name: str) -> None:
    if name not in REFUSED:
        spec = load(name)
        assert load_text(converted(spec)) == spec
