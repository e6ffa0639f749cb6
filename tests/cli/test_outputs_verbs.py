"""`phalanx outputs`, `artifacts` and `models`, as people and programs call them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.cli.render.progress import ProgressMeter
from tests.artifacts.test_outputs import sha256
from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.running import Answer, is_silent_about_itself
from tests.scheduler.leftovers import Left

ESCAPE = b"\x1b]0;owned\x07\x1b[31mred"


@pytest.fixture(name="left")
def left_fixture(place: Place) -> Iterator[Left]:
    """Runs in the place's home."""
    left = Left(place.home)
    yield left
    left.store.close()


def fine(answer: Answer) -> str:
    assert answer.code == 0, answer.err
    assert is_silent_about_itself(answer)
    return answer.out


def refused(answer: Answer) -> str:
    assert (answer.code, answer.out) == (2, "")
    assert is_silent_about_itself(answer)
    return answer.err


class TestOutputs:
    def test_the_tree(self, place: Place, left: Left) -> None:
        left.run("r1", {"outputs/a/b.txt": b"one", "artifacts/c": bytes(2048)})
        left.settle("r1")
        lines = fine(place.quick("outputs", "r1")).splitlines()
        assert [line.split()[-1] for line in lines] == ["PATH", "artifacts/", "c", "outputs/", "a/", "b.txt"]
        assert lines[2].startswith("2.0 KiB")
        assert sha256(b"one")[:12] in lines[5]
        assert fine(place.quick("outputs", "r1", "outputs/a")).splitlines()[1].endswith("outputs/a/")

    def test_as_json(self, place: Place, left: Left) -> None:
        left.run("r1", {"outputs/a": b"one"})
        left.settle("r1")
        data = place.quick("outputs", "r1", "--json").data
        assert (data["ok"], data["run"], data["url"]) == (True, "r1", None)
        folder, file = data["entries"]
        assert (folder["path"], folder["kind"], folder["size"]) == ("outputs", "folder", 3)
        assert (file["path"], file["digest"], file["place"]) == ("outputs/a", sha256(b"one"), "here")

    def test_nothing_is_reported_kindly(self, place: Place, left: Left) -> None:
        left.run("r1")
        assert "has no files" in fine(place.quick("outputs", "r1"))
        assert "there is no run" in refused(place.quick("outputs", "nobody"))
        assert "there is no `outputs/x`" in refused(place.quick("outputs", "r1", "outputs/x"))
        assert "cannot be combined" in refused(place.quick("outputs", "r1", "--free", "--restore"))

    def test_very_many_files_are_not_all_listed(self, place: Place, left: Left) -> None:
        left.run("r1", {f"outputs/{top}/{n:03}": b"" for top in "ab" for n in range(60)})
        lines = fine(place.quick("outputs", "r1")).splitlines()
        assert sum("… 10 more" in line for line in lines) == 2
        assert len(lines) == 1 + 1 + 2 * (1 + 50 + 1)
        assert len(place.quick("outputs", "r1", "--json").data["entries"]) == 123

    def test_links_that_lead_out_are_marked(self, place: Place, left: Left) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        (folder / "outputs/out").symlink_to("/etc/passwd")
        (folder / "outputs/in").symlink_to("a")
        out = fine(place.quick("outputs", "r1"))
        assert "out -> /etc/passwd (leaves the folder: not followed)" in out
        assert "in -> a\n" in out
        assert "leads out" in refused(place.quick("outputs", "r1", "--show", "outputs/out"))

    def test_no_name_and_no_text_reaches_the_terminal_as_it_is(self, place: Place, left: Left) -> None:
        folder = left.run("r1", {"outputs/text": ESCAPE, "outputs/t.csv": b"a,b\n" + ESCAPE + b",2\n"})
        name = os.fsdecode(b"\xff" + ESCAPE)
        (folder / "outputs" / name).write_bytes(b'{"\x1b": 1}')
        (folder / "outputs" / "link").symlink_to(name)
        (folder / "outputs" / "j.json").write_bytes(json.dumps({"a": ESCAPE.decode()}).encode())
        shown = ("outputs/text", "outputs/t.csv", f"outputs/{name}", "outputs/j.json", f"outputs/{name}x")
        answers = [place.quick("outputs", "r1"), *(place.quick("outputs", "r1", "--show", path) for path in shown)]
        for answer in answers:
            assert "\x1b" not in answer.out + answer.err
            assert "\x07" not in answer.out + answer.err
        assert [answer.code for answer in answers] == [0, 0, 0, 0, 0, 2]

    def test_looking_into_files(self, place: Place, left: Left) -> None:
        left.run("r1", {"outputs/t.csv": b"a,b\n1,2\n", "outputs/x.bin": b"\0\1\2", "outputs/j.json": b"[1]"})
        assert fine(place.quick("outputs", "r1", "--show", "outputs/t.csv")) == (
            "outputs/t.csv: table, 8 B, columns 2\na  b\n1  2\n"
        )
        assert "00 01 02" in fine(place.quick("outputs", "r1", "--show", "outputs/x.bin"))
        data = place.quick("outputs", "r1", "--show", "outputs/j.json", "--json").data
        assert (data["type"], data["lines"]) == ("JSON", ["[", "  1", "]"])
        assert "folder, not a file" in refused(place.quick("outputs", "r1", "--show", "outputs"))

    def test_copying(self, place: Place, left: Left, tmp_path: Path) -> None:
        folder = left.run("r1", {"outputs/a": b"one", "outputs/b/c": b"two"})
        (folder / "outputs/out").symlink_to("/etc/passwd")
        left.settle("r1")
        target = str(tmp_path / "got")
        answer = place.quick("outputs", "r1", "--get", "outputs", "-o", target)
        assert fine(answer) == f"{target}: 2 files, 6 B, all verified\n"
        assert "outputs/out was skipped" in answer.err
        assert (tmp_path / "got/b/c").read_bytes() == b"two"
        assert "--force" in refused(place.quick("outputs", "r1", "--get", "outputs/a", "-o", target + "/a"))
        data = place.quick("outputs", "r1", "--get", "outputs/a", "-o", target + "/a", "--force", "--json").data
        assert data == {"ok": True, "target": target + "/a", "files": 1, "size": 3, "unchecked": 0, "left_out": []}

    def test_a_damaged_file(self, place: Place, left: Left, tmp_path: Path) -> None:
        folder = left.run("r1", {"artifacts/a": b"good"})
        left.settle("r1")
        (folder / "artifacts/a").chmod(0o600)
        (folder / "artifacts/a").write_bytes(b"evil")
        answer = place.quick("outputs", "r1", "--get", "artifacts/a", "-o", str(tmp_path / "x"))
        assert "artifacts/a is damaged" in refused(answer)

    def test_remote_storage(self, place: Place, left: Left, tmp_path: Path) -> None:
        left.run("r1", {"outputs/a": b"one"})
        url = f"file://{tmp_path}/remote"
        assert "never pushed" in refused(place.quick("outputs", "r1", "--free"))
        assert fine(place.quick("outputs", "r1", "--push", url)) == f"{url}: 1 object uploaded (3 B), 0 already there\n"
        assert place.quick("outputs", "r1", "--push", url, "--json").data["known"] == 1
        assert "freed 3 B" in fine(place.quick("outputs", "r1", "--free"))
        assert "a (remote)" in fine(place.quick("outputs", "r1"))
        assert "one" in fine(place.quick("outputs", "r1", "--show", "outputs/a"))
        assert fine(place.quick("outputs", "r1", "--restore")) == "restored 1 file\n"

    def test_keys_in_an_address_are_refused_and_not_repeated(self, place: Place, left: Left) -> None:
        left.run("r1", {"outputs/a": b"one"})
        for extra in ((), ("--json",)):
            answer = place.quick("outputs", "r1", "--push", "s3://AKIA:hunter2@bucket/x", *extra)
            assert answer.code == 2
            assert "credentials" in answer.out + answer.err
            assert "hunter2" not in answer.out + answer.err

    def test_a_terminal_sees_how_far_long_work_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        with ProgressMeter(quiet=False) as meter:
            meter.show("copying", 1 << 20, 4 << 20)  # it may be over in a moment
            assert terminal.getvalue() == ""
            meter.started_at -= 1
            meter.show("copying \x1b[31m", 2 << 20, 4 << 20)
            meter.show("copying", 3 << 20, 4 << 20)  # not more often than an eye follows
        assert terminal.getvalue() == "\r\x1b[K2.0 MiB of 4.0 MiB  copying \\x1b[31m\r\x1b[K"

    def test_others_do_not(self, capsys: pytest.CaptureFixture[str]) -> None:
        with ProgressMeter(quiet=False) as meter:
            meter.started_at -= 1
            meter.show("copying", 1, 2)
        assert capsys.readouterr().err == ""


