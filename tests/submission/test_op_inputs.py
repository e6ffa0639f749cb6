"""Files of other ops that are sent with the code of an op."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.submission.model import Submission
from phalanx.submission.ops import inputs as op_inputs
from tests.submission.samples import submission_of


def asked(on: str = "kubernetes", **kubernetes: Any) -> Submission:
    content = {"version": 1, "kind": "job", "environment": {"kubernetes": kubernetes}, "run": {"cmd": "true"}}
    return submission_of(content, on=on)


@pytest.fixture(name="home")
def home_fixture(tmp_path: Path) -> Home:
    """With the outputs of a run of the same project, and of another one."""
    home = Home(tmp_path / "home")
    for run, project in (("mine", "default"), ("theirs", "secret")):
        folder = home.runs / run
        (folder / "outputs" / "parts").mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"project": project}))
        (folder / "outputs" / "data.txt").write_text("7")
        (folder / "outputs" / "parts" / "a").write_text("8")
    return home


def test_files_and_folders_of_runs_are_sent_where_the_home_is_not_seen(home: Home, tmp_path: Path) -> None:
    outputs = home.runs / "mine" / "outputs"
    values = {"data": str(outputs / "data.txt"), "parts": str(outputs / "parts"), "rows": 7, "word": "/no/such/file"}
    found = op_inputs.to_send(home, asked(), values)
    assert {name: one.inside for name, one in found.items()} == {
        "data": ".phalanx-inputs/data/data.txt",
        "parts": ".phalanx-inputs/parts/parts",
    }
    for on in ("local", "slurm"):
        assert op_inputs.to_send(home, asked(on), values) == {}
    (outputs / "parts" / "link").symlink_to("/etc/passwd")
    code = tmp_path / "code"
    code.mkdir()
    op_inputs.put({one.inside: one.path for one in found.values()}, code)
    sent = {str(path.relative_to(code)): path.read_text() for path in code.rglob("*") if path.is_file()}
    assert sent == {".phalanx-inputs/data/data.txt": "7", ".phalanx-inputs/parts/parts/a": "8"}


def test_a_program_cannot_name_other_files_of_this_machine(home: Home) -> None:
    """Programs write the values: a path outside of outputs, of another project, or behind a link stays text."""
    outputs = home.runs / "mine" / "outputs"
    (outputs / "link").symlink_to("/etc/passwd")
    paths = [
        "/etc/passwd",
        str(outputs / "link"),
        str(outputs / ".." / ".." / "theirs" / "outputs" / "data.txt"),
        str(home.runs / "theirs" / "outputs" / "data.txt"),
        str(home.runs / "mine" / "run.json"),
        str(outputs),
    ]
    assert op_inputs.to_send(home, asked(), {str(number): path for number, path in enumerate(paths)}) == {}


@pytest.mark.parametrize("options", [{"repository": "https://git.example/x"}, {"code": "image"}])
def test_an_op_whose_code_is_elsewhere_says_how_to_get_files(home: Home, options: dict[str, str]) -> None:
    values = {"data": str(home.runs / "mine" / "outputs" / "data.txt")}
    with pytest.raises(CallError, match=r"`data` is a file of another op.*`data_refs`"):
        op_inputs.to_send(home, asked(**options), values)
