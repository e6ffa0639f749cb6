"""What holds for every input: a Spec or SpecErrors and nothing else; converting and merging keep the meaning."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from functools import reduce
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.spec import Spec
from phalanx.spec.commands import fold
from phalanx.spec.groups import first_suggestion
from phalanx.spec.matrix import FORMS
from phalanx.spec.model import Kind
from phalanx.spec.params import parse_value
from phalanx.spec.pipelines.fields import OP
from phalanx.spec.scalars import resolve_plain
from phalanx.spec.schema import BUILD_FIELDS, REPLICA_FIELDS, REPLICAS, VARIABLE, sections
from phalanx.spec.section_fields import HPTUNING
from phalanx.spec.templates import _plain_names
from phalanx.spec.tree import Node, merge
from phalanx.spec.yaml_writer import modern_document, to_yaml
from tests.examples import examples
from tests.spec.helpers import EXPERIMENT, GROUP, load_text, outcome, tree_of

# any input at all --------------------------------------------------------------------------------------------

VALID = [
    EXPERIMENT + "params: {lr: 0.1, n: '{{ lr }}'}\nrun:\n  cmd: train --lr {{ lr }}\ntags: [a, b]\n",
    EXPERIMENT + "framework: tensorflow\nenvironment:\n  replicas:\n    n_workers: 3\n    n_ps: 1\n    worker:\n"
    "    - index: 2\n      resources: {gpu: {requests: 1, limits: 2}}\n    default_ps: {env_vars: [[A, 1]]}\n",
    "version: 1\nkind: experiment\ndeclarations: &d\n  a: 1\nenvironment:\n  tensorflow:\n    n_workers: 2\n"
    "    default_worker_resources: {cpu: {requests: 1, limits: 2}}\n    worker_resources:\n"
    "    - {index: 1, memory: {request: 5}}\n"
    "run: {image: x, steps: [a], cmd: {if: {cond: '{{ a }} == 1', do: b, else_do: c}}}\n",
    GROUP + "hptuning:\n  concurrency: 2\n  matrix:\n    lr: {logspace: '-3:-1:3'}\n"
    "    m: {pvalues: [[a, 0.1], [b, 0.9]]}\n  random_search: {n_experiments: 3}\n"
    "  early_stopping: [{metric: loss, value: 1, higher: false}]\nrun: {cmd: 'x {{ lr }} {{ m }}'}\n",
    "version: 1\nkind: pipeline\nops:\n- {name: a, template: {name: t}, params: {x: 1}}\n"
    "- {name: b, template: {name: t}, dependencies: [a], params: {x: '{{ ops.a.outputs.y }}'}}\n"
    "templates:\n- {kind: job, name: t, inputs: [{name: x, type: int}]}\n",
    "version: 1\nkind: build\nimage: python:3\nbuild_steps: [a, b]\nenv_vars: [[A, b]]\n",
    "kind: notebook\nenvironment: {persistence: {data: [a], outputs: b}, node_selectors: {a: b}}\n",
]
SECTIONS = ("run", "params", "environment", "kind", "hptuning", "build", "index", "worker")
TOKENS = [
    "{", "}", "[", "]", ":", ": ", "- ", "\n", "\n  ", "&a ", "*a", "<<: *a", "!!int ", "!x ", "|\n", ">\n", "'", '"',
    "#", "%", "\t", "{{", "}}", "{{ a }}", "{% if a %}", "{% endif %}", "{#", "null", "true", "1e400", "-1", "0x_",
    ".nan", "~", "? ", "---\n", "\x00", "\u2028", "é", "\N{ROCKET}", *(f"\n{key}: " for key in SECTIONS),
]  # fmt: skip


@given(st.text())
@examples(300)
def test_any_text_gives_a_spec_or_errors(text: str) -> None:
    outcome(text.encode("utf-8", "surrogatepass"))


@given(st.lists(st.sampled_from(TOKENS), max_size=30).map("".join))
@examples(300)
def test_any_text_of_the_tokens_of_yaml_gives_a_spec_or_errors(text: str) -> None:
    outcome(text.encode())
    outcome((EXPERIMENT + text).encode())


@given(st.binary(max_size=300))
@examples(300)
def test_any_bytes_give_a_spec_or_errors(data: bytes) -> None:
    outcome(data)
    outcome(EXPERIMENT.encode() + data)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid file in which pieces were cut out, doubled, moved or put in."""
    text = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 20)))
        piece = draw(st.one_of(st.sampled_from(TOKENS), st.just(text[start:end] * 2), st.just(""), st.text(max_size=3)))
        text = text[:start] + piece + text[end:]
    return text


@given(mutated())
@examples(400)
def test_any_mutation_of_a_valid_file_gives_a_spec_or_errors(text: str) -> None:
    outcome(text.encode("utf-8", "surrogatepass"))


