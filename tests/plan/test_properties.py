"""What holds for every plan, whatever the file."""

from __future__ import annotations

import json
import math
from itertools import chain, pairwise
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from phalanx import plan, spec
from phalanx.plan import Plan
from phalanx.plan.document import PlanView, document, document_text
from phalanx.stored_plan import parse_plan
from tests.examples import examples
from tests.plan.samples import RUN_ID, argv, environment

WITH_PS = ("tensorflow", "mxnet", "plain")
FRAMEWORKS = (*WITH_PS, "pytorch", "horovod", "jax", "mpi")

HOSTILE = (
    "it's", '"', "'\"'", "a\nb", "a\r\nb", "\t", " ", "", "$(touch pwned)", "`touch pwned`", "${HOME}", "$HOME", "\\",
    "\\\\'", "<master-0>", '{"host": "x"}', '{"parts": [{"host": "x"}]}', "{{", "{{ 1 + 1 }}", "{% if %}", "{# x", "}}",
    "*", "%s", "{}", "{0}", "!x", "#x", "~", "a;b", "a&&b", "a|b", "\x07", "\x1b[31m", "\x7f", "\x9b", "\u202e", "é",
    "日本", "\U0001f600", "--help", "-n", "null", "1e3", "|", ">", "@", "&a", "*a", "? x", ": x", "- x",
)  # fmt: skip


def has_markers(text: str) -> bool:
    """Whether a file's text would be read as a template."""
    return any(marker in text for marker in ("{{", "{%", "{#"))


TEXTS = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40),
    st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=4).map("".join),
)
KEYS = TEXTS.filter(lambda text: not has_markers(text))
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(TEXTS, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(
            st.integers(0, 64).map(lambda low: {"requests": low, "limits": low + 2}),
            st.integers(0, 64).map(lambda low: {"requests": low}),
            st.floats(0, 64).map(lambda high: {"limits": high}),
        )
        for name in ("cpu", "memory", "gpu", "tpu")
    },
)


def literally(value: Any) -> Any:
    """A value as a file must write it so that templates leave it as it is."""
    if isinstance(value, dict):
        return {key: literally(item) for key, item in value.items()}
    if isinstance(value, list):
        return [literally(item) for item in value]
    if isinstance(value, str) and has_markers(value):
        return '{{ "' + "".join(f"\\U{ord(character):08x}" for character in value) + '" }}'
    return value


@st.composite
def topologies(draw: st.DrawFn) -> dict[str, Any]:
    """A distributed experiment of any shape."""
    framework = draw(st.sampled_from(FRAMEWORKS))
    n_workers = draw(st.integers(0, 12))
    n_ps = draw(st.integers(0, 5)) if framework in WITH_PS else 0
    assume(n_workers or n_ps or framework != "mpi")
    replicas: dict[str, Any] = {"n_workers": n_workers, "n_ps": n_ps}
    for role, count in (("worker", n_workers), ("ps", n_ps)):
        if draw(st.booleans()):
            replicas[f"default_{role}"] = {"resources": draw(AMOUNTS)}
        listed = draw(st.sets(st.integers(0, count - 1), max_size=3)) if count else set()
        replicas[role] = [{"index": index, "resources": draw(AMOUNTS)} for index in sorted(listed)]
    if draw(st.booleans()):
        replicas["launcher"] = draw(st.sampled_from(["direct", "mpirun"]))
    if draw(st.booleans()):
        replicas["master_task"] = draw(st.sampled_from(["chief", "master"]))
    return {
        "version": 1,
        "kind": "experiment",
        "framework": framework,
        "environment": {"resources": draw(AMOUNTS), "replicas": replicas},
        "run": {"cmd": draw(st.sampled_from(["python train.py", "mpirun -np 2 ./solve"]))},
    }


def planned(file: dict[str, Any], run_id: str = RUN_ID, project: str = "default") -> Plan:
    return plan.make(spec.load_document("file", file), run_id, project)


@examples(100)
@given(topologies())
def test_ranks_are_a_permutation_and_every_replica_is_there(file: dict[str, Any]) -> None:
    made = planned(file)
    assert sorted(found.rank for found in made.replicas) == list(range(len(made.replicas)))
    firsts = [found for found in made.replicas if not found.local and found.role != "launcher"]
    assert sorted(found.name for found in firsts) == sorted(chain(*made.members.values()))
    for role, count in made.roles.items():
        assert [found.index for found in firsts if found.role == role] == list(range(count))
    for before, found in pairwise(made.replicas):  # the processes of a replica stand together
        assert not found.local or (found.role, found.index, found.local) == (
            before.role,
            before.index,
            before.local + 1,
        )
    assert made.replicas[0].rank == 0
    if "master" in made.roles:
        assert made.replicas[0].role == "master"


@examples(100)
@given(topologies())
def test_totals_are_the_sum_over_all_replicas(file: dict[str, Any]) -> None:
    made = planned(file)
    for name in ("cpu", "memory", "gpu", "tpu"):
        firsts = [found for found in made.replicas if not found.local and found.role != "launcher"]
        amounts = [amount for found in firsts if (amount := getattr(found.resources, name)) is not None]
        for bound in ("requests", "limits"):
            said = [value for amount in amounts if (value := getattr(amount, bound)) is not None]
            whole = getattr(getattr(made.totals, name), bound, None)
            assert (whole is None) == (not said)
            assert whole is None or math.isclose(whole, math.fsum(said), rel_tol=1e-9)


