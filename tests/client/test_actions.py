"""What a server does when it is asked."""

from __future__ import annotations

import threading
import time
from inspect import signature
from pathlib import Path

import pytest

from phalanx import Client
from phalanx.client import RequestRefused
from phalanx.errors import CallError, SpecErrors
from phalanx.server.schemas.submissions import NewSubmission
from phalanx.store import Run
from tests.cli.homes import wait_for
from tests.server.site import Site


def submitted(client: Client, command: str, **more: str) -> Run:
    text = f"version: 1\nkind: job\nrun: {{cmd: {command!r}}}\n"
    return client.submit([("job.yml", text)], **more).run  # type: ignore[arg-type]


def until(client: Client, run: Run, *statuses: str) -> Run:
    def reached() -> Run | None:
        found = client.status(run.id)
        return found if found.status in statuses else None

    found: Run = wait_for(reached)
    return found


def test_runs_are_stopped_made_again_and_removed(client: Client) -> None:
    first = submitted(client, "sleep 60", name="first")
    until(client, first, "running")
    with pytest.raises(RequestRefused, match="has not ended") as raised:
        client.delete(first)
    assert raised.value.status == 409
    client.stop(first.id)
    assert until(client, first, "stopped").reason == "stopped by tester"
    again = client.restart(first)
    assert (again.original, again.cloning) == (first.id, "restart")
    client.stop(again)
    until(client, again, "stopped")
    copied = client.copy(first)
    assert copied.cloning == "copy"
    client.stop(copied)
    until(client, copied, "stopped")
    resumed = client.resume(again)
    assert resumed.id == again.id
    client.stop(resumed)
    assert until(client, resumed, "stopped", "failed").attempt >= 1
    for run in (first, again, copied):
        client.delete(run)
    assert {run.id for run in client.runs()}.isdisjoint({first.id, again.id, copied.id})


def test_every_field_that_a_server_reads_can_be_sent() -> None:
    sent = set(signature(Client.submit).parameters) - {"self", "progress", "folder"}
    assert sent | {"code", "git"} == set(NewSubmission.model_fields)  # these two come from the folder


def test_many_runs_are_submitted_in_one_request(client: Client, tmp_path: Path) -> None:
    (tmp_path / "word").write_text("code")
    text = "version: 1\nkind: job\nparams: {lr: 1, seed: 2}\nrun: {cmd: 'echo $(cat word) {{ lr }} {{ seed }}'}\n"
    each = [{"lr": number} for number in (5, 6, 7)]
    made = client.submit_many([("job.yml", text)], each, folder=tmp_path, params={"seed": 3}, tags=["many"])
    assert [run.status for run in made.runs] == ["created"] * 3
    for run, number in zip(made.runs, (5, 6, 7), strict=True):
        assert [line.text for line in client.follow(run.id)] == [f"code {number} 3"]
        assert client.status(run.id).tags == ("many",)


def test_none_of_many_runs_is_submitted_if_one_has_an_error(client: Client) -> None:
    cpus = "environment: {resources: {cpu: {requests: '{{ cpus }}'}}}"
    text = f"version: 1\nkind: job\nparams: {{cpus: 1}}\n{cpus}\nrun: {{cmd: x}}\n"
    before = [run.id for run in client.runs()]
    with pytest.raises(SpecErrors, match=r"runs\[1\]"):
        client.submit_many([("job.yml", text)], [{"cpus": 2}, {"cpus": "many"}])
    with pytest.raises(CallError, match="at least 1"):
        client.submit_many([("job.yml", text)], [])
    assert [run.id for run in client.runs()] == before


def test_all_faults_of_a_file_come_at_once_with_their_places(client: Client) -> None:
    text = "version: 1\nkind: job\nrun: {cmd: x}\nenvironmentt: {}\nkindd: 3\n"
    with pytest.raises(SpecErrors) as raised:
        client.submit([("mine.yml", text)])
    assert [(error.place.file, error.place.line) for error in raised.value.errors] == [("mine.yml", 4), ("mine.yml", 5)]


def test_a_run_is_followed_until_it_is_over(client: Client) -> None:
    run = submitted(client, "for i in 1 2 3; do echo line $i; sleep 0.3; done")
    assert [line.text for line in client.follow(run)] == ["line 1", "line 2", "line 3"]
    assert client.status(run.id).status == "succeeded"


def test_what_happens_is_reported_as_it_does(site: Site, client: Client) -> None:
    heard: list[tuple[str, str]] = []

    def listen() -> None:
        with Client(site.url, site.token) as other:
            for event in other.live():
                heard.append((event.kind, event.data.get("status", "")))
                if event == ("run", event.data) and event.data["status"] == "succeeded":
                    return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    time.sleep(0.3)
    submitted(client, "sleep 0.2")
    thread.join(20)
    assert not thread.is_alive()
    assert ("run", "succeeded") in heard


def test_files_are_sent_to_runs_that_others_execute(site: Site, client: Client, tmp_path: Path) -> None:
    run_id = str(site.post("/api/v1/runs", {"name": "elsewhere"}, 201)["id"])
    large = bytes(range(251)) * 40_000  # more than a piece
    (tmp_path / "large").write_bytes(large)
    (tmp_path / "empty").write_bytes(b"")
    assert client.upload(run_id, tmp_path / "large", "artifacts/large.bin") == len(large)
    assert client.upload(run_id, tmp_path / "empty", "artifacts/empty") == 0
    assert client.read(run_id, "artifacts/large.bin") == large
    assert client.read(run_id, "artifacts/empty") == b""
    with pytest.raises(RequestRefused, match="clients may not write the file"):
        client.upload(run_id, tmp_path / "large", "run.json")
