"""Where builds put what they make, and runs that use an earlier build."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phalanx import run_paths
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.store import StatusChange, Store
from phalanx.store.statuses import Status
from phalanx.submission import builds
from phalanx.submission.builds import BuildResult
from phalanx.submission.ops.factory import OpFactory
from phalanx.submission.submit import prepare, submit
from tests.scheduler.working import Works
from tests.submission.samples import submission_of

BUILD = {"version": 1, "kind": "build", "image": "python:3.11", "build_steps": ["echo x"]}


@pytest.fixture(name="home")
def home_fixture(works: Works) -> Home:
    return works.home


@pytest.fixture(name="store")
def store_fixture(works: Works) -> Store:
    return works.store


def build(home: Home, store: Store, folder: Path, status: str | None = "succeeded", **fields: Any) -> str:
    """A build that has ended, or goes on."""
    asked = submission_of({**BUILD, **fields}, folder=folder, environment=os.environ)
    run = submit(home, store, asked)
    if status is not None:
        change = StatusChange(run.id, 2, 1, Status(status), "because", run.created_at)
        home.run(run.id).append(change)
        store.record(change)
    return run.id


def experiment(home: Home, store: Store, ref: str, on: str | None = None, **fields: Any) -> Any:
    content = {"version": 1, "kind": "experiment", "build": {"ref": ref}, "run": {"cmd": "true"}, **fields}
    asked = submission_of(content, folder=home.path, environment=os.environ, on=on)
    pinned = replace(asked, spec=builds.pinned(asked.spec, store.find))
    return builds.with_earlier_build(home, pinned).spec


def test_equal_content_has_an_equal_place(home: Home, tmp_path: Path) -> None:
    def place(**fields: Any) -> str | None:
        return builds.result_of(home, submission_of({**BUILD, **fields}, folder=tmp_path), "run1").at

    first = place()
    assert first == place(nocache=True)
    assert len({first, place(build_steps=["y"]), place(env_vars={"A": "b"})}) == 3
    (tmp_path / "requirements.txt").write_text("x")
    assert place() != first
    elsewhere = builds.result_of(home, submission_of(BUILD), "run1")  # its files are not known here
    assert elsewhere.at == str(home.path / "builds" / "run1" / "venv")


@pytest.mark.parametrize(
    ("to", "at"),
    [
        ("x.sif", "{}/x.sif"),
        ("/y/x.sif", "/y/x.sif"),
        ("oci-archive:x.tar", "oci-archive:{}/x.tar"),
        ("r.io/a:1", "r.io/a:1"),
    ],
)
def test_where_an_image_goes(home: Home, tmp_path: Path, to: str, at: str) -> None:
    result = builds.result_of(home, submission_of({**BUILD, "to": to}, folder=tmp_path), "run1")
    assert result.at == at.format(tmp_path)


def test_a_virtual_environment_is_used_by_its_name_or_id_and_the_file_keeps_the_id(
    home: Home, store: Store, tmp_path: Path
) -> None:
    run_id = build(home, store, tmp_path, name="tools")
    made = BuildResult.read(home.run(run_id).path)
    assert made is not None
    assert made.at is not None
    Path(made.at).mkdir(parents=True)
    for ref in (run_id, "tools"):
        spec = experiment(home, store, ref)
        assert (spec.environment.python.venv, spec.build.ref) == (made.at, None)
        assert spec.document["build"]["ref"] == run_id
    with pytest.raises(CallError, match="runs on kubernetes cannot use it: build it with `--to REGISTRY"):
        experiment(home, store, run_id, on="kubernetes")


def test_ops_of_a_pipeline_keep_the_id_of_the_build_that_they_name(home: Home, store: Store, tmp_path: Path) -> None:
    first = build(home, store, tmp_path, name="tools")
    made = BuildResult.read(home.run(first).path)
    assert made is not None
    (Path(str(made.at)) / "bin").mkdir(parents=True)
    (Path(str(made.at)) / "bin" / "python").symlink_to(sys.executable)

    def pipeline(*ops: dict[str, Any], ref: str = "tools", **fields: Any) -> Any:
        template = {"kind": "job", "name": "train", "build": {"ref": ref}, "run": {"cmd": "true"}, **fields}
        content = {
            "version": 1,
            "kind": "pipeline",
            "ops": [{"template": {"name": "train"}, **op} for op in ops],
            "templates": [template],
        }
        return submit(home, store, submission_of(content, folder=tmp_path, environment=os.environ))

    other = {"name": "own", "params": {"which": "tools"}}
    whole = [
        pipeline({"name": "a"}, {"name": "b", "build": {"ref": first}}),
        pipeline({"name": "a", "build": {"ref": "tools"}}, other, ref="{{ which }}", params={"which": "tools"}),
    ]
    build(home, store, tmp_path, "failed", name="tools", build_steps=["echo other"])  # the name means this one now
    for run in whole:
        ops = OpFactory(home, run)
        for op in ops.pipeline.ops:
            asked = ops.asked(op, 0, {})
            assert asked.spec.build is not None
            assert asked.spec.build.ref == first
            assert builds.with_earlier_build(home, asked).spec.environment.python.venv == made.at
    with pytest.raises(CallError, match=r"op `a`: `build\.ref`: .*nothing"):
        pipeline({"name": "a"}, ref="nothing")


def test_images_are_used_where_they_can_be(
    home: Home, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("apptainer", "buildah"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    sif, image = build(home, store, tmp_path, to="x.sif"), build(home, store, tmp_path, to="r.example/x:1")
    with pytest.raises(CallError, match="is gone"):
        experiment(home, store, sif, on="slurm")
    (tmp_path / "x.sif").touch()
    assert experiment(home, store, sif, on="slurm").environment.python.image == f"{tmp_path}/x.sif"
    assert experiment(home, store, image, on="kubernetes").build.image == "r.example/x:1"
    for run_id, on in ((sif, None), (sif, "kubernetes"), (image, None), (image, "slurm")):
        with pytest.raises(CallError, match="cannot use it"):
            experiment(home, store, run_id, on=on)


def test_a_ref_that_is_unknown_failed_or_no_build_is_a_clear_error(home: Home, store: Store, tmp_path: Path) -> None:
    failed = build(home, store, tmp_path, "failed")
    other = submit(home, store, submission_of(folder=tmp_path, environment=os.environ)).id
    for ref, words in {
        "nobody": r"`build\.ref`: .*nobody",
        failed: f"is failed, not succeeded: `phalanx logs {failed}` shows why",
        other: "is not a build",
    }.items():
        with pytest.raises(CallError, match=words):
            experiment(home, store, ref)
    asked = submission_of({"version": 1, "kind": "experiment", "build": {"ref": "../../x"}, "run": {"cmd": "true"}})
    with pytest.raises(CallError, match="not the id of a run"):
        builds.with_earlier_build(home, asked)


def test_a_damaged_file_is_no_build(tmp_path: Path) -> None:
    for text in ("[]", "{}", '{"target": "cake", "at": "x"}', "x"):
        (tmp_path / run_paths.BUILD).write_text(text)
        assert BuildResult.read(tmp_path) is None
    (tmp_path / run_paths.BUILD).write_text(json.dumps({"target": "registry", "at": "r/x"}))
    assert BuildResult.read(tmp_path) == ("registry", "r/x")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"to": "x.sif"}, "needs `apptainer`"),
        ({"to": "x.tar"}, "needs `buildah`, `podman`, `docker` or `buildctl`"),
        ({"image": None, "dockerfile": "Dockerfile"}, "say where it goes, with `--to"),
        ({"image": None, "ref": "x"}, "name an `image` instead"),
    ],
)
def test_what_the_machine_lacks_is_said_before_anything_is_written(
    home: Home, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    content = {key: value for key, value in {**BUILD, **fields}.items() if value is not None}
    asked = submission_of(content, folder=tmp_path, environment={"PATH": str(tmp_path)})
    with pytest.raises(CallError, match=words):
        prepare(home, asked, lambda _: None)
    assert not list(home.runs.glob("*"))
