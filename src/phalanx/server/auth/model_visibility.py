"""The model registry as a caller without access to all projects sees it: only versions made by runs they may see."""

from __future__ import annotations

import json
from collections.abc import Collection

from phalanx.store import Store
from phalanx.store.model_index import Model, ModelEvent, ModelIndex, ModelVersion

PROJECTS = "phalanx.projects"  # label of a model that was created before its first version: the owning projects


class ModelVisibility:
    """`sees`: the visible projects; None means all. A version without a run is visible only to callers who see all
    projects."""

    def __init__(self, store: Store, sees: Collection[str] | None) -> None:
        self.store = store
        self.index = ModelIndex(store)
        self.sees = sees

    def models(self, text: str = "", limit: int | None = None, offset: int = 0) -> list[Model]:
        if self.sees is None:
            return self.index.models(text, limit, offset)
        found = [seen for model in self.index.models(text) if (seen := self._seen(model)) is not None]
        return found[offset:] if limit is None else found[offset : offset + limit]

    def count(self, text: str = "") -> int:
        """How many models `models` has without a limit."""
        return self.index.count(text) if self.sees is None else len(self.models(text))

    def model(self, name: str) -> Model | None:
        found = self.index.model(name)
        return self._seen(found) if found is not None else None

    def versions(self, name: str | None = None, run_id: str | None = None) -> list[ModelVersion]:
        found = self.index.versions(name, run_id)
        return found if self.sees is None else [version for version in found if self.project_of(version) in self.sees]

    def version(self, name: str, number: int) -> ModelVersion | None:
        found = self.index.version(name, number)
        return found if found is None or self.sees is None or self.project_of(found) in self.sees else None

    def events(self, name: str) -> list[ModelEvent]:
        """Versions hold params and metrics of the runs that made them."""
        found = self.index.events(name)
        if self.sees is None:
            return found
        seen = {version.number for version in self.versions(name)}
        return [event for event in found if event.version is None or event.version in seen]

    def project_of(self, version: ModelVersion) -> str | None:
        """The project of the run that made the version, even after the run was removed."""
        if version.run_id is None:
            return None
        kept = version.lineage.get("run")
        project = kept.get("project") if isinstance(kept, dict) else None
        return str(project) if project else self.store.project_of(version.run_id)

    def owners(self, model: Model) -> set[str | None]:
        """The projects that a model belongs to; None among them means no particular project."""
        found = {self.project_of(version) for version in self.index.versions(model.name)}
        return found or projects_in(model.labels.get(PROJECTS)) or {None}

    def _seen(self, model: Model) -> Model | None:
        if self.sees is None:
            return model
        versions = self.versions(model.name)
        if not versions and not any(project in self.sees for project in self.owners(model)):
            return None
        numbers = {version.number for version in versions}
        return model._replace(
            latest=max(numbers, default=None),
            versions=len(numbers),
            aliases={alias: number for alias, number in model.aliases.items() if number in numbers},
        )


def projects_in(label: str | None) -> set[str | None]:
    try:
        found = json.loads(label or "[]")
    except ValueError:
        return set()
    return {str(project) for project in found} if isinstance(found, list) else set()
