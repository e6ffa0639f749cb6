"""Common to both kinds of MLflow stores: maps its terms to those of Phalanx."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from phalanx.formats.foreign_run import (
    Ending,
    ForeignEvent,
    ForeignFile,
    ForeignModel,
    ForeignRun,
    ImportLosses,
    Points,
    Reading,
    Record,
)
from phalanx.formats.safe_files import walk

ELSEWHERE = "artifacts that are stored elsewhere (cloud, server)"
MODELS_ELSEWHERE = "files of models that are stored elsewhere"
MAX_TEXT = 1 << 20  # bytes of a param or tag
_STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_ENDS = {
    "FINISHED": ("succeeded", "finished in MLflow"),
    "FAILED": ("failed", "failed in MLflow"),
    "KILLED": ("stopped", "killed in MLflow"),
}
_INSTEAD = ("mlflow.runName", "mlflow.note.content", "mlflow.user")  # tags that map to fields of a run


class MlflowRunFacts(NamedTuple):
    """The raw facts about a run from either store."""

    run_id: str
    experiment: str
    name: str
    user: str
    status: object
    start_ms: object
    end_ms: object
    artifact_uri: str


class MlflowVersion(NamedTuple):
    """A version of a model, registered or just logged. Its files are a folder, or within the run's own artifacts."""

    name: str
    version: str
    source: str  # where its files are, in MLflow's words
    model_id: str
    made_ms: object
    description: str
    labels: Mapping[str, str]


def foreign(facts: MlflowRunFacts, params: Mapping[str, str], tags: Mapping[str, str], read: Reading) -> ForeignRun:
    return ForeignRun(
        source=f"mlflow:{facts.run_id}",
        name=tags.get("mlflow.runName") or facts.name or facts.run_id,
        project=facts.experiment,
        started=seconds(facts.start_ms),
        params=params,
        labels={name: text for name, text in tags.items() if name not in _INSTEAD},
        description=tags.get("mlflow.note.content", ""),
        user=tags.get("mlflow.user") or facts.user or None,
        read=read,
    )


def facts_of(row: Mapping[str, Any], run_id: object, experiment: str) -> MlflowRunFacts:
    """From a row of the database, or from a `meta.yaml`: both have the same names."""
    return MlflowRunFacts(
        run_id=str(run_id),
        experiment=experiment,
        name=str(row.get("run_name") or row.get("name") or ""),
        user=str(row.get("user_id") or ""),
        status=row["status"],
        start_ms=row.get("start_time"),
        end_ms=row.get("end_time"),
        artifact_uri=str(row.get("artifact_uri") or ""),
    )


def registered(
    row: Mapping[str, Any], version: str, aliases: Sequence[str], model_id: str, made_ms: object
) -> MlflowVersion:
    """A registered version, from a row of the database or from a `meta.yaml`."""
    labels = {"mlflow.version": version}
    if row.get("current_stage") not in (None, "None"):
        labels["mlflow.stage"] = str(row["current_stage"])
    if aliases:
        labels["mlflow.aliases"] = ",".join(aliases)
    return MlflowVersion(
        name=str(row["name"]),
        version=version,
        source=str(row.get("storage_location") or row.get("source") or ""),
        model_id=model_id,
        made_ms=made_ms,
        description=str(row.get("description") or ""),
        labels=labels,
    )


def ending(facts: MlflowRunFacts) -> Ending:
    """A run that is not over in MLflow is over here: nothing would ever end it."""
    status = _STATUSES.get(facts.status, "") if isinstance(facts.status, int) else str(facts.status).upper()
    word, reason = _ENDS.get(status, ("stopped", "was not over in MLflow when it was imported"))
    return Ending(word, reason, seconds(facts.end_ms))


def seconds(milliseconds: object) -> float | None:
    """A time; None when there is none."""
    try:
        time = float(str(milliseconds)) / 1000
    except ValueError:
        return None
    return time if math.isfinite(time) and 0 < time < 1e11 else None