OTHER_KEYS = (
    "tensorflow pytorch pytroch declarations settings matrix worker_resources ps_node_selectors persistence "
    "distribution default_worker_resources request limit cpu gpu memory index cmd if cond do data outputs jobs level "
    "path exec higher n_experiments search_method name << a"
)
KEYS = sorted(
    {key for kind in Kind for key in sections(kind).fields}
    | {*REPLICA_FIELDS, *REPLICAS.fields, *BUILD_FIELDS, *HPTUNING.fields, *OP.fields, *VARIABLE.fields, *FORMS}
    | set(OTHER_KEYS.split())
)
ODD = [
    None, True, False, 0, 1, -5, 0.5, 10**20, 10**400, float("nan"), float("inf"), "", "a", "1", "-1", "1e400", "1:2",
    "0:1:2", "2Gi",
    "{{ a }}", "{{ b }}", "{{ a.b }}", "{{ [a] }}", "x {{ a }}", "{{", "{% if a %}", "experiment", "group", "pytorch",
    "random", "INFO", "a, b", "{{ jobs.1.outputs.x }}", "a\nb", "0x_", "kubeflow",
]  # fmt: skip
NONSENSE = st.recursive(
    st.sampled_from(ODD),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=8,
)


def _text(document: dict[str, Any]) -> str:
    """JSON is YAML, but for a few numbers."""
    text = json.dumps(document, ensure_ascii=False)
    return text.replace("NaN", ".nan").replace("-Infinity", "-.inf").replace("Infinity", ".inf")


@given(st.sampled_from([*Kind, "nonsense"]), st.dictionaries(st.sampled_from(KEYS), NONSENSE, max_size=4))
@examples(400)
def test_any_nonsense_under_known_keys_gives_a_spec_or_errors(kind: str, body: dict[str, Any]) -> None:
    outcome(_text({"version": 1, "kind": str(kind), "params": {"a": 1}, **body}).encode())


OLD_REPLICAS = ("worker_resources", "ps_resources", "default_ps_resources", "worker_config", "worker_node_selectors")
HOMES = (
    "replicas",
    "tensorflow",
    "pytroch",
    "distribution",
    "resources",
    "persistence",
    "outputs",
    "env_vars",
    "labels",
)


@given(
    st.sampled_from(Kind),
    st.dictionaries(st.sampled_from(HOMES), NONSENSE, max_size=2),
    st.dictionaries(st.sampled_from([*REPLICAS.fields, *OLD_REPLICAS]), NONSENSE, max_size=4),
)
@examples(400)
def test_any_nonsense_in_an_environment_gives_a_spec_or_errors(
    kind: Kind, environment: dict[str, Any], replicas: dict[str, Any]
) -> None:
    head = {"version": 1, "kind": str(kind), "framework": "tensorflow"}
    outcome(_text({**head, "environment": {**environment, "replicas": replicas}}).encode())
    outcome(_text({**head, "environment": {**environment, **replicas}}).encode())


@given(st.text(max_size=20))
@examples(200)
def test_any_scalar_and_any_value_of_the_command_line_is_read(text: str) -> None:
    assert isinstance(resolve_plain(text), str | int | float | bool | None)
    parse_value(text)


# valid files in every dialect --------------------------------------------------------------------------------

names = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=8)
identifiers = st.sampled_from(["a", "b", "lr", "batch_size", "model", "n1"])
anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{\x00"), max_size=12)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="{"), max_size=12)
scalars: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, False, "1e5", "08", "yes", "~", "0o7", "<<", "1:2"]),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False),
    texts,
)
values = st.one_of(scalars, st.lists(scalars, max_size=2), st.dictionaries(names, scalars, max_size=2))
params = st.dictionaries(identifiers, values, max_size=3)
amounts = st.integers(0, 8).flatmap(
    lambda low: st.sampled_from([{"requests": low}, {"limits": low}, {"requests": low, "limits": low + 1}])
)
resources = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "tpu"]), amounts, min_size=1, max_size=3)


@st.composite
def distributed(draw: st.DrawFn) -> dict[str, Any]:
    """A distributed experiment as plain facts, to be written in any dialect."""
    n_workers, n_ps = draw(st.integers(1, 4)), draw(st.integers(0, 2))

    def overrides(count: int) -> dict[int, Any]:
        return draw(st.dictionaries(st.integers(0, count - 1), resources, max_size=2)) if count else {}

    return {
        "framework": draw(st.sampled_from(["tensorflow", "mxnet"])),
        "params": draw(params),
        "resources": draw(st.one_of(st.none(), resources)),
        "n_workers": n_workers,
        "n_ps": n_ps,
        "default_worker": draw(st.one_of(st.none(), resources)),
        "default_ps": draw(st.one_of(st.none(), resources)),
        "worker": overrides(n_workers),
        "ps": overrides(n_ps),
        "image": draw(st.one_of(st.none(), names)),
        "cmd": draw(names),
        "tags": draw(st.lists(names, max_size=3)),
    }


