from __future__ import annotations

import io
import json
import wave
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from phalanx.server.routes.previews import media_of
from tests.server.logs import remember
from tests.server.site import Site

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x02\0\0\0" + zlib.compress(b"pixels")
PAGE = b"<!doctype html><h1>Report</h1><script>top.location = 'https://example.com'</script>"
APART = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def sound() -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(bytes(16_000))
    return stream.getvalue()


def wrote(site: Site, run_id: str, files: dict[str, bytes]) -> Path:
    folder = site.folder(run_id) if site.folder(run_id).exists() else remember(site, run_id)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def preview(site: Site, run_id: str, path: str) -> Any:
    return site.get(f"/api/v1/runs/{run_id}/preview/{quote(path)}")


@pytest.fixture(scope="module")
def shown(site: Site) -> str:
    files = {
        "outputs/plot.png": PNG,
        "outputs/sound.wav": sound(),
        "outputs/report.html": PAGE,
        "outputs/drawing.svg": b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>',
        "outputs/table.csv": b"name,value\n" + b"".join(b"row %d,%d\n" % (n, n) for n in range(1000)),
        "outputs/config.json": b'{"a": [1, 2]}',
        "outputs/notes.txt": b"one\ntwo\n",
        "outputs/model.bin": b"\x00\x01\x02",
        "outputs/a b/c#d.txt": b"odd name",
    }
    wrote(site, "shown1", files)
    return "shown1"


@pytest.mark.parametrize(
    ("path", "expected", "has_view"),
    [
        ("outputs/plot.png", ("image", "PNG image, 640 x 480"), True),
        ("outputs/sound.wav", ("audio", "WAV audio, 1 s"), True),
        ("outputs/report.html", ("html", "HTML"), True),
        ("outputs/drawing.svg", ("image", "SVG image"), True),
        ("outputs/table.csv", ("table", "table"), False),
        ("outputs/config.json", ("json", "JSON"), False),
        ("outputs/notes.txt", ("text", "text"), False),
        ("outputs/model.bin", ("binary", "binary"), False),
        ("outputs/a b/c#d.txt", ("text", "text"), False),
    ],
)
def test_a_file_is_reported_by_what_it_is(
    site: Site, shown: str, path: str, expected: tuple[str, str], has_view: bool
) -> None:
    found = preview(site, shown, path)
    assert (found["kind"], found["title"]) == expected
    assert found["size"] == (site.folder(shown) / path).stat().st_size
    assert found["view"] == (f"/api/v1/runs/{shown}/view/{quote(path)}" if has_view else None)


