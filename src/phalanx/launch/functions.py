"""`phalanx.run`, `phalanx.submit`, `phalanx.map` and `phalanx.attach`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import CallError, path_error
from phalanx.launch.call_files import COMMAND, MadeCall, make_call, name_of
from phalanx.launch.options import RunOptions, check_call, document, file_options, read_options, split, working_folder
from phalanx.launch.place_choice import PlaceChoice, choose_place
from phalanx.launch.run_future import RunBatch, RunFuture, batch_of, open_run

if TYPE_CHECKING:
    from phalanx.submission.model import Submission

MOST_CALLS = 10_000  # of one batch
MOST_BYTES = 1 << 20  # of a file


def run(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = "polyaxonfile.yml",
    *,
    params: Mapping[str, Any] | None = None,
    **named: Any,
) -> RunFuture:
    """Start a run of a file, or of several, where later files override earlier ones.

    Keyword arguments are params of the file, except `on`, `name`, `description`, `project`, `tags`, `priority`,
    `after`, `timeout`, `folder` and `snapshot`; `params` takes any name. The run is in the place that the command line
    would use. Its `result()` is its record. Raises SpecErrors with all errors of the file, CallError.
    """
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    options, values = file_options(named, params)
    texts = [_read(path) for path in paths]
    if values:
        texts.append(("the arguments of run()", _encoded({"params": values})))
    place = choose_place()
    asked = _submission(options, texts, None)
    return RunFuture(place, place.open().submit(asked), "")


def submit(function: Callable[..., Any], /, *args: Any, **named: Any) -> RunFuture:
    """Start `function(*args, **named)` as a run, in every worker.

    Some keyword arguments are options of the run: see `phalanx.launch.options.RunOptions`. The others go to the
    function. A name that is both is refused: pass the function's with functools.partial. Raises CallError, SpecErrors,
    MissingExtra.
    """
    options, own = split(function, args, named)
    return start_call(function, args, own, options)


def start_call(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any], options: RunOptions
) -> RunFuture:
    """Raises CallError, SpecErrors, MissingExtra."""
    place = choose_place()
    made = make_call(function, [(args, named)], working_folder(options))
    asked = _function_submission(function, options, made, document(options, _command(place, options, made)))
    return RunFuture(place, place.open().submit(asked), made.digest)


def map(  # noqa: A001 - used as `phalanx.map()`
    function: Callable[..., Any],
    calls: Iterable[Mapping[str, Any] | tuple[Any, ...]],
    /,
    *,
    concurrency: int | None = None,
    **named: Any,
) -> RunBatch:
    """Start one run of the function for each item: a mapping of keyword arguments, or a tuple of positional ones.

    At most `concurrency` run at a time; default: as many as there is room for. The other keyword arguments are options
    of the runs, as for `submit`. The runs are the trials of one group. Raises CallError, SpecErrors, MissingExtra.
    """
    items = [_arguments(item) for item in calls]
    if not items:
        raise CallError("there is nothing to map: the list of arguments is empty")
    if len(items) > MOST_CALLS:
        raise CallError(f"a batch has at most {MOST_CALLS:,} calls, this one {len(items):,}: use several")
    for args, own in items:
        check_call(function, args, own)
    options = read_options(named, ["concurrency"])
    return start_batch(function, items, options, concurrency)


def start_batch(
    function: Callable[..., Any],
    items: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]],
    options: RunOptions,
    concurrency: int | None,
) -> RunBatch:
    """Raises CallError, SpecErrors, MissingExtra."""
    place = choose_place()
    made = make_call(function, items, working_folder(options))
    written = document(options, _command(place, options, made) + " {{ call }}", len(items), concurrency)
    asked = _function_submission(function, options, made, written)
    return batch_of(place, place.open().submit(asked), made.digest, len(items))


def attach(run: str) -> RunFuture | RunBatch:
    """The run with an id, a name (the newest of several) or the first characters of an id, from any process. A batch of
    `phalanx.map` is a RunBatch. Raises CallError."""
    choice = choose_place()
    place = choice.open()
    return open_run(place, choice, place.find(run))


# Submissions ----------------------------------------------------------------------------------------------------------


def _command(place: PlaceChoice, options: RunOptions, made: MadeCall) -> str:
    return f"{shlex.quote(options.python or _python_of(place, options))} {COMMAND} {made.digest}"


def _function_submission(
    function: Callable[..., Any], options: RunOptions, made: MadeCall, written: Mapping[str, Any]
) -> Submission:
    """`written`: its polyaxonfile. Raises CallError, SpecErrors."""
    texts = [(f"{name_of(function)}()", _encoded(written))]
    if isinstance(options.spec, Mapping):
        texts.append(("spec", _encoded(options.spec)))
    elif options.spec is not None:
        texts.append(_read(options.spec))
    return _submission(options, texts, made.data, name_of(function))


def _submission(
    options: RunOptions, texts: list[tuple[str, bytes]], call: bytes | None, name: str | None = None
) -> Submission:
    from phalanx.client.user_defaults import default_backend, default_of
    from phalanx.launch.file_references import load_files
    from phalanx.submission.model import CodeSource, Submission

    loaded = load_files(texts, {})
    return Submission(
        spec=loaded.spec,
        tree=loaded.tree,
        environment=dict(os.environ),
        code=CodeSource(working_folder(options), is_snapshot=options.snapshot),
        files=loaded.files,
        params=dict(loaded.params),
        call=call,
        name=options.name or (loaded.spec.name or name),
        description=options.description,
        tags=[options.tags] if isinstance(options.tags, str) else tuple(options.tags),
        project=options.project or default_of("project") or "default",
        priority=options.priority,
        timeout_s=_seconds(options.timeout) if call is None else None,  # else in the file
        after=[options.after] if isinstance(options.after, str) else tuple(options.after),
        on=options.on or default_backend(loaded.spec.backend),
    )


def _python_of(place: PlaceChoice, options: RunOptions) -> str:
    """This interpreter, where the run is on this machine or on nodes that share its files."""
    from phalanx import backends
    from phalanx.backends.contract import LOCAL_BACKENDS
    from phalanx.client.user_defaults import default_of

    backend = options.on or default_of("backend") or LOCAL_BACKENDS[0]
    is_shared = backend in LOCAL_BACKENDS or (backend in backends.names() and backends.find(backend).shares_files)
    return sys.executable if place.is_home and is_shared and sys.executable else "python"


def _arguments(item: Mapping[str, Any] | tuple[Any, ...]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(item, Mapping):
        return (), item
    if isinstance(item, tuple):
        return item, {}
    raise CallError(f"{item!r} is neither a mapping of keyword arguments nor a tuple of arguments: write ({item!r},)")


def _encoded(part: Mapping[str, Any]) -> bytes:
    """A part of a polyaxonfile. Raises CallError for values that none can have."""
    try:
        return json.dumps(part).encode()
    except (TypeError, ValueError) as fault:
        raise CallError(f"a polyaxonfile has numbers, texts, lists and maps only: {fault}") from None


def _seconds(timeout: str | float | None) -> float | None:
    from phalanx.spec.quantities import seconds

    found = seconds(timeout) if isinstance(timeout, str) else timeout
    if found is None and timeout is not None:
        raise CallError(f'timeout={timeout!r}: expected seconds, or a time such as "90m" or "1d12h"')
    return found


def _read(path: str | os.PathLike[str]) -> tuple[str, bytes]:
    try:
        with Path(path).open("rb") as stream:
            return os.fspath(path), stream.read(MOST_BYTES + 1)
    except OSError as fault:
        raise path_error(f"cannot read {os.fspath(path)}", fault) from None