def _without_nothing(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value not in (None, {}, [])}


def _counts(facts: dict[str, Any]) -> dict[str, Any]:
    return {"n_workers": facts["n_workers"], "n_ps": facts["n_ps"]}


def _newer(facts: dict[str, Any]) -> dict[str, Any]:
    """The replicas as releases from 0.1.6 on have them."""
    defaults = {key: {"resources": facts[key]} for key in ("default_worker", "default_ps") if facts[key]}
    lists = {
        role: [{"index": index, "resources": asked} for index, asked in facts[role].items()]
        for role in ("worker", "ps")
    }
    return _without_nothing({**_counts(facts), **defaults, **lists})


def _oldest(facts: dict[str, Any]) -> dict[str, Any]:
    """The replicas as the first releases had them."""
    defaults = {f"{key}_resources": facts[key] for key in ("default_worker", "default_ps")}
    lists = {
        f"{role}_resources": [{"index": i, **asked} for i, asked in facts[role].items()] for role in ("worker", "ps")
    }
    return _without_nothing({**_counts(facts), **defaults, **lists})


def _modern(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": 1, "kind": "experiment", "framework": facts["framework"], "params": facts["params"],
        "tags": facts["tags"],
        "environment": _without_nothing({"resources": facts["resources"], "replicas": _newer(facts)}),
        **({"build": {"image": facts["image"]}} if facts["image"] else {}), "run": {"cmd": facts["cmd"]},
    }  # fmt: skip


def _middle(facts: dict[str, Any]) -> dict[str, Any]:
    section = {facts["framework"]: _newer(facts)}
    document = _modern(facts) | {"environment": _without_nothing({"resources": facts["resources"], **section})}
    document["declarations"] = document.pop("params")
    del document["framework"]
    return document


def _old(facts: dict[str, Any]) -> dict[str, Any]:
    section = {facts["framework"]: _oldest(facts)}
    document = _middle(facts) | {"environment": _without_nothing({"resources": facts["resources"], **section})}
    document["run"] = _without_nothing({"image": facts["image"], "cmd": facts["cmd"]})
    document.pop("build", None)
    document["tags"] = facts["tags"]
    return document


def _first(facts: dict[str, Any]) -> dict[str, Any]:
    document = _old(facts)
    document["environment"] = _without_nothing({"resources": facts["resources"], **_oldest(facts)})
    document["framework"] = facts["framework"]
    document["exec"] = document.pop("run")
    del document["kind"], document["version"]
    return document


DIALECTS: list[Callable[[dict[str, Any]], dict[str, Any]]] = [_modern, _middle, _old, _first]


@given(distributed())
@examples(60)
def test_every_dialect_of_the_same_facts_gives_the_same_spec(facts: dict[str, Any]) -> None:
    modern = load_text(_text(_modern(facts)))
    replicas = modern.environment.replicas
    assert replicas is not None
    assert (replicas.n_workers, replicas.n_ps) == (facts["n_workers"], facts["n_ps"])
    for dialect in DIALECTS[1:]:
        assert load_text(_text(dialect(facts))) == modern


def assert_converting_keeps_the_meaning(spec: Spec) -> None:
    text = to_yaml(modern_document(spec))
    again = load_text(text)
    assert again == spec
    assert to_yaml(modern_document(again)) == text


