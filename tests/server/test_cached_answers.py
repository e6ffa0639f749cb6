"""What the server answers from its caches is what it would answer without them: after any change, through any of its
processes, and for every identity."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from phalanx.home.home import Home
from phalanx.server.app import make_app
from phalanx.server.auth.rate_limits import RateLimits
from phalanx.server.context import Context
from phalanx.server.http import answer_cache, response_cache
from phalanx.server.ops import store_version
from phalanx.server.processes.shared_state import SharedState
from phalanx.store import Store
from tests.examples import examples

FOREVER_S = 1e6
NUMBERS = itertools.count()
PATHS = (
    "/runs?limit=1000",
    "/runs?limit=2&sort=name",
    "/runs?q=starred:true",
    "/runs?q=%73tarred:true",
    "/runs?project=open",
    "/runs?archived=true",
    "/runs/grouped?by=tags",
    "/runs/grouped?by=name&q=starred:true",
    "/runs/{run}",
    "/runs/{run}/chart?name=m",
    "/runs/{run}/metrics",
    "/runs/{run}/lines",
    "/runs/{run}/topology",
    "/projects",
    "/groups",
    "/queue",
    "/compare?run={run}&run={other}",
    "/charts?name=m&run={run}&run={other}",
)
CHANGES = ("create", "name", "tag", "star", "unstar", "archive", "unarchive", "finish", "delete")
ELSEWHERE = ("name", "log metric", "log line")  # by another program, or as values that a run logs
WHO = ("admin", "viewer", "other viewer", "limited", "also limited", "run")


class Answered(NamedTuple):
    status: int
    body: Any


class Server:
    """Two processes that share what processes of a server share, and one without caches on the same home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        shared = SharedState(2)
        self.contexts = [Context(home, shared=shared) for _ in range(3)]
        self.contexts[2].recent.get = lambda key, make, **_: make()  # type: ignore[method-assign]
        apps = [make_app(context, limits=RateLimits(rate=0)) for context in self.contexts]
        transports = [httpx.ASGITransport(app=app, client=("127.0.0.1", 1)) for app in apps]
        self.clients = [httpx.AsyncClient(transport=each, base_url="http://127.0.0.1") for each in transports]
        self.loop = asyncio.Runner()
        tokens = self.contexts[0].tokens
        self.tokens = {
            "admin": tokens.create("admin", "admin"),
            "viewer": tokens.create("viewer", "viewer"),
            "other viewer": tokens.create("other-viewer", "viewer"),
            "limited": tokens.create("limited", "viewer", projects=["open"]),
            "also limited": tokens.create("also-limited", "viewer", projects=["open"]),
        }
        self.runs: list[str] = []
        for project in ("open", "closed"):
            self.change("create", 0, project)
        self.tokens["run"] = self.run_token(self.runs[0])

    def run_token(self, run_id: str) -> str:
        from phalanx.server.auth.tokens import run_token

        return run_token(self.home.path, run_id, 1)

    def ask(self, process: int, who: str, method: str, path: str, **more: Any) -> Answered:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        answer = self.loop.run(self.clients[process].request(method, path, headers=headers, **more))
        assert answer.status_code < 500, answer.text
        return Answered(answer.status_code, answer.json())

    def read(self, process: int, who: str, path: str) -> Answered:
        names = {"run": self.runs[0], "other": self.runs[-1]}
        return self.ask(process, who, "GET", f"/api/v1{path.format_map(names)}")

    def uncached(self, who: str, path: str) -> Answered:
        return self.read(2, who, f"{path}{'&' if '?' in path else '?'}_={next(NUMBERS)}")

    def change(self, what: str, process: int, project: str = "open") -> None:
        run = f"/api/v1/runs/{self.runs[-1]}" if self.runs else ""
        name = f"n{next(NUMBERS)}"
        calls: dict[str, Callable[[], Answered]] = {
            "create": lambda: self.ask(process, "admin", "POST", "/api/v1/runs", json={"project": project}),
            "name": lambda: self.ask(process, "admin", "PATCH", run, json={"name": name}),
            "tag": lambda: self.ask(process, "admin", "POST", f"{run}/tags", json={"add": [name]}),
            "star": lambda: self.ask(process, "limited", "PUT", f"{run}/star"),
            "unstar": lambda: self.ask(process, "limited", "DELETE", f"{run}/star"),
            "archive": lambda: self.ask(process, "admin", "POST", f"{run}/archive"),
            "unarchive": lambda: self.ask(process, "admin", "POST", f"{run}/unarchive"),
            "finish": lambda: self.ask(process, "admin", "POST", f"{run}/finish", json={}),
            "delete": lambda: self.ask(process, "admin", "DELETE", run),
        }
        answer = calls[what]()
        if what == "create":
            self.runs.append(answer.body["id"])
        if what == "delete" and answer.status == 200 and len(self.runs) > 2:
            self.runs.pop()

    def change_elsewhere(self, what: str) -> None:
        run_id, number = self.runs[0], next(NUMBERS)
        if what == "name":
            with Store.open(self.home.path) as store:
                store.update(run_id, name=f"n{number}")
        elif what == "log metric":
            fields = {"run_id": run_id, "key": "m", "value": number, "timestamp": number, "step": number}
            self.ask(1, "admin", "POST", "/api/2.0/mlflow/runs/log-metric", content=json.dumps(fields))
        else:
            log = self.home.run(run_id).path / "replicas/master-0/attempt-1/log"
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as stream:
                stream.write(f"line {number}\n")

    def close(self) -> None:
        self.loop.close()
        for context in self.contexts:
            context.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(Home(tmp_path_factory.mktemp("cached") / "home"))
    yield found
    found.close()