class TestArtifacts:
    def test_what_was_kept_and_who_has_the_same(self, place: Place, left: Left) -> None:
        left.run("r1", {"artifacts/a": b"same"}, project="p")
        left.run("r2", {"artifacts/b": b"same", "models/net/1/w": b"other"}, project="p")
        left.run("r3", {"artifacts/c": b"third"}, project="q")
        for run in ("r1", "r2", "r3"):
            left.settle(run)
        lines = [line.split() for line in fine(place.quick("artifacts", "r2")).splitlines()]
        assert lines[1] == ["r2", "file", "b", "4", "B", sha256(b"same")[:12], "r1"]
        assert lines[2] == ["r2", "model", "net", "5", "B", sha256(b"other")[:12], "-"]
        rows = place.quick("artifacts", "--project", "p", "--json").data["artifacts"]
        assert [(row["run_id"], row["name"], row["also_in"]) for row in rows] == [
            ("r2", "b", ["r1"]),
            ("r2", "net", []),
            ("r1", "a", ["r2"]),
        ]

    def test_it_must_be_said_of_what(self, place: Place, left: Left) -> None:
        left.run("r1")
        assert "name either a run or a --project" in refused(place.quick("artifacts"))
        assert "name either a run or a --project" in refused(place.quick("artifacts", "r1", "--project", "p"))
        assert "No artifacts" in fine(place.quick("artifacts", "r1"))


