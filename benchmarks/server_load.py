"""The server under load, beside a floor: a bare uvicorn application that answers the same bytes.

reading   200 clients read lists, charts and logs while 64 ranks log: at twice the rate of a live page, and as fast as
          they can
kinds     CPU milliseconds of the server for one request of each kind, while 64 ranks log
streams   1,000 live streams: until all are open, and from a change to the last one's event
idle      memory of a server that does nothing, with 100,000 runs

BEFORE=SRC measures another version too, from the folder `src` of its checkout, in turn with this one. Clients keep
what has an ETag and ask whether it is current, as browsers do. Everything is on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import uvloop

from phalanx.home.home import Home
from phalanx.store import DONE, StatusChange, Store
from phalanx.store.series.run_series import RunSeries
from ps_cost import add
from table import Beside, Of, Row, at_least, at_most

OURS = Path(__file__).resolve().parent.parent / "src"
CLIENTS = 200
RANKS = 64
READING_S = 20.0
PAUSE_S = 1.0  # of a client between an answer and its next question, on average: twice as often as a live page asks
RUSH_S = 8.0
READING_ROUNDS = 1
RUSHING = 32  # clients that do not pause
KNOWN_RUNS = 5_000
KIND_S = 4.0
KIND_CLIENTS = 16
KIND_PAUSE_S = 0.04
STREAMS = 1_000
IDLE_RUNS = 100_000
MOST_P99_S = 0.25
LEAST_RATIO = 4.0
MOST_MIB = 150.0
MOST_EVENT_S = 5.0


class Serving(NamedTuple):
    url: str
    token: str
    pid: int


@contextmanager
def serving(home: Path, source: Path = OURS, *options: str) -> Iterator[Serving]:
    """`phalanx serve` as it is started by default."""
    environment = {**os.environ, "PHALANX_HOME": str(home), "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", "from phalanx.cli import main; main()", "serve", "--port", "0", "--json", *options]
    # A session of its own: the kernel shares the cores out among sessions.
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield Serving(told["url"], Path(told["token_file"]).read_text().strip(), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


FLOOR = """
import json, socket, sys
import uvicorn
answers = {path: text.encode() for path, text in json.load(open(sys.argv[1])).items()}
async def app(scope, receive, send):
    path = scope["path"] + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
    body = answers[path]
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", timeout_keep_alive=75)
uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[2]))])
"""


@contextmanager
def floor(answers: dict[str, str], folder: Path) -> Iterator[Serving]:
    """One process that does nothing but send the same bytes."""
    import socket

    (folder / "answers.json").write_text(json.dumps(answers))
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        command = [sys.executable, "-c", FLOOR, str(folder / "answers.json"), str(listening.fileno())]
        process = subprocess.Popen(command, pass_fds=[listening.fileno()], start_new_session=True)
        try:
            yield Serving(f"http://127.0.0.1:{listening.getsockname()[1]}", "none", process.pid)
        finally:
            process.terminate()
            process.wait(30)


def tree(pid: int) -> list[int]:
    """A process and its descendants that are servers: agents and their ranks are in sessions of their own."""
    found = [pid]
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if os.getsid(int(child)) == os.getsid(pid):
                found += tree(int(child))
    return found


def cpu_s(pid: int) -> float:
    total = 0
    for one in tree(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """What processes share counts once."""
    total = 0
    for one in tree(pid):
        with suppress(OSError):
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
            total += int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:")))
    return total / 1024


# clients ------------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    kind: str
    ms: float
    status: int
    size: int


def questions(run: str) -> list[tuple[str, str]]:
    """What pages ask, as often as they do."""
    chart = f"/api/v1/runs/{run}/chart?buckets=400&mode="
    return [
        ("list", "/api/v1/runs?limit=100"),
        ("list", "/api/v1/runs?limit=100&q=status:succeeded&sort=metric.loss"),
        ("list", "/api/v1/runs?limit=100&offset=900"),
        ("run", f"/api/v1/runs/{run}"),
        ("chart", f"{chart}mean&name=loss&name=accuracy"),
        ("chart", f"{chart}ranks&name=loss"),
        ("log", f"/api/v1/runs/{run}/lines?limit=200"),
        ("log", f"/api/v1/runs/{run}/lines?limit=200&replica=worker-7"),
    ]


class Browser:
    """One connection that is kept, and the responses that have an ETag."""

    def __init__(self, serving: Serving) -> None:
        self.address = urlsplit(serving.url)
        self.head = f"HTTP/1.1\r\nHost: {self.address.netloc}\r\nAuthorization: Bearer {serving.token}\r\n"
        self.tags: dict[str, str] = {}

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.address.hostname, self.address.port)

    async def ask(self, kind: str, path: str) -> Answer:
        began = time.perf_counter()
        known = f"If-None-Match: {self.tags[path]}\r\n" if path in self.tags else ""
        self.writer.write(f"GET {path} {self.head}{known}\r\n".encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        size = int(fields.get("content-length", 0))
        if size:
            await self.reader.readexactly(size)
        if "etag" in fields:
            self.tags[path] = fields["etag"]
        return Answer(kind, (time.perf_counter() - began) * 1e3, int(head.split(" ", 2)[1]), size)


async def visit(number: int, serving: Serving, asked: Sequence[tuple[str, str]], until: float, pause_s: float) -> Any:
    chance = random.Random(number)
    found: list[Answer] = []
    browser = Browser(serving)
    await asyncio.sleep(chance.random() * 2 * pause_s)
    await browser.open()
    while time.monotonic() < until:
        found.append(await browser.ask(*chance.choice(asked)))
        if pause_s:
            await asyncio.sleep(chance.expovariate(1 / pause_s))
    browser.writer.close()
    return found


async def crowd(
    serving: Serving, asked: Sequence[tuple[str, str]], clients: int, for_s: float, pause_s: float
) -> list[Answer]:
    until = time.monotonic() + for_s
    found = await asyncio.gather(*(visit(number, serving, asked, until, pause_s) for number in range(clients)))
    return [one for several in found for one in several]


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# reading ------------------------------------------------------------------------------------------------------------

RANK = """
import math, os, time
from phalanx import tracking
run = tracking.start()
step = 0
while not os.path.exists({stop!r}) and step < 3000:
    run.log(loss=math.exp(-step / 400), accuracy=1 - math.exp(-step / 300), step=step)
    if step % 10 == 0:
        print("step", step, "of many", flush=True)
    step += 1
    time.sleep(0.1)
