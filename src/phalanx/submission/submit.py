"""From a submission to a run: check, plan, prepare; then create its folder and its row.

`prepare` checks everything, and changes only the virtual environments in the home. `create` then writes the run. If it
is killed between folder and row, the scheduler adopts the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phalanx import backends, plan, run_paths
from phalanx.artifacts.downloads import restore
from phalanx.atomic_files import make_private, write_atomic
from phalanx.backends.agent_zip import carry, pack
from phalanx.backends.contract import Job
from phalanx.errors import CallError, SpecErrors
from phalanx.home.dependencies import Dependency, encode, waiting_words
from phalanx.home.home import Home, RunDraft
from phalanx.ingest.adoption import add_to_store
from phalanx.notifications.run_rules import FileRules, encode_rules
from phalanx.placeholders import is_safe
from phalanx.plan import Plan
from phalanx.plan.builders import BuildTarget
from phalanx.plan.document import document, document_text
from phalanx.spec.groups import first_suggestion
from phalanx.spec.model import Amount, Kind, Pipeline, Spec, thaw
from phalanx.spec.yaml_writer import modern_document, to_yaml
from phalanx.store import Run, StatusChange, Store
from phalanx.store.kinds import SCHEDULE
from phalanx.store.statuses import Status
from phalanx.submission import builds, checks, snapshots, virtualenvs
from phalanx.submission.allocation import jobs_of_group, unshared_python
from phalanx.submission.builds import BuildResult
from phalanx.submission.earlier_times import earlier_times
from phalanx.submission.git import git
from phalanx.submission.model import (
    CodeSource,
    Notify,
    OpPlace,
    PreparedEnvironment,
    PreparedRun,
    Remark,
    RemarkKind,
    Submission,
)
from phalanx.submission.ops import inputs as op_inputs
from phalanx.submission.ops.submissions import OpFaults, alike, digest_of_code, op_submission, reuses
from phalanx.tracking.calls import sealed_files
from phalanx.tracking.external_folder import new_id, user_name

SLURM = "slurm"
NEEDS_SERVER = "its schedule ticks only while a server runs: start one with `phalanx serve`"


def submit(home: Home, store: Store, submission: Submission, notify: Notify = lambda _: None) -> Run:
    """Create and queue a run. Raises SpecErrors, CallError."""
    return create(home, store, prepare(home, submission, notify, store))


def prepare(home: Home, submission: Submission, notify: Notify, store: Store | None = None) -> PreparedRun:
    """Check and plan a run that does not exist yet. `notify` gets warnings, advice, notes and the progress of builds.
    `store`: where a group finds how long earlier runs took. Raises SpecErrors, CallError."""
    if submission.origin is None:  # a program may have renamed its run since
        checks.check_fields(submission)
    if store is not None:
        submission = replace(submission, spec=builds.pinned(submission.spec, store.find))
    if submission.spec.pipeline is not None:
        return _prepare_pipeline(home, submission, submission.spec.pipeline, notify, store)
    if submission.spec.search is not None:
        checks.check_search(submission.spec.search)
    checks.check_runnable(home.path, _first(submission))
    return prepare_checked(home, submission, new_id(), notify, store)


def _prepare_pipeline(
    home: Home, submission: Submission, pipeline: Pipeline, notify: Notify, store: Store | None
) -> PreparedRun:
    """Check and plan each op, as far as that is possible before the ops that it depends on have run. Raises SpecErrors,
    CallError: the faults of all ops."""
    run_id, faults, said = new_id(), OpFaults(), set[str]()

    def notify_once(remark: Remark) -> None:
        if str(remark.about) not in said:
            said.add(str(remark.about))
            notify(remark)

    found: dict[str, PreparedRun] = {}
    for op, is_known in alike(pipeline.ops):
        try:
            asked = op_submission(submission, op, OpPlace(run_id, op.name))
            asked = replace(asked, is_unchecked=asked.is_unchecked or is_known)
            found[op.name] = prepare(home, asked, notify_once, store)
        except (CallError, SpecErrors) as fault:
            faults.add(op.name, fault)
    faults.check()
    if pipeline.schedule is not None:
        notify(Remark(RemarkKind.NOTE, NEEDS_SERVER))
    is_reusing = any(reuses(op, submission.spec) for op in pipeline.ops)
    digest = digest_of_code(submission.code.folder) if is_reusing else None
    specs = {name: prepared.submission.spec for name, prepared in found.items()}
    submission = replace(submission, spec=builds.with_pinned_ops(submission.spec, specs))
    run = run_of(submission, run_id, None, commit_of(submission.code))
    environments = {name: prepared.environment for name, prepared in found.items()}
    return PreparedRun(
        submission, run, None, None, PreparedEnvironment(submission.environment), None, environments, digest
    )


def _first(submission: Submission) -> Submission:
    """The submission of a run; of a group, that of its first trial: all trials pass the same checks, except those of
    their values."""
    is_group = submission.spec.search is not None
    return replace(submission, spec=first_suggestion(submission.spec)) if is_group else submission


def prepare_checked(
    home: Home, asked: Submission, run_id: str, notify: Notify, store: Store | None = None
) -> PreparedRun:
    """Plan a run or group that can run. Raises SpecErrors, CallError."""
    submission = _first(builds.with_earlier_build(home, asked))
    asked = replace(asked, waits_for=submission.waits_for)
    built = builds.result_of(home, submission, run_id) if submission.spec.kind is Kind.BUILD else None
    made = make_plan(submission, run_id, builds.variables(built) if built is not None else {})
    for note in (*submission.spec.notes, *made.notes):
        notify(Remark(RemarkKind.NOTE, note))
    if submission.is_local:
        checks.check_capacity(made, notify, strict=submission.is_strict)
        for line in checks.ignored_fields(submission.spec):
            notify(Remark(RemarkKind.NOTE, line))
    target = target_of(home, submission, made)
    jobs, submitted = None, made
    if asked.spec.search is not None and asked.backend == SLURM:
        earlier = earlier_times(home, store, asked.spec, made) if store is not None else None
        jobs, submitted = jobs_of_group(home.path, asked.spec, made, target, asked.environment, earlier)
        notify(Remark(RemarkKind.NOTE, jobs.words))
        unshared = unshared_python(home.path) if jobs.is_packed else None
        if unshared is not None:
            notify(Remark(RemarkKind.WARNING, unshared))
    if not submission.is_local and not submission.is_unchecked:
        checks.check_backend(home.path, submission, submitted, notify)
    job = render(home, submission, submitted, target)
    first = None if submission.prepared is not None else _build_first(home, submission)
    if first is None:
        environment = submission.prepared or virtualenvs.prepare(submission, home.path / "builds", notify)
    else:
        assert isinstance(first.built, BuildResult)
        given = {**submission.environment, **dict(submission.spec.build.env_vars if submission.spec.build else ())}
        environment = PreparedEnvironment(virtualenvs.variables(Path(first.built.at or ""), given), first.built.at)
    if not submission.is_unchecked:
        checks.check_notebook(submission, environment.variables.get("PATH", os.defpath))
    run = run_of(asked, made.run_id, made, commit_of(asked.code))
    return PreparedRun(asked, run, made, job, environment, jobs, built=built, build_first=first)


def _build_first(home: Home, submission: Submission) -> PreparedRun | None:
    """The build that makes the virtual environment of a run, as a run before it. None if none is needed, or it is made
    already. Raises SpecErrors."""
    own = builds.own_build(submission)
    if own is None or builds.is_built(home, own):
        return None
    asked, run_id = own.submission, new_id()
    built = BuildResult(BuildTarget.VIRTUALENV, str(home.path / "builds" / own.key / "venv"))
    made = make_plan(asked, run_id, builds.variables(built, is_isolated=own.is_isolated))
    run = run_of(asked, run_id, made, commit_of(asked.code))
    return PreparedRun(asked, run, made, None, PreparedEnvironment(asked.environment), built=built)


def _after_build(home: Home, store: Store, prepared: PreparedRun) -> PreparedRun:
    """The same, waiting for its build, which is created unless one that makes the same is under way."""
    first = prepared.build_first
    if first is None:
        return prepared
    return after_build(prepared, build_underway(home, store, first) or create(home, store, first))


def build_underway(home: Home, store: Store, first: PreparedRun) -> Run | None:
    """A build that makes the same as one that is to be created."""
    assert isinstance(first.built, BuildResult)
    return builds.underway(home, store, first.built.at or "")


def after_build(prepared: PreparedRun, build: Run) -> PreparedRun:
    """The same run, waiting for a build."""
    waits_for = (*prepared.submission.waits_for, Dependency.on_build(build.id, build.name))
    return replace(prepared, submission=replace(prepared.submission, waits_for=waits_for))


def make_plan(submission: Submission, run_id: str, variables: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """Raises SpecErrors."""
    own = submission.place.variables if submission.place is not None else {}
    made = plan.make(submission.spec, run_id, submission.project, {**variables, **own})
    return made if submission.timeout_s is None else replace(made, timeout_s=submission.timeout_s)


def create(home: Home, store: Store, prepared: PreparedRun, outputs: Path | None = None) -> Run:
    """Write the folder of the run or group, then its row; `outputs` are copied into it. Raises CallError if the folder
    cannot be written."""
    prepared = _after_build(home, store, prepared)
    made = draft(home, prepared, outputs)
    add_to_store(store, made.publish(), prepared.run)
    return submitted(prepared)


def draft(
    home: Home,
    prepared: PreparedRun,
    outputs: Path | None = None,
    beside: RunDraft | None = None,
) -> RunDraft:
    """Write the folder of a run, group or pipeline, still hidden. `beside`: a draft of the same call with the same
    environment. Raises CallError."""
    submission, run, job = prepared.submission, prepared.run, prepared.job
    code, is_whole = _code(submission), submission.spec.kind in (Kind.GROUP, Kind.PIPELINE)
    if submission.origin is not None and submission.origin.outputs is not None:
        outputs = submission.origin.outputs
        restore(home, submission.origin.run_id)

    def fill(folder: Path) -> None:
        if code.put is not None:
            code.put(folder / run_paths.CODE)
        if submission.call is not None:
            _put_call(folder, submission.call, with_code=code.put is not None)
        if submission.inputs:
            op_inputs.put(submission.inputs, folder / run_paths.CODE)
        if outputs is not None and outputs.is_dir():
            shutil.copytree(outputs, folder / run_paths.OUTPUTS, symlinks=True)
        if is_whole:
            _link_archives(folder / run_paths.JOB, prepared)
        if submission.is_local and submission.trial is None and beside is None:
            pack(home.agents)  # now, so that a full disk rejects the run instead of leaving it without an agent
        if job is not None and job.carries_agent and not is_whole:
            _carry(folder, home, prepared.environment)

    own_code = home.run(run.id).path / run_paths.CODE
    source: dict[str, Any] = {
        "working": str(own_code if code.put is not None else code.folder),
        "from": str(code.folder or own_code),
        "host": socket.gethostname(),
        "venv": prepared.environment.venv,
    }
    if code.folder is None:
        source["git"] = code.git
    if submission.is_remote:
        source["remote"] = True
    files = {run_paths.SUBMITTED: json.dumps(source).encode(), **files_of(prepared)}
    keep = partial(_keep_environment, home, prepared, beside)
    return home.draft(run, files, keep, fill, filter(None, [_waiting_for_build(prepared)]))


def _keep_environment(home: Home, prepared: PreparedRun, beside: RunDraft | None) -> None:
    if beside is None:
        home.keep_environment(prepared.run.id, prepared.environment.variables)
    else:
        home.share_environment(beside.run.id, prepared.run.id)


def submitted(prepared: PreparedRun) -> Run:
    """The record of a run that was just created."""
    building = _waiting_for_build(prepared)
    return prepared.run if building is None else prepared.run._replace(status=building.status, reason=building.reason)


def _waiting_for_build(prepared: PreparedRun) -> StatusChange | None:
    """The second status of a run whose build is not finished."""
    submission, run = prepared.submission, prepared.run
    build = next((other for other in submission.waits_for if other.is_build), None)
    if build is None or submission.spec.kind in (Kind.GROUP, Kind.PIPELINE):
        return None
    return StatusChange(run.id, 2, run.attempt, Status.BUILDING, waiting_words([build]), run.created_at)


def files_of(prepared: PreparedRun) -> dict[str, bytes]:
    """The spec, and the job and plan for the run's backend, in the order to write them. A group has what its trials are
    made from instead of a plan."""
    submission = prepared.submission
    files = {run_paths.SPEC: to_yaml(modern_document(submission.spec)).encode()}
    if submission.waits_for:
        files[run_paths.AFTER] = encode(submission.waits_for)
    files |= _notify(submission)
    if submission.spec.collect.keep is not None and submission.spec.kind not in (Kind.GROUP, Kind.PIPELINE):
        files[run_paths.KEEP] = json.dumps(submission.spec.collect.keep._asdict()).encode()
    settings: dict[str, Any] = {"timeout_s": submission.timeout_s, "cluster": dict(submission.cluster)}
    if submission.spec.kind is Kind.GROUP:
        if prepared.trial_jobs is not None:
            settings |= prepared.trial_jobs.settings
        return {**files, run_paths.GROUP: json.dumps(settings).encode()}
    if submission.spec.kind is Kind.PIPELINE:
        ops = {
            name: {"venv": found.venv, "archive": found.archive is not None, "kept": found.is_kept}
            for name, found in prepared.ops.items()
        }
        settings |= {"on": submission.on, "ops": ops, "code": prepared.code_digest}
        return {**files, run_paths.PIPELINE: json.dumps(settings).encode()}
    assert prepared.plan is not None
    if prepared.built is not None:
        files[run_paths.BUILD] = json.dumps(prepared.built._asdict()).encode()
    job = {name: text.encode() for name, text in prepared.job.files.items()} if prepared.job is not None else {}
    made = job.pop(run_paths.PLAN, None) or document_text(document(prepared.plan)).encode()
    return {**files, **job, run_paths.PLAN: made}


def _notify(submission: Submission) -> dict[str, bytes]:
    """The rules of the file. Those of a group or pipeline are for the whole; its runs have only those for trials."""
    is_whole = submission.place is None or submission.spec.kind is Kind.PIPELINE  # also of a schedule's tick
    rules = [rule for rule in submission.spec.notify if is_whole or rule.trials]
    if not rules:
        return {}
    return {run_paths.NOTIFY: encode_rules(FileRules(tuple(rules), submission.is_remote))}


def _code(submission: Submission) -> CodeSource:
    """The same code, with `put` set unless the run works in the user's folder."""
    code = submission.code
    folder = code.folder
    if code.put is not None:
        return code
    if folder is None:
        return replace(code, put=lambda target: target.mkdir(mode=0o700))
    is_copied = code.is_snapshot or not (submission.is_local or backends.find(submission.backend).shares_files)
    return replace(code, put=lambda target: snapshots.take(folder, target)) if is_copied else code


