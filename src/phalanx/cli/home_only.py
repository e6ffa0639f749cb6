"""Guard of the verbs that work on a local home only: they refuse to run when a server is selected."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

MARK = "_phalanx_at_home"


def require_home(command: click.Command, name: str, *, also_after_login: bool) -> None:
    """Guard a command and its subcommands. --help still works."""
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            require_home(one, f"{name} {below}", also_after_login=also_after_login)
    elif command.callback is not None and not hasattr(command.callback, MARK):
        command.callback = _guarded(command.callback, name, also_after_login=also_after_login)


def _guarded(callback: Callable[..., Any], name: str, *, also_after_login: bool) -> Callable[..., Any]:
    @wraps(callback)
    def called(*arguments: Any, **options: Any) -> Any:
        from phalanx.cli.render.output import report_errors
        from phalanx.cli.workspace.base import require_local_home

        with report_errors(as_json=bool(options.get("as_json"))):
            require_local_home(f"`phalanx {name}` works", also_after_login=also_after_login)
        return callback(*arguments, **options)

    setattr(called, MARK, True)
    return called
