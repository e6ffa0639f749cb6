"""What the agent asks of a notebook, for commands that are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class NoNotebook:
    """What a command that is not Jupyter needs."""

    options: Sequence[str] = ()

    def check(self, say: Callable[[str], None]) -> bool:  # noqa: ARG002
        """Called several times a second. False: the command must be ended."""
        return True

    def close(self, code: int | None, say: Callable[[str], None]) -> None:
        """Called when the command has ended."""
