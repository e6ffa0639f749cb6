"""Read access to models, in the registry of the local home or on a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from phalanx.cli.workspace.base import print_server, selected_server
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.artifacts.downloads import DownloadResult
    from phalanx.artifacts.trees import Progress
    from phalanx.client import Client
    from phalanx.registry.candidates import Candidate
    from phalanx.registry.registry import Registry
    from phalanx.store.model_index import Model, ModelEvent, ModelVersion


class ModelDetails(NamedTuple):
    """A model, its versions and its history."""

    model: Model
    versions: Sequence[ModelVersion]
    events: Sequence[ModelEvent]


def find(catalogue: HomeCatalogue | ServerCatalogue, reference: str) -> tuple[ModelDetails, ModelVersion]:
    """The version of a reference (`name`, `name/3` or `name@alias`), and its model. Raises CallError."""
    from phalanx.registry.names import split_reference

    name, which = split_reference(reference)
    found = catalogue.whole(name)
    model = found.model
    number = model.latest if which is None else model.aliases.get(which) if isinstance(which, str) else which
    version = next((one for one in found.versions if one.number == number), None)
    if version is not None:
        return found, version
    if number is not None:
        more = f"; the latest is {model.latest}" if model.latest else ""
        raise CallError(f"`{name}` has no version {number}{more}")
    if which is None:
        raise CallError(f"`{name}` has no versions")
    known = ", ".join(model.aliases)
    raise CallError(f"`{name}` has no alias `{which}`" + (f"; it has {known}" if known else ""))


@contextmanager
def open_catalogue(*, quiet: bool) -> Iterator[HomeCatalogue | ServerCatalogue]:
    found = selected_server()
    if found is None:
        with registry() as models:
            yield HomeCatalogue(models)
        return
    from phalanx.client import Client

    if not quiet:
        print_server(found.url)
    with Client(found.url, found.token) as client:
        yield ServerCatalogue(client)


@contextmanager
def registry() -> Iterator[Registry]:
    """The registry of the local home, for changes."""
    from phalanx.registry.registry import Registry
    from phalanx.scheduler.runner import schedule_once

    home, store = open_home()
    with store:
        schedule_once(home, store)
        yield Registry(home, store)


class HomeCatalogue:
    def __init__(self, models: Registry) -> None:
        self.registry = models

    def models(self, text: str) -> list[Model]:
        return self.registry.index.models(text)

    def candidates(self, limit: int) -> list[Candidate]:
        from phalanx.registry.candidates import candidates

        return candidates(self.registry.store, None, limit)

    def whole(self, name: str) -> ModelDetails:
        """Raises CallError if there is no such model."""
        model, index = self.registry.model(name), self.registry.index
        return ModelDetails(model, index.versions(name), index.events(name))

    def events(self, name: str) -> Sequence[ModelEvent]:
        """The history, also of a deleted model. Raises CallError for an unknown model."""
        return self.registry.index.events(name) or self.whole(name).events

    def has_files(self, version: ModelVersion) -> bool:
        """Whether `take` can download the files."""
        return self.registry.has_files(version)

    def take(self, version: ModelVersion, place: Path, *, force: bool, progress: Progress) -> DownloadResult:
        """Download the files of a version to a folder and verify their digests. Raises CallError."""
        from phalanx.artifacts.downloads import download_version

        found = self.registry.resolve(version.title)
        if found.path is None:
            raise CallError(f"{version.title} has no files in the home: download them from {found.url}")
        return download_version(found.path, self.registry.files(version), place, force=force, progress=progress)


class ServerCatalogue:
    """The models of a server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def models(self, text: str) -> list[Model]:
        return self.client.models(text)

    def candidates(self, limit: int) -> list[Candidate]:
        return self.client.model_candidates(limit)

    def whole(self, name: str) -> ModelDetails:
        return ModelDetails(*self.client.model(name))

    def events(self, name: str) -> Sequence[ModelEvent]:
        return self.whole(name).events

    def has_files(self, version: ModelVersion) -> bool:
        return self.client.has_version_files(version)

    def take(self, version: ModelVersion, place: Path, *, force: bool, progress: Progress) -> DownloadResult:
        return self.client.download_version(version, place, force=force, progress=progress)