def _put_call(folder: Path, call: bytes, *, with_code: bool) -> None:
    """Write the call file of a function: beside the code where that is sent to the machines of the run."""
    digest = sealed_files.digest_of(call)
    inside = sealed_files.code_name(digest) if with_code else sealed_files.call_name(digest)
    target = folder / (run_paths.CODE if with_code else sealed_files.FOLDER) / inside
    make_private(target.parent, folder)
    write_atomic(target, call)


def _link_archives(folder: Path, prepared: PreparedRun) -> None:
    """Keep the archives of virtual environments that runs of a group or ops of a pipeline are started with."""
    names = {run_paths.VIRTUALENV_ARCHIVE: prepared.environment.archive}
    names |= {f"{name}.{run_paths.VIRTUALENV_ARCHIVE}": found.archive for name, found in prepared.ops.items()}
    for name, archive in names.items():
        if archive is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
            os.link(archive, folder / name)


def _carry(folder: Path, home: Home, environment: PreparedEnvironment) -> None:
    """Add what a job needs to run without Phalanx: the agent, and the archive of its virtual environment."""
    job = folder / run_paths.JOB
    carry(job, home.agents)
    for script in folder.glob("*.sh"):
        script.chmod(0o700)
    if environment.archive is not None:
        os.link(environment.archive, job / run_paths.VIRTUALENV_ARCHIVE)
    elif environment.is_kept:
        (job / run_paths.KEEP_VIRTUALENV).touch(mode=0o600)


