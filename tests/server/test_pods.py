"""Runs in pods: what their agents send home goes where it belongs, and nobody else sends anything."""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.client
import io
import itertools
import json
import os
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import httpx
import pytest

from phalanx import plan, spec
from phalanx.agent.server_courier import ServerCourier, fetch
from phalanx.backends.code_archive import unpack
from phalanx.home.lease import Lease
from phalanx.ingest.adoption import add_to_store
from phalanx.plan.document import document
from phalanx.scheduler.ledger import Ledger
from phalanx.server.auth.rate_limits import RateLimits
from phalanx.server.http import bodies, chunks
from phalanx.server.routes import pods
from phalanx.spool import PointWriter
from phalanx.store import Run, Store
from phalanx.store.statuses import Status
from phalanx.uploads import Uploader, UploadRefused
from tests.agent.pods import Pod
from tests.agent.running import wait_for
from tests.server.site import Site

FILE = b"""
version: 1
kind: experiment
framework: horovod
environment: {replicas: {n_workers: 2, default_worker: {resources: {gpu: {limits: 2}}}}}
run: {cmd: python train.py}
"""
NUMBERS = itertools.count(1)


class PodRun(NamedTuple):
    """A run in pods, as whoever schedules it has left it."""

    site: Site
    id: str

    def token(self, attempt: int = 1) -> str:
        return self.site.run_token(self.id, attempt)

    def address(self, path: str, attempt: int | str = 1) -> str:
        return f"/api/v1/pods/{self.id}/{attempt}/{path}"

    def put(self, path: str, content: bytes = b"", *, attempt: int = 1, **params: Any) -> httpx.Response:
        return self.site.ask(
            "PUT", self.address(f"files/{path}", attempt), self.token(attempt), content=content, params=params
        )

    def folder(self, replica: str, attempt: int = 1) -> Path:
        return self.site.attempt(self.id, replica, attempt)

    def become(self, status: Status, attempt: int = 1) -> None:
        with Store.open(self.site.home.path) as store:
            assert Ledger(self.site.home, store).change(store.find(self.id), status, "so it is told", attempt)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Somebody else schedules here: nobody, so that runs stay as the tests have them."""
    found = Site(tmp_path_factory.mktemp("site"))
    lease = Lease(found.home)
    assert lease.take()
    with found:
        yield found
    lease.close()


@pytest.fixture
def run(site: Site) -> PodRun:
    return begun(site)


def begun(site: Site, backend: str = "kubernetes", status: Status = Status.RUNNING) -> PodRun:
    run_id = f"podded{next(NUMBERS)}"
    made = plan.make(spec.load([("x.yml", FILE)]), run_id)
    now = datetime.now(UTC)
    run = Run(
        id=run_id, project="p", kind="experiment", name=None, description=None, framework="horovod", backend=backend,
        user="ana", status=Status.CREATED, reason="", attempt=0, priority=0, created_at=now, updated_at=now,
        started_at=None, finished_at=None, original=None, cloning=None, group=None, commit=None, tags=(), params={},
        summary={},
    )  # fmt: skip
    folder = site.home.add(run, {"plan.json": json.dumps(document(made)).encode()}, {}, _code)
    with Store.open(site.home.path) as store:
        add_to_store(store, folder, run)
    found = PodRun(site, run_id)
    if status != Status.CREATED:
        found.become(Status.SCHEDULED)
    if status not in (Status.CREATED, Status.SCHEDULED):
        found.become(status)
    return found


def _code(folder: Path) -> None:
    (folder / "code" / "deep" / "er").mkdir(parents=True)
    (folder / "code" / "empty").mkdir()
    (folder / "code" / "train.py").write_text("print('hello')\n")
    (folder / "code" / "deep" / "er" / ("long" * 50 + ".txt")).write_bytes(bytes(range(256)) * 5000)
    (folder / "code" / "go.sh").write_text("#!/bin/sh\n")
    (folder / "code" / "go.sh").chmod(0o700)
    (folder / "code" / "leak").symlink_to("/etc/passwd")


# What grows ---------------------------------------------------------------------------------------------------------


def test_a_log_grows_by_its_pieces_and_none_counts_twice(run: PodRun) -> None:
    for offset, piece, size in ((0, b"hello ", 6), (6, b"world\n", 12), (0, b"hello world\nmore", 16), (3, b"lo", 16)):
        answer = run.put("worker-0/log", piece, offset=offset)
        assert (answer.status_code, answer.json()) == (200, {"size": size})
    assert (run.folder("worker-0") / "log").read_bytes() == b"hello world\nmore"
    shown = run.site.ask("GET", f"/api/v1/runs/{run.id}/logs/worker-0")
    assert shown.text == "hello world\nmore"


def test_after_a_gap_the_answer_says_how_far_the_file_goes(run: PodRun) -> None:
    run.put("worker-0/spool", b"12345")
    answer = run.put("worker-0/spool", b"x", offset=9)
    assert (answer.status_code, answer.json()["size"]) == (409, 5)
    assert "is_over" not in answer.json()
    assert run.put("worker-1/log", b"x", offset=1).json()["size"] == 0
    assert (run.folder("worker-0") / "spool").read_bytes() == b"12345"


@pytest.mark.slow
def test_many_that_send_the_same_do_not_mix(run: PodRun) -> None:
    content = os.urandom(60_000)
    pieces = [(at, content[at : at + 1000]) for at in range(0, len(content), 1000)]

    def send(_: int) -> None:
        for offset, piece in pieces:
            while run.put("worker-0/log", piece, offset=offset).status_code == 409:
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
    assert (run.folder("worker-0") / "log").read_bytes() == content


def test_metrics_that_come_from_a_pod_are_the_runs(run: PodRun, tmp_path: Path) -> None:
    writer = PointWriter(tmp_path / "own.points")
    for step in range(5):
        writer.add(step, 1e9 + step, {"loss": 1.0 / (step + 1)})
    writer.close()
    assert run.put("worker-0/own.points", (tmp_path / "own.points").read_bytes()).status_code == 200
    assert (run.folder("worker-0") / "own.points").read_bytes() == (tmp_path / "own.points").read_bytes()


@pytest.mark.parametrize("name", ["log", "spool", "agent.log", "a.points", "b.c-d_e.events"])
@pytest.mark.parametrize("member", ["worker-0", "worker-0.1", "worker-1"])
def test_every_process_of_the_plan_has_its_files(run: PodRun, member: str, name: str) -> None:
    assert run.put(f"{member}/{name}", b"x").status_code == 200
    assert (run.folder(member) / name).read_bytes() == b"x"
    assert (run.folder(member) / name).stat().st_mode & 0o077 == 0
    assert run.folder(member).stat().st_mode & 0o077 == 0


def test_what_grows_is_not_replaced(run: PodRun) -> None:
    run.put("worker-0/log", b"told")
    assert run.put("worker-0/log", b"forged", whole=1).status_code == 400
    assert run.put("worker-0/log", b"forged", size=6).status_code == 400
    assert (run.folder("worker-0") / "log").read_bytes() == b"told"


# What appears whole -------------------------------------------------------------------------------------------------


def test_an_end_is_there_whole_or_not_at_all(run: PodRun) -> None:
    end = json.dumps({"version": 1, "cause": "exit", "code": 0, "ended_at": 1.0}).encode()
    assert run.put("worker-0/end.json", end[:10], size=len(end)).json() == {"size": 10}
    assert not (run.folder("worker-0") / "end.json").exists()
    assert run.put("worker-0/end.json", end[10:], offset=10, size=len(end)).json() == {"size": len(end)}
    assert (run.folder("worker-0") / "end.json").read_bytes() == end
    for params in ({"whole": 1}, {"whole": 1, "size": 2}, {"whole": 1, "size": 2, "offset": 0}):
        assert run.put("worker-0/agent.json", b"{}", **params).json() == {"size": 2}
        assert (run.folder("worker-0") / "agent.json").read_bytes() == b"{}"
    assert run.put("worker-0/agent.json", b"{}").status_code == 400, "neither whole nor with its size"


def test_pieces_of_a_whole_file_may_say_so_too(run: PodRun) -> None:
    assert run.put("outputs/a", b"123", whole=1, size=6).json() == {"size": 3}
    assert run.put("outputs/a", b"9", whole=1, size=6, offset=5).json()["size"] == 3
    assert run.put("outputs/a", b"456", whole=1, size=6, offset=3).json() == {"size": 6}
    assert (run.site.folder(run.id) / "outputs" / "a").read_bytes() == b"123456"


def test_outputs_and_media_come_whole(run: PodRun) -> None:
    assert run.put("outputs/deep/er/model.bin", b"1" * 100_000, whole=1).json() == {"size": 100_000}
    assert run.put("outputs/deep/er/model.bin", b"2", whole=1).json() == {"size": 1}
    rows = run.site.get(f"/api/v1/runs/{run.id}/outputs")["files"]
    assert [(row["path"], row["size"]) for row in rows if row["kind"] == "file"] == [("outputs/deep/er/model.bin", 1)]
    assert run.put("artifacts/a/b", b"x", whole=1).status_code == 200
    assert run.put("models/best", b"x", size=1).status_code == 200
    assert run.put("worker-0/media/plot-1.png", b"png", whole=1).status_code == 200
    shown = run.site.ask("GET", f"/api/v1/runs/{run.id}/media/worker-0/1/plot-1.png")
    assert shown.content == b"png"


def test_a_file_that_stands_in_the_way_is_no_word_on_the_attempt(run: PodRun) -> None:
    """403 and 409 tell an agent that nothing more is taken; the other files of the run still are."""
    assert run.put("outputs/a", b"x", whole=1).status_code == 200
    assert run.put("outputs/a/b", b"x", whole=1).status_code == 400
    assert run.put("outputs/deep/c", b"x", whole=1).status_code == 200
    assert run.put("outputs/deep", b"x", whole=1).status_code == 400


# Where nothing goes -------------------------------------------------------------------------------------------------

WRONG = [
    "", "worker-0", "worker-0/", "outputs", "outputs/", "worker-0/plan.json", "worker-0/history", "worker-0/x.py",
    "worker-0/.hidden.points", "worker-0/mlflow.points", "worker-0/mlflow-2.events", "worker-0/media",
    "worker-0/media/", "worker-0/media/a/b", "worker-0/media/.draft", "worker-0/media/../end.json", "worker-0/log/x",
    "worker-0/LOG",
    "worker-0/../worker-1/log", "worker-0/a.points/../../x", "worker-0//log", "worker-0/log\nx", "worker-0/é.points",
    "worker-2/log", "worker-0.2/log", "worker-00/log", "ps-0/log", "Worker-0/log", "worker-0 /log", "../run.json",
    "run.json", "plan.json", "code/train.py", "job/attempt-1.json", "artifacts/", "models", "replicas/worker-0/log",
    "outputs/../run.json", "outputs/a/../../plan.json", "outputs/./../x", "outputs/a\\..\\b", "outputs/a\x00b",
    "outputs/" + "x" * 300, "outputs/" + "d/" * 40 + "f", "outputs/.x.draft", "worker-0/" + "a" * 220 + ".points",
    "/etc/passwd", "//etc/passwd", "~/x", "worker-0/agent.json/", "worker-0/stop",
]  # fmt: skip


@pytest.mark.parametrize("path", WRONG)
def test_nothing_goes_where_no_agent_writes(run: PodRun, path: str) -> None:
    run.token()  # whoever asks for the first one makes the secret of the server
    before = run.site.files()
    for params in ({}, {"whole": 1}, {"size": 1}):
        status, body = raw(run, f"files/{path}", params)
        assert status in (400, 404), (path, params, body)
        assert b'"size"' not in body
    assert run.site.files() == before


def raw(run: PodRun, path: str, params: dict[str, int]) -> tuple[int, bytes]:
    """With the path exactly as it is: no proper client sends `..`."""
    host, port = run.site.listening.getsockname()
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        target = f"{quote(run.address(path), safe='/~.')}?{urlencode(params)}"
        connection.request("PUT", target, b"x", {"Authorization": f"Bearer {run.token()}"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_no_link_leads_out(run: PodRun, tmp_path: Path) -> None:
    """Nobody but us writes there; if somebody did, it would be of no use."""
    (tmp_path / "kept").write_text("kept")
    folder = run.folder("worker-0")
    folder.mkdir(parents=True)
    (folder / "log").symlink_to(tmp_path / "kept")
    assert run.put("worker-0/log", b"forged").status_code == 507
    run.folder("worker-1").parent.mkdir(parents=True)
    run.folder("worker-1").symlink_to(tmp_path)
    assert run.put("worker-1/log", b"forged").status_code == 400
    assert run.put("worker-1/end.json", b"forged", whole=1).status_code == 400
    (run.site.folder(run.id) / "outputs").symlink_to(tmp_path)
    assert run.put("outputs/kept", b"forged", whole=1).status_code == 400
    assert run.put("outputs/deep/kept", b"forged", whole=1).status_code == 400
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]
    assert (tmp_path / "kept").read_text() == "kept"


# Who -----------------------------------------------------------------------------------------------------------------


def test_no_token_but_the_attempts_own_opens_anything(run: PodRun) -> None:
    other = begun(run.site)
    tokens = run.site.context.tokens
    admin = tokens.create(f"admin-{run.id}", "admin")
    mac = run.token().rpartition("_")[2]
    forged = [f"phr_{run.id}_1_{'0' * 64}", f"phr_{run.id}_2_{mac}", run.token().upper(), run.token()[:-1], "x"]
    for path, method in (("files/worker-0/log", "PUT"), ("code", "GET")):
        for token in (other.token(), run.token(2), admin, run.site.token):
            assert run.site.ask(method, run.address(path), token).status_code == 403, path
        for token in forged:
            assert run.site.ask(method, run.address(path), token).status_code == 401, (path, token)
        for attempt in ("01", "+1", "1.0", "0", "-1", "2", "1%20", "٣"):
            assert run.site.ask(method, run.address(path, attempt), run.token()).status_code == 403, attempt
    assert not run.folder("worker-0").exists()


def test_a_run_that_is_not_there_has_a_token_that_opens_nothing(site: Site) -> None:
    gone = PodRun(site, "gone-for-good")
    assert gone.put("worker-0/log", b"x").status_code == 404
    assert site.ask("GET", gone.address("code"), gone.token()).status_code == 404
    assert not site.folder("gone-for-good").exists()


def test_an_attempt_that_is_over_says_nothing_more(run: PodRun) -> None:
    assert run.put("worker-0/log", b"first").status_code == 200
    run.become(Status.WARNING)
    refused(run, 1)
    run.become(Status.SCHEDULED, attempt=2)
    refused(run, 1)
    assert run.put("worker-0/log", b"second", attempt=2).status_code == 200
    assert run.site.ask("GET", run.address("code", 2), run.token(2)).status_code == 200
    run.become(Status.SUCCEEDED, attempt=2)
    refused(run, 1)
    refused(run, 2)
    assert [(run.folder("worker-0", n) / "log").read_bytes() for n in (1, 2)] == [b"first", b"second"]


def refused(run: PodRun, attempt: int) -> None:
    for answer in (
        run.put("worker-0/log", b"late", offset=5, attempt=attempt),
        run.put("worker-0/end.json", b"{}", whole=1, attempt=attempt),
        run.put("outputs/x", b"late", whole=1, attempt=attempt),
        run.site.ask("GET", run.address("code", attempt), run.token(attempt)),
    ):
        assert answer.status_code == 409
        assert answer.json()["is_over"] is True
        assert "size" not in answer.json()


@pytest.mark.parametrize("status", [Status.CREATED, Status.STOPPED, Status.FAILED])
def test_a_run_that_does_not_run_takes_nothing(site: Site, status: Status) -> None:
    run = begun(site, status=status)
    refused(run, 1)


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.STARTING, Status.RUNNING, Status.UNKNOWN])
@pytest.mark.parametrize("backend", ["kubernetes", "kubeflow"])
def test_from_the_first_pod_on_it_does(site: Site, backend: str, status: Status) -> None:
    assert begun(site, backend, status).put("worker-0/log", b"x").status_code == 200


@pytest.mark.parametrize("backend", ["native", "slurm"])
def test_runs_elsewhere_write_their_own_files(site: Site, backend: str) -> None:
    """What an agent says of itself tells us whom to signal: a token that every program has must not say it."""
    run = begun(site, backend)
    for answer in (
        run.put("worker-0/agent.json", b'{"pid": 1}', whole=1),
        site.ask("GET", run.address("code"), run.token()),
    ):
        assert answer.status_code == 409
        assert "does not run in pods" in answer.json()["error"]["message"]


def test_an_attempt_that_ends_while_a_piece_is_under_way_does_not_take_it(
    run: PodRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    real = pods._target

    def slow(*args: Any) -> pods.PodUpload:
        found = real(*args)
        run.become(Status.STOPPED)
        looked.set()
        return found

    monkeypatch.setattr(pods, "_target", slow)
    assert run.put("worker-0/log", b"late").status_code == 409
    assert looked.is_set()
    assert not (run.folder("worker-0") / "log").exists()


def test_a_plan_that_cannot_be_read_is_a_refusal(site: Site) -> None:
    run = begun(site)
    (site.folder(run.id) / "plan.json").write_text("{")
    assert run.put("worker-0/log", b"x").status_code == 503


# How much -----------------------------------------------------------------------------------------------------------


def test_too_much_is_refused_as_early_as_can_be(run: PodRun) -> None:
    assert run.put("worker-0/log", bytes(bodies.MAX_PIECE + 1)).status_code == 413
    assert run.put("worker-0/end.json", bytes(pods.MAX_WORD + 1), whole=1).status_code == 413
    assert run.put("worker-0/end.json", b"x", size=pods.MAX_WORD + 1).status_code == 413
    assert run.put("outputs/x", b"x", size=bodies.MAX_FILE + 1).status_code == 413
    assert run.put("worker-0/log", b"x", offset=-1).status_code == 400
    assert run.put("worker-0/log", b"x", offset=1 << 60).status_code == 400
    assert run.put("worker-0/end.json", b"12", offset=0, size=1).status_code == 400, "more than was told"
    assert not (run.folder("worker-0") / "end.json").exists()
    assert not (run.folder("worker-0") / "log").exists()


def test_a_full_disk_is_reported(run: PodRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SPARE_BYTES", 1 << 62)
    for path, params in (("worker-0/log", {}), ("worker-0/end.json", {"size": 1}), ("outputs/x", {"whole": 1})):
        answer = run.put(path, b"x", **params)
        assert answer.status_code == 507
    assert not (run.site.folder(run.id) / "outputs" / "x").exists()
    assert list(run.site.folder(run.id).rglob("*.draft")) in ([], [run.folder("worker-0") / ".end.json.1.draft"])


def test_a_quota_is_reported(run: PodRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(chunks, "write_all", refuse)
    answer = run.put("worker-0/log", b"x")
    monkeypatch.undo()
    assert answer.status_code == 507
    assert "quota" in answer.json()["error"]["message"]


# By an agent ----------------------------------------------------------------------------------------------------------


def test_the_courier_of_an_agent_brings_everything_home(run: PodRun, tmp_path: Path) -> None:
    there = tmp_path / "replicas" / "worker-0" / "attempt-1"
    (there / "media").mkdir(parents=True)
    files = {"log": b"one\n", "spool": b"s", "a.points": b"p" * 5000, "agent.json": b"{}", "media/x.png": b"png"}
    for name, content in files.items():
        (there / name).write_bytes(content)
    (tmp_path / "outputs" / "deep").mkdir(parents=True)
    (tmp_path / "outputs" / "deep" / "model").write_bytes(os.urandom(10_000))
    (tmp_path / "outputs" / "empty").touch()
    post = Uploader(run.site.url, run.token(), most=3000)
    courier = ServerCourier(post, run.id, 1, str(tmp_path), str(tmp_path / "outputs"))
    assert courier.run_pass(), courier.trouble
    with (there / "log").open("ab") as log:
        log.write(b"two\n")
    (there / "end.json").write_bytes(b'{"cause": "exit"}')
    assert courier.finish(10)
    home = run.folder("worker-0")
    for name in (*files, "end.json"):
        assert (home / name).read_bytes() == (there / name).read_bytes(), name
    for name in ("deep/model", "empty"):
        kept = (run.site.folder(run.id) / "outputs" / name).read_bytes()
        assert kept == (tmp_path / "outputs" / name).read_bytes()
    assert courier.unwanted == {}


def test_the_courier_of_an_attempt_that_is_over_gives_up(run: PodRun, tmp_path: Path) -> None:
    there = tmp_path / "replicas" / "worker-0" / "attempt-1"
    there.mkdir(parents=True)
    (there / "log").write_bytes(b"late")
    run.become(Status.STOPPED)
    courier = ServerCourier(Uploader(run.site.url, run.token()), run.id, 1, str(tmp_path), None)
    assert not courier.run_pass()
    assert courier.is_refused
    assert "has ended" in courier.trouble


TRAINING = """
import os
from pathlib import Path
from phalanx import tracking
run = tracking.start()
for step in range(20):
    run.log(loss=1 / (step + 1), step=step)
