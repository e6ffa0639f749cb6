"""One TensorBoard over chosen runs: its folder, its process, and when it ends."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from phalanx.boards.log_folder import LogFolder, RunData
from phalanx.boards.program import TensorBoardProcess
from phalanx.errors import CallError, SystemFault
from phalanx.store import Run

LOOK_S = 3.0  # between two looks at the runs
MOST_RUNS = 500  # TensorBoard is very slow with more than some hundreds


class Board:
    """A context manager: at the end, the process is ended and the folder is removed. `choose` returns the runs, anew at
    each look, so that those that match later are added."""

    def __init__(
        self,
        choose: Callable[[], Sequence[Run]],
        data_of: Callable[[Run], RunData],
        *,
        idle_s: float,
        all_replicas: bool = False,
    ) -> None:
        self.choose = choose
        self.idle_s = idle_s
        self.runs: Sequence[Run] = ()
        self._process: TensorBoardProcess | None = None
        self._place = Path(tempfile.mkdtemp(prefix="phalanx-tensorboard-"))
        self.folder = LogFolder(self._place / "runs", data_of, all_replicas=all_replicas)
        self.folder.path.mkdir(mode=0o700)
        self._used_at = time.monotonic()

    def start(self, program: Sequence[str], port: int | None = None) -> str:
        """Start TensorBoard, and return its address when it answers. Raises SystemFault."""
        self.look()
        self._process = TensorBoardProcess(program, self.folder.path, port, self._place / "tensorboard.log")
        self._process.wait()
        self._used_at = time.monotonic()
        return self._process.url

    def look(self) -> bool:
        """Bring the folder up to date. Returns False when it is idle: no run is active, and no one has been connected
        for `idle_s`. Raises SystemFault if TensorBoard has ended."""
        self.runs = self.choose()[:MOST_RUNS]
        try:
            self.folder.update(self.runs)
        except OSError as fault:
            where = fault.filename or self.folder.path
            raise SystemFault(f"cannot write {where}: {fault.strerror}", transient=False) from None
        if self._process is None:
            return True
        self._process.check()
        if self._process.is_used() or not all(run.is_done for run in self.runs):
            self._used_at = time.monotonic()
        return time.monotonic() - self._used_at < self.idle_s

    def follow(self, pause: Callable[[float], bool]) -> str:
        """Until it is idle, or `pause` (which waits so many seconds) returns False. Returns why it ended. Raises
        SystemFault."""
        while pause(min(LOOK_S, max(0.1, self.idle_s / 4))):
            try:
                if not self.look():
                    return "idle"
            except CallError:
                continue  # a server that does not answer now
        return "stopped"

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
        self.folder.close()
        shutil.rmtree(self._place, ignore_errors=True)  # follows no link

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
