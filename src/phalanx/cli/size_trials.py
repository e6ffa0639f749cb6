"""The trials of `phalanx size`: runs of one file with different resources, one after another, and their result."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx import backends, plan, run_paths
from phalanx.backends import is_batch
from phalanx.backends.local.capacity import Capacity, excess, requested_by, this_machine
from phalanx.cli.commands.advise import environment_lines
from phalanx.cli.local_submission import remark_printer
from phalanx.cli.render.output import printable, table
from phalanx.cli.workspace.home import record_provenance
from phalanx.cli.workspace.open_home import open_home
from phalanx.ends import Cause
from phalanx.errors import CallError, SpecError, SpecErrors
from phalanx.home.home import Home, default_home
from phalanx.insight.advice import RecordedRun, gpus_of, groups_of
from phalanx.insight.amounts import memory_text, memory_words, time_words
from phalanx.insight.core_limits import busy_s, held_to_cores
from phalanx.insight.resource_edits import Change, changed, with_workers
from phalanx.insight.run_usage import read_usage
from phalanx.insight.sizing import MOST_TRIALS, Choice, Cost, Trial, combinations, label, value_text
from phalanx.insight.sizing_report import SizingReport, speed_words
from phalanx.insight.throughput import choose, measure
from phalanx.insight.wait_reasons import waits_for
from phalanx.launch.file_references import load_files
from phalanx.plan.document import document as encoded
from phalanx.plan.framework_checks import load
from phalanx.scheduler.runner import TURN_S, SchedulerRunner
from phalanx.spec import Kind, quantities
from phalanx.spec.model import thaw
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.yaml_writer import modern_document, to_yaml
from phalanx.stored_plan import NO_AMOUNT, ResourceAmount, decode_plan
from phalanx.submission import virtualenvs
from phalanx.submission.advised_spec import load_document
from phalanx.submission.checks import check_backend, check_fields, check_runnable
from phalanx.submission.model import CodeSource, Notify, Remark, Submission
from phalanx.submission.submit import submit

if TYPE_CHECKING:
    from phalanx.store import Run, Store

TAG = "sizing"
TRAINING = ("master", "worker")  # the roles that are tried by default
OVER = "the time of the trial is over"
INTERRUPTED = "interrupted"
SPARE_S = 60.0  # after its time, the agents end a trial that this process did not end
LOOK_S = 0.2  # polling interval of a running trial: low, to leave the machine to the trial
START_S = 2.0
ENGINE_START_S = 15.0
WAITS_S = 5.0  # after this time, a message says that a trial is waiting
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SizedFile(NamedTuple):
    """A choice of resources, and the file with it: as recommended (`document`) and as tried (`spec`)."""

    choice: Choice
    document: dict[str, Any]
    file: tuple[str, bytes]
    cost: Cost
    is_held: bool  # to the requested cores


class SizingRequest(NamedTuple):
    """The options of the call that trials need."""

    submission: Submission  # of the file as it is
    document: dict[str, Any]  # the file in the current format
    name: str
    choices: Sequence[Choice]
    seconds: float
    role: str | None

    @property
    def is_here(self) -> bool:
        return self.submission.is_local

    @property
    def start_s(self) -> float:
        """Approximate time to start, observe and end a trial."""
        return START_S if self.is_here else ENGINE_START_S

    @property
    def queue_words(self) -> str:
        return "" if self.is_here else ", plus time in the queue"


# the call ------------------------------------------------------------------------------------------------------------


def request_of(
    files: Sequence[tuple[str, bytes]],
    params: Mapping[str, str],
    *,
    tries: Sequence[str],
    duration: str,
    project: str,
    backend: str | None,
    build: bool,
    role: str | None,
) -> SizingRequest:
    """Raises SpecErrors for an invalid file, CallError if it cannot be tried."""
    loaded, tree, files, params = load_files(files, params)
    choices, seconds = _choices(tries, duration)
    submission = Submission(
        spec=loaded,
        tree=tree,
        environment=dict(os.environ),
        code=CodeSource(Path.cwd()),
        files=files,
        params=dict(params),
        tags=(TAG,),
        project=project,
        timeout_s=seconds + SPARE_S,
        on=backend,
        is_built=build,
    )
    _refuse(submission)
    return SizingRequest(submission, modern_document(loaded), loaded.name or TAG, choices, seconds, role)


def _choices(tries: Sequence[str], duration: str) -> tuple[list[dict[str, float]], float]:
    """All combinations, and the seconds of a trial. Raises CallError with all errors."""
    faults, found = [], {}
    for text in tries:
        name, values, wrong = _parsed(text)
        if name in found and not wrong:
            wrong = [f"--try {name} is given twice"]
        faults += wrong
        if not wrong:
            found[name] = values
    seconds = quantities.seconds(duration) or 0.0
    if seconds < 1:
        faults.append(f'--for {duration!r}: expected at least one second, such as "60s" or "5m"')
    if not tries:
        faults.append("name values to try: --try cpu=1,2,4 or --try gpu=0,1")
    if faults:
        raise CallError("; ".join(map(printable, faults)))
    choices = combinations(found)
    if len(choices) > MOST_TRIALS:
        raise CallError(f"{len(choices)} trials exceed the limit of {MOST_TRIALS}: try fewer values at once")
    return choices, seconds


def _parsed(text: str) -> tuple[str, list[float], list[str]]:
    """The name, values and errors of one --try."""
    readers = {
        "cpu": (quantities.cpus, "CPUs, such as 1, 2 or 0.5"),
        "memory": (quantities.memory_mib, "amounts of memory, such as 512Mi or 2Gi"),
        "gpu": (quantities.count, "whole numbers of GPUs"),
        "workers": (quantities.count, "whole numbers of workers"),
    }
    name, equals, listed = text.partition("=")
    name = name.strip()
    if not equals or not listed.strip():
        return name, [], [f"--try {text!r}: expected a name and values, such as cpu=1,2,4"]
    if name not in readers:
        hint = did_you_mean(name, readers) or f"one of {', '.join(readers)}"
        return name, [], [f"--try {name!r}: unknown resource: {hint}"]
    read, what = readers[name]
    values, faults = [], []
    for word in listed.split(","):
        value = read(word.strip())
        whole = name in ("gpu", "workers")
        if value is None or value < 0 or (whole and value != int(value)) or (not whole and value == 0):
            faults.append(f"--try {name}: {word.strip()!r}: expected {what}")
        else:
            values.append(value)
    return name, values, faults


def _refuse(submission: Submission) -> None:
    """Raises CallError if the file cannot be tried."""
    if submission.spec.kind not in (Kind.EXPERIMENT, Kind.JOB):
        raise CallError(f"trials are of an experiment or a job; this file is a {submission.spec.kind}")
    check_fields(submission)
    check_runnable(default_home(), submission)


def sized_files(asked: SizingRequest) -> tuple[list[SizedFile], list[tuple[Choice, str]]]:
    """The files to try, and the choices that this machine or cluster cannot run. Raises SpecErrors or CallError
    with all errors."""
    found, left_out = [], []
    wrong: list[SpecError] = []
    for number, choice in enumerate(asked.choices):
        try:
            attempted, beyond = _attempted(asked, choice, remark_printer(quiet=True) if number == 0 else _silent)
        except SpecErrors as faults:
            wrong += faults.errors
            continue
        if beyond is None:
            found.append(attempted)
        else:
            left_out.append((choice, beyond))
    if wrong:
        raise SpecErrors(wrong)
    if not found:
        is_same = len(left_out) > 1 and len({why for _, why in left_out}) == 1
        reasons = left_out[0][1] if is_same else "; ".join(f"{label(choice)}: {why}" for choice, why in left_out)
        raise CallError(f"nothing to try: {reasons}")
    return found, left_out


def _silent(remark: Remark) -> None:
    """The cluster says the same of every choice."""


def _attempted(asked: SizingRequest, choice: Choice, notify: Notify) -> tuple[SizedFile, str | None]:
    """One choice, and why it cannot be tried, if it cannot. Raises SpecErrors."""
    name = f"the file with {label(choice)}"
    chosen = with_choice(asked.document, choice, asked.role)
    made = plan.make(load_document(chosen, name), "trial")
    planned = decode_plan(encoded(made))
    share = requested_by(planned)
    beyond = _obstacle(asked, made, share, notify)
    tried = trial_of(chosen)
    taskset, held = shutil.which("taskset"), None
    if asked.is_here and "cpu" in choice and beyond is None and taskset is not None:
        held = held_to_cores(tried, planned, sorted(os.sched_getaffinity(0)), taskset)
    cost = Cost(share.gpus, share.cpus, share.memory_mib)
    final = modern_document(load_document(chosen, name))
    file = (name, to_yaml(held or tried).encode())
    return SizedFile(choice, final, file, cost, held is not None), beyond


def _obstacle(asked: SizingRequest, made: plan.Plan, share: Capacity, notify: Notify) -> str | None:
    """Why this machine or cluster cannot run a trial; None if it can."""
    if asked.is_here:
        beyond = excess(share, this_machine()[0])
        return f"more than this machine has: {beyond}" if beyond else None
    try:
        check_backend(default_home(), asked.submission, made, notify)
    except SpecErrors as faults:
        return "; ".join(map(str, faults.errors))
    return None


def with_choice(document: Mapping[str, Any], choice: Choice, role: str | None) -> dict[str, Any]:
    """The file with other resources for the training roles, or for one role. Raises SpecErrors, CallError."""
    result = with_workers(document, int(choice["workers"])) if "workers" in choice else dict(document)
    planned = decode_plan(encoded(plan.make(load_document(result, "the file"), "trial")))
    roles = {"ps": ("ps", "server")}.get(role, (role,)) if role is not None else TRAINING
    groups = [group for group in groups_of(RecordedRun(planned, "", False, {}, {})) if group.role in roles]
    if not groups:
        raise CallError(f"the run has no {role or 'replica that trains'}: it has {', '.join(planned.roles)}")
    changes = []
    for group in groups:
        place = (group.role, frozenset(group.indices))
        for name in ("cpu", "gpu"):
            if name in choice:
                now = group.asked.get(name, NO_AMOUNT)
                changes.append(Change(*place, name, now, choice[name], quantities.tidy(choice[name]), is_for_both=True))
        if "memory" in choice:  # as a limit too, because a request alone is not enforced
            mib = choice["memory"]
            changes.append(Change(*place, "memory", ResourceAmount(mib, mib), mib, memory_text(mib)))
    return changed(result, planned.roles, changes)


def trial_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The file of a trial: without restarts, and without a timeout or stall timeout of the file."""
    result = dict(document)
    environment = {
        key: value
        for key, value in (result.get("environment") or {}).items()
        if key not in ("max_restarts", "timeout", "stall_timeout")
    }
    if environment:
        result["environment"] = environment
    else:
        result.pop("environment", None)
    return result


