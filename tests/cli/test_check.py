"""phalanx check"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from phalanx.cli.options import DEFAULT_NAMES
from tests.cli.running import Answer, bounded, called, in_shell, is_silent_about_itself, quick
from tests.cli.samples import ALL, ALONE, GROUP, HEAD, MODERN, PIPELINE, SECTION

ERROR_KEYS = {"file", "line", "column", "path", "message", "suggestion"}
NOTE_KEYS = {"file", "line", "column", "path", "message"}


def checked(text: str, *arguments: str) -> Answer:
    return quick("check", "-f", "-", *arguments, stdin=text)


# a good file ------------------------------------------------------------------------------------------------------


def test_a_good_file_is_reported_in_json(tmp_path: Path) -> None:
    file = tmp_path / "polyaxonfile.yml"
    file.write_text(MODERN, encoding="utf-8")
    answer = called("check", "--json", "-f", str(file))
    assert (answer.code, answer.err) == (0, "")
    wanted = {
        "ok": True,
        "kind": "experiment",
        "name": None,
        "framework": "mxnet",
        "backend": "native",
        "is_distributed": True,
        "replicas": {"master": 1, "worker": 7, "server": 3},
        "resources": {
            "cpu": {"requests": 11, "limits": 19},
            "memory": {"requests": 3072, "limits": 9216},
            "gpu": {"requests": 7, "limits": 7},
        },
        "command": "python train.py",
        "params": {},
        "tags": [],
        "notes": [],
    }
    assert {key: answer.data[key] for key in wanted} == wanted


def test_whole_amounts_are_whole_numbers_in_json() -> None:
    assert '"cpu": {"requests": 11, "limits": 19}' in checked(MODERN, "--json").out


def test_params_tags_and_the_filled_in_command_are_reported() -> None:
    data = checked(ALONE, "--json").data
    assert data["params"] == {"lr": 0.01, "layers": [64, 32], "note": "it's"}
    assert data["tags"] == ["vision", "first"]
    assert data["command"] == "python train.py --lr=0.01"
    assert (data["name"], data["framework"], data["is_distributed"]) == ("lenet", "keras", False)
    assert data["resources"]["cpu"] == {"requests": 0.5, "limits": 2}
    assert data["resources"]["memory"] == {"requests": 512, "limits": 2048}
    assert data["resources"]["gpu"] is None


def test_what_was_read_differently_is_a_note_with_its_place() -> None:
    notes = checked(SECTION, "--json").data["notes"]
    assert all(set(note) == NOTE_KEYS for note in notes)
    found = {(note["line"], note["message"].split("`")[1]) for note in notes if "read as" in note["message"]}
    assert found >= {(3, "declarations"), (5, "environment.tensorflow"), (9, "gpu.request"), (9, "gpu.limit")}


def test_a_good_file_is_reported_in_words(tmp_path: Path) -> None:
    file = tmp_path / "polyaxonfile.yml"
    file.write_text(SECTION, encoding="utf-8")
    answer = called("check", "-f", str(file))
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert f"note: {file}:3:1: `declarations` read as `params`" in lines
    assert any(line.startswith(f"ok: {file}: experiment") for line in lines)
    text = " ".join(answer.out.split())
    for fact in ("1 master, 2 workers, 1 ps", "gpu 2", "train --batch 32", "batch=32", "tensorflow"):
        assert fact in text


def test_params_are_printed_with_the_characters_of_the_file() -> None:
    params = 'params: {commit: 0123456, lr: 1e-3, name: "{{ lr }}-a", n: 3}\n'
    run = "build: {image: x}\nrun:\n  cmd: git checkout {{ commit }}\n"
    answer = checked(f"version: 1\nkind: experiment\n{params}{run}")
    assert "command    git checkout 0123456\n" in answer.out
    assert "params     commit=0123456, lr=1e-3, name=1e-3-a, n=3\n" in answer.out


def test_a_group_says_its_search_and_keeps_the_templates_of_its_command() -> None:
    data = checked(GROUP, "--json").data
    assert (data["kind"], data["replicas"], data["is_distributed"]) == ("group", {"master": 1, "worker": 1}, True)
    assert data["command"] == ("train --lr={{ lr }} --units={{ units }} --dropout={{ dropout }} --epochs={{ epochs }}")
    search = data["search"]
    assert (search["algorithm"], search["concurrency"], search["n_experiments"]) == ("random_search", 4, 10)
    assert search["matrix"] == {"lr": "logspace", "units": "values", "dropout": "uniform"}
    assert "10 experiments" in checked(GROUP).out


def test_a_pipeline_says_its_ops() -> None:
    answer = checked(PIPELINE, "--json")
    assert (answer.code, answer.data["kind"], answer.data["replicas"]) == (0, "pipeline", {})
    assert answer.data["ops"] == ["prepare", "train", "ship"]
    assert "prepare, train, ship" in checked(PIPELINE).out


@pytest.mark.parametrize("name", ALL)
def test_every_kind_and_dialect_is_fine(name: str) -> None:
    for arguments in ([], ["--json"]):
        answer = checked(ALL[name], *arguments)
        assert (answer.code, answer.err) == (0, "")


# a bad file -------------------------------------------------------------------------------------------------------

FAULTY = """\
version: 1
kind: experiment
framework: pytorch
environment:
  resources: {cpu: {requests: 4, limits: 2}}
  replicas:
    n_wrokers: 2
    n_workers: -1
