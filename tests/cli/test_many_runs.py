"""`run --each`, `--many` and `--times`: many runs in one call."""

from __future__ import annotations

import json
import re

import pytest

from phalanx.cli.many_runs import documents
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name

CONTENT = re.compile(r"(--- )?\{?[a-z-]+x?: ")


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("a: 1\n", [1]),
        ("---\na: 1\n", [2]),
        ("# words\n---\na: 1\n---\nb: 2\n...\n---\n# nothing\n---\nc: 3", [3, 5, 10]),
        ("a: |\n  ---\n  x\n---\nb: 1\n", [1, 5]),
        ("%YAML 1.2\n---\na: 1\n--- {b: 1}\n", [3, 4]),
        ("---x: 1\n", [1]),
    ],
)
def test_documents_keep_the_lines_of_their_file(text: str, starts: list[int]) -> None:
    found = documents("runs.yml", text.encode())
    assert {name for name, _ in found} == {"runs.yml"}
    contents = [
        next(n for n, line in enumerate(one.decode().split("\n"), 1) if CONTENT.match(line)) for _, one in found
    ]
    assert contents == starts


@pytest.mark.slow
def test_documents_of_a_large_file_are_numbered() -> None:
    found = documents("runs.yml", b"a: 1\n---\n" * 200_000)
    assert len(found) == 200_000
    assert found[-1] == ("runs.yml (document 200000)", b"---\na: 1\n")


def test_each_line_of_params_is_a_run(place: Place) -> None:
    place.file("echo {{ lr }} {{ name }}", params={"lr": 0.1, "name": "a"})
    (place.folder / "params.jsonl").write_text('{"lr": 0.5, "name": "1e3"}\n\n{"lr": 1e-3}\n')
    answer = place.call("run", "--many", "params.jsonl", "-P", "name=b", "--json")
    assert answer.code == 0, answer.err
    runs = [json.loads(line)["id"] for line in answer.out.splitlines()]
    for run in runs:
        place.until(run, "succeeded")
    assert [place.call("logs", run).out for run in runs] == ["0.5 1e3\n", "0.001 b\n"]


def test_the_faults_of_all_lines_and_documents_are_reported_and_nothing_is_queued(place: Place) -> None:
    place.file("true {{ lr }}", inputs=[{"name": "lr", "type": "float"}])
    lines = ['{"lr": 0.5}', '{"lr": "x"}', "{", "[]", '{"lr": 2}']
    answer = place.call("run", "--many", "-", stdin="\n".join(lines).encode())
    assert (answer.code, answer.out) == (1, "")
    assert "with the params of standard input:2" in answer.err
    assert "standard input:3:1: error: not JSON" in answer.err
    assert "standard input:4:1: error: not an object with params" in answer.err
    assert "standard input:5" not in answer.err
    text = "version: 1\nkind: job\nrun: {cmd: 'true'}\n"
    answer = place.call("run", "--each", "-", stdin=f"{text}---\n{text}---\n{text.replace('run', 'rum')}".encode())
    assert (answer.code, answer.out) == (1, "")
    assert "standard input:11:1" in answer.err
    assert place.call("ps", "--json").data["runs"] == []
    assert place.call("run", "--each", "-", "--many", "-").code == 2


def test_documents_of_standard_input_are_runs(place: Place) -> None:
    text = "version: 1\nkind: job\nname: {}\nrun: {{cmd: 'true'}}\n"
    answer = place.call("run", "--each", "-", "--times", "2", stdin="---\n".join(map(text.format, "ab")).encode())
    assert answer.code == 0, answer.err
    names = [run["name"] for run in place.call("ps", "--json").data["runs"]]
    assert sorted(names) == ["a", "a", "b", "b"]