print("logged", step, flush=True)
"""
FILE = """
version: 1
kind: experiment
framework: pytorch
environment:
  replicas: {{n_workers: {workers}}}
run:
  cmd: {python} rank.py
"""


@contextmanager
def ranks(server: Serving, home: Path, source: Path, folder: Path) -> Iterator[str]:
    """A run of many ranks that log ten times a second."""
    folder.mkdir()
    stop = folder / "stop"
    (folder / "rank.py").write_text(RANK.format(stop=str(stop)))
    (folder / "polyaxonfile.yml").write_text(FILE.format(workers=RANKS - 1, python=sys.executable))
    environment = {**os.environ, "PHALANX_HOME": str(home), "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", "from phalanx.cli import main; main()"]
    command += ["run", "--detach", "-f", "polyaxonfile.yml", "--json"]
    answer = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    run_id = str(json.loads(answer.stdout)["id"])
    place = home / "runs" / run_id
    wait_for(lambda: len(list(place.glob("replicas/*/attempt-1/*.points"))) == RANKS, "the ranks did not start")
    try:
        yield run_id
    finally:
        stop.touch()
        wait_for(lambda: fetched(server, f"/api/v1/runs/{run_id}").json()["status"] in DONE, "the run did not end")


def wait_for(condition: Any, fault: str, longest_s: float = 180.0) -> None:
    deadline = time.monotonic() + longest_s
    while not condition():
        assert time.monotonic() < deadline, fault
        time.sleep(0.25)


def fill_with(source: Path, home: Path, count: int) -> None:
    """As `fill`, by another version: a home keeps the tables of the version that made it."""
    program = f"from pathlib import Path; from server_load import fill; fill(Path({str(home)!r}), {count})"
    paths = os.pathsep.join([str(source), str(Path(__file__).parent)])
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, check=True)


def fill(home: Path, count: int) -> None:
    Home(home)
    chance = random.Random(7)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    with Store.open(home) as store:
        for first in range(0, count, 2_000):
            with store.transaction():
                for number in range(first, min(count, first + 2_000)):
                    add(store, number, begin + timedelta(minutes=number), chance)


def read_under_load(source: Path) -> tuple[dict[str, float], dict[str, str]]:
    """The figures of one version; and what it answered, for the floor."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Path(name) / "home"
        fill_with(source, home, KNOWN_RUNS)
        with serving(home, source, "--rate", "0") as server, ranks(server, home, source, Path(name) / "code") as run:
            asked = questions(run)
            before = cpu_s(server.pid)
            time.sleep(4)
            background = (cpu_s(server.pid) - before) / 4  # of the scheduler, which reads what the ranks log
            paced, paced_cpu = measured(server, asked, CLIENTS, READING_S, PAUSE_S)
            rushed, rushed_cpu = measured(server, asked, RUSHING, RUSH_S, 0.0)
            memory = memory_mib(server.pid)
            answers = dict(bodies(server, asked))
        lost = points_lost(home / "runs" / run)
    for kind in dict.fromkeys(one.kind for one in paced):
        those = [one.ms for one in paced if one.kind == kind]
        print(f"    {kind:<6} {len(those):>5} answers: median {statistics.median(those):6.1f} ms, "
              f"p99 {percentile(those, 0.99):6.1f} ms")  # fmt: skip
    figures = {
        "rate": len(paced) / READING_S,
        "p50_ms": statistics.median(one.ms for one in paced),
        "p99_ms": percentile([one.ms for one in paced], 0.99),
        "cpu_ms": (paced_cpu - background * READING_S) / len(paced) * 1e3,
        "unchanged": sum(one.status == 304 for one in paced) / len(paced),
        "throughput": len(rushed) / RUSH_S,
        "rushed_cpu_ms": (rushed_cpu - background * RUSH_S) / len(rushed) * 1e3,
        "background_cores": background,
        "memory_mib": memory,
        "points_lost": float(lost),
    }
    return figures, answers


