from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from phalanx.server.live import broker
from phalanx.server.live.broker import Subscriber
from phalanx.server.live.changes import FolderChanges, RunChanges
from phalanx.server.processes.worker import GRACE_S
from phalanx.spool import PointWriter
from phalanx.store import StatusChange, Store
from tests.server.site import Site
from tests.server.started import start, until
from tests.server.test_daemon import Serve
from tests.server.test_queue import put, run_of


class Event(NamedTuple):
    name: str
    data: Any


class Listening:
    """An open stream, and what came of it. HTTP/1.0, so that the body comes as it is."""

    def __init__(self, address: tuple[Any, Any], path: str = "/api/v1/live", token: str = "") -> None:
        self.socket = socket.create_connection(address, timeout=30)
        asked = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        self.socket.sendall(asked.encode())
        self.events: list[Event] = []
        self.head: list[str] = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        name = ""
        with suppress(OSError), self.socket.makefile("r", encoding="utf-8", newline="\n") as stream:
            for line in stream:
                if not line.strip():
                    break
                self.head.append(line.strip().lower())
            for line in stream:
                key, _, value = line.strip().partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    self.events.append(Event(name, json.loads(value)))
        self.is_over.set()

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.socket.close()

    def named(self, name: str) -> list[Any]:
        return [event.data for event in list(self.events) if event.name == name]

    def has(self, name: str, check: Callable[[Any], bool] = lambda _: True) -> bool:
        return any(check(data) for data in self.named(name))


def eventually(is_so: Callable[[], bool], patience_s: float = 60.0) -> bool:
    deadline = time.monotonic() + patience_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_so()


@contextmanager
def listening(site: Site, path: str = "/api/v1/live", token: str | None = None) -> Iterator[Listening]:
    """Once nothing is missed any more."""
    found = Listening(site.listening.getsockname(), path, token or site.token)
    try:
        assert eventually(lambda: found.has("ready")), found.head
        yield found
    finally:
        found.close()


def test_the_changes_of_all_runs_are_reported_as_they_happen(site: Site) -> None:
    with listening(site) as heard:
        assert "content-type: text/event-stream; charset=utf-8" in heard.head
        assert "x-accel-buffering: no" in heard.head
        assert "cache-control: no-store" in heard.head
        run = start(site, "true", project="p")
        until(site, run["id"], "succeeded")
        assert eventually(lambda: heard.has("run", lambda data: data["status"] == "succeeded"))
        changes = [data for data in heard.named("run") if data["id"] == run["id"]]
        assert set(changes[0]) == {"id", "status", "updated_at", "project"}
        assert changes[0]["project"] == "p"
        site.ask("PATCH", f"/api/v1/runs/{run['id']}", json={"name": "another"})
        assert eventually(lambda: len([one for one in heard.named("run") if one["id"] == run["id"]]) > len(changes))
        site.ask("DELETE", f"/api/v1/runs/{run['id']}")
        assert eventually(lambda: heard.has("gone", lambda data: data == {"id": run["id"]}))


def test_a_viewer_of_a_run_learns_what_to_fetch_again(site: Site) -> None:
    run_id = site.post("/api/v1/runs", {}, 201)["id"]
    attempt = site.attempt(run_id)
    with listening(site, f"/api/v1/runs/{run_id}/live") as heard:
        assert not heard.named("points")
        PointWriter(attempt / "client-1.points").add(1, time.time(), {"loss": 1.0})
        assert eventually(lambda: heard.has("points"))
        (attempt / "log").write_text("a line\n")
        assert eventually(lambda: heard.has("log", lambda data: data == {"replica": "master-0"}))
        other = attempt.parent.parent / "worker-0" / attempt.name
        other.mkdir(parents=True)
        (other / "agent.json").write_text("{}")
        assert eventually(lambda: heard.has("replicas"))
        for folder in (attempt, other):
            with (folder / "log").open("a") as stream:
                stream.write("more\n")
        assert eventually(lambda: heard.has("log", lambda data: data == {"replica": None}))
        site.post(f"/api/v1/runs/{run_id}/finish", {})
        assert eventually(lambda: heard.has("run", lambda data: data["status"] == "succeeded"))
        assert "summary" in heard.named("run")[-1]
        before = len(heard.events)
        time.sleep(1.2)
        assert len(heard.events) == before  # nothing changes, nothing is told


def test_one_hears_only_of_what_one_may_see(site: Site) -> None:
    token = site.context.tokens.create("narrow", "viewer", projects=["mine"])
    hidden = site.post("/api/v1/runs", {"project": "theirs"}, 201)["id"]
    answer = site.ask("GET", f"/api/v1/runs/{hidden}/live", token)
    assert answer.status_code == 404
    with listening(site, token=token) as heard:
        site.post(f"/api/v1/runs/{hidden}/finish", {})
        mine = site.post("/api/v1/runs", {"project": "mine"}, 201)["id"]
        site.post(f"/api/v1/runs/{mine}/finish", {})
        assert eventually(lambda: heard.has("run", lambda data: data["id"] == mine))
        site.ask("DELETE", f"/api/v1/runs/{hidden}")
        site.ask("DELETE", f"/api/v1/runs/{mine}")
        assert eventually(lambda: heard.has("gone"))
        assert {data["id"] for data in (*heard.named("run"), *heard.named("gone"))} == {mine}


def test_a_run_listens_to_itself_alone(site: Site) -> None:
    run_id = site.post("/api/v1/runs", {}, 201)["id"]
    assert site.ask("GET", "/api/v1/live", site.run_token(run_id)).status_code == 403
    with listening(site, f"/api/v1/runs/{run_id}/live", site.run_token(run_id)):
        pass
    site.post(f"/api/v1/runs/{run_id}/finish", {})
    assert site.ask("GET", "/api/v1/runs/nothing-there/live").status_code == 404


