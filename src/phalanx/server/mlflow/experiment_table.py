"""Experiments and projects. A project is an experiment whose id is derived from its name. What MLflow stores beyond
that (tags, a changed name, deletion, creation before any run) is in <home>/mlflow.json."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import SystemFault
from phalanx.home.record_file import RecordFile
from phalanx.naming import has_control_characters
from phalanx.server.auth.identities import ALL
from phalanx.server.mlflow.errors import MlflowError, not_found

DEFAULT_ID, DEFAULT_NAME, DEFAULT_PROJECT = "0", "Default", "default"
LONGEST_NAME = 500


class MlflowExperiment(NamedTuple):
    """Times are milliseconds since the epoch. `location`: where its runs store artifacts, if not here."""

    id: str
    name: str
    project: str
    tags: Mapping[str, str]
    created: int
    updated: int
    is_deleted: bool = False
    location: str | None = None


def derived_id(project: str) -> str:
    """Eighteen digits: the same on every machine for the same name."""
    if project == DEFAULT_PROJECT:
        return DEFAULT_ID
    digest = hashlib.sha256(project.encode("utf-8", "surrogatepass")).digest()
    return str(10**17 + int.from_bytes(digest[:8], "big") % (9 * 10**17))


def _derived(project: str) -> MlflowExperiment:
    name = DEFAULT_NAME if project == DEFAULT_PROJECT else project
    return MlflowExperiment(derived_id(project), name, project, {}, 0, 0)


def _decoded(rows: dict[str, Any]) -> dict[str, MlflowExperiment]:
    return {key: MlflowExperiment(**{**row, "id": key}) for key, row in rows.items()}


class ExperimentTable:
    """The table. Changes by another server of the home are visible on the next access."""

    def __init__(self, home: Path) -> None:
        self.kept: RecordFile[dict[str, MlflowExperiment]] = RecordFile(
            home / "mlflow.json", "experiments", _decoded, {}
        )
        self.lock = threading.RLock()
        self._is_alone = False

    def rows(self) -> dict[str, MlflowExperiment]:
        try:
            with self.lock:
                return self.kept.rows()
        except SystemFault:
            message = f"{self.kept.path} is damaged: move it away to start with an empty one"
            raise MlflowError(message, "INTERNAL_ERROR") from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Serialises changes: concurrent ones would overwrite each other. Reentrant."""
        with self.lock:
            if self._is_alone:
                yield
                return
            with self.kept.alone():
                self._is_alone = True
                try:
                    yield
                finally:
                    self._is_alone = False

    def put(self, experiment: MlflowExperiment) -> MlflowExperiment:
        with self.alone():
            rows = {**self.rows(), experiment.id: experiment}
            self.kept.write({key: row._asdict() for key, row in rows.items()})
        return experiment

    def of_project(self, project: str) -> MlflowExperiment:
        found = self.rows().get(derived_id(project))
        return found if found is not None else _derived(project)

    def of_id(self, key: str, projects: Iterable[str]) -> MlflowExperiment:
        """Raises MlflowError when it does not exist."""
        found = self.rows().get(key)
        if found is not None:
            return found
        for project in (DEFAULT_PROJECT, *projects):
            if derived_id(project) == key:
                return _derived(project)
        raise no_experiment(key)

    def of_name(self, name: str, projects: Iterable[str]) -> MlflowExperiment | None:
        renamed = [row for row in self.rows().values() if row.name == name]
        if renamed:
            return renamed[0]
        project = DEFAULT_PROJECT if name == DEFAULT_NAME else name
        if derived_id(project) in self.rows():
            return None  # it has been renamed
        return _derived(project) if project in (DEFAULT_PROJECT, *projects) else None

    def all(self, projects: Iterable[str]) -> list[MlflowExperiment]:
        """Newest first; projects that were not created as experiments last."""
        found = {derived_id(project): _derived(project) for project in (DEFAULT_PROJECT, *projects)}
        found |= self.rows()
        return sorted(found.values(), key=lambda row: (-row.created, row.id))

    def create(
        self, name: str, projects: Iterable[str], tags: Mapping[str, str], location: str | None
    ) -> MlflowExperiment:
        """Raises MlflowError when the name is taken."""
        check_name(name)
        with self.alone():
            known = self.of_name(name, projects)
            if known is not None:
                deleted = " in deleted state. You can restore it, or choose another name" if known.is_deleted else ""
                raise MlflowError(f"Experiment(name={name[:200]}) already exists{deleted}.", "RESOURCE_ALREADY_EXISTS")
            project, now = self.free_project(name), round(time.time() * 1000)
            return self.put(
                MlflowExperiment(derived_id(project), name, project, dict(tags), now, now, location=location)
            )

    def free_project(self, name: str) -> str:
        """The project of a new experiment: another name if its own belongs to a renamed experiment."""
        project, number = name, 1
        while derived_id(project) in self.rows():
            number += 1
            project = f"{name[: LONGEST_NAME - 10]} {number}"
        return project


def no_experiment(key: str) -> MlflowError:
    return not_found(f"No Experiment with id={key[:100]} exists")


def check_name(name: str) -> None:
    if not name.strip() or len(name) > LONGEST_NAME:
        raise MlflowError(f"Invalid experiment name: it must have 1 to {LONGEST_NAME} characters")
    if name == ALL or has_control_characters(name):
        raise MlflowError(f"Invalid experiment name: it must not be '{ALL}' or contain control characters")


def experiment_row(experiment: MlflowExperiment) -> dict[str, Any]:
    return {
        "experiment_id": experiment.id,
        "name": experiment.name,
        "artifact_location": experiment.location or f"mlflow-artifacts:/~experiments/{experiment.id}",
        "lifecycle_stage": "deleted" if experiment.is_deleted else "active",
        "creation_time": experiment.created,
        "last_update_time": experiment.updated,
        "tags": [{"key": key, "value": value} for key, value in experiment.tags.items()],
    }
