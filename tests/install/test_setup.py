"""`make setup` behind a mirror and without any network, with and without uv."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.install.environments import INSTALL_S, ROOT, VERB_S, Environment, must, path_without, run, surroundings
from tests.install.index import Index

PYTHON = str(getattr(sys, "_base_executable", sys.executable))  # with pip, which an environment of uv has not
NOBODY = "http://127.0.0.1:9"  # a proxy that is not there: what asks for the network gets none
PAGE = Path("src", "phalanx", "server", "page")


def copy_of_the_tree(target: Path, *, page: bool) -> Path:
    """What git knows or would add, as a clone has it; and the page, where it shall not be built."""
    listed = must(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, within_s=VERB_S).out
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    if page:
        shutil.copytree(ROOT / PAGE, target / PAGE)
    return target


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled as the documentation says."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("tree"), page=True)
    folder = tmp_path_factory.mktemp("wheels")
    must(["make", "wheelhouse", f"WHEELHOUSE={folder}", f"PYTHON={PYTHON}"], cwd=tree)
    return folder


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with uv and nothing else."""
    environment = Environment(tmp_path_factory.mktemp("uv") / "venv")
    environment.install("uv")
    folder = tmp_path_factory.mktemp("bin")
    (folder / "uv").symlink_to(environment.folder / "bin" / "uv")
    return folder


def offline(base: Path, *hidden: str, uv: Path | None = None, **more: str) -> dict[str, str]:
    """Surroundings where neither pip, nor uv, nor npm is configured, and where nothing answers but this machine. There
    is no uv but the one that is named, and none of the commands that are hidden."""
    path = path_without(base / "commands", "uv", *hidden)
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), NOBODY)
    proxies |= {name.upper(): value for name, value in proxies.items()}
    found = {
        name: value
        for name, value in surroundings().items()
        if not name.startswith(("PIP_", "UV_", "npm_config_")) and name not in ("SSL_CERT_FILE", "no_proxy")
    }
    private = {
        "PATH": path if uv is None else f"{uv}{os.pathsep}{path}",
        "HOME": str(base),
        "NO_PROXY": "127.0.0.1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "0",
        "UV_CACHE_DIR": str(base / "uv-cache"),
        "npm_config_cache": str(base / "npm-cache"),
    }
    return {**found, **proxies, **private, **more}


def is_made_by_uv(environment: Path) -> bool:
    return "\nuv = " in (environment / "pyvenv.cfg").read_text()


@pytest.mark.parametrize("with_uv", [False, True], ids=["pip", "uv"])
def test_a_wheelhouse_is_enough_without_network(
    tmp_path: Path, wheelhouse: Path, request: pytest.FixtureRequest, with_uv: bool
) -> None:
    tree = copy_of_the_tree(tmp_path / "tree", page=False)
    uv = request.getfixturevalue("uv") if with_uv else None
    env = offline(tmp_path, uv=uv) if with_uv else offline(tmp_path, "node", "npm")
    relative = os.path.relpath(wheelhouse, tree)
    setup = must(["make", "setup", f"WHEELHOUSE={relative}", f"PYTHON={PYTHON}"], cwd=tree, env=env)
    assert is_made_by_uv(tree / ".venv") is with_uv
    assert "page: not built: " in setup.err
    assert "everything else works without it" in setup.err
    assert must([tree / ".venv" / "bin" / "ruff", "--version"], within_s=VERB_S).out
    output = must([tree / ".venv" / "bin" / "phalanx", "doctor"], env=env, within_s=VERB_S).out
    assert "missing: run `make page`" in output
    again = must(["make", "setup", f"WHEELHOUSE={relative}"], cwd=tree, env=env)  # at once, and no word of the page
    assert "page" not in again.err


def make_venv(tree: Path, folder: Path, env: dict[str, str]) -> None:
    must([PYTHON, "scripts/make_venv.py", folder, "."], cwd=tree, env=env)
    assert "phalanx" in must([folder / "bin" / "phalanx", "--version"], within_s=VERB_S).out


@pytest.mark.parametrize(
    ("with_uv", "configured"),
    [(False, "variable"), (False, "file"), (True, "variable"), (True, "file"), (True, "of uv")],
    ids=["pip-variable", "pip-file", "uv-variable", "uv-file", "uv-of-uv"],
)
def test_packages_come_from_the_mirror_that_is_configured(
    tmp_path: Path, wheelhouse: Path, request: pytest.FixtureRequest, with_uv: bool, configured: str
) -> None:
    env = offline(tmp_path, uv=request.getfixturevalue("uv") if with_uv else None)
    with Index(wheelhouse) as index:
        if configured == "variable":
            env["PIP_INDEX_URL"] = index.url
        elif configured == "file":
            (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
            env["PIP_CONFIG_FILE"] = str(tmp_path / "pip.conf")
        else:
            env |= {"UV_INDEX_URL": index.url, "PIP_INDEX_URL": f"{NOBODY}/simple"}
        make_venv(ROOT, tmp_path / "venv", env)
        assert {"fastapi", "hatchling", "uvicorn"} <= index.asked
    assert is_made_by_uv(tmp_path / "venv") is with_uv


def test_links_of_pip_are_enough_where_no_index_may_be_asked(tmp_path: Path, wheelhouse: Path, uv: Path) -> None:
    env = offline(tmp_path, uv=uv, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheelhouse))
    make_venv(ROOT, tmp_path / "venv", env)


def test_a_python_that_is_too_old_is_named_before_anything_is_made(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text(
        '#!/bin/sh\nexec "$REAL" -c "import sys; sys.version_info = (3, 8); sys.version = \'3.8.1 x\'; $2"\n'
    )
    old.chmod(0o755)
    tree = copy_of_the_tree(tmp_path / "tree", page=True)
    answer = run(["make", "setup", f"PYTHON={old}"], cwd=tree, env=surroundings(REAL=PYTHON), within_s=VERB_S)
    assert answer.code == 2
    assert "Phalanx needs Python 3.11 or newer" in answer.err
    assert not (tree / ".venv").exists()


def test_a_wheelhouse_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = [PYTHON, "scripts/make_venv.py", str(tmp_path / "venv"), ".", "--wheelhouse", str(tmp_path / "none")]
    answer = run(command, cwd=ROOT, within_s=INSTALL_S)
    assert answer.code == 1
    assert "`make wheelhouse WHEELHOUSE=DIR`" in answer.err


def test_an_environment_of_another_python_is_made_anew(tmp_path: Path, wheelhouse: Path) -> None:
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(tmp_path / "gone")
    (folder / "left").touch()
    env = offline(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheelhouse))
    make_venv(ROOT, folder, env)
    assert not (folder / "left").exists()
