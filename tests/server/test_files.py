"""Files of runs: fetched in parts, never as something that runs; and sent, never elsewhere than they belong."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from phalanx.server.http import bodies
from phalanx.server.mlflow.artifacts import registered_uri
from phalanx.spool import PointWriter
from tests.server.site import Site, artifact

ESCAPES = [
    "../run.json",
    "artifacts/../../../token",
    "..%2f..%2ftoken",
    "%2e%2e/%2e%2e/token",
    "....//token",
    "/etc/passwd",
    "//etc/passwd",
    "outputs/../../../../etc/passwd",
    "outputs\\..\\..\\token",
    "outputs/%00",
    "outputs/a%00/../../token",
    "C:/windows",
    "~root",
    "replicas/master-0/attempt-1/agent.json",
    "run.json",
    "history",
    "",
    ".",
    "..",
]


def output(site: Site, run_id: str, name: str, content: bytes) -> Path:
    path = site.folder(run_id) / "outputs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# fetching -----------------------------------------------------------------------------------------------------------


def test_outputs_are_listed_and_fetched(site: Site) -> None:
    run_id = site.begin()
    output(site, run_id, "deep/er/a b#?.txt", b"hello")
    files = {row["path"]: row for row in site.get(f"/api/v1/runs/{run_id}/outputs")["files"]}
    assert files["outputs/deep/er/a b#?.txt"]["size"] == 5
    assert files["outputs/deep"]["kind"] == "folder"
    answer = site.ask("GET", f"/api/v1/runs/{run_id}/outputs/outputs/deep/er/a%20b%23%3F.txt")
    assert (answer.status_code, answer.content) == (200, b"hello")
    below = site.get(f"/api/v1/runs/{run_id}/outputs", path="outputs/deep/er")["files"]
    assert [row["kind"] for row in below] == ["folder", "file"]


@pytest.mark.parametrize(
    ("wanted", "status", "content", "expected"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
        ("bytes=0-", 200, b"0123456789", None),
        ("bytes=-99", 200, b"0123456789", None),
        ("bytes=x-y", 200, b"0123456789", None),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("items=0-1", 200, b"0123456789", None),
        ("bytes=10-", 416, None, None),
        ("bytes=5-4", 416, None, None),
        ("bytes=" + "9" * 17 + "-", 416, None, None),
    ],
)
def test_a_part_of_a_file_is_sent(
    site: Site, wanted: str, status: int, content: bytes | None, expected: str | None
) -> None:
    run_id = site.begin()
    output(site, run_id, "ten", b"0123456789")
    answer = site.ask("GET", f"/api/v1/runs/{run_id}/outputs/outputs/ten", headers={"Range": wanted})
    assert answer.status_code == status
    assert answer.headers.get("content-range") == expected
    if content is not None:
        assert answer.content == content


@pytest.mark.parametrize("name", ["page.html", "pic.svg", "code.js", "x.xhtml", "noending", "a.html.txt", "pic.png"])
def test_a_file_is_never_something_that_a_browser_runs(site: Site, name: str) -> None:
    run_id = site.begin()
    output(site, run_id, name, b"<script>alert(1)</script>")
    answer = site.ask("GET", f"/api/v1/runs/{run_id}/outputs/outputs/{name}")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    kind = answer.headers["content-type"]
    assert "html" not in kind
    assert "svg" not in kind
    assert "script" not in kind


def test_a_name_cannot_break_out_of_its_header(site: Site) -> None:
    run_id = site.begin()
    output(site, run_id, 'x"; filename=evil.exe', b"x")
    output(site, run_id, "x\r\nSet-Cookie: a=b", b"x")
    base = f"/api/v1/runs/{run_id}/outputs/outputs"
    answer = site.ask("GET", f"{base}/x%22%3B%20filename%3Devil.exe")
    assert answer.status_code == 200
    assert "filename=evil" not in answer.headers["content-disposition"]
    answer = site.ask("GET", f"{base}/x%0D%0ASet-Cookie%3A%20a%3Db")
    assert answer.status_code == 404
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ESCAPES)
def test_nothing_outside_is_fetched(site: Site, path: str) -> None:
    run_id = site.begin()
    output(site, run_id, "x", b"x")
    for base in (f"/api/v1/runs/{run_id}/outputs/", f"/api/v1/runs/{run_id}/media/master-0/1/", artifact(run_id, "")):
        status, content = site.raw("GET", base + path)
        assert status in (400, 403, 404), (base, path, content)
        for secret in (b"root:", site.token.encode(), b'"pid"', b'"created_at": 1'):
            assert secret not in content, (base, path)


def test_links_are_followed_within_the_run_and_nowhere_else(site: Site, tmp_path: Path) -> None:
    run_id = site.begin()
    output(site, run_id, "model-9", b"weights")
    outputs = site.folder(run_id) / "outputs"
    (outputs / "latest").symlink_to("model-9")
    (outputs / "escape").symlink_to("/etc/passwd")
    (outputs / "up").symlink_to("../../..")
    (outputs / "loop").symlink_to("loop")
    (tmp_path / "secret").write_text("secret")
    (outputs / "abs").symlink_to(tmp_path / "secret")
    base = f"/api/v1/runs/{run_id}/outputs/outputs"
    assert site.ask("GET", f"{base}/latest").content == b"weights"
    for name in ("escape", "up/token", "loop", "abs", "up"):
        assert site.ask("GET", f"{base}/{name}").status_code in (400, 403, 404), name


def test_pipes_and_folders_are_no_files(site: Site) -> None:
    run_id = site.begin()
    output(site, run_id, "folder/x", b"x")
    os.mkfifo(site.folder(run_id) / "outputs" / "pipe")
    for name in ("folder", "pipe"):
        assert site.ask("GET", f"/api/v1/runs/{run_id}/outputs/outputs/{name}").status_code == 404


def test_a_log_is_sent_whole_in_part_and_from_its_end(site: Site) -> None:
    run_id = site.begin()
    (site.attempt(run_id) / "log").write_bytes(b"one\ntwo\nthree\n")
    path = f"/api/v1/runs/{run_id}/logs/master-0"
    assert site.ask("GET", path).content == b"one\ntwo\nthree\n"
    assert site.ask("GET", path, params={"tail": 6}).content == b"three\n"
    assert site.ask("GET", path, headers={"Range": "bytes=4-6"}).content == b"two"
    assert site.ask("GET", path, params={"attempt": 2}).status_code == 404
    for replica in ("worker-7", "master-0%2F..", "x"):
        assert site.ask("GET", f"/api/v1/runs/{run_id}/logs/{replica}").status_code == 404


def test_a_log_that_grows_while_it_is_sent_is_sent_as_it_was(site: Site) -> None:
    run_id = site.begin()
    log = site.attempt(run_id) / "log"
    log.write_bytes(b"x" * 3_000_000)
    ended = threading.Event()

    def grow() -> None:
        with log.open("ab") as stream:
            while not ended.is_set():
                stream.write(b"y" * 1000)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        answer = site.ask("GET", f"/api/v1/runs/{run_id}/logs/master-0")
        assert len(answer.content) == int(answer.headers["content-length"]) >= 3_000_000
    finally:
        ended.set()
        writer.join()


def test_media_are_sent_as_images(site: Site) -> None:
    run_id = site.begin()
    (site.attempt(run_id) / "media").mkdir()
    (site.attempt(run_id) / "media" / "a.png").write_bytes(b"\x89PNG")
    answer = site.ask("GET", f"/api/v1/runs/{run_id}/media/master-0/1/a.png")
    assert (answer.content, answer.headers["content-type"]) == (b"\x89PNG", "image/png")
    assert site.ask("GET", f"/api/v1/runs/{run_id}/media/master-0/1/../agent.json").status_code == 404
    assert site.ask("GET", f"/api/v1/runs/{run_id}/media/master-0/1/..%2Fagent.json").status_code == 404


# sending ------------------------------------------------------------------------------------------------------------


def put(site: Site, run_id: str, path: str, content: bytes, **params: object) -> tuple[int, int | None]:
    answer = site.ask("PUT", f"/api/v1/runs/{run_id}/files/{path}", content=content, params={**params})
    return answer.status_code, answer.json().get("size")


SPOOL = "replicas/master-0/attempt-1/client-1.points"


def test_a_file_grows_piece_by_piece_and_nothing_is_there_twice(site: Site) -> None:
    run_id = site.begin()
    assert put(site, run_id, SPOOL, b"0123", offset=0) == (200, 4)
    assert put(site, run_id, SPOOL, b"0123", offset=0) == (200, 4), "sent again"
    assert put(site, run_id, SPOOL, b"23456", offset=2) == (200, 7), "an overlap"
    assert put(site, run_id, SPOOL, b"zz", offset=9) == (409, 7), "a gap"
    assert put(site, run_id, SPOOL, b"12", offset=1) == (200, 7), "long known"
    assert (site.folder(run_id) / SPOOL).read_bytes() == b"0123456"
    assert (site.folder(run_id) / SPOOL).stat().st_mode & 0o077 == 0


def test_points_that_were_sent_are_the_runs_metrics(site: Site, tmp_path: Path) -> None:
    run_id = site.begin()
    writer = PointWriter(tmp_path / "mine")
    for step in range(1000):
        writer.add(step, 1_700_000_000.0, {"loss": float(step)})
    writer.close()
    data = (tmp_path / "mine").read_bytes()
    for start in range(0, len(data), 10_000):
        put(site, run_id, SPOOL, data[start : start + 10_000], offset=start)
    (metric,) = site.get(f"/api/v1/runs/{run_id}/metrics")["metrics"]
    assert (metric["count"], metric["last"]) == (1000, 999.0)


def test_two_that_send_the_same_file_do_not_mix(site: Site) -> None:
    run_id = site.begin()
    data = os.urandom(200_000)

    def send() -> None:
        at = 0
        while at < len(data):
            _, size = put(site, run_id, SPOOL, data[at : at + 7001], offset=at)
            assert size is not None
            at = size

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (site.folder(run_id) / SPOOL).read_bytes() == data


def test_an_artifact_appears_whole(site: Site) -> None:
    run_id = site.begin()
    path = site.folder(run_id) / "artifacts" / "a" / "b.bin"
    assert put(site, run_id, "artifacts/a/b.bin", b"first", whole=1) == (200, 5)
    assert path.read_bytes() == b"first"
    assert put(site, run_id, "artifacts/a/b.bin", b"sec", offset=0, whole=0, size=6) == (200, 3)
    assert path.read_bytes() == b"first", "until the last piece is there"
    assert put(site, run_id, "artifacts/a/b.bin", b"d", offset=5, whole=0, size=6) == (409, 3)
    assert put(site, run_id, "artifacts/a/b.bin", b"ond", offset=3, whole=0, size=6) == (200, 6)
    assert path.read_bytes() == b"second"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.bin"]


def test_pieces_of_another_try_are_not_mixed_in(site: Site) -> None:
    run_id = site.begin()
    put(site, run_id, "artifacts/x", b"OLD", offset=0, size=6)
    put(site, run_id, "artifacts/x", b"new", offset=0, size=6)
    put(site, run_id, "artifacts/x", b"est", offset=3, size=6)
    assert (site.folder(run_id) / "artifacts" / "x").read_bytes() == b"newest"
    answer = site.ask("PUT", f"/api/v1/runs/{run_id}/files/artifacts/y", content=b"12345", params={"size": 3})
    assert answer.status_code == 400
    assert site.ask("PUT", f"/api/v1/runs/{run_id}/files/artifacts/y", content=b"12345").status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        *[escape for escape in ESCAPES if escape],
        "outputs/x",
        "artifacts",
        "models",
        "artifacts/",
        "artifacts/a/../../run.json",
        "artifacts/.abc.draft",
        "artifacts/a%0Ab",
        "artifacts/" + "x" * 241,
        "artifacts/" + "d/" * 40 + "x",
        "replicas/master-0/attempt-1/end.json",
        "replicas/master-0/attempt-1/agent.json",
        "replicas/master-0/attempt-1/log",
        "replicas/master-0/attempt-1/mlflow.points",
        "replicas/master-0/attempt-1/.x.points",
        "replicas/master-0/attempt-1/a/b.points",
        "replicas/master-0/attempt-1/media/../agent.json",
        "replicas/master-0/attempt-2/a.points",
        "replicas/worker-5/attempt-1/a.points",
        "replicas/../attempt-1/a.points",
        "plan.json",
        "history",
    ],
)
def test_a_client_writes_nowhere_else(site: Site, path: str) -> None:
    run_id = site.begin()
    before = site.files()
    for query in ("offset=0", "whole=1", "offset=0&size=4"):
        status, content = site.raw("PUT", f"/api/v1/runs/{run_id}/files/{path}?{query}", b"evil")
        assert status in (400, 403, 404, 405, 409), (path, status, content)
    after = site.files()
    changed = {name for name in after if before.get(name) != after[name]}
    assert not {name for name in changed if "ballast" not in name}


def test_a_link_in_the_way_is_not_followed(site: Site, tmp_path: Path) -> None:
    run_id = site.begin()
    (site.folder(run_id) / "artifacts").mkdir()
    (site.folder(run_id) / "artifacts" / "link").symlink_to(tmp_path)
    assert put(site, run_id, "artifacts/link/x", b"evil", whole=1)[0] == 403
    (tmp_path / "y").write_bytes(b"")
    (site.attempt(run_id) / "client-9.points").symlink_to(tmp_path / "y")
    assert put(site, run_id, "replicas/master-0/attempt-1/client-9.points", b"evil")[0] == 507
    assert not (tmp_path / "x").exists()
    assert (tmp_path / "y").read_bytes() == b""


def test_a_body_is_bounded_by_what_it_says_and_by_what_it_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = site.begin()
    monkeypatch.setattr(bodies, "MAX_JSON", 1000)
    answer = site.ask("POST", "/api/v1/runs", content=b'{"name": "' + b"x" * 2000 + b'"}')
    assert answer.status_code == 413
    pieces = (b'{"name": "' + b"x" * 100 for _ in range(100))  # of unknown length
    assert site.ask("POST", "/api/v1/runs", content=pieces).status_code == 413
    too_much = b"x" * (bodies.MAX_PIECE + 1)
    answer = site.ask("PUT", f"/api/v1/runs/{run_id}/files/{SPOOL}", content=too_much)
    assert answer.status_code == 413
    assert not (site.folder(run_id) / SPOOL).exists()


def test_what_is_announced_and_does_not_come_is_not_kept(site: Site) -> None:
    run_id = site.begin()
    with socket.create_connection(site.listening.getsockname()) as broken:
        head = f"PUT {artifact(run_id, 'half')} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {site.token}\r\n"
        broken.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b"x" * 500)
    assert site.ask("PUT", artifact(run_id, "whole"), content=b"y").status_code == 200
    kept = [found.name for found in (site.folder(run_id) / "artifacts").iterdir() if not found.name.startswith(".")]
    assert kept == ["whole"]


def test_a_full_disk_is_reported_and_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = site.begin()
    monkeypatch.setattr(bodies, "SPARE_BYTES", 1 << 60)
    answer = site.ask("PUT", artifact(run_id, "x"), content=b"y" * 100)
    assert answer.status_code == 507
    assert "full" in answer.json()["message"]
    assert list((site.folder(run_id) / "artifacts").iterdir()) == []


# artifacts as MLflow has them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["a.txt", "deep/er/x.bin", "with space.txt", "ünï/cödé.txt", "hash#quest?.txt", ".hidden", "50%.txt"]
)
def test_an_artifact_is_sent_listed_fetched_and_removed(site: Site, path: str) -> None:
    run_id = site.begin()
    assert site.ask("PUT", artifact(run_id, path), content=b"content").status_code == 200
    assert site.ask("GET", artifact(run_id, path)).content == b"content"
    folder, _, name = path.rpartition("/")
    rows = site.get("/api/2.0/mlflow-artifacts/artifacts", path=f"{run_id}/artifacts/{folder}")["files"]
    assert rows == [{"path": name, "is_dir": False, "file_size": 7}]
    rows = site.mlflow("GET", "artifacts/list", {"run_id": run_id, "path": folder})["files"]
    assert rows == [{"path": path, "is_dir": False, "file_size": 7}]
    kept = site.get(f"/api/v1/runs/{run_id}")["artifacts"]
    assert [(row["path"], row["size"]) for row in kept] == [(f"artifacts/{path}", 7)]
    assert site.ask("DELETE", artifact(run_id, path)).status_code == 200
    assert site.ask("GET", artifact(run_id, path)).status_code == 404


def test_folders_of_artifacts_are_listed_and_removed(site: Site) -> None:
    run_id = site.begin()
    for name in ("a/1", "a/2", "b/3"):
        site.ask("PUT", artifact(run_id, name), content=b"x")
    listed = site.mlflow("GET", "artifacts/list", {"run_id": run_id})
    assert listed["files"] == [{"path": "a", "is_dir": True}, {"path": "b", "is_dir": True}]
    assert site.mlflow("GET", "artifacts/list", {"run_id": run_id, "path": "a/1"})["files"] == []
    assert site.ask("DELETE", artifact(run_id, "a")).status_code == 200
    assert [row["path"] for row in site.mlflow("GET", "artifacts/list", {"run_id": run_id})["files"]] == ["b"]


@pytest.mark.parametrize(
    "path",
    ["", "x", "{run}", "{run}/outputs/x", "{run}/run.json", "{run}/artifacts/../run.json", "~models/x", "~models/x/1"],
)
def test_other_folders_are_not_reached_as_artifacts(site: Site, path: str) -> None:
    run_id = site.begin()
    base = "/api/2.0/mlflow-artifacts/artifacts"
    for method in ("GET", "PUT", "DELETE"):
        status, content = site.raw(method, f"{base}/{path.format(run=run_id)}", b"x")
        assert status in (400, 403, 404, 405, 409), (method, path, content)
    assert (site.folder(run_id) / "run.json").exists()


def test_a_file_does_not_become_a_folder(site: Site) -> None:
    run_id = site.begin()
    site.ask("PUT", artifact(run_id, "a"), content=b"x")
    assert site.ask("PUT", artifact(run_id, "a/b"), content=b"x").status_code == 409
    site.ask("PUT", artifact(run_id, "c/d"), content=b"x")
    assert site.ask("PUT", artifact(run_id, "c"), content=b"x").status_code == 409
    assert site.ask("GET", artifact(run_id, "a")).content == b"x"


def test_names_of_registered_models_survive_an_address() -> None:
    assert registered_uri("a b/ü%#?=", 3) == "mlflow-artifacts:/~models/a=20b=2F=C3=BC=25=23=3F=3D/3"
