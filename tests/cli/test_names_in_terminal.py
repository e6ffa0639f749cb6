"""Names that are made to deceive a terminal: no command prints them as they are."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest

from phalanx.store import Artifact, Store
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.tracked import remember_tracked

EVIL = "ev\x1b]0;il\x07\u202e\u200b\n"  # sets the title of the terminal; click removes colours by itself
POINTS = [(step, float(step)) for step in range(5)]
COMMANDS = [
    ["ps"],
    ["ps", "-c", f"params.{EVIL}", "-c", "project", "-c", "tags", "-c", "user", "-c", "group"],
    ["ps", "-q", f"name:{EVIL}"],
    ["ps", "-p", EVIL],
    ["ps", "--sort", EVIL],
    ["show", "aaa1"],
    ["show", EVIL],
    ["statuses", "aaa1"],
    ["logs", "aaa1"],
    ["logs", "aaa1", "--replica", EVIL],
    ["metrics", "aaa1"],
    ["metrics", "aaa1", EVIL],
    ["metrics", "aaa1", f"{EVIL}2"],
    ["compare", "aaa1", "aaa2"],
    ["events", "aaa1"],
    ["outputs", "aaa1"],
    ["outputs", "aaa1", EVIL],
    ["artifacts", "aaa1"],
    ["models"],
    ["models", "show", EVIL],
    ["stop", EVIL],
    ["rm", EVIL],
    ["run", "-f", EVIL],
    ["check", "-f", EVIL],
    ["token", "revoke", EVIL],
    ["users", "remove", EVIL],
    ["token", "list"],
]


@pytest.fixture(name="hostile")
def hostile_home(place: Place) -> Place:
    for run_id in ("aaa1", "aaa2"):
        about: dict[str, Any] = {
            "name": EVIL,
            "project": EVIL,
            "user": EVIL,
            "group": EVIL,
            "tags": (EVIL,),
            "reason": EVIL,
        }
        params = {EVIL: EVIL, f"{EVIL}{run_id}": run_id}
        folder = remember_tracked(place, run_id, {"master-0": {EVIL: POINTS}}, **about, params=params)
        (folder / "replicas/master-0/attempt-1/log").write_text(f"{EVIL}\n")
        (folder / "outputs").mkdir()
        (folder / "outputs" / EVIL).write_text(EVIL)
        with Store.open(place.home) as store:
            store.put_labels(run_id, {EVIL: EVIL})
            store.put_fact(run_id, f"dataset {EVIL}", {"name": EVIL, "digest": EVIL})
            at = store.find(run_id).created_at
            store.put_artifacts(run_id, [Artifact(run_id, f"artifacts/{EVIL}", EVIL, EVIL, 1, None, at)])
    return place


def test_no_command_prints_what_controls_a_terminal(hostile: Place) -> None:
    shown = set()
    for arguments in COMMANDS:
        answer = hostile.quick(*arguments)
        text = answer.out + answer.err
        controls = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n"}
        assert not controls, (arguments, text)
        assert "\nil" not in text, (arguments, text)
        if "ev\\x1b]0;il" in text:
            shown.add(arguments[0])
    assert shown >= {"ps", "show", "metrics", "compare", "outputs"}, shown


def test_json_has_the_names_as_they_are(hostile: Place) -> None:
    """Escaped by JSON itself: on one line, without a control character."""
    answer = hostile.quick("ps", "--json")
    assert answer.out.count("\n") == 1
    assert "\x1b" not in answer.out
    assert json.loads(answer.out)["runs"][0]["name"] == EVIL
