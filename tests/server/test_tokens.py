from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from phalanx.errors import CallError, SystemFault
from phalanx.home.run_tokens import server_secret
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.auth.tokens import Tokens, run_token


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_known_by_its_text_and_kept_as_a_hash_alone(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    text = tokens.create("ci", "read")
    assert tokens.identify(text) == Identity("ci", {"*": Role.VIEWER})
    assert text not in tokens.path.read_text()
    assert mode(tokens.path) == 0o600


@pytest.mark.parametrize("text", ["", "x", "phx_", "phr_", "phr_run_1_00", "phx_" + "a" * 10_000, "\udcff", "é" * 50])
def test_any_other_text_is_no_ones(tmp_path: Path, text: str) -> None:
    tokens = Tokens(tmp_path)
    tokens.create("ci")
    assert tokens.identify(text) is None


def test_a_token_ends_when_its_days_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(tmp_path)
    text = tokens.create("short", days=2)
    assert tokens.identify(text) is not None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * 86_400 + 1)
    assert tokens.identify(text) is None


def test_another_process_sees_that_a_token_was_revoked(tmp_path: Path) -> None:
    here, there = Tokens(tmp_path), Tokens(tmp_path)
    text = here.create("gone")
    assert there.identify(text) is not None
    here.revoke("gone")
    assert there.identify(text) is None


def test_a_name_is_given_once(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    tokens.create("one")
    with pytest.raises(CallError, match="already"):
        tokens.create("one")
    with pytest.raises(CallError, match="no token `two`"):
        tokens.revoke("two")


@pytest.mark.parametrize("name", ["", "a b", "-x", "x\n", "é", "a" * 101, "../x"])
def test_a_name_is_a_plain_word(tmp_path: Path, name: str) -> None:
    with pytest.raises(CallError, match="name"):
        Tokens(tmp_path).create(name)


def test_a_role_is_one_of_three(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="viewer, editor, admin"):
        Tokens(tmp_path).create("x", "everything")


def test_many_at_once_lose_none(tmp_path: Path) -> None:
    threads = [threading.Thread(target=lambda n=n: Tokens(tmp_path).create(f"t{n}")) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in Tokens(tmp_path).known()} == {f"t{n}" for n in range(12)}


def test_a_damaged_file_lets_no_one_in_and_forgets_no_one(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    text = tokens.create("one")
    tokens.path.write_text('{"tokens": [')
    with pytest.raises(SystemFault, match="cannot read"):
        Tokens(tmp_path).identify(text)
    with pytest.raises(SystemFault, match="cannot read"):
        Tokens(tmp_path).create("two")


def test_the_owners_token_is_made_once_and_again_when_it_was_revoked(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    path = tokens.ensure_owner()
    text = path.read_text().strip()
    assert mode(path) == 0o600
    assert tokens.identify(text) == Identity("owner", {"*": Role.ADMIN})
    path.chmod(0o644)
    tokens.ensure_owner()
    assert (path.read_text().strip(), mode(path)) == (text, 0o600)
    tokens.revoke("owner")
    tokens.ensure_owner()
    assert tokens.identify(text) is None
    assert tokens.identify(path.read_text().strip()) is not None


def test_a_file_with_a_foreign_token_does_not_make_it_the_owners(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    (tmp_path / "token").write_text("phx_planted")
    tokens.ensure_owner()
    assert tokens.identify("phx_planted") is None


def test_a_runs_token_names_the_run_and_its_attempt(tmp_path: Path) -> None:
    text = run_token(tmp_path, "abcdefghij", 3)
    assert text == run_token(tmp_path, "abcdefghij", 3)
    assert Tokens(tmp_path).identify(text) == Identity("run abcdefghij", {}, "abcdefghij", 3, kind="run")
    assert not (tmp_path / "tokens.json").exists()
    assert mode(tmp_path / "server.secret") == 0o600


def test_a_runs_token_fits_nothing_else(tmp_path: Path) -> None:
    text = run_token(tmp_path, "abcdefghij", 1)
    head, _, mac = text.rpartition("_")
    tokens = Tokens(tmp_path)
    assert tokens.identify(f"phr_abcdefghij_2_{mac}") is None
    assert tokens.identify(f"phr_abcdefghik_1_{mac}") is None
    assert tokens.identify(f"{head}_{'0' * 64}") is None
    assert tokens.identify(f"{text}\n") is None
    (tmp_path / "server.secret").unlink()
    assert Tokens(tmp_path).identify(text) is None


def test_a_secret_that_is_too_short_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "server.secret").write_text("1234")
    with pytest.raises(CallError, match="damaged"):
        server_secret(tmp_path)


def test_tokens_of_an_unknown_role_may_only_look(tmp_path: Path) -> None:
    """A newer Phalanx may know more roles; what it does not know must not open more."""
    tokens = Tokens(tmp_path)
    text = tokens.create("odd", "write")
    content = json.loads(tokens.path.read_text())
    content["tokens"][0]["role"] = "superuser"
    tokens.path.write_text(json.dumps(content))
    os.utime(tokens.path, ns=(1, 1))
    assert tokens.identify(text) == Identity("odd", {"*": Role.VIEWER})