@pytest.mark.slow
def test_two_hundred_listen_and_one_thread_looks(own_site: Site) -> None:
    listeners = [Listening(own_site.listening.getsockname(), token=own_site.token) for _ in range(200)]
    assert eventually(lambda: all(one.has("ready") for one in listeners), 30)
    looking = [thread for thread in threading.enumerate() if thread.name == "phalanx-live"]
    assert len(looking) == 1
    run_id = own_site.post("/api/v1/runs", {}, 201)["id"]
    assert eventually(lambda: all(one.has("run", lambda data: data["id"] == run_id) for one in listeners))
    began = time.monotonic()
    own_site.get("/api/v1/runs")  # all others are answered meanwhile
    assert time.monotonic() - began < 20
    own_site.post(f"/api/v1/runs/{run_id}/finish", {})
    for one in listeners:
        one.close()


def test_the_thread_goes_when_no_one_listens(own_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "QUIET_S", 0.1)  # that the other side is gone is seen at the next sign of life
    with listening(own_site):
        assert any(thread.name == "phalanx-live" for thread in threading.enumerate())
    looking: broker.EventBroker = own_site.app.state.live
    assert eventually(lambda: looking._thread is None)
    with listening(own_site):  # whoever comes later finds another
        assert looking._thread is not None


@pytest.mark.slow
def test_a_server_ends_normally_while_a_client_listens(tmp_path: Path) -> None:
    serve = Serve(tmp_path / "home")
    address = urlsplit(serve.url)
    heard = Listening((address.hostname, address.port), token=(tmp_path / "home" / "token").read_text().strip())
    assert eventually(lambda: heard.has("ready"))
    began = time.monotonic()
    code, err = serve.end()
    assert (code, err) == (0, "")
    assert time.monotonic() - began < GRACE_S  # and not when its patience is over
    assert heard.is_over.wait(10)
    heard.close()
    shutil.rmtree(tmp_path / "home", ignore_errors=True)


def test_signs_of_life_come_while_nothing_happens(own_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "QUIET_S", 0.1)
    with own_site.client.stream("GET", "/api/v1/live", headers={"Authorization": f"Bearer {own_site.token}"}) as answer:
        lines = answer.iter_lines()
        assert any(line == ": still here" for line in lines)


def test_a_stream_ends_in_time_so_that_rights_are_looked_at_again(
    own_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "LONGEST_S", 0.3)
    monkeypatch.setattr(broker, "QUIET_S", 0.1)
    answer = own_site.ask("GET", "/api/v1/live")  # read to its end
    assert answer.status_code == 200


def test_not_more_listen_than_there_is_room_for(own_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "MOST_LISTENERS", 1)
    with listening(own_site):
        assert own_site.ask("GET", "/api/v1/live").status_code == 503


def test_who_does_not_keep_up_is_let_go(own_site: Site) -> None:
    async def hear() -> list[bytes | None]:
        listener = Subscriber(own_site.context.tokens.identify(own_site.token))  # type: ignore[arg-type]
        waiting = listener.begin()
        for number in range(broker.MOST_WAITING + 5):
            listener.offer(b"%d" % number)
        await asyncio.sleep(0.05)
        return [waiting.get_nowait() for _ in range(waiting.qsize())]

    heard = asyncio.run(hear())
    assert heard[0] is None  # nothing that was kept back is told, and the answer ends
    assert len(heard) <= 5


# what is looked at ---------------------------------------------------------------------------------------------------


def test_changes_are_found_for_any_times(own_site: Site) -> None:
    own_site.scheduling.stop()
    long_ago = datetime.now(UTC) - timedelta(days=30)
    put(own_site, run_of("aaaa-1", status="running"), run_of("aaaa-2", created_at=long_ago, updated_at=long_ago))
    with Store.open(own_site.home.path) as store:
        watch = RunChanges(store)
        assert watch.look() == ([], [])
        store.record(StatusChange("aaaa-1", 2, 1, "succeeded", "", long_ago))  # heard of much later
        assert [one.id for one in watch.look().runs] == ["aaaa-1"]
        assert watch.look() == ([], [])
        put(own_site, run_of("aaaa-3", created_at=long_ago, updated_at=long_ago))  # brought in from elsewhere
        assert [one.id for one in watch.look().runs] == ["aaaa-3"]
        store.update("aaaa-2", name="new")
        assert [one.id for one in watch.look().runs] == ["aaaa-2"]
        store.delete("aaaa-3")
        put(own_site, run_of("aaaa-4"))  # as many as before
        found = watch.look()
        assert [one.id for one in found.runs] == ["aaaa-4"]
        assert [one.id for one in found.gone] == ["aaaa-3"]


def test_files_that_grow_are_seen(tmp_path: Path) -> None:
    run = run_of("aaaa-1", status="running", attempt=1)
    watch = FolderChanges(tmp_path)
    watch.look(run)
    assert watch.look(run) == (False, (), False)
    folder = tmp_path / "replicas" / "master-0" / "attempt-1"
    folder.mkdir(parents=True)
    (folder / "log").write_text("x")
    assert watch.look(run) == (False, ("master-0",), False)
    (folder / "client-1.events").write_text("x")
    assert watch.look(run) == (True, (), False)
    (folder / "end.json").write_text("{}")
    assert watch.look(run) == (False, (), True)
    assert watch.look(run._replace(attempt=2))[::2] == (True, True)
