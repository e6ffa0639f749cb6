"""Makes the runs of a pipeline's ops, and the pipelines of a schedule, from the folder of the pipeline or schedule."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.spec.loader import load_document
from phalanx.spec.model import Operation, Pipeline, thaw_written
from phalanx.store import Run, Store
from phalanx.submission import virtualenvs
from phalanx.submission.clone import code_of
from phalanx.submission.model import OpPlace, PreparedEnvironment, PreparedRun, Submission
from phalanx.submission.ops import inputs as op_inputs
from phalanx.submission.ops.submissions import op_submission, reuses
from phalanx.submission.submit import create, prepare_checked, run_of
from phalanx.tracking.external_folder import derived_id


def op_id(pipeline_id: str, op: str, number: int) -> str:
    """The id of a run of an op: derived, so that a run that is made again after a crash is the same run."""
    return derived_id("op", pipeline_id, op, number)


def tick_id(schedule_id: str, at: datetime) -> str:
    """The id of the pipeline that a tick of a schedule starts."""
    return derived_id("tick", schedule_id, at.isoformat())


class OpFactory:
    """Reads the file of a pipeline or schedule once. Raises CallError, SpecErrors."""

    def __init__(self, home: Home, whole: Run) -> None:
        self.home, self.whole = home, whole
        self.folder = home.run(whole.id)
        try:
            text = (self.folder.path / run_paths.SPEC).read_bytes()
        except OSError:
            raise CallError(f"the folder of {whole.kind} {whole.id} has no {run_paths.SPEC}") from None
        self.spec, self.tree = load([(str(self.folder.path / run_paths.SPEC), text)], {})
        self.settings: Mapping[str, Any] = read_json(self.folder.path / run_paths.PIPELINE) or {}
        assert self.spec.pipeline is not None, "a pipeline has ops"
        self.pipeline: Pipeline = self.spec.pipeline
        self.ops: dict[str, Operation] = {op.name: op for op in self.pipeline.ops}

    @cached_property
    def is_reusing(self) -> bool:
        return any(reuses(op, self.spec) for op in self.pipeline.ops)

    @cached_property
    def timeout_s(self) -> float | None:
        given: float | None = self.settings.get("timeout_s")
        return self.pipeline.timeout_s if given is None else given

    def submission(self) -> Submission:
        """That of the pipeline. Raises CallError if its code is gone."""
        whole = self.whole
        return Submission(
            spec=self.spec,
            tree=self.tree,
            environment=self.home.environment(whole.id),
            code=code_of(self.home, whole),
            name=whole.name,
            tags=tuple(tag for tag in whole.tags if tag not in self.spec.tags),
            project=whole.project,
            priority=whole.priority,
            timeout_s=self.settings.get("timeout_s"),
            on=self.settings.get("on"),
            cluster=self.settings.get("cluster") or {},
            user=whole.user,
            is_unchecked=True,
            may_install=False,
            is_remote=self.folder.is_remote,
        )

    def asked(self, op: Operation, number: int, values: Mapping[str, Any]) -> Submission:
        """The submission of a run of an op. Raises CallError and SpecErrors for values that cannot run."""
        place = OpPlace(self.whole.id, op.name, number)
        asked = op_submission(self.submission(), op, place, values)
        inputs = op_inputs.to_send(self.home, asked, values)
        if inputs:
            sent = {name: one.inside for name, one in inputs.items()}
            asked = op_submission(self.submission(), op, place, {**values, **sent})
            asked = replace(asked, inputs={one.inside: one.path for one in inputs.values()})
        return replace(asked, prepared=self.environment(asked, op.name))

    def environment(self, asked: Submission, op: str) -> PreparedEnvironment:
        """What was prepared for the op when its pipeline was submitted."""
        kept = (self.settings.get("ops") or {}).get(op) or {}
        variables = asked.environment
        python, build = asked.spec.environment.python, asked.spec.build
        if asked.is_local and (python.venv or python.conda):
            variables = virtualenvs.existing_python(python, variables) or variables
        elif kept.get("venv") is not None:
            variables = {**variables, **dict(build.env_vars if build is not None else ())}
            variables = virtualenvs.variables(Path(kept["venv"]), variables)
        archive = self.folder.path / run_paths.JOB / f"{op}.{run_paths.VIRTUALENV_ARCHIVE}"
        return PreparedEnvironment(
            variables, kept.get("venv"), archive if kept.get("archive") else None, bool(kept.get("kept"))
        )

    def create(self, store: Store, asked: Submission, number: int) -> Run:
        """Write the folder and the row of a new run of an op. Raises CallError, SpecErrors, SystemFault."""
        assert asked.op is not None
        assert asked.op.op is not None
        run_id = op_id(self.whole.id, asked.op.op, number)
        prepared = prepare_checked(self.home, asked, run_id, lambda _: None, store)
        return self._created(store, prepared)

    def tick(self, store: Store, at: datetime) -> Run:
        """The pipeline of a tick: the same file, without its schedule."""
        document = thaw_written(self.spec.document)
        del document["schedule"]
        spec = replace(load_document(self.spec.file, document), places=self.spec.places)
        asked = replace(self.submission(), spec=spec, op=OpPlace(self.whole.id))
        ops = {name: self.environment(op_submission(asked, op, OpPlace("")), name) for name, op in self.ops.items()}
        run = run_of(asked, tick_id(self.whole.id, at), None, self.whole.commit)
        prepared = PreparedRun(
            asked, run, None, None, PreparedEnvironment(asked.environment), None, ops, self.settings.get("code")
        )
        return self._created(store, prepared)

    def _created(self, store: Store, prepared: PreparedRun) -> Run:
        shutil.rmtree(self.home.runs / f".{prepared.run.id}", ignore_errors=True)  # left by a scheduler that was killed
        return create(self.home, store, prepared)