class TestModels:
    @pytest.fixture(autouse=True)
    def run(self, left: Left) -> None:
        left.run("r1", {"outputs/w": b"weights"}, params={"lr": 0.1}, summary={"loss": 0.5}, commit="abc123")
        left.run("r2", {"outputs/w": b"better"}, params={"lr": 0.2}, summary={"loss": 0.25, "acc": 0.9})

    def register(self, place: Place, run: str = "r1", *more: str) -> str:
        return fine(place.quick("models", "register", run, "outputs/w", "--name", "net", *more))

    def test_from_a_file_to_a_champion(self, place: Place, tmp_path: Path) -> None:
        assert "No models yet" in fine(place.quick("models"))
        assert self.register(place) == "registered net/1\n"
        assert self.register(place, "r2", "--alias", "challenger", "--label", "team=a") == "registered net/2\n"
        assert fine(place.quick("models", "alias", "net/1", "champion")) == "champion points to net/1\n"
        answer = place.quick("models", "alias", "net@challenger", "champion", "--reason", "less loss")
        assert fine(answer) == "champion points to net/2 (before: 1)\n"
        (row,) = place.quick("models", "--json").data["models"]
        assert (row["name"], row["latest"], row["aliases"]) == ("net", 2, {"challenger": 2, "champion": 2})
        lines = fine(place.quick("models", "history", "net")).splitlines()
        assert len(lines) == 5
        assert "pointed champion to net/2 (before: 1), by " in lines[-1]
        assert lines[-1].endswith(": less loss")
        target = str(tmp_path / "got")
        answer = place.quick("models", "get", "net@champion", "-o", target)
        assert fine(answer) == f"net/2 -> {target}: 1 file, 6 B, all verified\n"
        assert (tmp_path / "got/w").read_bytes() == b"better"
        assert "--force" in refused(place.quick("models", "get", "net", "-o", target))
        assert "removed alias champion from net" in fine(place.quick("models", "unalias", "net", "champion"))

    def test_showing_a_model_and_a_version(self, place: Place) -> None:
        self.register(place)
        self.register(place, "r2", "--description", "better", "--label", "stage=test")
        out = fine(place.quick("models", "show", "net"))
        assert out.splitlines()[2].startswith("2        -        r2   6 B")
        out = fine(place.quick("models", "show", "net/1"))
        for part in (
            "commit     abc123",
            "params     lr=0.1",
            "metrics    loss 0.5",
            sha256(b"weights"),
            "r1, outputs/w",
        ):
            assert part in out
        data = place.quick("models", "show", "net/2", "--json").data
        assert (data["number"], data["labels"], data["has_files"]) == (2, {"stage": "test"}, True)
        assert [event["kind"] for event in data["history"]] == ["register", "settle"]
        assert data["lineage"]["params"] == {"lr": 0.2}
        data = place.quick("models", "show", "net", "--json").data
        assert [version["number"] for version in data["versions"]] == [2, 1]

    def test_comparing_versions(self, place: Place) -> None:
        self.register(place)
        self.register(place, "r2")
        lines = [line.split() for line in fine(place.quick("models", "compare", "net/1", "net/2")).splitlines()]
        assert lines == [
            ["net/1", "net/2"],
            ["run", "r1", "r2"],
            ["metric", "acc", "-", "0.9"],
            ["metric", "loss", "0.5", "0.25"],
            ["param", "lr", "0.1", "0.2"],
        ]
        data = place.quick("models", "compare", "net/1", "net/2", "--json").data
        assert (data["metrics"]["acc"], data["params"]) == ([None, 0.9], {"lr": [0.1, 0.2]})
        assert "at least two versions" in refused(place.quick("models", "compare", "net/1"))

    def test_describing(self, place: Place) -> None:
        self.register(place)
        fine(place.quick("models", "describe", "net", "a net", "--label", "team=a", "--label", "tmp=1"))
        fine(place.quick("models", "describe", "net", "--label", "tmp="))
        fine(place.quick("models", "describe", "net/1", "the first"))
        data = place.quick("models", "show", "net", "--json").data
        assert (data["description"], data["labels"]) == ("a net", {"team": "a"})
        assert data["versions"][0]["description"] == "the first"
        assert "give a description" in refused(place.quick("models", "describe", "net"))
        assert len(place.quick("models", "--label", "team=a", "--json").data["models"]) == 1
        assert place.quick("models", "--label", "team=b", "--json").data["models"] == []
        assert "No matching models" in fine(place.quick("models", "-q", "other"))

    def test_deleting_asks_first(self, place: Place) -> None:
        self.register(place, "r1", "--alias", "champion")
        assert place.quick("models", "delete", "net/1").code == 1
        assert "points at net/1" in refused(place.quick("models", "delete", "net/1", "-y"))
        assert fine(place.quick("models", "delete", "net/1", "-y", "--force")) == "deleted net/1\n"
        assert place.quick("models", "delete", "net", "--json").data == {"ok": True, "deleted": "net"}
        assert place.quick("models", "--json").data["models"] == []
        assert len(fine(place.quick("models", "history", "net")).splitlines()) == 4

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("show", "nobody"), "there is no model `nobody`"),
            (("show", "net/7"), "the latest is 1"),
            (("show", "net@champion"), "has no alias `champion`"),
            (("show", "a/b/c"), "expected a version number"),
            (("get", "net@"), "cannot be empty"),
            (("alias", "net/1", "latest"), "cannot be an alias"),
            (("alias", "net/1", "a/b"), "try `a_b`"),
            (("register", "r1", "outputs/w", "--name", "a/b"), "try `a_b`"),
            (("register", "r1", "outputs/w", "--name", "x\n\x1b[31m"), ": try `"),
            (("register", "r1", "outputs/no", "--name", "x"), "has no `outputs/no`"),
            (("register", "r1", "../r2/outputs/w", "--name", "x"), "not a path below"),
            (("register", "r1", "outputs/w", "--name", "x", "--label", "y"), "NAME=VALUE"),
            (("unalias", "net", "champion"), "has no alias"),
            (("history", "nobody"), "there is no model"),
            (("delete", "nobody", "-y"), "there is no model"),
        ],
    )
    def test_wrong_calls_are_reported_kindly(self, place: Place, arguments: tuple[str, ...], said: str) -> None:
        self.register(place)
        err = refused(place.quick("models", *arguments))
        assert said in err
        assert "\x1b" not in err
        answer = place.quick("models", *arguments, "--json")
        assert (answer.code, answer.data["ok"]) == (2, False)

    def test_an_alias_that_is_wrong_registers_nothing(self, place: Place) -> None:
        assert refused(place.quick("models", "register", "r1", "outputs/w", "--name", "net", "--alias", "v1"))
        assert place.quick("models", "--json").data["models"] == []

    def test_a_version_without_its_files_is_shown_as_such(self, place: Place) -> None:
        self.register(place)
        (place.home / "models/net/1/files/w").unlink()
        assert ": missing" in fine(place.quick("models", "show", "net/1"))
        assert "files of net/1 are missing" in refused(place.quick("models", "get", "net"))

    def test_hostile_descriptions_do_not_reach_the_terminal(self, place: Place) -> None:
        self.register(place, "r1", "--description", ESCAPE.decode(), "--reason", ESCAPE.decode())
        fine(
            place.quick(
                "models", "describe", "net", ESCAPE.decode(), "--label", ESCAPE.decode() + "=" + ESCAPE.decode()
            )
        )
        for arguments in (
            ("models",),
            ("models", "show", "net"),
            ("models", "show", "net/1"),
            ("models", "history", "net"),
        ):
            out = fine(place.quick(*arguments))
            assert "\x1b" not in out
            assert "owned" in out


