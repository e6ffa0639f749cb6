"""archive, unarchive, star, unstar, tag, rename, note, and how `ps` shows their effects."""

from __future__ import annotations

import csv
import io
import socket

import pytest

from phalanx.home.home import Home
from phalanx.home.stars import OWNER, change_stars
from phalanx.store import Store
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name


def ids(place: Place, *arguments: str) -> list[str]:
    answer = place.quick("ps", "--json", *arguments)
    assert answer.code == 0, answer.out
    return [row["id"] for row in answer.data["runs"]]


@pytest.mark.slow
def test_marks_of_a_run_are_listed_and_survive_a_rebuild(place: Place) -> None:
    resources = {"cpu": {"requests": 1}, "memory": {"requests": "300Mi"}}
    one = place.ran("true", "--name", "one", "--tags", "draft,=1+1", environment={"resources": resources})
    two = place.ran("true", "--name", "two", environment={"resources": resources})
    assert place.quick("tag", "one", "+baseline", "+x", "-draft").out == f"{one}: =1+1, baseline, x\n"
    assert place.quick("tag", one, two, "-x", "--json").data["runs"][0]["tags"] == ["=1+1", "baseline"]
    assert place.quick("tag", two).out == f"{two}: no tags\n"
    assert place.quick("rename", "one", "best").out == f"{one}: best\n"
    assert place.quick("note", "best", "# Why\nit is good").code == 0
    assert place.quick("star", "best").out == f"starred {one}\n"
    assert place.quick("archive", "two").out == f"archived {two}\n"
    for rebuilt in (False, True):
        if rebuilt:
            assert place.call("doctor", "--rebuild").code == 0
        assert ids(place) == [one]
        listed = place.quick("ps")
        assert listed.out.splitlines()[-1] == "1 archived run is not shown; -q archived:true lists them"
        assert place.quick("ps", "--json").data["archived"] == 1
        assert ids(place, "-q", "archived:true") == [two]
        assert ids(place, "-q", "starred:true, tags:baseline, name:best") == [one]
        assert ids(place, "-q", f"cpus:1, memory:>=300m, gpus:0, replicas:1, nodes:1, host:{socket.gethostname()}") == [
            one
        ]
        assert (ids(place, "-q", "created_at:>1h"), ids(place, "-q", "created_at:<1h")) == ([one], [])
        assert place.quick("note", "best").out == "# Why\nit is good\n"
    assert place.quick("unstar", one).code == 0
    assert place.quick("unarchive", two).out == f"unarchived {two}\n"
    assert (sorted(ids(place)), ids(place, "-q", "starred:true")) == (sorted([one, two]), [])
    text = place.quick("ps", "--csv", "-q", "name:best", "-c", "memory").out
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["id"], row["tags"], row["memory"]) == (one, "'=1+1, baseline", "300.0")


def test_what_cannot_be_marked_is_refused_in_a_sentence(place: Place) -> None:
    place.remember("aaa1", name="busy", status="running", finished_at=None)
    for arguments, said in (
        (("archive", "nothing"), "there is no run `nothing`"),
        (("tag", "+a"), "name a run"),
        (("tag", "aaa1", "+a", "-a"), "`a` is both added and removed"),
        (("tag", "aaa1", "+"), "a tag has 1 to 500 characters"),
        (("tag", "aaa1", "+" + "x" * 501), "a tag has 1 to 500 characters"),
        (("rename", "aaa1", "x" * 501), "at most 500 characters"),
        (("ps", "--csv", "--json"), "--csv cannot be combined"),
        (("ps", "-c", "nothing"), "there is no column `nothing`"),
    ):
        answer = place.quick(*arguments)
        assert (answer.code, "Traceback" in answer.err) == (2, False), arguments
        assert said in answer.err + answer.out


@pytest.mark.slow
def test_a_resumed_run_is_no_longer_archived(place: Place) -> None:
    one = place.ran("true")
    assert place.quick("archive", one).code == 0
    assert place.call("resume", one).code == 0
    assert ids(place) == [one]
    assert place.call("doctor", "--rebuild").code == 0
    assert ids(place) == [one]


def test_stars_are_bounded_and_a_damaged_file_is_an_empty_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.remember("aaa1")
    place.remember("bbb2")
    monkeypatch.setattr("phalanx.home.stars.MOST_STARS", 1)
    home = Home(place.home)
    with Store.open(place.home) as store:
        change_stars(home, store, OWNER, ["aaa1"], is_starred=True)
        assert place.quick("star", "bbb2").code == 2
        (file,) = (place.home / "stars").glob("*.json")
        file.write_text("{")
        change_stars(home, store, OWNER, ["bbb2"], is_starred=True)
        assert "bbb2" in file.read_text()
