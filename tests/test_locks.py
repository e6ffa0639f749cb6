from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from phalanx.locks import locked, open_lock, release, take

HOLD = """
import sys
from phalanx.locks import locked
with locked(sys.argv[1]) as is_ours:
    print(is_ours, flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path) as first, locked(path, wait=False) as second:
        assert (first, second) == (True, False)
    with locked(path, wait=False) as third:
        assert third
    assert path.stat().st_mode & 0o777 == 0o600


def test_shared_locks_are_held_by_many(tmp_path: Path) -> None:
    first, second, third = (open_lock(tmp_path / "lock") for _ in range(3))
    try:
        assert take(first, wait=False, shared=True)
        assert take(second, wait=False, shared=True)
        assert not take(third, wait=False)
        release(first)
        assert not take(third, wait=False)
        release(second)
        assert take(third, wait=False)
    finally:
        for descriptor in (first, second, third):
            os.close(descriptor)


def test_the_lock_of_a_process_that_is_killed_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        with locked(path, wait=False) as is_ours:
            assert not is_ours
        holder.kill()
        holder.wait(60)
    with locked(path, wait=False) as is_ours:
        assert is_ours
