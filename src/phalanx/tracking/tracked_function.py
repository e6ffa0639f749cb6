"""`@tracking.track`: each call of a function is a run. Standard library only, Python 3.8+."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any, Callable, Tuple  # noqa: UP035 - Python 3.8

from phalanx.tracking.notices import warn
from phalanx.tracking.run import TrackedRun
from phalanx.tracking.values import HOLDERS, PLAIN, error_text, guarded, mapping_of, result_of

OWN = ("self", "cls")
OpenRun = Callable[[str], Tuple[TrackedRun, bool]]  # noqa: UP006 - Python 3.8


def tracked(function: Any, open_run: OpenRun) -> Any:
    """The function, tracked."""
    name = getattr(function, "__name__", type(function).__name__)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_later(*args: Any, **named: Any) -> Any:
            with _Call(*open_run(name)) as call:
                call.run.params(_params(function, args, named))
                return call.log_result(await function(*args, **named))

        return call_later

    @functools.wraps(function)
    def call_now(*args: Any, **named: Any) -> Any:
        with _Call(*open_run(name)) as call:
            call.run.params(_params(function, args, named))
            return call.log_result(function(*args, **named))

    return call_now


class _Call:
    """The run of one call."""

    def __init__(self, run: TrackedRun, ends_with_call: bool) -> None:
        self.run = run
        self.ends_with_call = ends_with_call

    def __enter__(self) -> _Call:
        if self.ends_with_call:
            self.run.__enter__()
        return self

    def __exit__(self, kind: Any, fault: Any, trace: Any) -> None:
        if self.ends_with_call:
            self.run.__exit__(kind, fault, trace)

    def log_result(self, result: Any) -> Any:
        """Log a mapping of numbers. Returns the result."""
        is_mapping = isinstance(result, Mapping) and result_of(lambda: len(result) > 0, False)
        is_numbers = is_mapping and result_of(lambda: all(map(_is_number, result.values())), False)
        if is_numbers:
            self.run.log(result)
        return result


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or callable(getattr(value, "item", None))


def _params(function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, also the defaults. Empty if they do not fit: the call itself reports that."""
    with guarded(lambda fault: warn(f"the arguments of a call are not recorded: {error_text(fault)}")):
        try:
            bound = inspect.signature(function).bind(*args, **named)
        except (TypeError, ValueError):
            return {}
        bound.apply_defaults()
        found: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = inspect.signature(function).parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                found.update(value)
            elif name not in OWN:
                found[name] = value
        return {name: _plain(value) for name, value in found.items()}
    return {}


def _plain(value: Any) -> Any:
    """Settings as they are; for data and models their type, since their text may be long or slow to make."""
    is_setting = value is None or isinstance(value, (*PLAIN, *HOLDERS)) or mapping_of(value) is not None
    return value if is_setting else type(value).__name__
