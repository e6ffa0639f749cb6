"""One way in: every submission is checked, planned and recorded by the same code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phalanx import backends
from phalanx.backends.contract import Backend, Job
from phalanx.errors import CallError, Location, Note, SpecErrors
from phalanx.home.home import Home
from phalanx.run_paths import RECORDS
from phalanx.store import Run
from phalanx.submission.clone import clone
from phalanx.submission.model import CodeSource, Remark, RemarkKind, backend_of
from phalanx.submission.provenance import record
from phalanx.submission.submit import prepare, submit
from tests.scheduler.working import Works
from tests.submission.samples import submission_of

COUNTING = """
from phalanx.plan.frameworks import Framework, Wiring

plans = []

def wire(group):
    plans.append(group.run_id)
    return Wiring()

FRAMEWORK = Framework(wire)
"""
TWO = {
    "version": 1,
    "kind": "experiment",
    "framework": "counting",
    "environment": {"replicas": {"n_workers": 1}},
    "run": {"cmd": "true"},
}


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs of each plan that was made, by a framework of another package."""
    package = tmp_path / "installed"
    about = package / "counting-1.dist-info"
    about.mkdir(parents=True)
    (package / "counting_framework.py").write_text(COUNTING)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[phalanx.frameworks]\ncounting = counting_framework:FRAMEWORK\n")
    monkeypatch.syspath_prepend(str(package))
    import counting_framework  # type: ignore[import-not-found]

    found: list[str] = counting_framework.plans
    found.clear()
    return found


def git_folder(folder: Path) -> str:
    """A repository with one commit."""
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    done = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def records_of(home: Home, run: Run) -> Any:
    record(home, run, {})
    return json.loads((home.run(run.id).path / RECORDS).read_bytes())


def test_a_submission_is_planned_once(works: Works, plans: list[str]) -> None:
    run = submit(works.home, works.store, submission_of(TWO))
    assert plans == [run.id]
    again = clone(works.home, works.store, run, "restart", {})
    assert plans == [run.id, again.id]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"project": "*"}, "all projects"),
        ({"project": "a\nb"}, "`project` must not contain line breaks"),
        ({"name": "\x1b[31m"}, "`name` must not contain line breaks"),
        ({"tags": ("a", "\udcff")}, "`tags` must not contain line breaks"),
        ({"description": "a\0b"}, "`description` must not contain NUL"),
        ({"code": CodeSource(commit="\n")}, "`commit` must not contain line breaks"),
        ({"priority": 1_000_001}, "`priority`"),
        ({"timeout_s": 0.0}, "`timeout`"),
    ],
)
def test_what_no_run_can_have_is_refused(works: Works, fields: Mapping[str, Any], said: str) -> None:
    with pytest.raises(CallError, match=said):
        submit(works.home, works.store, replace(submission_of(), **fields))
    assert works.store.ids() == set()
    assert list(works.home.runs.iterdir()) == []


def test_a_program_that_renamed_its_run_does_not_prevent_a_restart(works: Works) -> None:
    run = submit(works.home, works.store, submission_of())
    assert clone(works.home, works.store, run._replace(name="two\nlines"), "restart", {}).name == "two\nlines"


def test_a_run_has_the_commit_of_its_folder(works: Works, tmp_path: Path) -> None:
    commit = git_folder(tmp_path / "code")
    run = submit(works.home, works.store, submission_of(folder=tmp_path / "code"))
    assert run.commit == commit
    assert records_of(works.home, run)["git"]["commit"] == commit
    assert submit(works.home, works.store, submission_of(folder=tmp_path)).commit is None


def test_clones_keep_what_was_said_of_code_that_was_sent(works: Works) -> None:
    git = {"commit": "c0ffee", "branch": "main", "dirty": False, "diff": ""}
    asked = replace(submission_of(), code=CodeSource(commit="c0ffee", git=git))
    run = submit(works.home, works.store, asked)
    again = clone(works.home, works.store, run, "restart", {})
    third = clone(works.home, works.store, again, "rerun", {})
    for one in (run, again, third):
        assert one.commit == "c0ffee"
        assert records_of(works.home, one)["git"] == git
        assert works.home.run(one.id).submitted()["from"] == str(works.home.run(one.id).path / "code")


def test_what_is_not_done_here_is_reported_also_to_a_server(works: Works) -> None:
    file = {
        "version": 1,
        "kind": "experiment",
        "environment": {"python": {"modules": ["cuda"]}, "resources": {"cpu": {"requests": 100_000}}},
        "build": {"image": "python", "build_steps": ["pip install x"]},
        "run": {"cmd": "true"},
    }
    remarks: list[Remark] = []
    prepare(works.home, submission_of(file, may_install=False), remarks.append)
    notes = [(remark.kind, remark.about) for remark in remarks if isinstance(remark.about, str)]
    assert [kind for kind, _ in notes] == [RemarkKind.WARNING, RemarkKind.NOTE, RemarkKind.NOTE, RemarkKind.NOTE]
    said = " | ".join(about for _, about in notes)
    assert "100000 CPUs" in said
    assert "image `python`" in said
    assert "the build steps are not run |" in said
    assert "`environment.python.modules` are not loaded here" in said


def test_remarks_about_a_line_say_which() -> None:
    note = Note(Location("p.yml", 3, 1), "environment", "worth knowing")
    assert Remark(RemarkKind.NOTE, note).as_json()["line"] == 3
    assert Remark(RemarkKind.NOTE, "said").as_json() == {"message": "said"}


class Unrenderable(Backend):
    """A backend of another package, without a shared folder, that can place nothing."""

    name = "full"
    shares_files = False

    def engine(self, target: Any, connections: Any) -> None: ...
    def render(self, plan: Any, target: Any = None) -> Job:
        raise CallError("no room for master-0\nno room for worker-0")


def test_what_its_cluster_cannot_place_is_reported_as_faults_of_the_file(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "find", lambda name: Unrenderable())
    monkeypatch.setattr(backends, "names", lambda: ("full",))
    with pytest.raises(SpecErrors) as raised:
        submit(works.home, works.store, submission_of(on="full", may_install=False))
    assert [(error.place.file, error.message) for error in raised.value.errors] == [
        ("p.yml", "no room for master-0"),
        ("p.yml", "no room for worker-0"),
    ]
    with pytest.raises(CallError, match="no room for master-0"):
        submit(works.home, works.store, submission_of(on="full", is_unchecked=True))
    assert works.store.ids() == set()


@pytest.mark.parametrize(
    ("backend", "on", "found"),
    [
        ("native", None, "native"),
        ("slurm", None, "slurm"),
        ("slurm", "local", "local"),
        ("native", "local", "native"),
        ("mpi", "kubernetes", "kubeflow"),
        ("native", "kubernetes", "kubernetes"),
    ],
)
def test_where_a_run_goes(backend: str, on: str | None, found: str) -> None:
    assert backend_of(backend, on) == found