@examples(100)
@given(topologies())
def test_a_listed_replica_has_exactly_what_its_entry_says(file: dict[str, Any]) -> None:
    made = planned(file)
    replicas = file["environment"]["replicas"]
    for role, key in (("worker", "worker"), ("ps", "ps"), ("server", "ps")):
        for entry in replicas[key]:
            found = next((one for one in made.replicas if (one.role, one.index) == (role, entry["index"])), None)
            if found is None:
                assert role not in made.roles
                continue
            for name in ("cpu", "memory", "gpu", "tpu"):
                amount = getattr(found.resources, name)
                asked = entry["resources"].get(name)
                assert (amount and {k: v for k, v in amount._asdict().items() if v is not None}) == asked


@examples(100)
@given(topologies())
def test_every_environment_fills_in_completely_and_its_json_is_json(file: dict[str, Any]) -> None:
    made = planned(file)
    runs = 0
    for found in made.replicas:
        variables = environment(made, found.name)
        cluster = json.loads(variables["PHALANX_CLUSTER"])
        assert {role: len(addresses) for role, addresses in cluster.items()} == dict(made.roles)
        assert found.role == "launcher" or cluster[found.role][found.index].startswith(f"{found.role}-{found.index}.")
        for name in ("PHALANX_PARAMS", "POLYAXON_TASK_INFO", "POLYAXON_EXPERIMENT_INFO", "TF_CONFIG"):
            json.loads(variables.get(name, "{}"))
        runs += bool(argv(made, found.name))
    assert runs == (1 if made.launch == "own" else len(made.replicas))


@examples(100)
@given(topologies())
def test_an_agent_reads_back_what_was_planned(file: dict[str, Any]) -> None:
    made = planned(file)
    data = parse_plan(document_text(document(made)).encode())
    assert data.environment == dict(made.shared)
    for written, found in zip(data.replicas, made.replicas, strict=True):
        assert (written.name, written.rank) == (found.name, found.rank)
        assert dict(written.environment) == dict(found.environment)
        assert (written.argv, written.defaults) == (found.argv, found.defaults)


@examples(100)
@given(
    params=st.dictionaries(NAMES, VALUES, max_size=4),
    variables=st.dictionaries(NAMES.map("MINE_{}".format), TEXTS, max_size=4),
    tags=st.lists(TEXTS, max_size=3, unique=True),
    name=st.one_of(st.none(), st.from_regex(r"[-a-zA-Z0-9_]{1,20}", fullmatch=True)),
    project=TEXTS,
    run_id=TEXTS,
    framework=st.sampled_from(FRAMEWORKS),
)
def test_no_text_of_the_user_changes_or_breaks_out(
    *,
    params: dict[str, Any],
    variables: dict[str, str],
    tags: list[str],
    name: str | None,
    project: str,
    run_id: str,
    framework: str,
) -> None:
    file = {
        "version": 1,
        "kind": "experiment",
        "name": name,
        "tags": [literally(tag) for tag in tags],
        "framework": framework,
        "params": {key: literally(value) for key, value in params.items()},
        "environment": {
            "env_vars": [[key, literally(value)] for key, value in variables.items()],
            "replicas": {"n_workers": 2},
        },
        "run": {"cmd": "ls"},
    }
    loaded = spec.load_document("file", file)
    assert list(loaded.tags) == tags
    made = plan.make(loaded, run_id, project)
    for found in made.replicas:
        seen = environment(made, found.name)
        for key in ("PHALANX_PARAMS", "POLYAXON_PARAMS", "POLYAXON_DECLARATIONS"):
            assert json.loads(seen[key]) == params
        assert {key: seen[key] for key in variables} == variables
        assert (seen["PHALANX_PROJECT"], seen["PHALANX_RUN_ID"]) == (project, run_id)
        info = json.loads(seen["POLYAXON_EXPERIMENT_INFO"])
        assert info["project_name"] == project
        assert info["experiment_name"] == f"{project}.{name or run_id}"
        json.loads(seen.get("TF_CONFIG", "{}"))
        json.loads(seen["PHALANX_CLUSTER"])
    shown = PlanView(made).as_json()["replicas"][0]["environment"]
    assert json.loads(shown["PHALANX_PARAMS"]) == params


@examples(100)
@given(TEXTS)
@example('echo "<master-0>" {"host": "x"} $(id) `id`')
def test_a_command_is_one_argument_for_any_content(text: str) -> None:
    command = f"echo {text}"
    folded = " ".join(command.split())
    assume(not has_markers(text) and "\\" not in text)  # folding drops stray ones
    made = planned({"version": 1, "kind": "job", "run": {"cmd": command}})
    assert argv(made, "master-0") == ["bash", "-c", folded]
    assert made.command == folded


@examples(100)
@given(st.dictionaries(NAMES.map("p_{}".format), TEXTS, min_size=1, max_size=3))
def test_a_param_in_the_command_is_put_in_as_it_is(params: dict[str, str]) -> None:
    assume(not any("\\" in value for value in params.values()))  # folding drops stray ones
    made = planned(
        {
            "version": 1,
            "kind": "job",
            "params": {name: literally(value) for name, value in params.items()},
            "run": {"cmd": "run " + " ".join(f"{{{{ {name} }}}}" for name in params)},
        }
    )
    assert made.command == " ".join(f"run {' '.join(params.values())}".split())
