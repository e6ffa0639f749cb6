"""Which server is meant, and where its token is kept."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx import Client
from phalanx.client.config import choose_server, delete_login, is_loopback, logins, logins_file, save_login
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.server.daemon import publish_address

ONE, TWO = "https://one:8000", "https://two"


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "home"))
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_nothing_said_means_this_machine(surroundings: dict[str, str]) -> None:
    assert choose_server(surroundings) is None


def test_an_argument_wins_over_the_environment_and_that_over_a_login(surroundings: dict[str, str]) -> None:
    save_login(surroundings, ONE, "kept")
    assert choose_server(surroundings) == (ONE, "kept", "login")
    both = {**surroundings, "PHALANX_SERVER": f"{TWO}/", "PHALANX_TOKEN": "told"}
    assert choose_server(both) == (TWO, "told", "PHALANX_SERVER")
    assert choose_server({**surroundings, "PHALANX_SERVER": ONE}) == (ONE, "kept", "PHALANX_SERVER")
    assert choose_server(both, "http://three", "given") == ("http://three", "given", "argument")
    assert choose_server(both, "http://three") == ("http://three", "told", "argument")


@pytest.mark.parametrize("name", ["PHALANX_HOME", "PHALANX_RUN_ID"])
def test_a_home_that_is_named_and_being_part_of_a_run_win_over_a_login(surroundings: dict[str, str], name: str) -> None:
    save_login(surroundings, ONE, "kept")
    assert choose_server({**surroundings, name: "x"}) is None
    assert choose_server({**surroundings, name: "x", "PHALANX_SERVER": TWO}) == (TWO, "", "PHALANX_SERVER")


def test_the_last_login_is_the_default_and_all_can_be_forgotten(surroundings: dict[str, str]) -> None:
    path = save_login(surroundings, ONE, "first")
    assert path == logins_file(surroundings)
    save_login(surroundings, TWO, "second")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert logins(surroundings) == (TWO, {ONE: "first", TWO: "second"})
    assert delete_login(surroundings, TWO) == [TWO]
    assert choose_server(surroundings) is None
    assert delete_login(surroundings) == [ONE]
    assert delete_login(surroundings) == []
    assert json.loads(path.read_text())["servers"] == {}


def test_the_owner_needs_no_token_for_the_server_of_the_own_home(surroundings: dict[str, str], tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (home.path / "token").write_text("owner\n")
    here = {**surroundings, "PHALANX_SERVER": "http://127.0.0.1:8000"}
    with publish_address(home, "http://127.0.0.1:8000", 2):
        assert choose_server(here) == ("http://127.0.0.1:8000", "owner", "PHALANX_SERVER")
        other = choose_server({**surroundings, "PHALANX_SERVER": "http://elsewhere:8000"})
        assert other is not None
        assert other.token == ""


def test_another_process_on_the_port_of_a_killed_server_gets_no_token(
    surroundings: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("owner\n")
    left = {"url": "http://127.0.0.1:8000", "pid": 1, "started": 1, "boot": "another"}
    (home / "server.json").write_text(json.dumps(left))
    found = choose_server({**surroundings, "PHALANX_SERVER": "http://127.0.0.1:8000"})
    assert found is not None
    assert found.token == ""


@pytest.mark.parametrize(
    "url", ["", "host", "ftp://host", "http://", "http://a b", "https://host:x", "http://user:pw@host", "http://h/?a=b"]
)
def test_what_is_no_address_is_refused(surroundings: dict[str, str], url: str) -> None:
    with pytest.raises(CallError, match="address"):
        choose_server(surroundings, url)


@pytest.mark.parametrize("token", ["two words", "new\nline", "ümlaut", "x" * 5000, "\x1b"])
def test_what_can_be_no_token_is_refused_without_saying_it(surroundings: dict[str, str], token: str) -> None:
    with pytest.raises(CallError, match="invalid token") as raised:
        choose_server({**surroundings, "PHALANX_SERVER": ONE, "PHALANX_TOKEN": token})
    assert token not in str(raised.value)
    assert choose_server(surroundings, ONE, " x \n") == (ONE, "x", "argument")


def test_a_damaged_file_is_reported_as_such(surroundings: dict[str, str]) -> None:
    path = save_login(surroundings, ONE, "kept")
    path.write_text('{"servers": 3}')
    with pytest.raises(CallError, match="is damaged: delete it"):
        choose_server(surroundings)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost", True),
        ("http://127.example.com", False),
        ("http://10.0.0.1", False),
    ],
)
def test_proxies_are_not_asked_for_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) is here


def test_a_client_without_a_server_says_how_to_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PHALANX_SERVER", raising=False)
    with pytest.raises(CallError, match="PHALANX_SERVER, or run `phalanx login URL`"):
        Client()
    assert phalanx.Client is Client
    assert {"Client", "open", "__version__"} <= set(dir(phalanx))
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        phalanx.Nobody  # noqa: B018 - asking is the test


def test_importing_phalanx_does_not_import_http() -> None:
    asked = "import sys, phalanx, phalanx.cli, phalanx.client.config; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0
