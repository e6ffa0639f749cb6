"""The page is sent as it was built, to everybody, and nothing else is."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from phalanx.server.static_page import CSP, StaticPage
from tests.server.site import Site

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "console.log('phalanx');\n" * 100
FOREVER = "public, max-age=31536000, immutable"


def built(folder: Path) -> Path:
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(f"<!doctype html><title>built</title>{' ' * 2000}")
    (folder / "assets" / "main-abc123.js").write_text(SCRIPT)
    (folder / "assets" / "small-1.css").write_text("a{}")
    (folder / "favicon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / ".sources").write_text("digest")
    (folder.parent / "secret.js").write_text("outside")
    (folder / "assets" / "link.js").symlink_to(folder.parent / "secret.js")
    return folder


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    site.app.state.page = StaticPage(built(tmp_path_factory.mktemp("web") / "page"))
    with site:
        yield site


def get(site: Site, path: str, **headers: str) -> httpx.Response:
    return site.client.get(path, headers={"Accept-Encoding": "identity", **headers})


@pytest.mark.parametrize(
    "path",
    ["/", "/runs", "/runs/abcd1234", "/runs/abcd1234/logs", "/compare?run=a&run=b", "/queue", "/models/a/b", "/login"],
)
def test_the_pages_own_addresses_get_its_index_without_a_token(paged: Site, path: str) -> None:
    answer = get(paged, path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<title>built</title>" in answer.text
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/", "/assets/main-abc123.js", "/favicon.svg"])
def test_every_answer_of_the_page_says_what_a_browser_may_do_with_it(paged: Site, path: str) -> None:
    headers = get(paged, path).headers
    assert headers["content-security-policy"] == CSP
    assert "'unsafe" not in CSP
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"


def test_assets_are_kept_for_ever_and_the_index_is_asked_for_again(paged: Site) -> None:
    script = get(paged, "/assets/main-abc123.js")
    assert (script.text, script.headers["cache-control"]) == (SCRIPT, FOREVER)
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    tag = get(paged, "/").headers["etag"]
    for known in (tag, f'"other", {tag}', tag.removeprefix("W/")):
        again = get(paged, "/runs", **{"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert get(paged, "/", **{"If-None-Match": '"other"'}).status_code == 200


def test_what_is_worth_it_is_sent_packed_to_who_takes_it(paged: Site) -> None:
    with paged.client.stream("GET", "/assets/main-abc123.js", headers={"Accept-Encoding": "br, gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
        assert len(packed) == int(answer.headers["content-length"]) < len(SCRIPT) // 5
    assert gzip.decompress(packed).decode() == SCRIPT
    for unpacked in ("identity", "gzip;q=0", "br"):
        answer = get(paged, "/assets/main-abc123.js", **{"Accept-Encoding": unpacked})
        assert "content-encoding" not in answer.headers
    assert "content-encoding" not in get(paged, "/assets/small-1.css", **{"Accept-Encoding": "gzip"}).headers


def test_a_browser_at_an_address_that_no_one_has_gets_the_page_and_a_program_does_not(paged: Site) -> None:
    browser = get(paged, "/nonsense", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert (browser.status_code, browser.headers["content-security-policy"]) == (404, CSP)
    assert "<title>built</title>" in browser.text
    assert get(paged, "/nonsense").status_code == 401
    answer = paged.client.post("/nonsense", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/json")


def test_head_says_the_same_without_the_body(paged: Site) -> None:
    answer = paged.client.head("/")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize(
    "path",
    [
        "/assets/missing.js",
        "/assets/link.js",
        "/assets/../../secret.js",
        "/assets/..%2f..%2fsecret.js",
        "/assets/%2e%2e/%2e%2e/secret.js",
        "/assets/..\\..\\secret.js",
        "/assets//etc/passwd",
        "/assets/%00",
        "/assets/",
        "/.sources",
        "/assets/../.sources",
    ],
)
def test_nothing_but_the_files_of_the_page_is_sent(paged: Site, path: str) -> None:
    status, body = paged.raw("GET", path)
    assert status == 404
    assert b"outside" not in body
    assert b"digest" not in body


def test_a_page_that_was_built_anew_is_sent_without_a_restart(tmp_path: Path) -> None:
    page = StaticPage(tmp_path / "page")
    assert page.file("index.html") is None
    built(tmp_path / "page")
    assert page.file("assets/main-abc123.js") is not None
    (tmp_path / "page" / "assets" / "main-abc123.js").unlink()
    (tmp_path / "page" / "assets" / "main-def456.js").write_text("2")
    found = page.file("assets/main-def456.js")
    assert found is not None
    assert found.content == b"2"
    assert page.file("assets/main-abc123.js") is None


def test_without_a_built_page_the_server_says_how_to_get_it_and_works(own_site: Site, tmp_path: Path) -> None:
    own_site.app.state.page = StaticPage(tmp_path / "none")
    answer = own_site.client.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "make page" in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert own_site.client.get("/assets/x.js").status_code == 404
    assert own_site.get("/api/v1/runs")["count"] == 0


# building -----------------------------------------------------------------------------------------------------------


def copy_of_the_tree(target: Path) -> Path:
    """As little of the repository as makes a wheel."""
    (target / "src" / "phalanx" / "server").mkdir(parents=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src/phalanx/__init__.py"):
        (target / name).write_bytes((ROOT / name).read_bytes())
    (target / "scripts").mkdir()
    for name in ("__init__.py", "build_page.py"):
        (target / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    (target / "web").mkdir()
    (target / "web" / "package.json").write_text('{"name": "page", "private": true, "scripts": {"build": "none"}}')
    (target / ".gitignore").write_text("/src/phalanx/server/page/\n")
    return target


def fake_node(folder: Path, version: str = "v22.1.0", build: str = "exit 1") -> dict[str, str]:
    """A `node` and an `npm` in front of all others: `$6` is the folder to build into."""
    folder.mkdir()
    for name, script in (("node", f"echo {version}"), ("npm", f'[ "$1" = ci ] && exit 0\nout=$5\n{build}')):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}


BUILDS = 'mkdir -p "$out/assets" && echo made > "$out/index.html" && echo 1 > "$out/assets/a-1.js"'


def build(tree: Path, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(tree / "scripts" / "build_page.py"), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_page_is_built_once_for_the_same_sources(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "tree")
    environment = fake_node(tmp_path / "bin", build=f'echo x >> "{tmp_path}/builds"\n{BUILDS}')
    page = tree / "src" / "phalanx" / "server" / "page"
    for _ in range(2):
        done = build(tree, environment, "--strict")
        assert done.returncode == 0, done.stderr
    assert (page / "index.html").read_text() == "made\n"
    assert (tmp_path / "builds").read_text() == "x\n"
    (tree / "web" / "main.ts").write_text("more")
    assert build(tree, environment).returncode == 0
    assert (tmp_path / "builds").read_text() == "x\nx\n"
    assert [path.name for path in page.parent.iterdir()] == ["page"]


def test_a_build_that_fails_is_reported_and_leaves_the_page_that_was_there(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "tree")
    page = built(tree / "src" / "phalanx" / "server" / "page")
    environment = fake_node(tmp_path / "bin", build="echo 'error TS1005: no'; exit 2")
    lenient, strict = build(tree, environment), build(tree, environment, "--strict")
    assert (lenient.returncode, strict.returncode) == (0, 1)
    assert "error TS1005: no" in lenient.stderr
    assert "everything else works without it" in lenient.stderr
    assert build(tree, environment, "--once").stderr == ""  # `make setup` does not ask again and again
    assert "built" in (page / "index.html").read_text()


@pytest.mark.slow
def test_without_node_the_page_is_left_out(tmp_path: Path) -> None:
    """An old Node, and an index of packages that has none."""
    tree = copy_of_the_tree(tmp_path / "tree")
    environment = {**fake_node(tmp_path / "bin", "v12.22.0"), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    done = build(tree, environment)
    assert done.returncode == 0
    assert "there is no Node 20.19 or newer here" in done.stderr
    assert "not built" in done.stderr


@pytest.mark.skipif("PHALANX_TEST_WEB" not in os.environ, reason="PHALANX_TEST_WEB is not set: `make test-web` sets it")
def test_an_installed_wheel_serves_the_page_that_it_brought(tmp_path: Path) -> None:
    """The real page, by the real Node, in a wheel in an environment of its own."""
    tree, wheels, place = tmp_path / "tree", tmp_path / "wheels", tmp_path / "venv"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(tree)], check=True)
    (wheel,) = wheels.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "phalanx/server/page/index.html" in names
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"{wheel}[server]"], check=True, cwd=tmp_path)
    serve = subprocess.Popen(
        [str(place / "bin" / "phalanx"), "serve", "--port", "0"],
        env={**os.environ, "PHALANX_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    )
    assert serve.stdout is not None
    try:
        url = serve.stdout.readline().split()[2].rstrip(";")
        index = httpx.get(f"{url}/", trust_env=False).text
        script = index.partition('src="')[2].partition('"')[0]
        answer = httpx.get(f"{url}{script}", trust_env=False)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, FOREVER)
        assert "javascript" in answer.headers["content-type"]
    finally:
        serve.terminate()
        serve.communicate(timeout=30)
    quickstart = subprocess.run(
        [str(place / "bin" / "phalanx"), "quickstart", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        timeout=240,
        check=True,
    )
    outcome = json.loads(quickstart.stdout)
    assert (outcome["status"], outcome["page"]) == ("succeeded", True)
