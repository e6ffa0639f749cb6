"""Responses that are reused, and 304: for the same caller, while nothing has changed, and never longer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from phalanx.errors import StoreError
from phalanx.server.http import answer_cache
from phalanx.server.http.answer_cache import Answer, AnswerCache, Asked
from phalanx.server.http.file_responses import is_known
from phalanx.server.http.response_cache import CHEAP_S, CachedContent, ResponseCache
from phalanx.server.processes.shared_state import SharedContent, SharedContents, SharedState
from phalanx.store import Store
from tests.server.site import Site
from tests.server.test_response_cache import counted


def tag_of(site: Site, path: str) -> str:
    answer = site.ask("GET", path)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "private, no-cache"
    return str(answer.headers["etag"])


def asked_again(site: Site, path: str, tag: str, token: str | None = None) -> Any:
    return site.ask("GET", path, token, headers={"If-None-Match": tag})


def test_what_has_not_changed_is_not_sent_again(site: Site) -> None:
    run_id = site.post("/api/v1/runs", {"name": "a"}, 201)["id"]
    run = f"/api/v1/runs/{run_id}"
    for path in ("/api/v1/runs", run, f"{run}/chart?name=loss", f"{run}/metrics", f"{run}/lines", "/api/v1/projects"):
        tag = tag_of(site, path)
        again = asked_again(site, path, tag)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), path
        assert asked_again(site, path, '"other"').status_code == 200
    for path in ("/api/v1/session",):
        assert site.ask("GET", path).headers["cache-control"] == "no-store"
    tags = [tag_of(site, "/api/v1/runs"), tag_of(site, run)]
    site.ask("PATCH", run, json={"name": "b"})
    assert [
        asked_again(site, path, tag).status_code for path, tag in zip(("/api/v1/runs", run), tags, strict=True)
    ] == [
        200,
        200,
    ]


def test_a_change_by_another_program_is_seen(site: Site) -> None:
    run_id = site.post("/api/v1/runs", {"name": "a"}, 201)["id"]
    for name in ("b", "c"):
        site.get(f"/api/v1/runs/{run_id}")
        with Store.open(site.home.path) as store:
            store.update(run_id, name=name)
        deadline = time.monotonic() + 30
        while site.get(f"/api/v1/runs/{run_id}")["name"] != name:
            assert time.monotonic() < deadline


def test_logged_values_are_seen_at_once(site: Site) -> None:
    run_id = site.begin()
    for step in range(5):
        fields = {"run_id": run_id, "key": "m", "value": step, "timestamp": 1, "step": step}
        site.mlflow("POST", "runs/log-metric", fields)
        assert site.get(f"/api/v1/runs/{run_id}")["summary"] == {"m": float(step)}


def test_callers_with_other_permissions_get_other_answers(site: Site) -> None:
    """Also with the ETag of another's answer."""
    mine = site.post("/api/v1/runs", {"project": "open"}, 201)["id"]
    hidden = site.post("/api/v1/runs", {"project": "closed"}, 201)["id"]
    limited = site.context.tokens.create("limited", "viewer", projects=["open"])
    path = "/api/v1/runs?limit=1000"
    for _ in range(2):
        tag = tag_of(site, path)
        assert {mine, hidden} <= {row["id"] for row in site.get(path)["runs"]}
        answer = asked_again(site, path, tag, limited)
        assert answer.status_code == 200
        assert [row["id"] for row in answer.json()["runs"]] == [mine]
        one = f"/api/v1/runs/{hidden}"
        assert asked_again(site, one, tag_of(site, one), limited).status_code == 404
        assert site.client.get(one, headers={"If-None-Match": tag_of(site, one)}).status_code == 401
        assert site.client.get(path, headers={"If-None-Match": "*"}).status_code == 401
    site.context.tokens.revoke("limited")
    assert asked_again(site, path, tag, limited).status_code == 401


def test_environments_are_never_stored(site: Site) -> None:
    assert answer_cache.NEVER_STORED[0] in {getattr(route, "path", "") for route in _routes(site)}
    assert {getattr(route, "path", "") for route in _routes(site)} >= answer_cache.FROM_DATABASE