def point(name: str, value: object, time_ms: object, step: object) -> Points | None:
    try:
        number, at = float(str(value)), seconds(time_ms) or 0.0
        place = int(str(step)) if step is not None else None
    except ValueError:
        return None
    return Points(place, at, {name: number})


def local_folder(uri: str, owner: str, near: Path) -> Path | None:
    """The folder that a local URI of artifacts names; None when it is elsewhere. It must end in `<owner>/artifacts`,
    as all of MLflow's do: a store may be untrusted, and must not have arbitrary local files copied."""
    parts = urlsplit(uri)
    candidates: list[Path] = []
    path = unquote(parts.path)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost") and path:
        candidates.append(near / path if not path.startswith("/") else Path(path))
    if parts.scheme == "mlflow-artifacts":
        candidates.append(near / "mlartifacts" / path.lstrip("/"))
    steps = [step for step in path.split("/") if step]
    if len(steps) >= 2:  # the store was moved: look beside it, at the old relative path
        candidates += [near / folder / "/".join(steps[-3:]) for folder in ("mlruns", "mlartifacts", ".")]
        candidates += [near / folder / "/".join(steps[-4:]) for folder in ("mlruns", "mlartifacts", ".")]
    for candidate in candidates:
        real = candidate.resolve()
        if real.parts[-2:] == (owner, "artifacts") and real.is_dir():
            return real
    return None


def artifacts(folder: Path | None, facts: MlflowRunFacts, losses: ImportLosses) -> Iterator[ForeignFile]:
    if folder is not None:
        for name, path in walk(folder):
            yield ForeignFile(name, path, folder)
    elif is_remote(facts.artifact_uri):
        losses.add(ELSEWHERE, example=facts.artifact_uri)


def is_remote(uri: str) -> bool:
    """Whether it is not a local folder; a local one may be empty and never created."""
    return urlsplit(uri).scheme not in ("", "file")


def models(
    versions: list[MlflowVersion], facts: MlflowRunFacts, folders: Mapping[str, Path | None], losses: ImportLosses
) -> Iterator[Record]:
    """The models of a run; `folders` has those of MLflow 3, which are stored outside the run."""
    for version in versions:
        made = seconds(version.made_ms) or seconds(facts.end_ms) or 0.0
        apart = folders.get(version.model_id)
        inside = _within_run(version.source, facts)
        if apart is not None:
            place: Path | str = apart
        elif inside is not None:
            place = f"artifacts/{inside}" if inside else "artifacts"
        else:
            losses.add(MODELS_ELSEWHERE, example=f"{version.name} {version.version}: {version.source}")
            continue
        yield ForeignModel(version.name, version.version, place, apart, made, version.description, version.labels)


def _within_run(source: str, facts: MlflowRunFacts) -> str | None:
    """The path of a model within the artifacts of its run."""
    run_id = re.escape(facts.run_id)
    found = re.match(rf"runs:/{run_id}/?(.*)", source) or re.search(rf"(?:^|/){run_id}/artifacts(?:/(.*))?$", source)
    return (found[1] or "").strip("/") if found else None


def dataset(row: Mapping[str, object], context: str, time: float) -> ForeignEvent:
    info = {name: str(row[name]) for name in ("source_type", "schema", "profile", "source") if row.get(name)}
    data = {"name": str(row.get("name", "")), "digest": str(row.get("digest") or "") or None}
    return ForeignEvent("dataset", time, {**data, "uri": _uri(row.get("source")), "info": {**info, "context": context}})


def _uri(source: object) -> str | None:
    """The source of a dataset, if its description has one."""
    try:
        source_fields = json.loads(str(source))
    except ValueError:
        return None
    names = ("uri", "url", "path") if isinstance(source_fields, dict) else ()
    return next((str(source_fields[name]) for name in names if source_fields.get(name)), None)
