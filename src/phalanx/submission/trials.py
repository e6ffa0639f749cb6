"""Makes the runs of a group: everything comes from the group's folder, so that any scheduler can do it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.artifacts.downloads import restore
from phalanx.artifacts.outputs import read_manifest
from phalanx.atomic_files import read_json, write_atomic
from phalanx.errors import CallError
from phalanx.home.group_folder import trial_id
from phalanx.home.home import Home
from phalanx.insight.trial_metric import TrialMeasure
from phalanx.plan import Plan
from phalanx.plan.framework_checks import load
from phalanx.spec.groups import suggestion
from phalanx.spec.matrix import SEED, first_values
from phalanx.spec.model import Search, thaw
from phalanx.store import Run, Store
from phalanx.stored_plan import PlanDamaged, read_plan
from phalanx.submission.allocation import allocation_plan, allocation_spec
from phalanx.submission.builds import with_earlier_build
from phalanx.submission.clone import code_of
from phalanx.submission.model import (
    TRIAL_RUNG,
    PreparedEnvironment,
    PreparedRun,
    Submission,
    TrialPlace,
)
from phalanx.submission.submit import create, files_of, make_plan, render, run_of, target_of
from phalanx.submission.trial_jobs import read_trial_jobs

_UNKNOWN = object()


class TrialFactory:
    """Reads the file of a group, its environment and its cluster once, for all trials. Raises CallError, SpecErrors."""

    def __init__(self, home: Home, group: Run) -> None:
        self.home = home
        self.group = group
        folder = home.run(group.id)
        try:
            text = (folder.path / run_paths.SPEC).read_bytes()
        except OSError:
            raise CallError(f"the folder of group {group.id} has no {run_paths.SPEC}") from None
        self.spec, self.tree = load([(str(folder.path / run_paths.SPEC), text)], {})
        self.settings: Mapping[str, Any] = read_json(folder.path / run_paths.GROUP) or {}
        archive = folder.path / run_paths.JOB / run_paths.VIRTUALENV_ARCHIVE
        self.environment = PreparedEnvironment(
            home.environment(group.id), folder.submitted().get("venv"), archive if archive.exists() else None
        )
        assert self.spec.search is not None, "a group has a search"
        self.search = self.spec.search
        self.measure = measure_of(self.search)
        self.jobs = read_trial_jobs(self.settings)  # on Slurm
        self.is_packed = self.jobs is not None and self.jobs.is_packed
        self.target: Any = _UNKNOWN

    def prepare(self, trial: TrialPlace, params: Mapping[str, Any]) -> PreparedRun:
        """Plan one trial. Raises SpecErrors and CallError for values that cannot run, SystemFault."""
        group = self.group
        seed = {} if trial.seed is None else {SEED: trial.seed}
        name = "-".join(map(str, [group.name, trial.number, *seed.values()])) if group.name else None
        submission = Submission(
            spec=suggestion(self.spec, {**params, **seed}),
            tree=self.tree,
            environment=self.environment.variables,
            code=code_of(self.home, group),
            name=name,
            tags=group.tags,
            project=group.project,
            priority=group.priority,
            timeout_s=self.settings.get("timeout_s"),
            on=group.backend,
            cluster=self.settings.get("cluster") or {},
            user=group.user,
            is_unchecked=True,
            prepared=self.environment,
            trial=trial,
            is_remote=self.home.run(group.id).is_remote,
        )
        submission = with_earlier_build(self.home, submission)
        made = make_plan(submission, trial_id(group.id, trial.number, trial.seed or 0))
        job = None
        if self.jobs is not None and self.is_packed:  # it goes on in the next job, if the time of one is over
            made = replace(made, slurm=made.slurm._replace(segment_s=self.jobs.time_s))
        else:
            job = render(self.home, submission, made, self._target(submission, made))
        return PreparedRun(submission, run_of(submission, made.run_id, made, group.commit), made, job, self.environment)

    def _target(self, submission: Submission, made: Plan) -> Any:
        if self.target is _UNKNOWN:
            self.target = target_of(self.home, submission, made)
        return self.target

    def allocation(self) -> PreparedRun:
        """The run of the allocation of packed trials. Raises CallError, SystemFault."""
        assert self.jobs is not None
        assert self.is_packed, "the trials of this group are packed"
        group = self.group
        place = TrialPlace(group.id, 0)
        trial = self.prepare(place, first_values(self.search))
        spec, tree = allocation_spec(self.home.path, group.id, group.name or group.id)
        asked = replace(trial.submission, spec=spec, tree=tree, name=None, trial=place)
        assert trial.plan is not None
        made = allocation_plan(spec, group.id, trial.plan, self.jobs, group.project)
        job = render(self.home, asked, made, self._target(asked, made))
        return PreparedRun(asked, run_of(asked, made.run_id, made, group.commit), made, job, self.environment)

    def create(self, store: Store, prepared: PreparedRun, outputs_of: str | None = None) -> Run:
        """Write the folder and the row of a new trial; `outputs_of`: it starts with a copy of this run's outputs."""
        shutil.rmtree(self.home.runs / f".{prepared.run.id}", ignore_errors=True)  # left by a scheduler that was killed
        if outputs_of is None:
            return create(self.home, store, prepared)
        _restore(self.home, outputs_of)
        source = self.home.run(outputs_of).path / run_paths.OUTPUTS
        return create(self.home, store, prepared, outputs=source)

    def start_over(self, run: Run, source: str | None) -> None:
        """Give the next attempt of an ended trial outputs without its own (those of `source`, or none) and, if it has
        one, a new working folder. Can be repeated."""
        replace_outputs(self.home, run, source)
        folder, code = self.home.run(run.id), code_of(self.home, self.group)
        if code.put is not None and folder.has_snapshot():
            draft = folder.path / f".{run_paths.CODE}"
            shutil.rmtree(draft, ignore_errors=True)
            code.put(draft)
            shutil.rmtree(folder.code, ignore_errors=True)
            draft.rename(folder.code)

    def replan(self, store: Store, prepared: PreparedRun) -> None:
        """Give a trial that has ended the plan of its next attempt. The plan is the last file to be replaced. Can be
        repeated. Raises OSError."""
        folder = self.home.run(prepared.run.id)
        params = thaw(prepared.run.params)
        kept = folder.read()
        if kept is not None:
            original = json.loads((folder.path / run_paths.RUN).read_bytes())
            write_atomic(folder.path / run_paths.RUN, json.dumps({**original, "params": params}, default=str).encode())
        store.put_params(prepared.run.id, params)
        for name, data in files_of(prepared).items():
            write_atomic(folder.path / name, data)
            if name.endswith(".sh"):
                os.chmod(folder.path / name, 0o700)
        self.home.keep_environment(prepared.run.id, self.environment.variables)


