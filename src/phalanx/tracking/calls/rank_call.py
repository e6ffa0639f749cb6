"""The call of a function in one rank of a run. Standard library only, Python 3.8+."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from phalanx.atomic_files import write_atomic
from phalanx.tracking.calls import sealed_files
from phalanx.tracking.calls.sealed_files import CallFile, UntrustedFile
from phalanx.tracking.checkpoint_signal import on_checkpoint

FAILED = 1  # exit code after an exception
LOOK_S = 0.1


class RankCall:
    """`number` selects one call of a batch."""

    def __init__(self, call: CallFile, number: int, environment: Mapping[str, str]) -> None:
        self.call = call
        self.number = number
        self.run_id = environment["PHALANX_RUN_ID"]
        self.rank = int(environment.get("PHALANX_RANK") or 0)
        self.attempt = int(environment.get("PHALANX_ATTEMPT") or 1)
        self.outputs = environment["PHALANX_OUTPUTS"]
        self.is_leaving = False

    @classmethod
    def find(cls, digest: str, number: int, environment: Mapping[str, str]) -> RankCall:
        """Raises UntrustedFile, OSError."""
        return cls(find_call(digest, environment), number, environment)

    def run(self) -> int:
        """Call the function and keep its result or exception. Returns the exit code."""
        try:
            function, args, named = self._load()
            self._prepare_checkpoint(function, args, named)
            result = function(*args, **named)
            self._keep(sealed_files.RESULT, _pickled(result, "the result"), {})
        except SystemExit as leaving:
            if leaving.code in (0, None):
                self._keep(sealed_files.RESULT, pickle.dumps(None), {})
            raise
        except BaseException as fault:  # noqa: BLE001 - it is what the caller of result() gets
            self._keep_exception(fault)
            return FAILED
        return 0

    def _load(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function and its arguments: those of the last checkpoint, if there is one."""
        facts = self.call.facts
        if facts["by_value"] and tuple(facts["python"]) != sys.version_info[:2]:
            ours, theirs = (".".join(map(str, one)) for one in (sys.version_info[:2], facts["python"]))
            raise RuntimeError(
                f"{facts['name']} was sent by value from Python {theirs}, and this is Python {ours}: "
                "use the same version (python=…), or put the function into a module"
            )
        for path in facts["paths"]:
            absolute = os.path.abspath(path)
            if absolute not in sys.path:
                sys.path.append(absolute)
        saved = self._checkpoint()
        if saved is not None:
            found: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] = pickle.loads(saved)  # noqa: S301 - sealed
            return found
        args, named = pickle.loads(self.call.calls[self.number])  # noqa: S301 - its digest is that of the command
        return pickle.loads(self.call.function), args, named  # noqa: S301

    # checkpoints -----------------------------------------------------------------------------------------------------

    def _prepare_checkpoint(self, function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """A callable with a method `checkpoint` says what the next attempt runs. Rank 0 asks it; the others follow."""
        method = getattr(function, "checkpoint", None)
        if not callable(method):
            return

        def save() -> None:
            self._save(method(*args, **named))

        on_checkpoint(save if self.rank == 0 else self._follow, leave=lambda: self.is_leaving)

    def _save(self, following: Any) -> None:
        """Keep what the next attempt runs; None: nothing, this attempt goes on."""
        body = b"" if following is None else _pickled(_parts(following), "the checkpoint")
        self._write(sealed_files.CHECKPOINT_NAME, sealed_files.CHECKPOINT, body, {})
        self.is_leaving = following is not None

    def _follow(self) -> None:
        """Wait until rank 0 has saved, or has decided to go on."""
        while True:
            with suppress(OSError, UntrustedFile):
                found = self._read_checkpoint()
                if found.header["attempt"] == self.attempt:
                    self.is_leaving = bool(found.body)
                    return
            time.sleep(LOOK_S)

    def _checkpoint(self) -> bytes | None:
        try:
            return self._read_checkpoint().body or None
        except FileNotFoundError:
            return None

    def _read_checkpoint(self) -> sealed_files.SealedFile:
        """Raises UntrustedFile, OSError."""
        data = sealed_files.read_regular(os.path.join(self.outputs, sealed_files.CHECKPOINT_NAME))
        return sealed_files.unseal(self.call.key, data, kind=sealed_files.CHECKPOINT)

    # results ---------------------------------------------------------------------------------------------------------

    def _keep_exception(self, fault: BaseException) -> None:
        text = _traceback_text(fault)
        print(text, end="", file=sys.stderr, flush=True)
        body = b""
        with suppress(Exception):  # an exception that cannot be pickled arrives as text
            body = _pickled(fault, "the exception")
            pickle.loads(body)  # noqa: S301 - it was pickled here
        facts = {"type": type(fault).__qualname__, "message": str(fault), "traceback": text}
        self._keep(sealed_files.EXCEPTION, body, facts)

    def _keep(self, kind: str, body: bytes, facts: dict[str, Any]) -> None:
        self._write(sealed_files.result_name(self.rank, self.attempt), kind, body, facts)

    def _write(self, name: str, kind: str, body: bytes, facts: dict[str, Any]) -> None:
        header = {**facts, "kind": kind, "run": self.run_id, "attempt": self.attempt, "rank": self.rank}
        path = os.path.join(self.outputs, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_atomic(path, sealed_files.seal(self.call.key, header, body))


def find_call(digest: str, environment: Mapping[str, str]) -> CallFile:
    """The call file: in the folder of the run, in that of its batch, or sent with the code. Raises UntrustedFile,
    OSError."""
    run_folder = os.path.dirname(environment["PHALANX_OUTPUTS"])
    batch = environment.get("PHALANX_GROUP_ID")
    places = [os.path.join(run_folder, sealed_files.FOLDER, sealed_files.call_name(digest))]
    if batch:
        runs = os.path.dirname(run_folder)
        places.append(os.path.join(runs, batch, sealed_files.FOLDER, sealed_files.call_name(digest)))
    places.append(sealed_files.code_name(digest))
    for place in places:
        with suppress(FileNotFoundError, NotADirectoryError):
            return sealed_files.decode_call(sealed_files.read_regular(place), digest)
    raise UntrustedFile(f"none of these exists: {', '.join(places)}")


def _parts(following: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function and arguments of what `checkpoint` returned: a functools.partial, an object with `function`, `args`
    and `kwargs`, or a callable without arguments."""
    if hasattr(following, "func"):
        return following.func, following.args, following.keywords
    if hasattr(following, "function"):
        return following.function, tuple(following.args), dict(following.kwargs)
    return following, (), {}


def _pickled(value: Any, what: str) -> bytes:
    """Raises TypeError if the value cannot be pickled."""
    try:
        return pickle.dumps(value, protocol=4)
    except Exception as fault:
        with suppress(Exception):  # classes of the script or notebook that was submitted
            return bytes(import_module("cloudpickle").dumps(value, protocol=4))
        raise TypeError(f"{what} cannot be pickled: {fault}") from fault


def _traceback_text(fault: BaseException) -> str:
    """As Python prints it, without the frames of this module, unless there are no others."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(fault), fault, trace or fault.__traceback__))
