"""Models to look at: in the registry of this machine's home, or on a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.client import Client
    from phalanx.scheduler.registry import Registry
    from phalanx.scheduler.taking import Taken
    from phalanx.scheduler.trees import Progress
    from phalanx.store.models import Model, ModelEvent, Version


class Whole(NamedTuple):
    """A model, its versions, and what was done to it."""

    model: Model
    versions: Sequence[Version]
    events: Sequence[ModelEvent]


class Catalogue(Protocol):
    def models(self, text: str) -> list[Model]: ...

    def whole(self, name: str) -> Whole:
        """Raises CallError when there is no such model."""

    def events(self, name: str) -> Sequence[ModelEvent]:
        """Also of one that was deleted, where that is known. Raises CallError when there never was one."""

    def has_files(self, version: Version) -> bool:
        """Whether `take` can bring them."""

    def take(self, version: Version, place: Path, *, force: bool, progress: Progress) -> Taken:
        """The files of a version, into a folder, checked by their digests. Raises CallError."""


def find(catalogue: Catalogue, reference: str) -> tuple[Whole, Version]:
    """The version that `name`, `name/3` or `name@alias` means, and its model. Raises CallError."""
    from phalanx.scheduler.model_names import split_reference

    name, which = split_reference(reference)
    found = catalogue.whole(name)
    model = found.model
    number = model.latest if which is None else model.aliases.get(which) if isinstance(which, str) else which
    version = next((one for one in found.versions if one.number == number), None)
    if version is not None:
        return found, version
    if number is not None:
        more = f"; its latest is {model.latest}" if model.latest else ""
        raise CallError(f"`{name}` has no version {number}{more}")
    if which is None:
        raise CallError(f"`{name}` has no version")
    known = ", ".join(model.aliases)
    raise CallError(f"`{name}` has no alias `{which}`" + (f"; it has {known}" if known else ""))


@contextmanager
def open_catalogue(*, quiet: bool) -> Iterator[Catalogue]:
    from phalanx.cli.places import chosen_server, tell

    found = chosen_server()
    if found is None:
        with registry() as models:
            yield HomeCatalogue(models)
        return
    from phalanx.client import Client

    if not quiet:
        tell(found.url)
    with Client(found.url, found.token) as client:
        yield ServerCatalogue(client)


@contextmanager
def registry() -> Iterator[Registry]:
    """That of this machine's home, to be changed."""
    from phalanx.cli.homes import open_home
    from phalanx.scheduler.registry import Registry
    from phalanx.scheduler.serving import settle

    home, store = open_home()
    with store:
        settle(home, store)
        yield Registry(home, store)


class HomeCatalogue:
    def __init__(self, models: Registry) -> None:
        self.registry = models

    def models(self, text: str) -> list[Model]:
        return self.registry.index.models(text)

    def whole(self, name: str) -> Whole:
        model, index = self.registry.model(name), self.registry.index
        return Whole(model, index.versions(name), index.events(name))

    def events(self, name: str) -> Sequence[ModelEvent]:
        return self.registry.index.events(name) or self.whole(name).events

    def has_files(self, version: Version) -> bool:
        return self.registry.has_files(version)

    def take(self, version: Version, place: Path, *, force: bool, progress: Progress) -> Taken:
        from phalanx.scheduler.taking import take_version

        found = self.registry.resolve(version.title)
        if found.path is None:
            raise CallError(f"{version.title} is only an address: its files are at {found.url}")
        return take_version(found.path, self.registry.files(version), place, force=force, progress=progress)


class ServerCatalogue:
    """Versions have their files from the run that made them: while it is there, they are the same."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def models(self, text: str) -> list[Model]:
        return self.client.models(text)

    def whole(self, name: str) -> Whole:
        return Whole(*self.client.model(name))

    def events(self, name: str) -> Sequence[ModelEvent]:
        return self.whole(name).events

    def has_files(self, version: Version) -> bool:
        try:
            return version.run_id is not None and bool(self.client.outputs(version.run_id, version.source))
        except CallError:
            return False

    def take(self, version: Version, place: Path, *, force: bool, progress: Progress) -> Taken:
        return self.client.download_version(version, place, force=force, progress=progress)
