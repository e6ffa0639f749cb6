"""Search and download of logs: which lines, of which replicas, and how long a search may take."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from phalanx.errors import CallError, MissingExtra
from phalanx.logs.line_pattern import LONGEST_PATTERN, LinePattern
from phalanx.logs.lines import coloured_text
from phalanx.logs.replica_choice import choose
from phalanx.logs.replica_logs import LogSource
from tests.server.logs import remember, write_log
from tests.server.site import Site

NAMES = ["master-0", "worker-0", "worker-1", "worker-2", "worker-3"]


@pytest.fixture(scope="module")
def run(site: Site) -> str:
    folder = remember(site, "logsearch", NAMES)
    for number, name in enumerate(NAMES):
        said: list[tuple[float, str | bytes]] = [
            (step + number / 10, f"{name} step {step} loss {step / 8:.3f}") for step in range(8)
        ]
        said += [(9 + number / 10, b"\x1b[31mERR\x1b[0mOR: rank \x1b[1m%d\x1b[22m lost\n" % number)]
        write_log(folder, name, said)
    return "logsearch"


def found(site: Site, run: str, text: str, **params: Any) -> list[tuple[str, str]]:
    answer = site.get(f"/api/v1/runs/{run}/lines/search", text=text, **params)
    return [(line["replica"], line["text"]) for line in answer["found"]]


def test_a_regular_expression_finds_lines_as_they_are_shown(site: Site, run: str) -> None:
    assert found(site, run, r"^WORKER-[13] step [67]\b", regex=1) == [
        (f"worker-{n}", f"worker-{n} step {step} loss {step / 8:.3f}") for n in (1, 3) for step in (6, 7)
    ]
    assert found(site, run, r"error: rank 4 lost$", regex=1) == [("worker-3", "ERROR: rank 4 lost")]  # colours between
    assert found(site, run, "ERROR: rank 4") == [("worker-3", "ERROR: rank 4 lost")]
    assert found(site, run, r"lost\s+worker", regex=1) == []  # never over the end of a line
    assert found(site, run, r"(?-i)error", regex=1) == []
    assert found(site, run, r"step .*", regex=0) == []
    hit = site.get(f"/api/v1/runs/{run}/lines/search", text=r"loss 0\.875", regex=1, limit=1)["found"][0]
    assert hit["text"][slice(*hit["span"])] == "loss 0.875"


def test_replicas_are_named_by_name_role_or_ranks(site: Site, run: str) -> None:
    def who(*terms: str) -> list[str]:
        return sorted(dict.fromkeys(name for name, _ in found(site, run, "lost", replica=list(terms))))

    assert who("worker-3") == ["worker-3"]
    assert who("worker") == NAMES[1:]
    assert who("0-1,4") == ["master-0", "worker-0", "worker-3"]
    assert who("master", "worker-2") == ["master-0", "worker-2"]
    lines = site.get(f"/api/v1/runs/{run}/lines", replica="worker-3", limit=1)["lines"]
    assert [line["text"] for line in lines] == ["ERROR: rank 4 lost"]
    answer = site.ask("GET", f"/api/v1/runs/{run}/lines?replica=woker-3")
    assert answer.status_code == 404
    assert "did you mean `worker-3`" in answer.json()["error"]["message"]


def test_wrong_patterns_are_refused_with_a_reason(site: Site, run: str) -> None:
    for text in ("(", "a{2000}", r"(a)\1", "((a{100}){100}){100}"):
        answer = site.ask("GET", f"/api/v1/runs/{run}/lines/search", params={"text": text, "regex": 1})
        assert answer.status_code == 400, answer.text
        assert "is not a regular expression: " in answer.json()["error"]["message"]
    with pytest.raises(CallError, match="at most 500 characters"):
        LinePattern.of("x" * (LONGEST_PATTERN + 1), is_regex=True)


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)*c", r"(.*a){12}c", r"(?:a?){30}a{30}c"])
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    """With Python's `re`, each of them takes hours for this text."""
    begun = time.process_time()
    assert LinePattern.of(pattern, is_regex=True).find(b"a" * 100_000 + b"b", 0) is None
    assert time.process_time() - begun < 5


def test_a_search_that_takes_too_long_ends_with_a_cursor(site: Site, run: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("phalanx.server.routes.logs.SEARCH_S", -1.0)
    answer = site.get(f"/api/v1/runs/{run}/lines/search", text="lost")
    assert [line["replica"] for line in answer["found"]] == ["master-0"]  # at least one stretch is searched
    again = site.get(f"/api/v1/runs/{run}/lines/search", text="lost", after=answer["next"])
    assert [line["replica"] for line in again["found"]] == ["worker-0"]


def test_without_the_package_only_texts_can_be_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)  # as Python does for a module that is not there
    with pytest.raises(MissingExtra, match=r"phalanx\[regex\]"):
        LinePattern.of("a.b", is_regex=True)
    assert LinePattern.of("worker 3", is_regex=True).matches("a WORKER 3 b")


def test_the_log_is_downloaded_with_aligned_names(site: Site, run: str) -> None:
    answer = site.ask("GET", f"/api/v1/runs/{run}/lines/download?replica=master&replica=worker-3")
    assert answer.headers["content-disposition"] == 'attachment; filename="logsearch.1.log"'
    assert answer.headers["content-security-policy"].startswith("sandbox")
    lines = answer.text.splitlines()
    assert len(lines) == 18
    assert lines[0].startswith("2023-11-14T22:13:20.")
    assert [line.partition(" ")[2] for line in lines[-2:]] == [
        "master-0 ERROR: rank 0 lost",
        "worker-3 ERROR: rank 4 lost",
    ]
    some = site.ask("GET", f"/api/v1/runs/{run}/lines/download?text=rank+%5B34%5D&regex=1").text.splitlines()
    assert [line.partition(" ")[2] for line in some] == ["worker-2 ERROR: rank 3 lost", "worker-3 ERROR: rank 4 lost"]


def test_colours_are_kept_on_request_and_nothing_else(site: Site, run: str) -> None:
    line = site.get(f"/api/v1/runs/{run}/lines", replica="worker-3", limit=1, ansi=1)["lines"][0]
    assert line["text"] == "\x1b[31mERR\x1b[0mOR: rank \x1b[1m4\x1b[22m lost"
    nasty = "\x1b]0;title\x07\x1b[2Jx\x1b[38;5;196mred\x1b[K\x1b[0m\x00\r"
    assert coloured_text(nasty) == "\\x1b]0;title\\x07\\x1b[2Jx\x1b[38;5;196mred\x1b[0m\\x00"
    assert coloured_text("10 %\r\x1b[32m20 %\x1b[0m\r\n") == "\x1b[32m20 %\x1b[0m"


def test_a_name_beats_a_role_and_a_role_beats_ranks() -> None:
    sources = [LogSource("0-1", "0", 0), LogSource("b-0", "b", 1), LogSource("b-1", "b", 2)]
    assert [one.name for one in choose(sources, ["0-1"])] == ["0-1"]
    assert [one.name for one in choose(sources, ["1-2"])] == ["b-0", "b-1"]
    assert choose(sources, []) == sources