Path(os.environ["PHALANX_OUTPUTS"], "model").write_text("weights")
print("token" if "PHALANX_RUN_TOKEN" in os.environ else "no token")
"""


def test_a_pod_fetches_its_code_runs_and_sends_everything_to_the_server(run: PodRun, tmp_path: Path) -> None:
    (run.site.folder(run.id) / "code" / "train.py").write_text(TRAINING)
    pod = Pod(tmp_path / "pod", f"{sys.executable} train.py", courier="server", server=run.site.url)
    pod.plan["run_id"] = run.id
    pod.write()
    (run.site.folder(run.id) / "plan.json").write_text(json.dumps(pod.plan))
    prepared = pod.run("--prepare", PHALANX_RUN_TOKEN=run.token())
    assert prepared.code == 0, prepared.out + prepared.err.encode()
    assert (tmp_path / "pod" / "code" / "deep").is_dir()
    said = pod.run(PHALANX_RUN_TOKEN=run.token())
    assert said.code == 0, said.out + said.err.encode()
    home = run.folder("master-0")
    assert (home / "log").read_text() == "no token\n"
    assert json.loads((home / "end.json").read_bytes())["cause"] == "finished"
    assert (run.site.folder(run.id) / "outputs" / "model").read_text() == "weights"
    kept = {path.name: path.read_bytes() for path in pod.attempt().iterdir() if path.suffix in (".points", ".events")}
    assert any(name.endswith(".points") for name in kept)
    assert {name: (home / name).read_bytes() for name in kept} == kept
    assert b'"d":' not in said.out, "nothing is sent twice"


def test_an_agent_fetches_the_code(run: PodRun, tmp_path: Path) -> None:
    fetch(Uploader(run.site.url, run.token()), run.id, 1, str(tmp_path / "code.tar.gz"), 5)
    with (tmp_path / "code.tar.gz").open("rb") as stream:
        assert unpack(stream, tmp_path / "code").files == 3
    with pytest.raises(UploadRefused):
        fetch(Uploader(run.site.url, run.token(2)), run.id, 1, str(tmp_path / "other"), 5)


# Code ---------------------------------------------------------------------------------------------------------------


def test_the_code_comes_as_it_was_submitted(run: PodRun, tmp_path: Path) -> None:
    answer = run.site.ask("GET", run.address("code"), run.token())
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/gzip"
    assert "content-encoding" not in answer.headers, "else a client would unpack it by itself"
    found = unpack(io.BytesIO(answer.content), tmp_path / "code")
    assert found.files == 3
    code = run.site.folder(run.id) / "code"
    for name in ("train.py", "go.sh", "deep/er/" + "long" * 50 + ".txt"):
        assert (tmp_path / "code" / name).read_bytes() == (code / name).read_bytes()
    assert os.access(tmp_path / "code" / "go.sh", os.X_OK)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        entries = archive.getmembers()
    assert {entry.mtime for entry in entries} == {0}
    assert {(entry.uid, entry.gid, entry.uname) for entry in entries} == {(0, 0, "")}
    assert "empty" in {entry.name for entry in entries}
    assert "leak" not in {entry.name for entry in entries}


def test_the_same_code_has_the_same_bytes(site: Site) -> None:
    answers = []
    for backend in ("kubernetes", "kubeflow"):
        run = begun(site, backend)
        os.utime(site.folder(run.id) / "code" / "train.py", (1, 1))
        answers.append(site.ask("GET", run.address("code"), run.token()).content)
    assert len({hashlib.sha256(answer).digest() for answer in answers}) == 1
    assert gzip.decompress(answers[0])[-1024:] == bytes(1024)


def test_a_run_without_code_is_reported(run: PodRun, tmp_path: Path) -> None:
    code = run.site.folder(run.id) / "code"
    code.rename(tmp_path / "code")
    assert run.site.ask("GET", run.address("code"), run.token()).status_code == 404
    code.symlink_to(tmp_path / "code")
    assert run.site.ask("GET", run.address("code"), run.token()).status_code == 404


def test_only_so_many_archives_are_made_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of a large run all come at once; whoever would wait too long is told to come again."""
    free = threading.Event()

    def slow(_: Any) -> Iterator[bytes]:
        free.wait(10)
        yield b"x"

    monkeypatch.setattr(pods, "packed", slow)
    site = Site(tmp_path, limits=RateLimits(packing=1, patience_s=0.05))
    lease = Lease(site.home)
    assert lease.take()
    with site, ThreadPoolExecutor(1) as pool:
        run = begun(site)
        with site.client.stream("GET", run.address("code"), headers={"Authorization": f"Bearer {run.token()}"}):
            answer = pool.submit(site.ask, "GET", run.address("code"), run.token()).result()
            free.set()
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        wait_for(lambda: site.ask("GET", run.address("code"), run.token()).status_code == 200)
    lease.close()


def test_what_agents_send_is_not_written_into_the_audit_but_refusals_are(run: PodRun) -> None:
    run.put("worker-0/log", b"x")
    run.site.ask("PUT", run.address("files/worker-0/log"), run.token(2))
    audit = (run.site.home.path / "audit.log").read_text()
    outcomes = [row["outcome"] for line in audit.splitlines() if run.id in (row := json.loads(line))["target"]]
    assert outcomes == [403]


def test_the_document_says_of_it(site: Site) -> None:
    paths = site.get("/api/v1/openapi.json")["paths"]
    put = paths["/api/v1/pods/{run_id}/{attempt}/files/{path}"]["put"]
    assert "application/octet-stream" in put["requestBody"]["content"]
    assert {parameter["name"] for parameter in put["parameters"]} >= {"run_id", "attempt", "path", "offset", "whole"}
    assert "get" in paths["/api/v1/pods/{run_id}/{attempt}/code"]