def _routes(site: Site) -> Any:
    from phalanx.server.policy import leaves

    return leaves(site.app.routes)


def test_a_file_that_the_client_has_is_not_sent_again(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    run_id = site.begin()
    outputs = site.home.run(run_id).path / "outputs"
    outputs.mkdir(exist_ok=True)
    (outputs / "model.bin").write_bytes(b"x" * 3_000_000)
    path = f"/api/v1/runs/{run_id}/outputs/outputs/model.bin"
    tag = site.ask("GET", path).headers["etag"]
    for _ in range(3):
        again = asked_again(site, path, tag)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    part = site.ask("GET", path, headers={"If-None-Match": '"other"', "Range": "bytes=0-9"})
    assert (part.status_code, len(part.content)) == (206, 10)
    (outputs / "model.bin").write_bytes(b"y" * 10)
    assert asked_again(site, path, tag).content == b"y" * 10
    assert capfd.readouterr().err == ""


def test_reused_answers_are_counted_like_others(own_site: Site) -> None:
    for _ in range(5):
        own_site.get("/api/v1/projects")
    text = own_site.ask("GET", "/metrics").text
    assert 'phalanx_requests_total{method="GET",route="/api/v1/projects",status="2xx"} 5\n' in text


# the cache itself -----------------------------------------------------------------------------------------------------


def asked_of(url: str = "a", client: str = "me", who: str = "ana", roles: str = "all", **more: Any) -> Asked:
    known = {"at": time.monotonic(), "changes": 0.0, "version": "1", **more}
    return Asked(url, who, roles, client, **known)


def answer_to(asked: Asked, body: bytes = b"x", *, is_stored: bool = True) -> Answer:
    return Answer([], body, b'"t"', None, {}, asked, time.monotonic(), is_stored)


def content(until: float = 60.0, begun: float = 0.0, *, is_personal: bool = False) -> CachedContent:
    """Times are from now on."""
    found, now = CachedContent(b"x"), time.monotonic()
    found.until, found.begun_at, found.is_personal = now + until, now + begun, is_personal
    return found


async def no_version() -> str:
    raise StoreError("gone")


def cache_with(answer: Answer, event_at: float = float("-inf"), **more: Any) -> AnswerCache:
    cache = AnswerCache(no_version, lambda: 0.0, event_at=lambda _: event_at, **more)
    cache.put(answer)
    return cache


def test_an_answer_from_the_database_is_current_while_its_version_is() -> None:
    cache = cache_with(answer_to(asked_of()))
    assert cache.get(asked_of()) is not None
    assert cache.get(asked_of(version="2")) is None
    assert cache.get(asked_of(version=None)) is None
    assert cache.get(asked_of(at=time.monotonic() + answer_cache.LONGEST_S)) is None
    assert cache.get(asked_of(changes=1.0)) is None
    assert len(cache) == 0
    assert cache_with(answer_to(asked_of(version=None))).get(asked_of(version=None)) is None
    assert asyncio.run(cache.version_now()) is None


def test_an_answer_from_the_response_cache_is_current_until_its_time() -> None:
    assert cache_with(answer_to(asked_of(), content())).get(asked_of(version="2")) is not None
    assert cache_with(answer_to(asked_of(), content(-0.1))).get(asked_of(version="2")) is None
    assert cache_with(answer_to(asked_of(), content()), event_at=time.monotonic() + 1).get(asked_of()) is None


def test_other_clients_get_what_was_made_a_moment_ago() -> None:
    slow = asked_of(at=time.monotonic() - 1)
    cache = cache_with(answer_to(slow, is_stored=False))
    assert cache.get(asked_of(client="me")) is None
    assert cache.get(asked_of(client="other")) is not None
    assert cache.get(asked_of(client="other", who="bob")) is None
    assert cache.get(asked_of(client="other", at=time.monotonic() + answer_cache.OTHERS_S)) is None
    assert cache_with(answer_to(asked_of(at=time.monotonic() + 1), is_stored=False)).get(asked_of(client="x")) is None


def test_the_previous_answer_is_sent_while_a_new_one_is_made() -> None:
    cache = cache_with(answer_to(asked_of(), content(-0.1)))
    with cache.making(asked_of()), cache.making(asked_of(client="third")):
        assert cache.get(asked_of()) is not None
        assert cache.get(asked_of(changes=1.0)) is None
    assert cache.being_made == {}
    cache = cache_with(answer_to(asked_of(), content(-answer_cache.STALE_S - 0.1)))
    with cache.making(asked_of()):
        assert cache.get(asked_of(version="2")) is None


def test_only_callers_with_the_same_permissions_share_an_answer() -> None:
    cache = cache_with(answer_to(asked_of(), content()))
    assert cache.get(asked_of(who="bob")) is not None
    assert cache.get(asked_of(who="bob", roles="some")) is None
    cache = cache_with(answer_to(asked_of(), content(is_personal=True)))
    assert cache.get(asked_of(who="bob")) is None
    assert cache.get(asked_of(who="ana")) is not None


def test_the_memory_of_answers_is_bounded() -> None:
    cache = cache_with(answer_to(asked_of(), b"x"), most_bytes=1000)
    for number in range(100):
        cache.put(answer_to(asked_of(str(number)), b"x" * 90))
    assert len(cache) == 11
    cache.put(answer_to(asked_of("large"), b"x" * (answer_cache.LARGEST + 1)))
    assert len(cache) == 11


@pytest.mark.parametrize(
    ("header", "is_so"),
    [("", False), ('"a"', True), ('W/"a"', True), ('"b", W/"a"', True), ("*", True), ('"b"', False), ("a", False)],
)
def test_if_none_match_is_read_as_http_says(header: str, is_so: bool) -> None:
    assert is_known(header, '"a"') is is_so
    assert is_known(header, 'W/"a"') is is_so


# between processes ----------------------------------------------------------------------------------------------------


def test_what_one_process_made_is_not_made_by_another() -> None:
    shared, made = SharedState(2), list[int]()
    caches = [ResponseCache(changes=shared.changes, shared=shared.contents) for _ in range(2)]
    make = counted(made, 4 * CHEAP_S)
    assert {cache.get("a", make) for cache in caches for _ in range(3)} == {b"1"}
    shared.note_write(is_change=True)
    assert {cache.get("a", make) for cache in caches for _ in range(3)} == {b"2"}


def test_what_was_made_before_a_live_event_is_made_again_by_all() -> None:
    shared, made = SharedState(2), list[int]()
    caches = [ResponseCache(changes=shared.changes, shared=shared.contents, event_at=shared.event_at) for _ in range(2)]
    make = counted(made, 4 * CHEAP_S)
    assert {cache.get("a", make, run_id="r1") for cache in caches} == {b"1"}
    shared.note_event("r2")
    assert {cache.get("a", make, run_id="r1") for cache in caches} == {b"1"}
    shared.note_event("r1")
    assert {cache.get("a", make, run_id="r1") for cache in caches} == {b"2"}


def test_damaged_contents_count_as_absent() -> None:
    contents = SharedContents(places=1, largest=100)
    made = SharedContent(b"x" * 50, 1.0, 2.0, 3.0, 4.0)
    contents.put("a", made)
    assert contents.get("a") == made
    assert contents.get("b") is None
    contents._memory[-60:-50] = b"y" * 10  # another process was killed while it wrote
    assert contents.get("a") is None
    contents.put("a", made._replace(content=b"x" * 101))
    assert contents.get("a") is None


def test_counters_outlive_their_process() -> None:
    shared = SharedState(2)
    shared.begin(1)
    for _ in range(3):
        shared.own.add("some", 2, {1: 1.5})
    shared.own.add("other", 1, {0: 1})
    shared.begin(1)  # the next process at this place
    shared.own.add("some", 2, {0: 1})
    assert shared.records[1].counters() == {"some": [1.0, 4.5], "other": [1.0]}
    for number in range(20_000):
        shared.own.add(f"{number} {'x' * 100}", 10, {0: 1})
    assert shared.records[1].counters()["some"] == [1.0, 4.5]