def planned_rung(folder: Path) -> int | None:
    """The rung that the plan of a trial is for; None if it cannot be read."""
    try:
        return int(str(read_plan(folder).environment[TRIAL_RUNG]))
    except (OSError, PlanDamaged, KeyError, ValueError):
        return None


def replace_outputs(home: Home, run: Run, source: str | None) -> None:
    """Set the outputs of an ended trial aside; its next attempt starts without any, or with a copy of those of another
    run. Can be repeated."""
    folder = home.run(run.id).path
    outputs, aside = folder / run_paths.OUTPUTS, folder / run_paths.earlier_outputs(run.attempt)
    if outputs.is_dir() and not aside.exists():
        outputs.rename(aside)
    shutil.rmtree(outputs, ignore_errors=True)
    if source is not None:
        _restore(home, source)
        theirs, draft = home.run(source).path / run_paths.OUTPUTS, folder / f".{run_paths.OUTPUTS}"
        if theirs.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
            shutil.copytree(theirs, draft, symlinks=True)
            draft.rename(outputs)


def _restore(home: Home, run_id: str) -> None:
    """Get back files that are only in remote storage."""
    if any(kept.freed for kept in read_manifest(home.run(run_id).path).files.values()):
        restore(home, run_id)


def measure_of(search: Search) -> TrialMeasure | None:
    """How the value of a trial is taken; None for a search that compares nothing."""
    written = search.metric
    if written is None:
        return None
    return TrialMeasure(
        name=written["name"],
        maximize=written.get("optimization", "maximize") == "maximize",
        is_best=written.get("value") == "best",
        step=written.get("step"),
        ranks=written.get("ranks", "first"),
    )