def run_of(submission: Submission, run_id: str, made: Plan | None, commit: str | None) -> Run:
    """The record of a new run, group or pipeline."""
    now = datetime.now(UTC)
    loaded, origin, place = submission.spec, submission.origin, submission.place
    alone = made if loaded.kind is not Kind.GROUP else None
    varied = {dimension.name for dimension in loaded.search.matrix} if loaded.search is not None else ()
    return Run(
        id=run_id,
        project=submission.project,
        kind=kind_of(loaded),
        name=submission.name or loaded.name,
        description=submission.description or loaded.description,
        framework=loaded.framework,
        backend=submission.backend,
        user=submission.user or user_name(),
        status=Status.CREATED,
        reason="submitted",
        attempt=0,
        priority=submission.priority,
        created_at=now,
        updated_at=now,
        started_at=None,
        finished_at=None,
        original=origin.run_id if origin is not None else None,
        cloning=origin.cloning if origin is not None else None,
        group=place.group if place is not None else None,
        commit=commit,
        tags=tuple(dict.fromkeys([*loaded.tags, *submission.tags])),
        params={name: value for name, value in thaw(loaded.params).items() if name not in varied},
        summary={},
        replica_count=None if alone is None else sum(alone.roles.values()),
        cpus=None if alone is None else _reserved(alone.totals.cpu),
        memory_mib=None if alone is None else _reserved(alone.totals.memory),
        gpus=None if alone is None else _reserved(alone.totals.gpu) or 0.0,
    )