@pytest.fixture
def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that may be kept is kept until something changes."""
    for name in ("LONGEST_S", "SHARE"):
        monkeypatch.setattr(response_cache, name, FOREVER_S)
    monkeypatch.setattr(response_cache, "CHEAP_S", 0.0)
    for name in ("LONGEST_S", "OTHERS_S", "OTHERS_SHARE"):
        monkeypatch.setattr(answer_cache, name, FOREVER_S)


someone = st.sampled_from(WHO)
process = st.sampled_from([0, 1])
question = st.tuples(process, someone, st.sampled_from(PATHS))


@pytest.mark.slow
@pytest.mark.usefixtures("greedy")
@examples(60, HealthCheck.function_scoped_fixture)
@given(st.lists(st.tuples(st.lists(question, max_size=6), process, st.sampled_from(CHANGES)), max_size=5), question)
def test_after_any_change_of_a_client_all_processes_answer_as_without_caches(
    server: Server, story: list[Any], last: tuple[int, str, str]
) -> None:
    for asked, where, change in story:
        for number, who, path in [*asked, last]:
            assert server.read(number, who, path) == server.uncached(who, path), (who, path)
        server.change(change, where)
    assert server.read(*last) == server.uncached(*last[1:]), last


@pytest.mark.slow
@examples(60, HealthCheck.function_scoped_fixture)
@given(
    st.lists(st.tuples(st.lists(question, max_size=6), st.sampled_from(ELSEWHERE)), max_size=5),
    question.filter(lambda asked: asked[2] != "/queue"),  # has a cache of its own, for half a second
)
def test_what_another_program_changed_is_answered_at_once_where_that_is_cheap(
    server: Server, monkeypatch: pytest.MonkeyPatch, story: list[Any], last: tuple[int, str, str]
) -> None:
    monkeypatch.setattr(response_cache, "CHEAP_S", FOREVER_S)
    monkeypatch.setattr(store_version, "FOR_S", 0.0)
    server.change("tag", 0)  # drops what the other tests keep for ever
    for asked, change in story:
        for number, who, path in [*asked, last]:
            server.read(number, who, path)
        server.change_elsewhere(change)
        assert server.read(*last) == server.uncached(*last[1:]), last


@pytest.mark.usefixtures("greedy")
def test_each_change_is_seen_through_the_other_process(server: Server) -> None:
    paths = ("/runs?limit=1000", "/runs/{run}", "/runs?q=starred:true")
    for change in (each for each in CHANGES if each != "finish"):  # that one waits for a scheduler
        for path in paths:
            server.read(0, "limited", path)
        server.change(change, 1)
        for path in paths:
            assert server.read(0, "limited", path) == server.uncached("limited", path), (change, path)


def check_identities(server: Server, paths: Sequence[str], orders: Sequence[Sequence[str]]) -> None:
    """What a cache holds for one identity is asked for by the next."""
    server.change("create", 0)  # one that all of them see
    server.change("star", 0)
    for path, order in itertools.product(paths, orders):
        server.change("tag", 1)
        expected = {who: server.uncached(who, path) for who in WHO}
        for number, who in itertools.product((0, 1), order):
            assert server.read(number, who, path) == expected[who], (who, path)
    assert server.uncached("limited", PATHS[2]) != server.uncached("also limited", PATHS[2])


@pytest.mark.usefixtures("greedy")
def test_nobody_gets_what_was_made_for_another(server: Server) -> None:
    check_identities(server, [PATHS[0], PATHS[3], "/runs/{run}", "/compare?run={run}&run={other}"], [WHO])


@pytest.mark.slow
@pytest.mark.usefixtures("greedy")
def test_nobody_gets_what_was_made_for_another_in_any_order(server: Server) -> None:
    check_identities(server, PATHS, [WHO, WHO[::-1], WHO[2:] + WHO[:2]])


@pytest.mark.usefixtures("greedy")
def test_a_revoked_token_gets_nothing_from_the_cache(server: Server) -> None:
    tokens = server.contexts[1].tokens
    server.tokens["leaving"] = tokens.create("leaving", "viewer")
    for path in PATHS:
        assert server.read(0, "leaving", path).status == 200
    tokens.revoke("leaving")
    assert {server.read(number, "leaving", path).status for number in (0, 1) for path in PATHS} == {401}


@pytest.mark.usefixtures("greedy")
def test_a_client_that_was_told_of_a_change_sees_it(server: Server) -> None:
    """The event may come from another process than the answer."""
    chart, lists = "/runs/{run}/chart?name=m", "/runs?limit=1000"
    before = [server.read(0, "admin", path) for path in (chart, lists)]
    server.change_elsewhere("log metric")
    server.change_elsewhere("name")
    for run_id in (server.runs[0], ""):
        server.contexts[1].shared.note_event(run_id)
    after = [server.read(0, "admin", path) for path in (chart, lists)]
    assert after == [server.uncached("admin", path) for path in (chart, lists)]
    assert before != after
