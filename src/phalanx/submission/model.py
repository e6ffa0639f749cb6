"""Submission: a request for a run, from the command line, a server, Python or a clone of another run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import backends
from phalanx.backends.contract import LOCAL_BACKENDS, Job
from phalanx.errors import Note
from phalanx.home.dependencies import Dependency
from phalanx.plan import Plan
from phalanx.plan.replica_variables import GROUP_ID
from phalanx.spec import Kind, Spec
from phalanx.spec.tree import Node
from phalanx.store import Run
from phalanx.submission.trial_jobs import TrialJobs

TRIAL, TRIAL_RUNG, TRIAL_RESOURCE = "PHALANX_TRIAL", "PHALANX_TRIAL_RUNG", "PHALANX_TRIAL_RESOURCE"
TRIAL_SEED = "PHALANX_TRIAL_SEED"
PIPELINE_ID, OP = "PHALANX_PIPELINE_ID", "PHALANX_OP"


@dataclass(frozen=True, slots=True)
class CodeSource:
    """Where the code of a run comes from. Without `folder` and `put` a run starts in an empty folder."""

    folder: Path | None = None  # a folder of the user on this machine; the run works in it, or in a copy
    is_snapshot: bool = False  # work in a copy of `folder`
    put: Callable[[Path], object] | None = None  # creates the run's own folder of code, instead of a copy of `folder`
    commit: str | None = None
    is_commit_known: bool = False  # otherwise git is asked in `folder`, if there is no `commit`
    git: Mapping[str, Any] | None = None  # the sender's git state, for code that was sent without a folder


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """The variables that a run starts with, and its virtual environment: a folder, or an archive for other nodes.
    `is_kept`: the node that makes it leaves it as an archive in the run's folder."""

    variables: Mapping[str, str]
    venv: str | None = None
    archive: Path | None = None
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """The original run of a clone."""

    run_id: str
    cloning: str  # restart, copy or rerun
    outputs: Path | None = None  # the clone starts with a copy of them


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """The place of a run in its group. A rung is a round of a search that gives more of a resource to fewer trials."""

    group: str
    number: int
    rung: int = 0
    resource: float | None = None  # of this rung
    seed: int | None = None  # of a search that repeats its points: which of the repeats it is

    @property
    def variables(self) -> dict[str, str]:
        """The variables that tell the program its place."""
        found = {GROUP_ID: self.group, TRIAL: str(self.number), TRIAL_RUNG: str(self.rung)}
        more = {TRIAL_RESOURCE: self.resource, TRIAL_SEED: self.seed}
        return {**found, **{name: str(value) for name, value in more.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class OpPlace:
    """The place of a run in its pipeline; of a run of a whole pipeline, in its schedule. `number` counts its runs."""

    group: str
    op: str | None = None
    number: int = 0

    @property
    def variables(self) -> dict[str, str]:
        return {PIPELINE_ID: self.group, OP: self.op} if self.op is not None else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request for a run, before any check."""

    spec: Spec
    tree: Node  # what `spec` was read from: it knows the lines that findings are about
    environment: Mapping[str, str]  # of the shell or server that submits
    code: CodeSource
    files: Sequence[tuple[str, bytes]] = ()  # what `spec` was read from, with `params`: a server reads them again
    params: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    tags: Sequence[str] = ()
    project: str = "default"
    priority: int = 0
    timeout_s: float | None = None
    call: bytes | None = None  # of a function: the content of its call file, which only the run itself unpickles
    inputs: Mapping[str, Path] = field(default_factory=dict)  # files and folders to add to its code, by path in it
    after: Sequence[str] = ()  # runs to wait for, in addition to those of the file: `RUN[:CONDITION]`
    waits_for: Sequence[Dependency] = ()  # the same, resolved in the home that runs it
    on: str | None = None  # the backend; None: the file's
    cluster: Mapping[str, str | None] = field(default_factory=dict)  # kubeconfig, context and namespace
    user: str | None = None  # None: the user of this process
    is_strict: bool = False  # reject a run that requests more than this machine has
    is_unchecked: bool = False  # submit even if the checks of its backend predict a rejection
    is_built: bool = False  # run the build steps of the file on this machine
    may_install: bool = True  # False in a server: a request cannot wait while packages are installed
    prepared: PreparedEnvironment | None = None  # None: created from `environment` and the file
    origin: Origin | None = None
    trial: TrialPlace | None = None
    op: OpPlace | None = None
    is_remote: bool = False  # it came over a server: its `notify` may do less

    @property
    def place(self) -> TrialPlace | OpPlace | None:
        """Its place in the group, pipeline or schedule that makes it."""
        return self.trial or self.op

    @property
    def backend(self) -> str:
        """The backend of the run."""
        named = self.spec.backend if self.spec.kind is not Kind.BUILD else None  # that of a build is its builder
        return backend_of(named or "native", self.on)

    @property
    def is_local(self) -> bool:
        """Whether its replicas are processes of this machine."""
        return self.backend in LOCAL_BACKENDS


def backend_of(backend: str, on: str | None) -> str:
    """The backend of a run: `backend` comes from its file, `on` from the command line or request."""
    if on is None:
        return backend
    if on in LOCAL_BACKENDS:
        return backend if backend in LOCAL_BACKENDS else on
    return backends.find(on).backend_for(backend) if on in backends.names() else on


class RemarkKind(StrEnum):
    WARNING = "warning"
    ADVICE = "advice"  # of a site
    NOTE = "note"
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class Remark:
    """A message for the submitter that is not an error."""

    kind: RemarkKind
    about: Note | str

    def as_json(self) -> dict[str, Any]:
        return {"message": self.about} if isinstance(self.about, str) else self.about.as_json()


Notify = Callable[[Remark], object]


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A submission that passed all checks: everything that `create` writes."""

    submission: Submission
    run: Run
    plan: Plan | None  # None for a pipeline
    job: Job | None  # None on this machine, which runs the plan itself
    environment: PreparedEnvironment
    trial_jobs: TrialJobs | None = None  # of a group on Slurm
    ops: Mapping[str, PreparedEnvironment] = field(default_factory=dict)  # of a pipeline
    code_digest: str | None = None  # of a pipeline that reuses results
    built: NamedTuple | None = None  # of a build: what it makes
    build_first: PreparedRun | None = None  # the build that makes its virtual environment