@given(distributed(), st.sampled_from(DIALECTS))
@examples(60)
def test_converting_an_experiment_of_any_dialect_keeps_its_meaning(
    facts: dict[str, Any], dialect: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    assert_converting_keeps_the_meaning(load_text(_text(dialect(facts))))


MATRICES = st.dictionaries(
    identifiers,
    st.one_of(
        st.lists(scalars, min_size=1, max_size=3).map(lambda values: {"values": values}),
        st.sampled_from([
            {"range": "0:5:2"}, {"linspace": [0, 1, 3]}, {"logspace": {"start": 0, "stop": 1, "num": 2}},
            {"uniform": "0:1"},
            {"qnormal": [0, 1, 0.5]}, {"pvalues": [["a", 0.5], [2, 0.25]]}, {"geomspace": "1:10:3"},
        ]),
    ),
    min_size=1, max_size=3,
)  # fmt: skip


@given(MATRICES, params, st.booleans(), st.integers(1, 5))
@examples(60)
def test_converting_a_group_keeps_its_meaning_and_that_of_its_suggestions(
    matrix: dict[str, Any], given_params: dict[str, Any], old: bool, concurrency: int
) -> None:
    command = " ".join(f"--{name}={{{{ {name} }}}}" for name in matrix)
    document: dict[str, Any] = {"version": 1, "kind": "group", "run": {"cmd": f"x {command}"}}
    tuning = {"concurrency": concurrency, "random_search": {"n_experiments": 2}}
    if old:
        document |= {"settings": tuning, "matrix": matrix, "declarations": given_params}
    else:
        document |= {"hptuning": {**tuning, "matrix": matrix}, "params": given_params}
    spec = load_text(_text(document))
    assert_converting_keeps_the_meaning(spec)
    again = load_text(to_yaml(modern_document(spec)))
    assert first_suggestion(again) == first_suggestion(spec)


@given(st.dictionaries(texts, st.one_of(scalars, anything), max_size=4))
@examples(200)
def test_any_params_read_back_as_they_were_written(written: dict[str, Any]) -> None:
    spec = load_text(to_yaml({"version": 1, "kind": "experiment", "params": written}))
    assert spec.params == written


@given(st.text(st.characters(exclude_categories=["Cs"])))
@examples(100)
def test_folding_a_command_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert "\n" not in fold(text)


# merging -----------------------------------------------------------------------------------------------------

NESTED = st.recursive(
    st.sampled_from([None, 0, 1, "text", [], [1, 2]]),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
LAYERS = st.dictionaries(st.sampled_from("abc"), NESTED, max_size=2)


def _laid(*layers: Node) -> Node:
    return reduce(merge, layers)


@given(LAYERS, LAYERS, LAYERS)
@examples(200)
def test_merging_is_associative(first: Any, second: Any, third: Any) -> None:
    a, b, c = tree_of(first), tree_of(second), tree_of(third)
    assert merge(merge(a, b), c).plain() == merge(a, merge(b, c)).plain()


@given(LAYERS, LAYERS, LAYERS, LAYERS, LAYERS)
@examples(200)
def test_layers_merged_in_any_grouping_behave_the_same_below_and_above_others(
    below: Any, first: Any, second: Any, third: Any, above: Any
) -> None:
    """What a merged layer hides of those below it is part of what it is."""
    a, b, c = tree_of(first), tree_of(second), tree_of(third)
    groupings = [merge(merge(a, b), c), merge(a, merge(b, c))]
    wanted = _laid(tree_of(below), a, b, c, tree_of(above)).plain()
    for merged in groupings:
        assert _laid(tree_of(below), merged, tree_of(above)).plain() == wanted
        assert merge(tree_of(below), merge(merged, tree_of(above))).plain() == wanted


@given(LAYERS)
@examples(100)
def test_a_layer_of_nothing_changes_nothing(layer: Any) -> None:
    assert merge(tree_of(layer), tree_of({})).plain() == layer
    assert merge(tree_of({}), tree_of(layer)).plain() == layer
    assert merge(tree_of(layer), tree_of(layer)).plain() == layer


# the fast path of templates ----------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d", "e", "true", "none", "if", "loop", "self")
MARKS = ["{", "}", "{{", "}}", "{%", "%}", "{#", "#}", "\n", "\r\n", "-", "{{-", "-}}", " ", "%", "#", "##"]
PIECES = st.one_of(
    st.sampled_from(NAMES).map(lambda name: f"{{{{ {name} }}}}"),
    st.sampled_from(["{{b}}", "{{ c}}", "{{\td }}", "{{a }}"]),
    st.sampled_from(MARKS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
CONTEXTS = st.fixed_dictionaries(
    {"a": st.text(max_size=5), "b": st.integers(), "c": st.floats(), "d": st.booleans()},
    optional={
        name: st.one_of(st.none(), st.lists(st.integers(), max_size=2), st.just("x"))
        for name in ("e", "true", "none", "if", "loop", "self")
    },
)
JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


@given(st.lists(PIECES, max_size=6).map("".join), CONTEXTS)
@examples(400)
def test_the_fast_path_of_templates_gives_exactly_what_jinja_gives(text: str, context: dict[str, Any]) -> None:
    fast = _plain_names(text, context)
    if fast is not None:
        assert JINJA.from_string(text).render(context) == fast


@pytest.mark.parametrize("text", ["a {{ a }}", "{{ a }}{{ b }}", "x{{ c }}y\n", "{{ a }} {{ d }}", "no name at all"])
def test_the_fast_path_is_taken_for_what_most_files_hold(text: str) -> None:
    assert _plain_names(text, {"a": "x", "b": 1, "c": 0.5, "d": True}) is not None


@pytest.mark.parametrize(
    "text", ["{{ a | upper }}", "{{ a }}{% if a %}{% endif %}", "{{ a }} {{ missing }}", "{{ a.b }}", "{# a #}"]
)
def test_the_fast_path_is_not_taken_for_anything_else(text: str) -> None:
    assert _plain_names(text, {"a": "x"}) is None