def test_tables_come_by_columns_and_rows(site: Site, shown: str) -> None:
    found = preview(site, shown, "outputs/table.csv")
    assert found["table"]["columns"] == ["name", "value"]
    assert found["table"]["rows"][:2] == [["row 0", "0"], ["row 1", "1"]]
    assert len(found["table"]["rows"]) == 200
    assert found["is_cut"]
    assert preview(site, shown, "outputs/notes.txt")["lines"] == ["one", "two"]
    assert json.loads("".join(preview(site, shown, "outputs/config.json")["lines"])) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("path", "media", "policy"),
    [
        ("plot.png", "image/png", "sandbox; default-src 'none'"),
        ("sound.wav", "audio/wav", "sandbox; default-src 'none'"),
        ("report.html", "text/html; charset=utf-8", APART),
        ("report.html?scripts=1", "text/html; charset=utf-8", None),
        ("drawing.svg", "image/svg+xml", APART),
        ("drawing.svg?scripts=1", "image/svg+xml", APART),
    ],
)
def test_what_a_browser_shows_can_reach_nothing(
    site: Site, shown: str, path: str, media: str, policy: str | None
) -> None:
    answer = site.ask("GET", f"/api/v1/runs/{shown}/view/outputs/{path}", headers={"Sec-Fetch-Dest": "iframe"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media
    assert answer.headers["content-disposition"].startswith("inline")
    assert answer.headers["x-content-type-options"] == "nosniff"
    given = answer.headers["content-security-policy"]
    if policy is not None:
        assert given == policy
    else:
        parts = dict(part.strip().split(" ", 1) for part in given.split(";"))
        assert parts["sandbox"] == "allow-scripts"  # and not allow-same-origin: it is of no origin
        assert parts["default-src"] == "'none'"
        assert parts["script-src"] == "'unsafe-inline'"


@pytest.mark.parametrize("path", ["plot.png", "report.html", "report.html?scripts=1", "drawing.svg"])
def test_opened_as_a_page_of_its_own_a_file_is_downloaded(site: Site, shown: str, path: str) -> None:
    """On the address of the server it could pass for the server's own sign-in."""
    for part in ("document", "object", "embed", "script"):
        answer = site.ask("GET", f"/api/v1/runs/{shown}/view/outputs/{path}", headers={"Sec-Fetch-Dest": part})
        assert answer.headers["content-disposition"].startswith("attachment")
        assert "allow-scripts" not in answer.headers["content-security-policy"]


def test_a_browser_that_does_not_name_the_part_runs_no_scripts(site: Site, shown: str) -> None:
    answer = site.ask("GET", f"/api/v1/runs/{shown}/view/outputs/report.html?scripts=1")
    assert answer.headers["content-security-policy"] == APART


@pytest.mark.parametrize("name", ["notes.txt", "config.json", "model.bin", "table.csv"])
def test_everything_else_is_only_to_be_kept(site: Site, shown: str, name: str) -> None:
    answer = site.ask("GET", f"/api/v1/runs/{shown}/view/outputs/{name}?scripts=1")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert "html" not in answer.headers["content-type"]


def test_a_name_alone_makes_nothing_a_page_or_an_image(site: Site) -> None:
    wrote(site, "claims1", {"outputs/x.png": PAGE, "outputs/y.svg": PAGE, "outputs/z.html": b"\0" + PAGE})
    for name in ("x.png", "y.svg", "z.html"):
        answer = site.ask("GET", f"/api/v1/runs/claims1/view/outputs/{name}")
        assert answer.headers["content-disposition"].startswith("attachment"), name
    wrote(site, "claims1", {"outputs/page.html": PNG})
    answer = site.ask("GET", "/api/v1/runs/claims1/view/outputs/page.html")
    assert answer.headers["content-type"] == "image/png"


def test_sounds_are_sent_in_parts(site: Site, shown: str) -> None:
    answer = site.ask("GET", f"/api/v1/runs/{shown}/view/outputs/sound.wav", headers={"Range": "bytes=8-11"})
    assert (answer.status_code, answer.content) == (206, b"WAVE")
    assert answer.headers["content-range"].startswith("bytes 8-11/")
    assert answer.headers["accept-ranges"] == "bytes"


def test_nothing_outside_of_the_run_is_shown(site: Site, tmp_path: Path) -> None:
    folder = wrote(site, "links1", {"outputs/real.txt": b"real"})
    (tmp_path / "secret.html").write_text("secret")
    (folder / "outputs/out.html").symlink_to(tmp_path / "secret.html")
    (folder / "outputs/in.txt").symlink_to("real.txt")
    assert preview(site, "links1", "outputs/in.txt")["lines"] == ["real"]
    for path in ("outputs/out.html", "run.json", "outputs/../run.json", "outputs/nothing", "outputs"):
        for verb in ("preview", "view"):
            status, _ = site.raw("GET", f"/api/v1/runs/links1/{verb}/{path}")
            assert status in (400, 404), (verb, path)


def test_outputs_are_listed_as_far_down_as_is_asked(site: Site) -> None:
    wrote(site, "depth1", {"outputs/a/b/c.txt": b"12345", "outputs/d.txt": b"1", "artifacts/e.txt": b"2"})

    def paths(**params: Any) -> list[str]:
        return [row["path"] for row in site.get("/api/v1/runs/depth1/outputs", **params)["files"]]

    assert paths(depth=1) == ["artifacts", "outputs"]
    assert paths(path="outputs", depth=1) == ["outputs", "outputs/a", "outputs/d.txt"]
    assert paths(path="outputs/a", depth=2) == ["outputs/a", "outputs/a/b", "outputs/a/b/c.txt"]
    assert len(paths()) == 7
    rows = site.get("/api/v1/runs/depth1/outputs", depth=1)["files"]
    assert [row["size"] for row in rows] == [1, 6]


def test_sounds_are_known_by_how_they_begin() -> None:
    assert media_of(b"fLaC....", "x") == "audio/flac"
    assert media_of(b"OggS....", "x") == "audio/ogg"
    assert media_of(b"ID3\x04...", "x.bin") == "audio/mpeg"
    assert media_of(b"\xff\xfb\x90\x00", "x") == "audio/mpeg"
    assert media_of(b"RIFF\0\0\0\0AVI ", "x.wav") is None
