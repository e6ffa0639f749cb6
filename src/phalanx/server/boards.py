"""TensorBoards that the server started on loopback: few at a time, each with a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Sequence

from phalanx.boards.board import Board
from phalanx.boards.log_folder import RunData
from phalanx.boards.program import STARTS_S, find_program
from phalanx.errors import PhalanxError, SystemFault
from phalanx.store import Run

MOST = 4
IDLE_S = 600.0


class TooManyBoards(SystemFault):
    """As many as the server starts are in use."""

    def __init__(self) -> None:
        super().__init__(f"{MOST} TensorBoards are in use: close one and retry later", transient=True)


class Boards:
    """All TensorBoards of this process. The same runs share one."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self.idle_s = idle_s
        self._lock = threading.Lock()
        self._open: dict[Hashable, _RunningBoard] = {}

    def open(self, key: Hashable, choose: Callable[[], Sequence[Run]], data_of: Callable[[Run], RunData]) -> str:
        """The address of the TensorBoard of this key, started if there is none. Raises CallError, SystemFault."""
        program = find_program(os.environ)
        with self._lock:
            self._open = {name: board for name, board in self._open.items() if board.thread.is_alive()}
            running = self._open.get(key)
            if running is None:
                if len(self._open) >= MOST:
                    raise TooManyBoards
                running = self._open[key] = _RunningBoard(program, choose, data_of, self.idle_s)
        return running.url()

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            boards, self._open = list(self._open.values()), {}
        for board in boards:
            board.stopped.set()
        for board in boards:
            board.thread.join(STARTS_S)


class _RunningBoard:
    def __init__(
        self,
        program: Sequence[str],
        choose: Callable[[], Sequence[Run]],
        data_of: Callable[[Run], RunData],
        idle_s: float,
    ) -> None:
        self.stopped, self.is_ready = threading.Event(), threading.Event()
        self.found: str | PhalanxError = SystemFault("TensorBoard did not start in time", transient=True)
        self.thread = threading.Thread(
            target=self._run, args=(program, choose, data_of, idle_s), name="tensorboard", daemon=True
        )
        self.thread.start()

    def _run(
        self,
        program: Sequence[str],
        choose: Callable[[], Sequence[Run]],
        data_of: Callable[[Run], RunData],
        idle_s: float,
    ) -> None:
        try:
            with Board(choose, data_of, idle_s=idle_s) as board:
                self.found = board.start(program)
                self.is_ready.set()
                board.follow(lambda pause_s: not self.stopped.wait(pause_s))
        except PhalanxError as fault:
            self.found = fault
        finally:
            self.is_ready.set()

    def url(self) -> str:
        """Raises CallError, SystemFault."""
        self.is_ready.wait(STARTS_S)
        if isinstance(self.found, PhalanxError):
            raise self.found
        return self.found
