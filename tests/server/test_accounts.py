from __future__ import annotations

import base64
import json
import stat
import threading
from pathlib import Path

import pytest

from phalanx.errors import CallError, SystemFault
from phalanx.server.auth import accounts as accounts_module
from phalanx.server.auth.accounts import Accounts
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.auth.tokens import Tokens
from tests.cli.running import quick
from tests.server.people import PASSWORD
from tests.server.site import Site

ALL = {"*": Role.VIEWER}
COST = accounts_module.COST  # before it is made cheap for tests


def test_guessing_is_expensive() -> None:
    """32 MiB for each guess, and about a tenth of a second."""
    assert COST >= 2**15
    assert accounts_module.BLOCK >= 8


def test_a_password_is_kept_as_what_scrypt_leaves_of_it(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    made = accounts.add("ana", PASSWORD, ALL)
    other = accounts.add("bo", PASSWORD, ALL)
    assert PASSWORD not in accounts.kept.path.read_text()
    assert stat.S_IMODE(accounts.kept.path.stat().st_mode) == 0o600
    assert made.hash != other.hash, "each has a salt of their own"
    assert made.cost == accounts_module.COST
    assert accounts.verify("ana", PASSWORD) == made
    for name, password in (("ana", PASSWORD + " "), ("ana", ""), ("Ana", PASSWORD), ("nobody", PASSWORD), ("", "")):
        assert accounts.verify(name, password) is None


def test_the_same_letters_are_the_same_password(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.add("ana", "caf\u00e9 au lait", ALL)
    assert accounts.verify("ana", "cafe\u0301 au lait") is not None


@pytest.mark.parametrize("name", ["", "a b", "a:b", "../x", "-x", "é", "x\n", "a" * 101])
def test_a_name_is_a_plain_word(tmp_path: Path, name: str) -> None:
    with pytest.raises(CallError, match="name"):
        Accounts(tmp_path).add(name, PASSWORD, ALL)


@pytest.mark.parametrize("password", ["", "short", "x" * 1001])
def test_a_password_is_neither_too_short_nor_endless(tmp_path: Path, password: str) -> None:
    with pytest.raises(CallError, match="10 to 1000"):
        Accounts(tmp_path).add("ana", password, ALL)


def test_two_names_differ_by_more_than_their_case(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.add("ana", PASSWORD, ALL)
    with pytest.raises(CallError, match="already"):
        accounts.add("ANA", PASSWORD, ALL)


def test_another_process_sees_what_was_changed(tmp_path: Path) -> None:
    here, there = Accounts(tmp_path), Accounts(tmp_path)
    here.add("ana", PASSWORD, {"a": Role.EDITOR})
    assert there.get("ana").roles == {"a": Role.EDITOR}
    here.give("ana", ["a", "b"], Role.VIEWER)
    assert there.get("ana").roles == {"a": Role.VIEWER, "b": Role.VIEWER}
    here.give("ana", ["a"], None)
    assert there.get("ana").roles == {"b": Role.VIEWER}
    here.set_password("ana", "another password")
    assert there.verify("ana", PASSWORD) is None
    assert there.verify("ana", "another password") is not None
    here.remove("ana")
    assert there.find("ana") is None
    for act in (here.remove, here.get):
        with pytest.raises(CallError, match="no user `ana`"):
            act("ana")


def test_many_at_once_lose_none(tmp_path: Path) -> None:
    threads = [threading.Thread(target=lambda n=n: Accounts(tmp_path).add(f"u{n}", PASSWORD, ALL)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {user.name for user in Accounts(tmp_path).known()} == {f"u{n}" for n in range(6)}


@pytest.mark.parametrize("content", ['{"users": [', '{"users": [{}]}', "[]", '{"users": [{"name": "x", "roles": 1}]}'])
def test_a_damaged_file_lets_no_one_in_and_forgets_no_one(tmp_path: Path, content: str) -> None:
    accounts = Accounts(tmp_path)
    accounts.kept.path.write_text(content)
    with pytest.raises(SystemFault, match="cannot read"):
        accounts.verify("ana", PASSWORD)
    with pytest.raises(SystemFault, match="cannot read"):
        accounts.add("ana", PASSWORD, ALL)
    assert accounts.kept.path.read_text() == content


def test_a_role_that_is_not_known_here_is_the_least(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.add("ana", PASSWORD, ALL)
    content = json.loads(accounts.kept.path.read_text())
    content["users"][0]["roles"] = {"*": "emperor"}
    accounts.kept.path.write_text(json.dumps(content))
    assert accounts.get("ana").roles == ALL


@pytest.mark.parametrize("project", ["", "  ", "a\nb", "x" * 501])
def test_roles_are_on_projects_that_can_be(tmp_path: Path, project: str) -> None:
    accounts = Accounts(tmp_path)
    accounts.add("ana", PASSWORD, ALL)
    with pytest.raises(CallError, match="project"):
        accounts.give("ana", [project], Role.VIEWER)
    with pytest.raises(CallError, match="200 projects"):
        accounts.give("ana", [f"p{number}" for number in range(201)], Role.VIEWER)


# tokens of users ----------------------------------------------------------------------------------------------------


def test_a_users_token_opens_no_more_than_they_may(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    with pytest.raises(CallError, match="no user"):
        tokens.create("t", user="ana")
    tokens.accounts.add("ana", PASSWORD, {"a": Role.EDITOR, "b": Role.VIEWER})
    text = tokens.create("t", "admin", user="ana")
    narrow = tokens.create("n", "viewer", user="ana", projects=["a", "c"])
    assert tokens.identify(text) == Identity("t", {"a": Role.EDITOR, "b": Role.VIEWER}, user="ana")
    assert tokens.identify(narrow) == Identity("n", {"a": Role.VIEWER}, user="ana")
    tokens.accounts.give("ana", ["a"], None)
    assert tokens.identify(text) == Identity("t", {"b": Role.VIEWER}, user="ana")
    tokens.accounts.remove("ana")
    assert tokens.identify(text) is None


def test_a_new_user_with_the_name_of_a_removed_one_gets_none_of_their_tokens(tmp_path: Path) -> None:
    """A token is its holder's: a new user of the name limits it, and is not limited by it."""
    tokens = Tokens(tmp_path)
    tokens.accounts.add("ana", PASSWORD, {"a": Role.ADMIN})
    text = tokens.create("t", "admin", user="ana")
    tokens.accounts.remove("ana")
    tokens.accounts.add("ana", PASSWORD, {"z": Role.VIEWER})
    assert tokens.identify(text) is None


def test_tokens_with_the_old_words_are_still_good(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    text = tokens.create("old", "write")
    content = json.loads(tokens.path.read_text())
    row = content["tokens"][0]
    assert row.pop("role") == "editor"
    del row["user"], row["projects"]
    tokens.path.write_text(json.dumps({"version": 1, "tokens": [{**row, "scope": "write"}]}))
    assert tokens.identify(text) == Identity("old", {"*": Role.EDITOR})


# in use -------------------------------------------------------------------------------------------------------------


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_a_name_and_a_password_are_let_in(site: Site) -> None:
    site.context.accounts.add("eva", PASSWORD, {"p": Role.VIEWER})
    for _ in range(2):  # the second time without scrypt
        answer = site.client.get("/api/v1/session", headers=basic("eva", PASSWORD))
        expected = {"name": "eva", "kind": "user", "role": None, "roles": {"p": "viewer"}, "user": "eva"}
        expected |= {"token": None, "expires": None}
        assert (answer.status_code, answer.json()) == (200, expected)
    assert site.client.get("/api/v1/session", headers=basic("eva", "wrong password")).status_code == 401
    wrong = site.client.get("/api/v1/session", headers=basic("eva", "wrong password")).json()
    assert site.client.get("/api/v1/session", headers=basic("nobody", PASSWORD)).json() == wrong
    site.context.accounts.set_password("eva", "a new password")
    assert site.client.get("/api/v1/session", headers=basic("eva", PASSWORD)).status_code == 401
    site.context.accounts.remove("eva")
    assert site.client.get("/api/v1/session", headers=basic("eva", "a new password")).status_code == 401


def test_a_token_as_a_password_is_a_token_with_any_name(site: Site) -> None:
    site.context.accounts.add("kim", PASSWORD, {"p": Role.VIEWER})
    assert site.client.get("/api/v1/session", headers=basic("kim", site.token)).json()["name"] == "tester"


# the command line ---------------------------------------------------------------------------------------------------


def test_people_are_added_changed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path))
    made = quick("users", "add", "ana", "--role", "editor", "--project", "a", "--json", stdin=f"{PASSWORD}\n")
    assert (made.code, made.data["roles"]) == (0, {"a": "editor"})
    assert quick("users", "role", "ana", "viewer", "--json").data["roles"] == {"a": "editor", "*": "viewer"}
    assert quick("users", "role", "ana", "none", "--project", "a").out == "ana: viewer on all\n"
    token = quick("token", "create", "t", "--user", "ana", "--role", "admin", "--project", "a", "--json").data
    assert (token["user"], token["projects"]) == ("ana", ["a"])
    assert Tokens(tmp_path).identify(token["token"]) == Identity("t", {"a": Role.VIEWER}, user="ana")
    assert quick("users", "password", "ana", stdin="another password\n").code == 0
    assert Accounts(tmp_path).verify("ana", "another password") is not None
    listed = quick("users", "list", "--json")
    assert [user["name"] for user in listed.data["users"]] == ["ana"]
    assert "hash" not in listed.out
    assert "salt" not in listed.out
    assert "viewer on all" in quick("users", "list").out
    assert quick("users", "remove", "ana").code == 0
    assert "No users yet" in quick("users", "list").out


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        (["add", "ana"], "", "no password on standard input"),
        (["add", "ana"], "short\n", "10 to 1000"),
        (["add", "a b"], "correct horse battery\n", "a name has"),
        (["password", "nobody"], "correct horse battery\n", "no user `nobody`"),
        (["role", "nobody", "viewer"], "", "no user `nobody`"),
        (["remove", "nobody"], "", "no user `nobody`"),
    ],
)
def test_what_cannot_be_is_reported_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], stdin: str, expected: str
) -> None:
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path))
    answer = quick("users", *words, stdin=stdin)
    assert answer.code == 2
    assert expected in answer.err


def test_a_password_is_never_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody on a machine sees the arguments of every process."""
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path))
    answer = quick("users", "add", "ana", "--password", PASSWORD)
    assert answer.code == 2
    assert "No such option" in answer.err