tags: {a: b}
run: {cmd: "train {{ lrate }}"}
params: {lr_rate: 1}
"""


def test_all_faults_of_a_bad_file_are_reported_at_once_in_json(tmp_path: Path) -> None:
    file = tmp_path / "polyaxonfile.yml"
    file.write_text(FAULTY, encoding="utf-8")
    answer = called("check", "--json", "-f", str(file))
    assert (answer.code, answer.err) == (1, "")
    assert set(answer.data) == {"ok", "errors"}
    assert answer.data["ok"] is False
    errors = answer.data["errors"]
    assert all(set(error) == ERROR_KEYS and error["file"] == str(file) for error in errors)
    assert [(error["line"], error["path"]) for error in errors] == [
        (5, "environment.resources.cpu.limits"),
        (7, "environment.replicas.n_wrokers"),
        (8, "environment.replicas.n_workers"),
        (9, "tags"),
        (10, "run.cmd"),
    ]
    hints = {error["line"]: error["suggestion"] for error in errors}
    assert hints[7] == "did you mean `n_workers`?"
    assert hints[10] == "did you mean `lr_rate`?"
    assert hints[5] == "write a limit of at least 4, or a smaller request"
    assert hints[9] is None


def test_all_faults_of_a_bad_file_are_reported_at_once_in_words(tmp_path: Path) -> None:
    file = tmp_path / "polyaxonfile.yml"
    file.write_text(FAULTY, encoding="utf-8")
    answer = called("check", "-f", str(file))
    assert (answer.code, answer.out) == (1, "")
    lines = answer.err.splitlines()
    assert [line.split(" ")[0] for line in lines if ": error:" in line] == [
        f"{file}:{place}:" for place in ("5:42", "7:5", "8:16", "9:7", "10:12")
    ]
    assert "  hint: did you mean `n_workers`?" in lines
    assert lines[-1] == "5 errors"


def test_one_fault_is_one_error() -> None:
    assert checked(HEAD + "rnu: {cmd: ls}\n").err.splitlines()[-1] == "1 error"


def underlined(answer: Answer) -> list[tuple[int, str]]:
    """The line number and the underlined text of every fault shown."""
    lines = answer.err.splitlines()
    found = []
    for above, below in pairwise(lines):
        if "^" in below and set(below) <= set(" |^"):
            start, end = below.index("^"), below.rindex("^") + 1
            assert above.index("|") == below.index("|")
            found.append((int(above.partition("|")[0]), above[start:end]))
    return found


@pytest.mark.parametrize(
    ("text", "line", "token"),
    [
        (HEAD + "rnu: {cmd: ls}\n", 3, "rnu"),
        (HEAD + "framework: jax\nenvironment:\n  replicas:\n    n_workers: lots\n", 6, "lots"),
        (HEAD + "framework: jax\nenvironment: {replicas: {n_workers: -7}}\n", 4, "-7"),
        (HEAD + "environment: {resources: {cpu: {requests: 1, limitz: 2}}}\n", 3, "limitz"),
        (HEAD + "description: 'häßlich 日本'\nnamé: x\n", 4, "namé"),
        (HEAD + "params: {é: [日本, ü]}\nrun: {cmd: {é: 日}}\n", 4, "{é: 日}"),
        (HEAD + "tags: ['ok', [nested]]\n", 3, "[nested]"),
        (HEAD + f"params: {{long: {'x' * 300}}}\nunknown_{'y' * 60}: 1\n", 4, f"unknown_{'y' * 60}"),
        (HEAD + f"environment: {{labels: {{a: {'x' * 250}}}, resources: {{cpu: {{limits: many}}}}}}\n", 3, "many"),
        ('{"version": 1, "kind": "experiment",\n\t"rnu": {"cmd": "ls"}}', 2, '"rnu"'),
        (HEAD + "name: 'two words'\n", 3, "'two words'"),
        (HEAD + "run:\n  cmd: echo {{ nobody }}\n", 4, "echo {{ nobody }}"),
        ("version: 2\nkind: job\nrun: {cmd: ls}\n", 1, "2"),
        ("version: 1\nkind: experimnt\n", 2, "experimnt"),
        (HEAD + "run: {cmd: ls}\nrun: {cmd: ls}\n", 4, "run"),
        ("version: 1\r\nkind: experiment\r\nrnu: 1\r\n", 3, "rnu"),
        ("\ufeffversion: 1\nkind: experiment\nrnu: 1\n", 3, "rnu"),
    ],
)
def test_the_offending_text_is_underlined(tmp_path: Path, text: str, line: int, token: str) -> None:
    file = tmp_path / ("file.json" if text.startswith("{") else "file.yml")
    file.write_bytes(text.encode())
    answer = quick("check", "-f", str(file))
    assert answer.code == 1
    assert underlined(answer) == [(line, token)]


def test_a_fault_is_reported_once_also_where_one_number_means_two() -> None:
    (error,) = checked(HEAD + "environment: {resources: {cpu: many}}\n", "--json").data["errors"]
    assert error["path"] == "environment.resources.cpu"


def test_a_long_line_is_shown_around_the_fault() -> None:
    answer = checked(HEAD + f"environment: {{labels: {{a: {'x' * 250}}}, resources: {{cpu: many}}}}\n")
    assert max(map(len, answer.err.splitlines())) < 160


def test_very_many_faults_are_counted_and_the_first_are_shown() -> None:
    text = HEAD + "".join(f"unknown_{number}: 1\n" for number in range(70))
    answer = checked(text)
    assert answer.err.count(": error:") == 50
    assert answer.err.splitlines()[-1].startswith("70 errors (20 not shown")
    assert len(checked(text, "--json").data["errors"]) == 70


# which files, which params ----------------------------------------------------------------------------------------


def test_several_files_are_laid_over_each_other(tmp_path: Path) -> None:
    base, layer = tmp_path / "base.yml", tmp_path / "layer.yml"
    base.write_text(HEAD + "params: {a: 1, b: 2}\ntags: [x, y]\nrun: {cmd: 'run {{ a }} {{ b }}'}\n", encoding="utf-8")
    layer.write_text("params: {b: 3}\ntags: [z]\nframework: keras\n", encoding="utf-8")
    data = quick("check", "--json", "-f", str(base), "-f", str(layer)).data
    assert (data["command"], data["tags"], data["framework"]) == ("run 1 3", ["z"], "keras")


def test_a_fault_of_a_layer_is_reported_at_its_place_in_the_layer(tmp_path: Path) -> None:
    base, layer = tmp_path / "base.yml", tmp_path / "layer.yml"
    base.write_text(HEAD + "run: {cmd: ls}\n", encoding="utf-8")
    layer.write_text("\n\nrnu: 1\n", encoding="utf-8")
    (error,) = quick("check", "--json", "-f", str(base), "-f", str(layer)).data["errors"]
    assert (error["file"], error["line"]) == (str(layer), 3)


def test_a_file_comes_from_standard_input(tmp_path: Path) -> None:
    answer = called("check", "-f", "-", "--json", stdin=MODERN.encode())
    assert (answer.code, answer.data["framework"]) == (0, "mxnet")
    base = tmp_path / "base.yml"
    base.write_text(HEAD, encoding="utf-8")
    both = called("check", "-f", str(base), "-f", "-", "--json", stdin=b"run: {cmd: from stdin}")
    assert both.data["command"] == "from stdin"


def test_faults_of_standard_input_name_it() -> None:
    assert checked(HEAD + "rnu: 1\n").err.startswith("standard input:3:1: error:")


def test_standard_input_cannot_be_read_twice() -> None:
    answer = quick("check", "-f", "-", "-f", "-", stdin=MODERN)
    assert answer.code == 2
    assert "only once" in answer.err


def test_a_closed_standard_input_is_a_wrong_call() -> None:
    answer = in_shell('exec "$PHALANX" check -f - <&-')
    assert answer.code == 2
    assert is_silent_about_itself(answer)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("x=3", 3),
        ("x=0.5", 0.5),
        ("x=1e-3", 0.001),
        ("x=true", True),
        ("x=", ""),
        ("x=null", None),
        ("x=text", "text"),
        ("x=a=b", "a=b"),
        ("x=[1, 2.5, 'a']", [1, 2.5, "a"]),
        ("x={'a': [1]}", {"a": [1]}),
        ("x=[1, 2", "[1, 2"),
        ("x=1:10:2", "1:10:2"),
        ("x= y ", " y "),
    ],
)
def test_params_of_the_command_line_are_typed(given: str, value: object) -> None:
    answer = checked(HEAD + "params: {x: of the file, y: 1}\nrun: {cmd: ls}\n", "--json", "-P", given)
    assert answer.data["params"] == {"x": value, "y": 1}


@pytest.mark.parametrize("given", ["x={1, 2}", "x=[b'a']", "x=[...]", "x=(1, 2j)", "x={1: {2: 3}}"])
@pytest.mark.parametrize("verb", ["check", "plan", "convert"])
def test_python_that_no_file_can_hold_is_text_or_a_fault(given: str, verb: str) -> None:
    for arguments in ([], ["--json"]):
        answer = quick(verb, "-f", "-", "-P", given, *arguments, stdin=HEAD + "run: {cmd: ls}\n")
        assert answer.code in (0, 1, 2)


def test_params_of_the_command_line_are_rendered() -> None:
    answer = checked(HEAD + "run: {cmd: 'train --lr={{ lr }}'}\n", "--json", "-P", "lr=0.1", "-P", "other=1")
    assert answer.data["command"] == "train --lr=0.1"


def test_a_declared_text_keeps_its_digits() -> None:
    text = HEAD + "inputs: [{name: id, type: str}]\nrun: {cmd: 'run {{ id }}'}\n"
    assert checked(text, "--json", "-P", "id=007").data["command"] == "run 007"


def test_a_param_of_the_wrong_type_is_a_fault_of_the_command_line() -> None:
    text = HEAD + "inputs: [{name: n, type: int}]\nrun: {cmd: 'run {{ n }}'}\n"
    answer = checked(text, "-P", "n=many")
    assert answer.code == 1
    assert answer.err.startswith("command line:1:1: error:")
    assert underlined(answer) == [(1, "-P n=many")]


@pytest.mark.parametrize("given", [["x"], ["=1"], ["x=1", "-P", "x=2"], [" =1"]])
def test_params_that_make_no_sense_are_a_wrong_call(given: list[str]) -> None:
    answer = checked(MODERN, "-P", *given)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: -P")


def test_a_param_that_is_not_text_is_a_wrong_call() -> None:
    answer = called("check", "-f", "-", "-P", "x=\udcff", stdin=(HEAD + "run: {cmd: 'ls {{ x }}'}\n").encode())
    assert answer.code == 2
    assert is_silent_about_itself(answer)


@pytest.mark.parametrize("name", DEFAULT_NAMES)
def test_without_a_file_the_usual_names_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = json.dumps({"version": 1, "kind": "job", "run": {"cmd": "ls"}})
    (tmp_path / name).write_text(text, encoding="utf-8")
    answer = quick("check")
    assert answer.code == 0
    assert f"ok: {name}: job" in answer.out


def test_the_usual_names_have_an_order(tmp_path: Path) -> None:
    for name in ("polyaxonfile.yml", "polyaxon.yaml", "polyaxon-ci.yml"):
        (tmp_path / name).write_text(f"version: 1\nkind: job\nrun: {{cmd: {name}}}\n", encoding="utf-8")
    (tmp_path / "polyaxon.yml").mkdir()
    assert called("check", "--json", cwd=tmp_path).data["command"] == "polyaxon.yaml"


def test_without_any_file_the_call_is_wrong_and_says_how_to_go_on(tmp_path: Path) -> None:
    answer = called("check", cwd=tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert "-f FILE" in answer.err
    assert "phalanx init" in answer.err


# files that cannot be read ----------------------------------------------------------------------------------------


def unreadable(folder: Path, kind: str) -> str:
    if kind == "missing":
        return str(folder / "nothing.yml")
    if kind == "directory":
        return str(folder)
    if kind == "below a file":
        (folder / "file").write_text("x", encoding="utf-8")
        return str(folder / "file" / "polyaxonfile.yml")
    if kind == "circle":
        (folder / "circle").symlink_to(folder / "circle")
        return str(folder / "circle")
    if kind == "name too long":
        return str(folder / ("x" * 300))
    if kind == "broken on reading":
        if not Path("/proc/self/mem").exists():
            pytest.skip("only Linux has such a file")
        return "/proc/self/mem"
    locked = folder / "locked.yml"
    locked.write_text(MODERN, encoding="utf-8")
    locked.chmod(0)
    if os.access(locked, os.R_OK):
        pytest.skip("this user may read everything")
    return str(locked)


KINDS = ["missing", "directory", "below a file", "circle", "name too long", "broken on reading", "forbidden"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_read_is_a_wrong_call(tmp_path: Path, kind: str) -> None:
    name = unreadable(tmp_path, kind)
    answer = quick("check", "-f", name)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: cannot read {name}: ")
    assert len(answer.err.splitlines()) == 1
    in_json = quick("check", "--json", "-f", name)
    assert in_json.code == 2
    (error,) = in_json.data["errors"]
    assert (in_json.data["ok"], set(error)) == (False, ERROR_KEYS)


def test_all_files_that_cannot_be_read_are_reported_at_once(tmp_path: Path) -> None:
    answer = quick("check", "-f", str(tmp_path / "a.yml"), "-f", str(tmp_path), "-f", str(tmp_path / "b.yml"))
    assert all(name in answer.err for name in ("a.yml", "is a directory", "b.yml"))


def test_a_missing_file_in_the_real_command(tmp_path: Path) -> None:
    answer = called("check", "-f", "nothing.yml", cwd=tmp_path)
    assert (answer.code, answer.out, answer.err) == (
        2,
        "",
        "error: cannot read nothing.yml: no such file or directory\n",
    )


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"name: caf\xe9\n", "not a text file"),
        ("version: 1".encode("utf-16"), "UTF-8"),
        (b"\x00\x01\x02\x7fELF", ""),
        (b"", "empty"),
        (b"# only a comment\n", "empty"),
        (b"version: 1\n" + b"#" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_what_is_not_a_polyaxonfile_at_all_is_a_wrong_file(tmp_path: Path, content: bytes, word: str) -> None:
    file = tmp_path / "file.yml"
    file.write_bytes(content)
    answer = quick("check", "-f", str(file))
    assert (answer.code, answer.out) == (1, "")
    assert word in answer.err
    assert str(file) in answer.err


# hostile files ----------------------------------------------------------------------------------------------------


def command(template: str) -> str:
    body = json.dumps(template)
    return HEAD + f"params: {{x: 5, items: [1, 2], map: {{a: 1}}}}\nrun: {{cmd: {body}}}\n"


def group(matrix: str) -> str:
    return f"version: 1\nkind: group\nhptuning: {{matrix: {{lr: {matrix}}}}}\nrun: {{cmd: ls}}\n"


BOMB = "\n".join(["a: &a [x, x, x, x, x, x, x, x, x]"] + [
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
])  # fmt: skip

HOSTILE = {
    "alias bomb": BOMB,
    "alias in its own anchor": HEAD + "params: &a {x: *a}\n",
    "alias without an anchor": HEAD + "params: *nobody\n",
    "deep maps": "{a: " * 200 + "1" + "}" * 200,
    "deep lists": "[" * 100_000,
    "two documents": HEAD + "---\n" + HEAD,
    "a bare text": "hello",
    "a bare list": "[1, 2]",
    "a tag that runs code": HEAD + "run: !!python/object/apply:os.system [ls]\n",
    "tabs": HEAD + "run:\n\tcmd: ls\n",
    "duplicate keys": HEAD + HEAD,
    "no key": HEAD + "~: 1\n: 2\n",
    "numbers as keys": HEAD + "1: 2\n1.5: 3\ntrue: 4\n",
    "a list as a key": HEAD + "? [a]\n: b\n",
    "merging a number": HEAD + "<<: 5\n",
    "half a character": HEAD + 'name: "\\ud800"\n',
    "a NUL": HEAD + 'name: "\\0"\n',
    "versions that are no number": "version: .nan\nkind: [job]\n",
    "an endless index": HEAD
    + 'framework: pytorch\nenvironment: {replicas: {n_workers: 2, worker: [{index: "1e999"}]}}\n',
    "odd indices": HEAD
    + "framework: pytorch\nenvironment: {replicas: {n_workers: 2, worker: [{index: .inf}, {index: [1]}, 5, null]}}\n",
    "endless ends": group('{uniform: "0:1e999"}'),
    "a tiny step": group("{range: [0, 1e308, 1e-308]}"),
    "powers beyond all numbers": group("{logspace: {start: 0, stop: 300, num: 3, base: 1e300}}"),
    "powers of less than nothing": group("{logspace: {start: 0.5, stop: 1, num: 3, base: -2}}"),
    "powers of nothing": group("{logspace: {start: -1, stop: 1, num: 3, base: 0}}"),
    "a filter's odd argument": command("{{ 5 | round(1, 'foo') }}"),
    "a test that is not there": command("{{ items | select('nosuch') | list }}"),
    "a filter that is not there": command("{{ x | nosuch }}"),
    "very many parentheses": command("{{ " + "1 + (" * 300 + "1" + ")" * 300 + " }}"),
    "very many signs": command("{{ " + "- " * 3000 + "1 }}"),
    "a huge power": command("{{ 10 ** 1000000 }}"),
    "a huge text": command("{{ 'a' * 10 ** 9 }}"),
    "a huge format": command("{{ '%1000000000s' % 'a' }}"),
    "a way out of the sandbox": command("{{ ().__class__.__mro__[1].__subclasses__() }}"),
    "division by nothing": command("{{ 1 / 0 }} {{ x.y.z }}"),
    "half a template": command("{{ x"),
    "statements": command("{% set y = 1 %}{% include 'x' %}"),
    "params in a circle": HEAD + "params: {a: '{{ b }}', b: '{{ a }}'}\n",
    "sections of the wrong shape": HEAD + "environment: [1]\nbuild: 5\nrun: ls\nparams: x\nlogging: []\nhptuning: 1\n",
    "old sections of the wrong shape": "settings: 5\nmatrix: 3\nenvironment: {tensorflow: 5, mxnet: []}\n",
    "a pipeline of the wrong shape": "version: 1\nkind: pipeline\nops: [{name: a, template: {name: [x]}}, 5]\n"
    "templates: [{name: {a: b}}, 5, null]\n",
    "variables of the wrong shape": HEAD + "environment: {env_vars: [[a], [b, c, d], 5, {x: y}, [[1], 2], [a b, 1]]}\n",
    "a very long key": HEAD + "x" * 100_000 + ": 1\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "verb", ["check", *(pytest.param(verb, marks=pytest.mark.slow) for verb in ("plan", "convert"))]
)
def test_a_hostile_file_ends_in_errors_and_never_in_a_traceback(name: str, verb: str) -> None:
    said = quick(verb, "-f", "-", stdin=HOSTILE[name])
    answer = quick(verb, "--json", "-f", "-", stdin=HOSTILE[name])
    assert said.code == answer.code == 1
    assert said.err.strip()
    assert answer.data["ok"] is False
    assert all(set(error) == ERROR_KEYS and error["message"] for error in answer.data["errors"])


@pytest.mark.slow
def test_hostile_files_in_the_real_command(tmp_path: Path) -> None:
    for number, name in enumerate(
        ("alias bomb", "deep lists", "a tag that runs code", "a huge text", "half a template")
    ):
        file = tmp_path / f"{number}.yml"
        file.write_text(HOSTILE[name], encoding="utf-8")
        answer = called("check", "-f", str(file))
        assert (answer.code, answer.out) == (1, "")
        assert is_silent_about_itself(answer)


GREEDY = {
    "very many workers": HEAD
    + "framework: pytorch\nenvironment: {replicas: {n_workers: 1000000000}}\nrun: {cmd: ls}\n",
    "a filter that pads for ever": command("{{ map | tojson(indent=999999999) }}"),
    "a long chain of params": HEAD
    + "params:\n  p0: 1\n"
    + "".join(f"  p{number}: '{{{{ p{number - 1} }}}}'\n" for number in range(1, 20_000)),
    "very many inputs without a value": HEAD
    + "inputs:\n"
    + "".join(f"  - {{name: p{number}}}\n" for number in range(20_000)),
    "very many anchors": HEAD + "params:\n" + "".join(f"  a{number}: &a{number} [1]\n" for number in range(20_000)),
    "very many unknown keys": HEAD + "".join(f"env{number}: 1\n" for number in range(20_000)),
}


@pytest.mark.parametrize("name", GREEDY)
@pytest.mark.slow
def test_a_greedy_file_is_answered_quickly_and_in_little_memory(tmp_path: Path, name: str) -> None:
    file = tmp_path / "polyaxonfile.yml"
    file.write_text(GREEDY[name], encoding="utf-8")
    answer = bounded("check", "-f", str(file))
    assert answer.code in (0, 1), answer.err[-300:]
    assert is_silent_about_itself(answer)


# exit codes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--nonsense"], ["-f"], ["extra"], ["--json=yes"]])
def test_options_that_make_no_sense_are_a_wrong_call(arguments: list[str]) -> None:
    assert quick("check", *arguments).code == 2


def test_what_no_cluster_of_kubernetes_would_run_is_reported_with_what_would() -> None:
    text = HEAD + "framework: mxnet\nenvironment: {data_refs: [images], replicas: {n_workers: 2}}\nrun: {cmd: ls}\n"
    by_operators = checked(text, "--on", "kubeflow")
    assert by_operators.code == 1
    assert "no MXJob" in by_operators.err
    assert "`backend: native`" in by_operators.err
    natively = checked(text, "--on", "kubernetes", "--json")
    assert natively.code == 1
    assert "no store `images`" in json.loads(natively.out)["errors"][0]["message"]
    assert checked(text.replace("data_refs: [images], ", ""), "--on", "kubernetes").code == 0
