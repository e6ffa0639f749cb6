"""Remote storage of outputs: any that fsspec supports by URL (s3://, gs://, az://, file://…).

<url>/objects/<sha256>   a file's content, once for all runs that have it
<url>/runs/<run id>.json the run's manifest; written last, so that everything it names exists

Credentials come from the environment and the providers' own files. They are never part of a URL, since URLs are stored
and shown.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from phalanx import extras
from phalanx.artifacts.objects import UNKNOWN, FileRecord, Objects, TreeDigester, is_digest
from phalanx.artifacts.outputs import (
    OutputManifest,
    is_listable,
    locked,
    read_manifest,
    update_manifest,
    write_manifest,
)
from phalanx.artifacts.trees import Progress, Tree, no_progress, run_tree
from phalanx.errors import CallError, PhalanxError, SystemFault
from phalanx.home.home import Home
from phalanx.plan.document import is_secret

AT_ONCE = 4
EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "azure"),
}
# Schemes where a file appears only when its upload is complete; elsewhere it is written under another name and renamed.
_WHOLE = {*EXTRAS, "memory"}

T = TypeVar("T")


class PushResult(NamedTuple):
    url: str
    sent: int  # objects
    known: int  # objects that already existed
    sent_bytes: int
    left_out: list[str]  # files that could not be read, or changed meanwhile


def scheme_of(url: str) -> str:
    scheme, mark, _ = url.partition("://")
    if not mark or not scheme or not scheme.isascii():
        raise CallError(f"`{url[:60]}` is not a storage URL: write s3://bucket/folder, gs://…, az://… or file:///…")
    return scheme.lower()


def check_url(url: str) -> str:
    """The URL in its stored form. Raises CallError."""
    scheme_of(url)
    if "::" in url:
        raise CallError("write the URL of one storage, without `::`")
    refuse_credentials(url)
    return url.rstrip("/")


def require_storage(url: str) -> None:
    """Check that the packages for a URL are installed, without contacting the storage. Raises CallError,
    MissingExtra."""
    scheme = scheme_of(check_url(url))
    try:
        import_module("fsspec").get_filesystem_class(scheme)
    except (ImportError, ValueError) as fault:
        if scheme in EXTRAS:
            raise extras.missing(EXTRAS[scheme], f"storage on {scheme}://", fault) from None
        if isinstance(fault, ImportError):
            raise CallError(f"storage on {scheme}:// needs another package: {fault}") from None
        raise CallError(f"storage of the kind {scheme}:// is not supported") from None


class RemoteStorage:
    """Every error is a CallError, whichever exception the storage raises."""

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._storage, self._base = self._connect()

    def _connect(self) -> tuple[Any, str]:
        require_storage(self.url)
        with self._translated_errors("cannot be reached"):
            core = import_module("fsspec.core")
            storage, base = core.url_to_fs(self.url, use_listings_cache=False, skip_instance_cache=True)
        return storage, str(base).rstrip("/")

    def size(self, digest: str) -> int | None:
        """The size of an object; None when it does not exist."""
        with self._translated_errors("cannot be read"):
            try:
                return int(self._storage.info(self._object(digest))["size"])
            except FileNotFoundError:
                return None

    def send(self, digest: str, stream: BinaryIO, size: int, say: Callable[[int], Any]) -> None:
        """Upload a complete object. `say` is called with the number of bytes sent."""
        callbacks = import_module("fsspec.callbacks")
        progress = callbacks.Callback(hooks={"say": lambda _, value, **__: say(value)})
        with self._translated_errors("cannot be written"), self._whole(self._object(digest)) as name:
            self._storage.put_file(f"/dev/fd/{stream.fileno()}", name, callback=progress)
        say(size)  # not every storage reports it
        if self.size(digest) != size:
            self.remove(digest)
            raise SystemFault(f"{self.url}: an object was not stored completely: push again", transient=True)

    def open(self, digest: str) -> BinaryIO:
        with self._translated_errors(f"has no object {digest}"):
            return cast(BinaryIO, self._storage.open(self._object(digest), "rb"))

    def read(self, digest: str, say: Callable[[int], Any] = lambda _: None) -> Iterator[bytes]:
        """An object in pieces; after the last one SystemFault when they were not what they must be."""
        found, count = hashlib.sha256(), 0
        with self._translated_errors("cannot be read"), self.open(digest) as stream:
            while piece := stream.read(1 << 20):
                found.update(piece)
                count += len(piece)
                say(count)
                yield piece
        if found.hexdigest() != digest:
            message = f"{self.url}: the object {digest} is damaged: push the run again from where its files are"
            raise SystemFault(message, transient=False)

    def remove(self, digest: str) -> None:
        with suppress(FileNotFoundError), self._translated_errors("cannot be written"):
            self._storage.rm_file(self._object(digest))

    def put_manifest(self, run_id: str, manifest: OutputManifest) -> None:
        files = {
            path: {"size": kept.size, "digest": kept.digest, "at": kept.at} for path, kept in manifest.files.items()
        }
        data = {"version": 1, "run": run_id, "at": time.time(), "files": files, "links": manifest.links}
        with self._translated_errors("cannot be written"), self._whole(f"{self._base}/runs/{run_id}.json") as name:
            self._storage.pipe_file(name, json.dumps(data, indent=1).encode())

    def manifest(self, run_id: str) -> Mapping[str, tuple[int, str]] | None:
        """The size and digest of each file of a run; None when the storage has none of it."""
        with self._translated_errors("cannot be read"):
            try:
                data = json.loads(self._storage.cat_file(f"{self._base}/runs/{run_id}.json"))
                files = {path: (int(kept["size"]), kept["digest"]) for path, kept in data["files"].items()}
            except FileNotFoundError:
                return None
        return {path: kept for path, kept in files.items() if is_listable(path) and is_digest(kept[1])}

    def verify(self, files: Iterable[FileRecord], progress: Progress = no_progress) -> None:
        """Read every object back. Raises CallError at the first that does not match."""
        objects = {kept.digest: kept.size for kept in files if kept.digest is not None}
        tally = PushTally(f"checking {self.url}", sum(objects.values()), progress)

        def check(item: tuple[str, int]) -> None:
            for _ in self.read(item[0], tally.part()):
                pass

        in_turn(check, list(objects.items()))

    def _object(self, digest: str) -> str:
        return f"{self._base}/objects/{digest}"

    @contextmanager
    def _whole(self, name: str) -> Iterator[str]:
        """A name to write under, so that the file appears complete or not at all."""
        if scheme_of(self.url) in _WHOLE:
            yield name
            return
        draft = f"{name}.{secrets.token_hex(4)}.draft"
        self._storage.makedirs(name.rpartition("/")[0], exist_ok=True)
        with ExitStack() as undo:
            undo.callback(self._discard, draft)
            yield draft
            self._storage.mv(draft, name)
            undo.pop_all()

    def _discard(self, draft: str) -> None:
        with suppress(OSError):
            self._storage.rm_file(draft)

    @contextmanager
    def _translated_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except PhalanxError:
            raise
        except Exception as fault:  # noqa: BLE001 - the exceptions of fsspec's storages have no common base
            is_final = isinstance(fault, FileNotFoundError | PermissionError)  # of the rest, most is the network
            raise SystemFault(f"{self.url} {what}: {_without_secrets(fault)}", transient=not is_final) from None


def _without_secrets(fault: Exception) -> str:
    text = " ".join(str(fault).split()) or type(fault).__name__
    for name, value in os.environ.items():
        if is_secret(name) and len(value) > 5:
            text = text.replace(value, "…")
    return text[:300]


class PushTally:
    """Adds up the progress of several threads."""

    def __init__(self, what: str, total: int, progress: Progress) -> None:
        self.what, self.total, self.progress = what, total, progress
        self.done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.done += count
            self.progress(self.what, self.done, self.total)

    def part(self) -> Callable[[int], None]:
        """For one file: receives its progress."""
        before = 0

        def say(count: int) -> None:
            nonlocal before
            self.add(count - before)
            before = count

        return say


def in_turn(work: Callable[[T], Any], items: Iterable[T]) -> None:
    """Runs a few at once; after the first error it waits only for active ones. An interrupt does not wait."""
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    faults: list[BaseException] = []

    def go_on() -> None:
        while not faults:
            try:
                work(waiting.get_nowait())
            except queue.Empty:
                return
            except BaseException as fault:  # noqa: BLE001 - raised again below; a thread would swallow it
                faults.append(fault)

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(min(AT_ONCE, waiting.qsize()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def push(home: Home, run_id: str, url: str, progress: Progress = no_progress) -> PushResult:
    """Upload a run's files to remote storage. Existing objects are not sent again, so an interrupted push continues
    where it stopped. Raises CallError."""
    remote = RemoteStorage(url)
    manifest = update_manifest(home, run_id, TreeDigester(Objects(home.path), progress))
    freed = [path for path, kept in manifest.files.items() if kept.freed]
    if freed and manifest.url != remote.url:
        raise CallError(
            f"{len(freed)} files of run {run_id} are only in {manifest.url}: restore them first with `phalanx "
            f"outputs {run_id} --restore`"
        )
    sending = PushSession(remote, run_tree(home.run(run_id).path), manifest, progress)
    in_turn(sending.send, sending.objects.items())
    whole = {p: kept for p, kept in manifest.files.items() if kept.digest and kept.digest not in sending.changed}
    remote.put_manifest(run_id, OutputManifest(whole, manifest.links))
    with locked(home.run(run_id).path):
        current = read_manifest(home.run(run_id).path)
        current.url, current.pushed_at = remote.url, time.time()
        write_manifest(home.run(run_id).path, current)
    left_out = sorted(path for path in manifest.files if path not in whole)
    return PushResult(remote.url, sending.sent, len(sending.objects) - sending.sent, sending.sent_bytes, left_out)


class PushSession:
    """The objects of one push."""

    def __init__(self, remote: RemoteStorage, tree: Tree, manifest: OutputManifest, progress: Progress) -> None:
        self.remote, self.tree = remote, tree
        self.objects = {
            kept.digest: (path, kept)
            for path, kept in manifest.files.items()
            if kept.digest is not None and not kept.freed
        }
        self.tally = PushTally(
            f"sending to {remote.url}", sum(kept.size for _, kept in self.objects.values()), progress
        )
        self.sent = self.sent_bytes = 0
        self.changed: set[str] = set()  # the digests of files that have changed
        self._lock = threading.Lock()

    def send(self, item: tuple[str, tuple[str, FileRecord]]) -> None:
        digest, (path, kept) = item
        if self.remote.size(digest) == kept.size:
            self.tally.add(kept.size)
        elif not self._send(digest, path, kept):
            self.changed.add(digest)

    def _send(self, digest: str, path: str, kept: FileRecord) -> bool:
        """False when the file changed or was not read to the end: then the uploaded data may be anything."""
        try:
            stream = self.tree.open(path)
        except OSError:
            return False
        with stream:
            before = _state(stream)
            if before[:2] != (kept.size, kept.inode) or kept.mtime_ns not in (before[2], UNKNOWN):
                return False
            self.remote.send(digest, stream, kept.size, self.tally.part())
            if _state(stream) != before:
                self.remote.remove(digest)
                return False
        with self._lock:
            self.sent += 1
            self.sent_bytes += kept.size
        return True


def _state(stream: BinaryIO) -> tuple[int, int, int]:
    state = os.fstat(stream.fileno())
    return state.st_size, state.st_ino, state.st_mtime_ns


def refuse_credentials(url: str) -> None:
    """URLs are stored and shown, so they must not contain a key. The message does not repeat it."""
    scheme, _, rest = url.partition("://")
    is_azure = scheme in ("abfs", "abfss")  # container@account is a location there
    authority = rest.partition("/")[0]
    has_key = re.search(r":.*@", rest) or re.search(r":.*[^0-9]", authority)
    if has_key or ("@" in authority and not is_azure) or "?" in url or "#" in url:
        raise CallError(
            f"the {scheme}:// URL contains credentials or options: write only scheme, location and path. Keys come "
            "from the environment or the provider's own files (AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, …)"
        )
