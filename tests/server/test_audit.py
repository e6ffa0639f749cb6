"""What is written down of who did what, and what is never."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from phalanx.server.auth.audit import KEPT, Audit
from phalanx.server.auth.identities import Identity, Role
from tests.server.people import PASSWORD, cookie, sign_in
from tests.server.site import Site
from tests.server.started import start, until

ME = Identity("me", {"*": Role.ADMIN}, address="10.0.0.1")


def entries(site: Site) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.home.path / "audit.log").read_text().splitlines()]


def test_what_changes_something_is_written_down(own_site: Site) -> None:
    run_id = own_site.post("/api/v1/runs", {"name": "x"}, 201)["id"]
    own_site.ask("PATCH", f"/api/v1/runs/{run_id}", json={"name": "y"})
    made, changed = entries(own_site)
    assert made == {
        "at": made["at"],
        "who": "tester",
        "kind": "token",
        "from": "127.0.0.1",
        "action": "POST /api/v1/runs",
        "target": "/api/v1/runs",
        "outcome": 201,
        "run": run_id,
    }
    assert changed["run"] == run_id
    assert (changed["action"], changed["target"]) == ("PATCH /api/v1/runs/{run_id}", f"/api/v1/runs/{run_id}")
    assert stat.S_IMODE((own_site.home.path / "audit.log").stat().st_mode) == 0o600


def test_what_only_looks_and_what_training_tracks_is_not(own_site: Site) -> None:
    run_id = own_site.begin()
    before = len(entries(own_site))
    own_site.get("/api/v1/runs")
    own_site.ask("POST", f"/api/v1/runs/{run_id}/beat")
    own_site.ask("PUT", f"/api/v1/runs/{run_id}/files/replicas/master-0/attempt-1/a.points", content=b"x")
    metric = {"run_id": run_id, "key": "m", "value": 1, "timestamp": 1}
    own_site.mlflow("POST", "runs/log-metric", metric)
    own_site.mlflow("POST", "runs/search", {"experiment_ids": ["0"]})
    assert len(entries(own_site)) == before
    own_site.mlflow("POST", "runs/delete", {"run_id": run_id})
    assert entries(own_site)[-1]["target"] == "/api/2.0/mlflow/runs/delete"
    assert [row["run"] for row in entries(own_site)] == [run_id, run_id]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs/x/files/replicas/../search",
        "/nothing/mlflow/runs/log-batch",
        "/api/2.0/mlflow/runs/delete#runs/log-",
    ],
)
def test_no_address_looks_like_routine_by_what_stands_in_it(own_site: Site, path: str) -> None:
    own_site.ask("DELETE", path)
    own_site.ask("POST", path, json={})
    assert entries(own_site)


def test_who_was_not_let_in_is_written_down(own_site: Site) -> None:
    own_site.client.get("/api/v1/runs")
    own_site.client.get("/api/v1/runs", headers={"Host": "evil.example"})
    reader = own_site.context.tokens.create("reader", "viewer")
    own_site.ask("POST", "/api/v1/runs", reader, json={})
    sign_in(own_site, user="ana", password="wrong password")
    found = [(row["who"], row["outcome"]) for row in entries(own_site)]
    assert found == [(None, 401), (None, 421), ("reader", 403), (None, 401)]


def test_who_signs_in_and_who_tries_to_is_written_down(own_site: Site) -> None:
    own_site.context.accounts.add("ana", PASSWORD, {"*": Role.VIEWER})
    sign_in(own_site, user="ana", password=PASSWORD)
    sign_in(own_site, user="ana", password="wrong password")
    sign_in(own_site, user="my password, typed too early", password="x")
    sign_in(own_site, token=own_site.token)
    sign_in(own_site, token="phx_wrong")
    found = [(row["who"], row["kind"], row["outcome"]) for row in entries(own_site)]
    user, token = "user", "token"
    assert found == [
        *[("ana", user, 200), ("ana", user, 401), (None, user, 401)],
        *[("tester", token, 200), (None, token, 401)],
    ]


def test_a_copy_names_the_run_that_it_made(own_site: Site) -> None:
    first = start(own_site, "true")["id"]
    until(own_site, first)
    copied = own_site.ask("POST", f"/api/v1/runs/{first}/copy").json()["id"]
    submitted, last = (row for row in entries(own_site) if row["outcome"] == 201)
    assert submitted["run"] == first
    assert (last["run"], last["made"]) == (first, copied)
    until(own_site, copied)


def test_nothing_secret_is_written_down(own_site: Site) -> None:
    site = own_site
    site.context.accounts.add("ana", PASSWORD, {"*": Role.ADMIN})
    value = cookie(sign_in(site, user="ana", password=PASSWORD))
    sign_in(site, user="ana", password="wrong-password")
    site.ask("POST", "/api/v1/runs?token=in-the-query", json={"params": {"key": "in-the-body"}})
    site.client.post("/api/v1/runs", headers={"Authorization": "Bearer phx_a-wrong-token"})
    site.client.post("/api/v1/runs", headers={"Cookie": value})
    written = (site.home.path / "audit.log").read_text()
    assert len(written.splitlines()) >= 4
    for secret in (PASSWORD, "wrong-password", site.token, "in-the-query", "in-the-body", "a-wrong-token", value):
        assert secret not in written


@pytest.mark.slow
def test_who_tries_without_end_does_not_push_out_what_others_did(own_site: Site) -> None:
    own_site.post("/api/v1/runs", {}, 201)
    for _ in range(200):
        own_site.client.get("/api/v1/runs")
    own_site.post("/api/v1/runs", {}, 201)
    found = entries(own_site)
    left_out = sum(row.get("left_out", 0) for row in found)
    assert left_out > 50
    assert len(found) + left_out == 202, "all are counted"
    assert (found[0]["outcome"], found[-1]["outcome"]) == (201, 201)


def test_admins_read_it_the_newest_first(own_site: Site) -> None:
    admin = own_site.context.tokens.create("admin", "admin")
    for number in range(5):
        own_site.post("/api/v1/runs", {"name": str(number)}, 201)
    last = own_site.ask("DELETE", "/api/v1/session").status_code
    assert last == 200
    found = own_site.ask("GET", "/api/v1/audit?limit=2", admin).json()["entries"]
    assert [row["action"] for row in found] == ["DELETE /api/v1/session", "POST /api/v1/runs"]
    assert len(own_site.ask("GET", "/api/v1/audit", admin).json()["entries"]) == 6
    assert own_site.ask("GET", "/api/v1/audit").status_code == 403


# the file -----------------------------------------------------------------------------------------------------------


def test_old_files_are_kept_and_the_oldest_go(tmp_path: Path) -> None:
    audit = Audit(tmp_path, largest=2000)
    for number in range(200):
        audit.note(ME, "do", str(number), "done")
    kept = sorted(path.name for path in tmp_path.glob("audit.log*"))
    assert kept == ["audit.log", *(f"audit.log.{number}" for number in range(1, KEPT + 1))]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    found = [int(row["target"]) for row in audit.last(1000)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 199
    assert len(found) == found[0] - found[-1] + 1, "none is missing in between"


@pytest.mark.parametrize("largest", [1 << 20, 50_000])
def test_many_at_once_write_whole_lines(tmp_path: Path, largest: int) -> None:
    """Also several servers, and while a file is full."""

    def work() -> None:
        audit = Audit(tmp_path, largest)
        for _ in range(100):
            audit.note(ME, "do", "x" * 200, "done")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Audit(tmp_path).last(1000)) == 400


def test_a_line_stays_one_line_for_any_request(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.note(ME, "do", 'a\n{"who": "boss"}\r\x1b[2J' + "x" * 1000, "done")
    (line,) = audit.path.read_text().splitlines()
    assert json.loads(line)["who"] == "me"
    assert len(line) < 1000
    assert "\x1b" not in line


def test_a_line_that_was_cut_off_hides_no_other(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.note(ME, "do", "1", "done")
    with audit.path.open("ab") as stream:
        stream.write(b'{"who": "m\n')
    audit.note(ME, "do", "2", "done")
    assert [row["target"] for row in audit.last(10)] == ["2", "1"]


def test_a_file_that_cannot_be_written_is_said_once_and_keeps_no_one_from_work(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    audit = Audit(tmp_path)
    (tmp_path / "elsewhere").touch()
    audit.path.symlink_to(tmp_path / "elsewhere")
    audit.note(ME, "do", "1", "done")
    audit.note(ME, "do", "2", "done")
    assert capfd.readouterr().err.count("cannot be written") == 1
    assert not (tmp_path / "elsewhere").read_text(), "links are not followed"
