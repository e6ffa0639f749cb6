"""Decorators of all calls, so that tracking cannot disturb training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from phalanx.tracking.values import guarded, named_fault

from .. import settings
from ..exceptions import PolyaxonClientException
from ..logger import logger

_SAID: set[str] = set()  # by this process


def say_once(text: str) -> None:
    """Log once, not with `warnings`: those can be turned into errors."""
    if text not in _SAID:
        _SAID.add(text)
        logger.warning(text)


def check_no_op(method: Callable[..., Any]) -> Callable[..., Any]:
    """Do nothing with POLYAXON_NO_OP. Only documented errors are raised."""

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if settings.NO_OP:
            return None
        with guarded(report):
            return method(*args, **kwargs)
        return None

    def report(fault: BaseException) -> None:
        if isinstance(fault, PolyaxonClientException):
            raise fault
        say_once(f"{method.__name__} was skipped: {named_fault(fault)}")

    return checked


def check_offline(method: Callable[..., Any]) -> Callable[..., Any]:
    """Record nothing with POLYAXON_IS_OFFLINE or POLYAXON_NO_OP."""

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        return None if settings.IS_OFFLINE else method(*args, **kwargs)

    return check_no_op(checked)