def measured(
    server: Serving, asked: Sequence[tuple[str, str]], clients: int, for_s: float, pause_s: float
) -> tuple[list[Answer], float]:
    """The answers, and the CPU seconds of the server meanwhile."""
    before = cpu_s(server.pid)
    found: list[Answer] = run_loop(crowd(server, asked, clients, for_s, pause_s))
    wrong = [one for one in found if one.status not in (200, 304)]
    assert not wrong, wrong[:3]
    return found, cpu_s(server.pid) - before


def run_loop(work: Any) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def bodies(server: Serving, questions: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for _, path in questions:
        yield path, fetched(server, path).text


def fetched(server: Serving, path: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {server.token}"}
    return httpx.get(server.url + path, headers=headers, trust_env=False, timeout=60)


def points_lost(run_folder: Path) -> int:
    """Of those that the ranks say they logged."""
    logs = run_folder.glob("replicas/*/attempt-1/log")
    logged = sum(int(log.read_text().rsplit("logged ", 1)[1]) for log in logs)
    return logged - sum(len(set(line.steps)) for line in RunSeries(run_folder).series("loss"))


def measured_versions() -> dict[str, Path]:
    before = os.environ.get("BEFORE")
    return {**({"before": Path(before).absolute()} if before else {}), "now": OURS}


def reading() -> Iterator[Row]:
    versions = measured_versions()
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in (*versions, "floor")}
    for _ in range(READING_ROUNDS):
        answers: dict[str, str] = {}
        for name, source in versions.items():
            print(f"  {name}:")
            figures, answers = read_under_load(source)
            seen[name].append(figures)
        with tempfile.TemporaryDirectory() as folder, floor(answers, Path(folder)) as bare:
            asked = [("bytes", path) for path in answers]
            paced, paced_cpu = measured(bare, asked, CLIENTS, READING_S / 2, PAUSE_S)
            rushed, rushed_cpu = measured(bare, asked, RUSHING, RUSH_S / 2, 0.0)
            seen["floor"].append(
                {
                    "rate": len(paced) / (READING_S / 2),
                    "p50_ms": statistics.median(one.ms for one in paced),
                    "p99_ms": percentile([one.ms for one in paced], 0.99),
                    "cpu_ms": paced_cpu / len(paced) * 1e3,
                    "throughput": len(rushed) / (RUSH_S / 2),
                    "rushed_cpu_ms": rushed_cpu / len(rushed) * 1e3,
                }
            )
    medians = {
        name: {figure: statistics.median(one[figure] for one in several) for figure in several[0]}
        for name, several in seen.items()
    }
    print(
        f"  {'':<8} {'req/s':>6} {'p50 ms':>8} {'p99 ms':>8} {'CPU ms':>8} "
        f"{'304':>6} {'most/s':>8} {'CPU ms':>8} {'MiB':>6}"
    )
    for name, row in medians.items():
        unchanged, memory = row.get("unchanged", 0.0), row.get("memory_mib", 0.0)
        print(f"  {name:<8} {row['rate']:>6.0f} {row['p50_ms']:>8.1f} {row['p99_ms']:>8.1f} {row['cpu_ms']:>8.2f} "
              f"{unchanged:>6.0%} {row['throughput']:>8.0f} {row['rushed_cpu_ms']:>8.2f} {memory:>6.0f}")  # fmt: skip
    now = medians["now"]
    what, least = f"{CLIENTS} clients, {RANKS} ranks log", medians["floor"]
    p99 = Beside("bare uvicorn", least["p99_ms"] / 1e3)
    yield Row(f"{what}: p99", now["p99_ms"] / 1e3, "s", p99, aim=at_most(MOST_P99_S))
    yield Row(f"{what}: CPU of a request", now["cpu_ms"] / 1e3, "s", Beside("bare uvicorn", least["cpu_ms"] / 1e3))
    rate, most = now["throughput"], Beside("bare uvicorn", least["throughput"])
    if "before" in medians:
        peer = Beside("before", medians["before"]["throughput"])
        yield Row("most requests", rate, "/s", most, peer, at_least(LEAST_RATIO, Of.PEER))
    else:
        yield Row("most requests", rate, "/s", most)
    yield Row("points lost", now["points_lost"], "", aim=at_most(0))


# kinds --------------------------------------------------------------------------------------------------------------


def more_questions(run: str) -> list[tuple[str, str]]:
    """Besides those of `questions`."""
    several = [f"r{number:09d}" for number in range(8)]
    return [
        ("compare", "/api/v1/compare?" + "&".join(f"run={one}" for one in [run, *several])),
        ("charts of 9 runs", "/api/v1/charts?name=loss&" + "&".join(f"run={one}" for one in [run, *several])),
        ("replicas", f"/api/v1/runs/{run}/topology"),
    ]


def cost_of_kinds(source: Path) -> dict[str, float]:
    """CPU milliseconds of the server for one request of each kind; and what the ranks cost it in a second."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Path(name) / "home"
        fill_with(source, home, KNOWN_RUNS)
        with serving(home, source, "--rate", "0") as server, ranks(server, home, source, Path(name) / "code") as run:
            before = cpu_s(server.pid)
            time.sleep(KIND_S)
            background = (cpu_s(server.pid) - before) / KIND_S
            found = {f"{RANKS} ranks log: CPU in a second": background * 1e3}
            for kind, path in [*questions(run), *more_questions(run)]:
                answers, cpu = measured(server, [(kind, path)], KIND_CLIENTS, KIND_S, KIND_PAUSE_S)
                found[f"CPU of a request: {path.replace(run, 'RUN')[7:50]}"] = (
                    (cpu - background * KIND_S) / len(answers) * 1e3
                )
    return found


def kinds() -> Iterator[Row]:
    found = {name: cost_of_kinds(source) for name, source in measured_versions().items()}
    for kind, cpu_ms in found["now"].items():
        peer = Beside("before", found["before"][kind] / 1e3) if "before" in found else None
        yield Row(kind, cpu_ms / 1e3, "s", peer=peer)


# streams ------------------------------------------------------------------------------------------------------------


async def listen(server: Serving, opened: list[float], heard: list[float]) -> None:
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"GET /api/v1/live HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
    )
    assert b" 200 " in await reader.readline()
    while line := await reader.readline():
        if line.startswith(b"event: ready"):
            opened.append(time.monotonic())
        elif line.startswith(b"event: run"):
            heard.append(time.monotonic())
            break
    writer.close()


async def change_when_open(home: Path, opened: list[float]) -> float:
    deadline = time.monotonic() + 120
    while len(opened) < STREAMS:
        assert time.monotonic() < deadline, f"{len(opened)} of {STREAMS} streams opened"
        await asyncio.sleep(0.1)
    with Store.open(home) as store:
        store.record(StatusChange("r000000000", 2, 1, "failed", "changed", datetime.now(UTC)))
    return time.monotonic()


async def stream_all(server: Serving, home: Path) -> tuple[float, float]:
    opened: list[float] = []
    heard: list[float] = []
    began = time.monotonic()
    listeners = [asyncio.ensure_future(listen(server, opened, heard)) for _ in range(STREAMS)]
    changed = await change_when_open(home, opened)
    await asyncio.gather(*listeners)
    return max(opened) - began, max(heard) - changed


def streams() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Path(name) / "home"
        fill(home, KNOWN_RUNS)
        with serving(home, OURS, "--rate", "0") as server:
            open_s, event_s = run_loop(stream_all(server, home))
            memory = memory_mib(server.pid)
    yield Row(f"{STREAMS:,} live streams: until all are open", open_s, "s")
    yield Row(f"{STREAMS:,} live streams: from a change to the last event", event_s, "s", aim=at_most(MOST_EVENT_S))
    yield Row(f"{STREAMS:,} live streams: memory", memory, "MiB")


# idle ---------------------------------------------------------------------------------------------------------------


def idle() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Path(name) / "home"
        fill(home, IDLE_RUNS)
        with serving(home) as server:
            run_loop(crowd(server, [("list", "/api/v1/runs?limit=100")], 4, 1.0, 0.1))
            time.sleep(5)
            before = cpu_s(server.pid)
            time.sleep(5)
            used, memory = (cpu_s(server.pid) - before) / 5, memory_mib(server.pid)
    yield Row(f"idle server with {IDLE_RUNS:,} runs: memory", memory, "MiB", aim=at_most(MOST_MIB))
    yield Row(f"idle server with {IDLE_RUNS:,} runs: CPU", 100 * used, "%")


PARTS = {"reading": reading, "kinds": kinds, "streams": streams, "idle": idle}