def kind_of(loaded: Spec) -> str:
    """The kind of a run of this file: a pipeline with a schedule is run at each tick."""
    is_schedule = loaded.pipeline is not None and loaded.pipeline.schedule is not None
    return SCHEDULE if is_schedule else str(loaded.kind)


def _reserved(amount: Amount | None) -> float | None:
    """The request, or the limit if there is no request."""
    if amount is None:
        return None
    reserved = amount.limits if amount.requests is None else amount.requests
    return None if reserved is None else float(reserved)


def commit_of(code: CodeSource) -> str | None:
    if code.is_commit_known or code.commit is not None or code.folder is None or code.put is not None:
        return code.commit
    return (git(code.folder, "rev-parse", "HEAD") or "").strip() or None


def target_of(home: Home, submission: Submission, made: Plan) -> Any:
    """Where the jobs of a submission go; may ask the cluster. Raises CallError, SystemFault."""
    if submission.is_local:
        return None
    return backends.find(submission.backend).target(home.path, made, options=submission.cluster, ask=True)


def render(home: Home, submission: Submission, made: Plan, target: Any) -> Job | None:
    """The job for the run's backend; None for this machine, which runs the plan itself. Raises CallError."""
    if submission.is_local:
        return None
    backend = submission.backend
    if not is_safe(str(home.path)):
        raise CallError(
            f"the home {str(home.path)!r} has quotes or other characters that cannot be passed to {backend}: "
            "set PHALANX_HOME to another path"
        )
    return backends.find(backend).render(made, target)
