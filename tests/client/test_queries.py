"""What a server tells is what a home tells."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx import Client
from phalanx.client import NotFound
from phalanx.client.local import HomeReader
from phalanx.errors import CallError, SystemFault
from phalanx.store import Run, Store
from tests.cli.homes import wait_for
from tests.client.answers import cutting_proxy
from tests.server.site import Site

TRAIN = """
import os
from phalanx import tracking

replica = os.environ["PHALANX_REPLICA"]
print("first words of", replica, flush=True)
for step in range(30):
    tracking.log(loss=1 / (step + 1), step=step)
    if replica == "master-0":
        tracking.log({"odd/value": float("nan") if step == 3 else step}, step=step)
with open(os.path.join(os.environ["PHALANX_OUTPUTS"], replica + ".txt"), "w") as stream:
    stream.write("done\\n" * 100)
if replica == "master-0":
    with open("weights.bin", "wb") as stream:
        stream.write(bytes(range(256)) * 8192)
    tracking.artifact("weights.bin", name="weights")
    tracking.text("note", "hello")
print("last words of", replica, flush=True)
"""
FILE = """
version: 1
kind: experiment
name: told
framework: pytorch
tags: [one, two]
params: {lr: 0.1}
environment: {replicas: {n_workers: 1}}
run: {cmd: python3 train.py}
"""


@pytest.fixture(scope="module")
def run(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A distributed run of a folder on the client's side, seen through to its end."""
    folder = tmp_path_factory.mktemp("laptop")
    (folder / "train.py").write_text(TRAIN)
    (folder / "secret.env").write_text("not for others")
    (folder / ".polyaxonignore").write_text("*.env\n")
    (folder / "polyaxonfile.yml").write_text(FILE)
    with Client(site.url, site.token) as client:
        made = client.submit(folder / "polyaxonfile.yml", params={"lr": 0.2}, folder=folder, tags=["three"])
        lines = [(line.replica, line.text) for line in client.follow(made.run)]
        assert {line for line in lines if "last" in line[1]} == {
            (name, f"last words of {name}") for name in ("master-0", "worker-0")
        }
        return client.run(made.run.id)


@pytest.fixture
def home(site: Site) -> Iterator[HomeReader]:
    with phalanx.open(site.home.path) as found:
        yield found


def test_a_run_of_a_folder_elsewhere_runs_with_its_code_and_params(site: Site, run: Run) -> None:
    assert (run.status, run.name, run.params, run.user) == ("succeeded", "told", {"lr": 0.2}, "tester")
    assert {"one", "two"} <= set(run.tags) or run.tags == ("three",)
    code = sorted(path.name for path in (site.folder(run.id) / "code").iterdir())
    assert "train.py" in code
    assert "secret.env" not in code


def test_records_are_those_of_the_home(client: Client, home: HomeReader, run: Run) -> None:
    here = home.run(run.id)
    assert client.run(run.id) == here._record
    assert client.run(run.id[:7]) == client.run("told") == client.run(run.id)
    assert client.statuses(run) == here.statuses()
    assert client.replicas(run) == here.replicas()
    assert client.artifacts(run) == here.artifacts()
    assert client.details(run.id).labels == here.labels()
    assert client.runs("status:succeeded") == [one._record for one in home.runs("status:succeeded")]


def test_series_are_those_of_the_home(client: Client, home: HomeReader, run: Run) -> None:
    here, there = home.run(run.id), client.all_series(run)
    assert there.names() == here.names() == ["loss", "odd/value"]
    assert there.replicas("loss") == here.all_series.replicas("loss") == ["master-0", "worker-0"]
    reads: list[Callable[[Any], Any]] = [
        lambda series: series.series("loss"),
        lambda series: series.buckets("loss", 7, "worker-0", 3, 20),
        lambda series: series.buckets("loss", 7),
        lambda series: series.summaries(),
    ]
    for read in reads:  # points may be compacted between the two reads, and compacted times are whole microseconds

        def agree(read: Callable[[Any], Any] = read) -> bool:
            return bool(read(client.all_series(run)) == read(home.run(run.id).all_series))

        wait_for(agree)
    assert there.over_ranks("loss", 5) == here.over_ranks("loss", 5)
    assert list(client.series(run, "loss")) == list(here.series("loss"))
    assert repr(client.series(run, "odd/value").values[3]) == "nan"
    assert there.series("nothing") == []
    with pytest.raises(KeyError, match="no metric 'nothing'"):
        client.series(run, "nothing")
    for method in ("series", "buckets", "over_ranks"):
        with pytest.raises(KeyError, match="no metric 'los': did you mean `loss`"):
            getattr(client, method)(run, "los")
    with pytest.raises(NotFound, match="did you mean `loss`"):
        client._wire.get(f"/api/v1/runs/{run.id}/metrics/series", name="los")