@pytest.mark.slow
def test_a_run_that_logs_a_model_registers_it(place: Place) -> None:
    code = """
from pathlib import Path
from phalanx import tracking
Path("w").write_bytes(b"weights")
tracking.params(lr=0.1)
tracking.model("w", name="team/net", metrics={"acc": 0.9})
tracking.artifact("w", name="copy", type="checkpoint")
"""
    (place.folder / "train.py").write_text(code)
    run_id = place.ran(f"{os.environ.get('PYTHON', 'python3')} train.py")
    (row,) = place.quick("models", "--json").data["models"]
    assert (row["name"], row["latest"]) == ("team_net", 1)
    version = wait_for(lambda: (v := place.quick("models", "show", "team_net/1", "--json").data)["digest"] and v)
    assert (version["run_id"], version["metrics"], version["digest"]) == (run_id, {"acc": 0.9}, sha256(b"weights"))
    rows = wait_for(lambda: [r for r in place.quick("artifacts", run_id, "--json").data["artifacts"] if r["digest"]])
    assert {row["type"] for row in rows} == {"checkpoint", "model"}
    assert {row["digest"] for row in rows} == {sha256(b"weights")}
    fine(place.quick("rm", "-y", run_id))
    fine(place.quick("models", "get", "team_net", "-o", str(place.folder / "got")))
    assert (place.folder / "got/w").read_bytes() == b"weights"
