"""Verbs that work on a home of this machine alone say so when a server is meant."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

MARK = "_phalanx_at_home"


def at_home_only(command: click.Command, name: str, *, also_after_login: bool) -> None:
    """Its help stays there for everybody; only what it does is refused."""
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            at_home_only(one, f"{name} {below}", also_after_login=also_after_login)
    elif command.callback is not None and not hasattr(command.callback, MARK):
        command.callback = _guarded(command.callback, name, also_after_login=also_after_login)


def _guarded(callback: Callable[..., Any], name: str, *, also_after_login: bool) -> Callable[..., Any]:
    @wraps(callback)
    def called(*arguments: Any, **options: Any) -> Any:
        from phalanx.cli.output import answering
        from phalanx.cli.places import refuse_server

        with answering(as_json=bool(options.get("as_json"))):
            refuse_server(f"`phalanx {name}` works", also_after_login=also_after_login)
        return callback(*arguments, **options)

    setattr(called, MARK, True)
    return called
