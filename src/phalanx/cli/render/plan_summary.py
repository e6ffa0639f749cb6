"""The summary of a file: for `check`, and at the head of `plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from phalanx import plan
from phalanx.errors import Note
from phalanx.plan import Plan
from phalanx.plan.document import resources_view
from phalanx.spec import Kind, Spec
from phalanx.spec.commands import join
from phalanx.spec.model import Amount, Resources, thaw

if TYPE_CHECKING:
    from phalanx.submission.trial_jobs import TrialJobs

PREVIEW_ID = "preview"


def plan_of(spec: Spec, run_id: str = PREVIEW_ID) -> Plan | None:
    """The plan of a run, or of a group's first suggestion; None for a pipeline, which has several runs."""
    if spec.kind is Kind.PIPELINE:
        return None
    if spec.kind is Kind.GROUP:
        from phalanx.spec.groups import first_suggestion

        spec = first_suggestion(spec)
    return plan.make(spec, run_id)


def command_of(spec: Spec, made: Plan | None) -> str | None:
    """The command; for a group with its templates, because every suggestion fills them in differently."""
    run = spec.document.get("run")
    if spec.kind is not Kind.GROUP or not isinstance(run, Mapping):  # the whole section may be a template
        return made.command if made else None
    if isinstance(run.get("script"), str):
        return str(run["script"]).strip("\n")
    written = run.get("cmd")
    if written is None:
        return None
    return join(tuple(str(part) for part in written) if isinstance(written, tuple) else (str(written),))


def all_notes(spec: Spec, made: Plan | None) -> tuple[Note, ...]:
    return tuple(sorted((*spec.notes, *(made.notes if made else ())), key=lambda note: note.place[:3]))


def params_text(spec: Spec) -> Iterator[str]:
    """The params as `name=value`, a number with the characters of the file."""
    from phalanx.spec.scalars import WrittenScalar

    in_file = spec.document.get("params") or {}
    for name, value in spec.params.items():
        shown = in_file.get(name)
        yield f"{name}={shown.text if isinstance(shown, WrittenScalar) else thaw(value)}"


def summarise(spec: Spec, made: Plan | None, jobs: TrialJobs | None = None) -> dict[str, Any]:
    """`jobs`: how the trials of a group become jobs, where that is asked for."""
    summary: dict[str, Any] = {
        "ok": True,
        "kind": str(spec.kind),
        "name": spec.name,
        "framework": spec.framework,
        "backend": spec.backend or (None if spec.kind in _WITHOUT_BACKEND else "native"),
        "is_distributed": bool(made and made.is_distributed),
        "replicas": dict(made.roles) if made else {},
        "resources": resources_view(made.totals if made else Resources()),
        "command": command_of(spec, made),
        "params": thaw(spec.params),
        "tags": list(spec.tags),
        "log_level": spec.logging.level,
    }
    if spec.search is not None:
        summary["search"] = search_view(spec, jobs)
    if spec.pipeline is not None:
        from phalanx.submission.submit import NEEDS_SERVER

        schedule = spec.pipeline.schedule
        summary["ops"] = [op.name for op in spec.pipeline.ops]
        summary["schedule"] = thaw(schedule) if schedule is not None else None
        summary["schedule_note"] = NEEDS_SERVER if schedule is not None else None
    summary["notes"] = [note.as_json() for note in all_notes(spec, made)]
    return summary


_WITHOUT_BACKEND = (Kind.BUILD, Kind.NOTEBOOK, Kind.TENSORBOARD)


def search_view(spec: Spec, jobs: TrialJobs | None = None) -> dict[str, Any]:
    search = spec.search
    assert search is not None
    found = {} if jobs is None else {"jobs": jobs.as_json()}
    return {
        **found,
        "algorithm": search.algorithm,
        "concurrency": search.concurrency,
        "n_experiments": search.n_experiments,
        "space": search.space,
        "size": search.size,
        "early_stopping": bool(search.early_stopping),
        "matrix": {dimension.name: dimension.kind for dimension in search.matrix},
    }


def replicas_text(roles: Mapping[str, int]) -> str:
    return ", ".join(
        f"{count} {role}{'s' if count > 1 and role != 'ps' else ''}" for role, count in roles.items() if count
    )


def resources_text(resources: Resources) -> str:
    parts = [f"cpu {amount_text(resources.cpu)}"] if resources.cpu else []
    if resources.memory:
        parts.append(f"memory {amount_text(resources.memory, memory_text)}")
    parts += [f"{name} {amount_text(getattr(resources, name))}" for name in ("gpu", "tpu") if getattr(resources, name)]
    return ", ".join(parts) or "no resources requested"


def memory_text(mib: float) -> str:
    return f"{mib / 1024:g} GiB" if mib >= 1024 and (mib / 1024 * 4).is_integer() else f"{mib:g} MiB"


def amount_text(amount: Amount, text: Any = "{:g}".format) -> str:
    low, high = amount.requests, amount.limits
    if low is None or high is None or low == high:
        return str(text(high if low is None else low)) if (low is not None or high is not None) else "-"
    return f"{text(low)} to {text(high)}"
