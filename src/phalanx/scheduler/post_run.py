"""What is done with a run's files once it is over: series compacted, files checksummed, shared, sent away.

It takes a while and nobody waits for it, so a process of its own does it, one for a home at a time. A mark in the home
tells which runs are left to do; whoever is killed halfway leaves the mark, and everything may be done again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from phalanx import run_paths
from phalanx.errors import CallError, SystemFault
from phalanx.home.home import Home
from phalanx.locks import locked
from phalanx.store import Store
from phalanx.store.series.points import SUFFIX

URL = "PHALANX_OUTPUTS_URL"  # where outputs are sent when a run is over
PAYS_BYTES = 256 << 10  # of points: reading fewer is quick as they are
MANY = 32  # runs that wait, each too small to start a process for


def enqueue(home: Home, run_id: str) -> None:
    """A run is over. Small ones wait until there are many. On a full disk it is not done at all."""
    with suppress(OSError):
        if tracked(home.run(run_id).path):
            (home.settling / run_id).touch(mode=0o600)
            if _pays(home.run(run_id).path) or len(os.listdir(home.settling)) >= MANY:
                with _alone(home) as nobody_is_at_it:
                    pass
                if nobody_is_at_it:
                    start(home)


def tracked(folder: Path) -> bool:
    """Whether there is anything to settle."""
    kept = (folder / name for name in (run_paths.ARTIFACTS, run_paths.MODELS, run_paths.OUTPUTS))
    return any(folder.glob(f"{run_paths.ATTEMPT_FOLDERS}/*{SUFFIX}")) or any(
        place.is_dir() and any(place.iterdir()) for place in kept
    )


def _pays(folder: Path) -> bool:
    if os.environ.get(URL) or any((folder / name).is_dir() for name in (run_paths.ARTIFACTS, run_paths.MODELS)):
        return True
    return sum(path.stat().st_size for path in folder.glob(f"{run_paths.ATTEMPT_FOLDERS}/*{SUFFIX}")) >= PAYS_BYTES


def start(home: Home) -> None:
    """Starting one too many is harmless: it finds the other at work and goes."""
    log = os.open(home.path / "settling.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "phalanx.scheduler.post_run", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
        process.returncode = 0  # nobody waits for it, and Python need not complain
    finally:
        os.close(log)


def process_all(home: Home, store: Store) -> int:
    """Answers how many runs were settled; none when another process is at it."""
    settled = 0
    with _alone(home) as is_alone:
        # A run that comes while we work is found by the next look: after the last one nobody counts on us any more.
        while is_alone and (found := _ready(home, store)):
            for run_id in found:
                process(home, store, run_id)
                (home.settling / run_id).unlink(missing_ok=True)
                settled += 1
    return settled


def _ready(home: Home, store: Store) -> list[str]:
    marked = sorted(os.listdir(home.settling))
    return [run_id for run_id in marked if _is_over(store, run_id)]


def _is_over(store: Store, run_id: str) -> bool:
    try:
        return store.find(run_id).is_done
    except CallError:
        return True  # removed meanwhile: nothing is left to do


def process(home: Home, store: Store, run_id: str) -> None:
    """One run that is over. What goes wrong is said, and is no reason to try for ever."""
    from phalanx.artifacts.remote import push
    from phalanx.registry.registry import finalize_outputs
    from phalanx.store.series.compaction import compact

    folder = home.run(run_id).path
    try:
        numbers = (run_paths.attempt_number(path.name) for path in folder.glob(run_paths.ATTEMPT_FOLDERS))
        for attempt in sorted({number for number in numbers if number is not None}):
            compact(folder, attempt)
        if folder.is_dir():
            finalize_outputs(home, store, run_id)
        url = os.environ.get(URL)
        if url and folder.is_dir():
            push(home, run_id, url)
    except (OSError, ValueError, CallError, SystemFault) as fault:
        print(f"run {run_id}: {fault}", file=sys.stderr, flush=True)


def _alone(home: Home) -> AbstractContextManager[bool]:
    return locked(home.path / "settling.lock", wait=False)


def main() -> None:
    path = Path(sys.argv[1])
    if not path.is_dir():
        return
    os.nice(10)
    home = Home(path)
    with Store.open(home.path, os.environ.get("PHALANX_DATABASE")) as store:
        while process_all(home, store):
            pass  # one that came just before we let go found us at work


if __name__ == "__main__":
    main()