def test_lines_come_in_pieces_from_either_end(client: Client, run: Run) -> None:
    everything = list(client.lines(run))
    assert [line.text for line in everything if line.replica == "worker-0"] == [
        "first words of worker-0",
        "last words of worker-0",
    ]
    assert client.last_lines(run, 3) == everything[-3:]
    assert list(client.lines(run, ["master-0"])) == [line for line in everything if line.replica == "master-0"]
    assert client.log(run, "master-0").endswith("last words of master-0\n")
    page = client.page(run.id, limit=2, before=client.page(run.id, limit=2).first)
    assert page.lines == everything[:2]
    assert page.at_start


def test_what_else_a_server_says_of_a_run(client: Client, run: Run) -> None:
    assert [one["name"] for one in client.topology(run)["replicas"]] == ["master-0", "worker-0"]
    assert "pytorch" in client.spec(run)
    assert client.events(run, kind="text")[0]["text"] == "hello"
    assert {role["role"] for role in client.use(run)["roles"]} == {"master", "worker"}
    assert client.machine()["cpus"] > 0
    assert client.projects() == ["default"]
    assert client.whoami()["name"] == "tester"
    assert client.models() == []


def test_outputs_are_browsed_and_fetched(client: Client, run: Run, tmp_path: Path) -> None:
    entries = {entry.path: entry for entry in client.outputs(run)}
    assert entries["outputs/master-0.txt"].size == 500
    taken = client.download(run, "outputs", tmp_path)
    assert (tmp_path / "outputs" / "worker-0.txt").read_text() == "done\n" * 100
    assert (taken.files, taken.left_out) == (2, [])
    assert client.read(run, "outputs/master-0.txt") == b"done\n" * 100
    with pytest.raises(CallError, match="already"):
        client.download(run, "outputs", tmp_path)
    with pytest.raises(CallError, match="nothing-there"):
        client.download(run, "outputs/nothing-there", tmp_path)


def weights(client: Client, run: Run) -> str:
    return next(entry.path for entry in client.outputs(run, "artifacts") if entry.kind == "file")


def test_a_download_goes_on_where_its_connection_broke_off(site: Site, run: Run, tmp_path: Path) -> None:
    with Client(site.url, site.token) as direct:
        path = weights(direct, run)
    lengths = [1 << 40, 400_000, 300_000, 1 << 40]
    with cutting_proxy(site.listening.getsockname()[1], lengths) as url, Client(url, site.token) as client:
        client.download(run, path, tmp_path / "weights.bin")
    assert (tmp_path / "weights.bin").read_bytes() == bytes(range(256)) * 8192
    assert lengths == []


def test_a_file_that_is_not_what_was_recorded_is_not_kept(site: Site, client: Client, run: Run, tmp_path: Path) -> None:
    path = weights(client, run)
    file = site.folder(run.id) / path
    whole = file.read_bytes()
    digest = wait_for(lambda: client.outputs(run, path)[0].digest)  # a process of its own reads the files
    assert digest == hashlib.sha256(whole).hexdigest()
    state = file.stat()
    with file.open("r+b") as stream:
        stream.write(b"damage")
    try:
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        with pytest.raises(SystemFault, match="damaged"):
            client.download(run, path, tmp_path / "weights.bin")
        assert not (tmp_path / "weights.bin").exists()
    finally:
        with file.open("r+b") as stream:
            stream.write(whole[:6])


def test_all_runs_come_however_many_there_are(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    usual = dict.fromkeys(Run._fields) | {"project": "many", "kind": "job", "backend": "native", "user": "me"}
    usual |= {"status": "succeeded", "reason": "", "attempt": 1, "priority": 0, "updated_at": now, "finished_at": now}
    usual |= {"tags": (), "params": {}, "summary": {}, "started_at": now}
    with Site(tmp_path) as site, Store.open(site.home.path) as store:
        with store.transaction():
            for number in range(1234):
                at = now + timedelta(seconds=number)
                store.add(Run(**{**usual, "id": f"r{number:09d}", "name": f"name {number % 2}", "created_at": at}))  # type: ignore[arg-type]
        with Client(site.url, site.token) as client:
            assert [run.id for run in client.runs(sort="created_at")] == [f"r{number:09d}" for number in range(1234)]
            assert [run.id for run in client.runs(limit=3, offset=1)] == ["r000001232", "r000001231", "r000001230"]
            assert client.count() == 1234
            assert client.count("name:nothing") == 0
            assert client.run("name 1").id == "r000001233"
            with pytest.raises(CallError, match=r"`r00000` is ambiguous: r\d+ .*, and more; give more of the id"):
                client.run("r00000")
            assert list(client.runs(limit=2).frame()["name"]) == ["name 1", "name 0"]


@pytest.mark.parametrize("name", ["nothing", "a, b", 'quo"te', "x:y", "%", "..", "a/b", "ü" * 50])
def test_a_run_that_is_not_there_is_reported_by_name(client: Client, name: str) -> None:
    with pytest.raises(CallError, match="there is no run"):
        client.run(name)


def test_a_run_has_to_be_named(client: Client) -> None:
    with pytest.raises(CallError, match="name a run"):
        client.run("")
    with pytest.raises(NotFound):
        client.status("nothing")