# the trials ----------------------------------------------------------------------------------------------------------


def try_all(
    asked: SizingRequest, attempts: Sequence[SizedFile], left_out: Sequence[tuple[Choice, str]], *, quiet: bool
) -> tuple[list[Trial], bool]:
    """Run the trials one after another. Returns the finished ones, and whether the user interrupted them."""

    def say(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    interrupted: list[int] = []
    cores = os.sched_getaffinity(0)
    home, store = open_home()
    with store:
        for line in _announced(asked, attempts, left_out, others=len(store.active())):
            say(line)
        submission = _prepared(home, asked.submission)
        for sort in INTERRUPTS:
            signal.signal(sort, lambda caught, _: interrupted.append(caught))
        runner = SchedulerRunner(home, store)
        trials: list[Trial] = []
        try:
            for number, one in enumerate(attempts, start=1):
                run = _submitted(home, store, submission, asked, one)
                say(f"trial {number} of {len(attempts)}: {label(one.choice)}  (run {run.id})")
                began, busy = time.monotonic(), busy_s(cores)
                run, waited = _see_through(home, store, runner, run, asked, interrupted, say)
                took, busy = time.monotonic() - began, _since(busy, busy_s(cores))
                submission = _with_kept(home, submission, run)
                trial = _judged(home, store, one, run)
                if busy is not None and asked.is_here:
                    trial = trial._replace(others_cores=max(0.0, busy - trial.cpu_s) / took)
                trials.append(trial)
                left = len(attempts) - number
                left_s = left * (took - waited + min(waited, asked.start_s))
                say(f"  {_summary(trial)}" + (f"; about {time_words(left_s)} left{asked.queue_words}" if left else ""))
                if interrupted:
                    break
        finally:
            runner.release()
    return trials, bool(interrupted)


def _announced(
    asked: SizingRequest, attempts: Sequence[SizedFile], left_out: Sequence[tuple[Choice, str]], others: int
) -> Iterator[str]:
    """What is about to run, how long it takes, and what may distort it."""
    each = f"{asked.seconds:g} s" if asked.seconds < 120 else time_words(asked.seconds)
    count = f"{len(attempts)} trials of {each}, one after another" if len(attempts) > 1 else f"1 trial of {each}"
    python, queue = asked.submission.spec.environment.python, asked.queue_words
    if not asked.is_here and python.requirements and python.build_on != "login":
        queue += f" and to install the packages{'' if _can_keep(asked.submission) else ' in each trial'}"
    yield f"{count}: about {time_words(len(attempts) * (asked.seconds + asked.start_s))}{queue}"
    yield from (f"skipped: {label(choice)}: {why}" for choice, why in left_out)
    if others and asked.is_here:
        yield f"{click.style('caution', fg='yellow')}: other active runs on this machine ({others}) distort the results"
    if asked.is_here and any("cpu" in one.choice and not one.is_held for one in attempts):
        yield "note: not every trial can be pinned to its requested cores"


def _since(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else now - before


def _prepared(home: Home, submission: Submission) -> Submission:
    """The same in the environment that `phalanx run` would make for it: once for all trials."""
    prepared = virtualenvs.prepare(submission, home.path / "builds", remark_printer(quiet=False))
    is_kept = prepared.archive is None and _can_keep(submission)
    return replace(submission, prepared=replace(prepared, is_kept=is_kept))


def _can_keep(submission: Submission) -> bool:
    """Whether the first trial's node makes an environment that the other trials can use."""
    is_made = virtualenvs.VirtualenvSpec.by(submission.spec, with_steps=True) is not None
    return is_made and not submission.is_local and backends.find(submission.backend).shares_files


def _with_kept(home: Home, submission: Submission, run: Run) -> Submission:
    """The same with the virtual environment that a trial has left, if any."""
    archive = home.run(run.id).path / run_paths.JOB / run_paths.VIRTUALENV_ARCHIVE
    if submission.prepared is None or not submission.prepared.is_kept or not archive.exists():
        return submission
    return replace(submission, prepared=replace(submission.prepared, archive=archive, is_kept=False))


def _submitted(home: Home, store: Store, submission: Submission, asked: SizingRequest, one: SizedFile) -> Run:
    loaded, tree = load([one.file], {})
    trial = replace(
        submission,
        spec=loaded,
        tree=tree,
        name=f"{asked.name}-{label(one.choice).replace('=', '').replace(' ', '-')}",
        description=f"trial of `phalanx size`: {label(one.choice)}",
        is_unchecked=True,
    )
    return submit(home, store, trial)


def _see_through(
    home: Home,
    store: Store,
    runner: SchedulerRunner,
    run: Run,
    asked: SizingRequest,
    interrupted: Sequence[int],
    say: Any,
) -> tuple[Run, float]:
    """Watch a trial until it finishes, its time is over, or the user interrupts it. Returns also the seconds until it
    started."""
    folder = home.run(run.id)
    submitted, began, announced = time.monotonic(), None, ""
    while not run.is_done:
        runner.run_pass()
        run = store.find(run.id)
        now = time.monotonic()
        if began is None and run.status == "running":
            began = now
            record_provenance(home, run)
        if interrupted:
            folder.ask_to_stop(INTERRUPTED)
        elif began is not None and now - began >= asked.seconds:
            folder.ask_to_stop(OVER)
        elif began is None and now - submitted > WAITS_S:
            why = waits_for(store, [run]).get(run.id) or announced or f"{run.status}, waiting to start"
            if why != announced:
                say(f"  {printable(why)}")
            announced = why
        if not run.is_done:
            time.sleep(TURN_S if began is None else LOOK_S)
    return run, (began or time.monotonic()) - submitted


def _judged(home: Home, store: Store, one: SizedFile, run: Run) -> Trial:
    causes = {replica.cause for replica in store.replicas(run.id)}
    folder = home.run(run.id).path
    seen = read_usage(folder, status=run.status, is_batch=is_batch(run.backend), attempt=run.attempt, is_trial=True)
    uses = list(seen.uses.values())
    state, reason = "measured", "finished" if run.status == "succeeded" else "stopped"
    if run.status == "stopped" and run.reason != OVER:
        state, reason = "interrupted" if run.reason == INTERRUPTED else "failed", run.reason
    elif run.status == "failed" and not causes <= {Cause.TIMEOUT, Cause.STOPPED, Cause.FINISHED}:
        state, reason = "memory" if Cause.MEMORY in causes else "failed", run.reason
    names = [replica.name for replica in seen.plan.with_command]
    speeds = None
    if state == "measured":
        speeds = measure(folder, names, run.attempt, finished=run.status == "succeeded")
    peaks = [use.memory_mib for use in uses if use.memory_mib is not None]
    return Trial(
        choice=one.choice,
        cost=one.cost,
        run_id=run.id,
        state=state,
        reason=reason,
        seconds=max((use.seconds for use in uses), default=0.0),
        cpu_s=sum(use.cpu_s for use in uses),
        speeds=speeds,
        cores_p95=sum(use.cores_p95 for use in uses) if uses else None,
        memory_mib=max(peaks, default=None),
        gpu=gpus_of(uses),
    )


def _summary(trial: Trial) -> str:
    """One line on a finished trial."""
    if trial.state != "measured":
        return f"{'out of memory' if trial.state == 'memory' else trial.state}: {printable(trial.reason)}"
    parts = [f"{trial.reason} after {time_words(trial.seconds)}"]
    chosen = choose([trial.speeds])
    if chosen is not None and chosen.speeds[0] is not None:
        parts.append(speed_words(chosen, chosen.speeds[0]))
    if trial.cores_p95 is not None:
        parts.append(f"{trial.cores_p95:.1f} cores")
    if trial.memory_mib is not None:
        parts.append(memory_words(trial.memory_mib))
    return ", ".join(parts)


# the result ----------------------------------------------------------------------------------------------------------


def result_lines(found: SizingReport, document: Mapping[str, Any] | None) -> Iterator[str]:
    yield ""
    yield from table(list(_rows(found)))
    yield ""
    yield from map(printable, found.sentences())
    yield "List the trials with `phalanx ps -q tags:sizing`; see the usage of one with `phalanx advise RUN`."
    if document is not None:
        yield ""
        yield from environment_lines(document)


def _rows(found: SizingReport) -> Iterator[list[str]]:
    names = list(found.trials[0].choice)
    has_gpus = any(trial.gpu is not None for trial in found.trials)
    head = [*(name.upper() for name in names), "SPEED", "OF BEST", "CORES USED", "MEMORY USED"]
    yield [*head, *(["GPU BUSY"] if has_gpus else []), "RUN", ""]
    for place, trial in enumerate(found.trials):
        best = found.verdict.best if found.verdict is not None and found.speeds[place] is not None else None
        yield [
            *(value_text(name, trial.choice[name]) for name in names),
            found.speed_words(place),
            "-" if best is None else f"{100 * found.share(place, best):.0f} %",
            "-" if trial.cores_p95 is None else f"{trial.cores_p95:.1f}",
            "-" if trial.memory_mib is None else memory_words(trial.memory_mib),
            *([("-" if trial.gpu is None else f"{trial.gpu.mean_percent:.0f} %")] if has_gpus else []),
            trial.run_id,
            printable(found.note(place)),
        ]


def result_data(
    found: SizingReport,
    document: Mapping[str, Any] | None,
    left_out: Sequence[tuple[Choice, str]],
    target: Path | None,
) -> dict[str, Any]:
    return {
        **found.as_data(),
        "left_out": [{"choice": dict(choice), "why": why} for choice, why in left_out],
        "environment": None if document is None else thaw(document.get("environment", {})),
        "written": None if target is None else str(target),
    }
