"""What a `pathRef` or `urlRef` points at. Reading it is left to the caller, who knows which folders are open."""

from __future__ import annotations

from typing import Protocol

DOWNLOAD = "download it, and write `pathRef: FILE` with its path relative to this file"


class ReferenceFault(Exception):
    """Why a referenced file cannot be read, and what to do."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class References(Protocol):
    """Reads referenced files. `base`: the name of the file that has the reference. Both return the name of the file and
    its content, and raise ReferenceFault."""

    def read_path(self, base: str, path: str) -> tuple[str, bytes]: ...
    def read_url(self, base: str, url: str) -> tuple[str, bytes]: ...


class NoReferences:
    """For files that arrive alone, such as those sent to a server."""

    def read_path(self, base: str, path: str) -> tuple[str, bytes]:  # noqa: ARG002 - the same for any file
        hint = "run `phalanx convert` beside the file, and send what it prints"
        raise ReferenceFault(f"`{path[:200]}` cannot be read here: only this file was sent", hint)

    def read_url(self, base: str, url: str) -> tuple[str, bytes]:  # noqa: ARG002
        raise ReferenceFault(f"`{url[:200]}` is not fetched", DOWNLOAD)
