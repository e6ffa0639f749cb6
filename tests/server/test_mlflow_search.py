"""MLflow's filters and orders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.server.mlflow.errors import MlflowError
from phalanx.server.mlflow.filters import Condition, Sorting, conditions, holds, like, sortings
from tests.server.site import Site
from tests.store.conftest import fresh
from tests.suites import databases


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metrics.loss > 1", Condition("metric", "loss", ">", 1.0)),
        ("metric.loss<=-1.5e-3", Condition("metric", "loss", "<=", -0.0015)),
        ("params.lr = '0.1'", Condition("param", "lr", "=", "0.1")),
        ('parameters.lr != "x"', Condition("param", "lr", "!=", "x")),
        ("params.`a b` = 'x'", Condition("param", "a b", "=", "x")),
        ('metrics."val/loss" < .5', Condition("metric", "val/loss", "<", 0.5)),
        ("metrics.val/loss < 5", Condition("metric", "val/loss", "<", 5.0)),
        ("tags.mlflow.parentRunId = 'x'", Condition("tag", "mlflow.parentRunId", "=", "x")),
        ("tags.`mlflow.source.name` ILIKE '%Train%'", Condition("tag", "mlflow.source.name", "ILIKE", "%Train%")),
        ("status = 'FINISHED'", Condition("attribute", "status", "=", "FINISHED")),
        ("attributes.start_time >= 1700000000000", Condition("attribute", "start_time", ">=", 1.7e12)),
        ("run.run_name like 'a%'", Condition("attribute", "run_name", "LIKE", "a%")),
        ("`Run Name` = 'x'", Condition("attribute", "Run Name", "=", "x")),
        ("run_id IN ('a', \"b\" , 'c')", Condition("attribute", "run_id", "IN", ("a", "b", "c"))),
        ("attribute.run_id not in ('a')", Condition("attribute", "run_id", "NOT IN", ("a",))),
        ("params.x IS NULL", Condition("param", "x", "IS NULL", None)),
        ("params.x is not null", Condition("param", "x", "IS NOT NULL", None)),
        ("params.q = 'it''s'", Condition("param", "q", "=", "it's")),
        ("params.q = 'a AND b'", Condition("param", "q", "=", "a AND b")),
        ("datasets.name = 'd'", Condition("dataset", "name", "=", "d")),
    ],
)
def test_a_filter_is_read(text: str, expected: Condition) -> None:
    assert conditions(text) == [expected]
    assert conditions(f"  {text}  AND tags.z='1' and {text}") == [expected, Condition("tag", "z", "=", "1"), expected]


def test_no_filter_is_no_condition() -> None:
    assert conditions("") == conditions("   ") == []


@pytest.mark.parametrize(
    "text",
    [
        "metrics.loss",
        "metrics.loss >",
        "> 1",
        "metrics.loss > 1 OR metrics.loss < 0",
        "metrics.loss > 1 AND",
        "AND",
        "nonsense.x = 'y'",
        "params.x = y",
        "params.x = 'unclosed",
        "params.`x = 'y'",
        "metrics.x > 1; DROP TABLE runs",
        "run_id IN ()",
        "run_id IN ('a'",
        "run_id IN 'a'",
        "run_id NOT 'a'",
        "params.x IS 5",
        "metrics.x = 1 2",
        "x" * 30_000,
        "a.b.c..d > ",
        "()",
        "\x00",
        " AND ".join(["metrics.x > 1"] * 101),
        f"run_id IN ({', '.join(['1'] * 501)})",
    ],
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(MlflowError) as fault:
        conditions(text)
    assert fault.value.code == "INVALID_PARAMETER_VALUE"
    assert len(fault.value.message) < 500


def test_orders_are_read() -> None:
    assert sortings(["metrics.loss", "params.`a b` DESC", "start_time asc"]) == [
        Sorting("metric", "loss", False),
        Sorting("param", "a b", True),
        Sorting("attribute", "start_time", False),
    ]


@pytest.mark.parametrize(
    ("text", "wanted", "fits"),
    [
        ("abc", "abc", True),
        ("abc", "a%", True),
        ("abc", "%b%", True),
        ("abc", "_b_", True),
        ("abc", "_", False),
        ("abc", "%", True),
        ("", "%", True),
        ("", "", True),
        ("", "_", False),
        ("abc", "A%", False),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("aXbXc", "a%X%c", True),
        ("mississippi", "m%iss%ip%i", True),
        ("a\nb", "a%b", True),
        ("abc", "abc%%", True),
        ("abcd", "%bc", False),
    ],
)
def test_like_is_as_in_sql(text: str, wanted: str, fits: bool) -> None:
    assert like(text, wanted) == fits


def test_like_does_not_take_for_ever() -> None:
    begun = time.monotonic()
    assert not like("a" * 500, "%a" * 5000 + "b")
    assert time.monotonic() - begun < 30


def test_conditions_hold_for_values_of_their_kind() -> None:
    assert holds(Condition("", "", ">", 1.0), 2.0)
    assert not holds(Condition("", "", ">", 1.0), None)
    assert holds(Condition("", "", "IS NULL", None), None)
    assert holds(Condition("", "", "NOT IN", ("a",)), "b")
    assert holds(Condition("", "", "ILIKE", "A_C"), "abc")
    assert holds(Condition("", "", "=", 5.0), 5.0)


# runs ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=databases())
def stored_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp(request.param)
    with fresh(request.param, folder) as address, Site(folder, address.url) as found:
        yield found


@pytest.fixture(scope="module")
def found(stored_site: Site) -> Any:
    """Four runs of one experiment and one of another; answers a search by their names."""
    site = stored_site
    first = site.mlflow("POST", "experiments/create", {"name": "first"})["experiment_id"]
    other = site.mlflow("POST", "experiments/create", {"name": "other"})["experiment_id"]
    base = 1_700_000_000_000
    admin = site.context.tokens.create("admin", "admin")  # who may create runs for others
    for number, name in enumerate(["a", "b", "C_c", "d"]):
        tags = [
            {"key": "team", "value": ["blue", "Red", "re_d", "100%"][number]},
            {"key": "mlflow.note.content", "value": f"note {name}"},
        ]
        fields = {"run_name": name, "start_time": base + number * 1000, "tags": tags, "user_id": f"user{number % 2}"}
        run_id = site.begin(first, admin, **fields)
        values = {"loss": number / 10, **({"acc": float("nan")} if number == 3 else {"acc": 1.0 - number})}
        metrics = [{"key": key, "value": str(value), "timestamp": 1, "step": 0} for key, value in values.items()]
        params = [{"key": "lr", "value": str(10**number)}, *([{"key": "opt", "value": "adam"}] if number % 2 else [])]
        site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "metrics": metrics, "params": params})
        if number < 2:
            status = ("FINISHED", "FAILED")[number]
            site.mlflow("POST", "runs/update", {"run_id": run_id, "status": status, "end_time": base + 60_000 + number})
    site.begin(other, run_name="elsewhere")

    def search(text: str = "", order: tuple[str, ...] = ("attributes.start_time",), **more: Any) -> list[str]:
        fields = {"experiment_ids": [first], "filter": text, "order_by": list(order), **more}
        answer = site.mlflow("POST", "runs/search", fields)
        return [run["info"]["run_name"] for run in answer["runs"]]

    search.site, search.first, search.other = site, first, other  # type: ignore[attr-defined]
    return search


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["a", "b", "C_c", "d"]),
        ("metrics.loss > 0.05", ["b", "C_c", "d"]),
        ("metrics.loss >= 0.1 AND metrics.loss < 0.3", ["b", "C_c"]),
        ("metrics.loss = 0.2", ["C_c"]),
        ("metrics.loss != 0.2", ["a", "b", "d"]),
        ("metrics.acc > -100", ["a", "b", "C_c"]),
        ("metrics.nothing > 0", []),
        ("params.lr = '100'", ["C_c"]),
        ("params.lr != '100'", ["a", "b", "d"]),
        ("params.lr LIKE '10%'", ["b", "C_c", "d"]),
        ("params.lr LIKE '1_'", ["b"]),
        ("params.opt = 'adam' AND params.lr = '10'", ["b"]),
        ("params.opt != 'sgd'", ["b", "d"]),
        ("params.opt IS NULL", ["a", "C_c"]),
        ("params.opt IS NOT NULL", ["b", "d"]),
        ("tags.team = 'blue'", ["a"]),
        ("tags.team LIKE 're%'", ["C_c"]),
        ("tags.team ILIKE 're%'", ["b", "C_c"]),
        ("tags.team LIKE 're\\_d'", []),
        ("tags.team LIKE '100%'", ["d"]),
        ("tags.team LIKE '*'", []),
        ("tags.team LIKE 'R[e]d'", []),
        ("tags.mlflow.runName = 'C_c'", ["C_c"]),
        ("tags.`mlflow.note.content` LIKE 'note%'", ["a", "b", "C_c", "d"]),
        ("attributes.status = 'FINISHED'", ["a"]),
        ("status != 'RUNNING'", ["a", "b"]),
        ("status IN ('FAILED', 'RUNNING')", ["b", "C_c", "d"]),
        ("status ILIKE 'f%'", ["a", "b"]),
        ("run_name LIKE 'C%'", ["C_c"]),
        ("run_name ILIKE 'c%'", ["C_c"]),
        ("run_name IN ('a', 'd')", ["a", "d"]),
        ("run_name NOT IN ('a', 'd')", ["b", "C_c"]),
        ("user_id = 'user1'", ["b", "d"]),
        ("start_time >= 1700000002000", ["C_c", "d"]),
        ("attributes.created < 1700000001000", ["a"]),
        ("end_time > 0", ["a", "b"]),
        ("artifact_uri LIKE 'mlflow-artifacts:/%'", ["a", "b", "C_c", "d"]),
        ("params.lr = '1'' OR 1=1 --'", []),
        ("params.`x' OR 1=1 --` = 'y'", []),
    ],
)
def test_runs_are_found(found: Any, text: str, names: list[str]) -> None:
    assert found(text) == names


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (("metrics.loss DESC",), ["d", "C_c", "b", "a"]),
        (("metrics.acc",), ["C_c", "b", "a", "d"]),
        (("metrics.acc DESC",), ["a", "b", "C_c", "d"]),
        (("params.opt", "metrics.loss DESC"), ["d", "b", "C_c", "a"]),
        (("tags.team DESC",), ["C_c", "a", "b", "d"]),
        (("attributes.end_time DESC",), ["b", "a", "d", "C_c"]),
        (("run_name",), ["C_c", "a", "b", "d"]),
        ((), ["d", "C_c", "b", "a"]),
        (("metrics.`x; DROP TABLE runs`",), ["d", "C_c", "b", "a"]),
    ],
)
def test_runs_are_ordered(found: Any, order: tuple[str, ...], names: list[str]) -> None:
    assert found("", order) == names


@pytest.mark.parametrize(
    "text",
    [
        "metrics.loss = 'x'",
        "metrics.loss LIKE 'x'",
        "metrics.loss IN (1, 2)",
        "params.lr > '1'",
        "params.lr = 1",
        "attributes.nothing = 'x'",
        "start_time = 'yesterday'",
        "datasets.name = 'd'",
    ],
)
def test_what_cannot_be_asked_of_runs_is_refused(found: Any, text: str) -> None:
    answer = found.site.mlflow_answer("POST", "runs/search", {"experiment_ids": [found.first], "filter": text})
    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize("order", ["", "nothing", "datasets.x", "metrics.x sideways", "attributes.params"])
def test_what_cannot_order_runs_is_refused(found: Any, order: str) -> None:
    fields = {"experiment_ids": [found.first], "order_by": [order]}
    assert found.site.mlflow_answer("POST", "runs/search", fields).status_code == 400


def test_pages_of_runs_meet(found: Any) -> None:
    site: Site = found.site
    names, token = [], None
    for _ in range(10):
        fields = {"experiment_ids": [found.first], "max_results": 2, **({"page_token": token} if token else {})}
        answer = site.mlflow("POST", "runs/search", fields)
        names.append([run["info"]["run_name"] for run in answer["runs"]])
        token = answer.get("next_page_token")
        if not token:
            break
    assert names == [["d", "C_c"], ["b", "a"]]


def test_experiments_are_searched_together(found: Any) -> None:
    assert len(found("", (), experiment_ids=[found.first, found.other, found.first])) == 5
    assert found("", (), experiment_ids=[]) == []
    answer = found.site.mlflow_answer("POST", "runs/search", {"experiment_ids": ["12345"]})
    assert answer.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"
