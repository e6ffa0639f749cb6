"""Post-run processing of a run's files: compact series, checksum and deduplicate files, upload outputs.

It is slow and no command waits for it, so a separate process does it, one per home at a time. A mark file in the home
lists each run that is left. If the process is killed, the mark stays, and every step can be repeated.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from phalanx import run_paths
from phalanx.errors import CallError, SystemFault
from phalanx.home.background import start_module
from phalanx.home.home import Home
from phalanx.locks import locked
from phalanx.store import Store
from phalanx.store.series.points import SUFFIX
from phalanx.stored_plan import PlanDamaged, read_plan

URL = "PHALANX_OUTPUTS_URL"  # where outputs are uploaded when a run has finished
PAYS_BYTES = 256 << 10  # of points: fewer are read quickly without compaction
MANY = 32  # waiting runs that together justify a process


def enqueue(home: Home, run_id: str) -> None:
    """Mark a finished run. Small runs wait until there are many. On a full disk nothing is done."""
    with suppress(OSError):
        if tracked(home.run(run_id).path):
            (home.settling / run_id).touch(mode=0o600)
            if _pays(home.run(run_id).path) or len(os.listdir(home.settling)) >= MANY:
                with _alone(home) as nobody_is_at_it:
                    pass
                if nobody_is_at_it:
                    start(home)


def tracked(folder: Path) -> bool:
    """Whether the run has files to process."""
    kept = (folder / name for name in (run_paths.ARTIFACTS, run_paths.MODELS, run_paths.OUTPUTS))
    return any(folder.glob(f"{run_paths.ATTEMPT_FOLDERS}/*{SUFFIX}")) or any(
        place.is_dir() and any(place.iterdir()) for place in kept
    )


def _pays(folder: Path) -> bool:
    if os.environ.get(URL) or any((folder / name).is_dir() for name in (run_paths.ARTIFACTS, run_paths.MODELS)):
        return True
    if _has_rules(folder):
        return True
    return sum(path.stat().st_size for path in folder.glob(f"{run_paths.ATTEMPT_FOLDERS}/*{SUFFIX}")) >= PAYS_BYTES


def _has_rules(folder: Path) -> bool:
    """Whether its file says which models to register, or which checkpoints to keep."""
    if (folder / run_paths.KEEP).exists():
        return True
    try:
        return bool(read_plan(folder).models)
    except (OSError, PlanDamaged):
        return False


def start(home: Home) -> None:
    """Start the process. A second one is harmless: it finds the lock taken and exits."""
    start_module(home, "phalanx.scheduler.post_run", "settling.log")


def process_all(home: Home, store: Store) -> int:
    """Process all marked runs and return their number; 0 if another process holds the lock."""
    settled = 0
    with _alone(home) as is_alone:
        # Runs that are marked meanwhile are found by the next look. `main` covers those marked after the last look.
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
        return True  # removed meanwhile


def process(home: Home, store: Store, run_id: str) -> None:
    """Process one finished run. Errors are printed and not retried."""
    from phalanx.artifacts.remote import push
    from phalanx.registry.candidates import register_models
    from phalanx.registry.registry import Registry, finalize_outputs
    from phalanx.retention.cleanup import apply_keep
    from phalanx.store.series.compaction import compact

    folder = home.run(run_id).path
    try:
        numbers = (run_paths.attempt_number(path.name) for path in folder.glob(run_paths.ATTEMPT_FOLDERS))
        for attempt in sorted({number for number in numbers if number is not None}):
            compact(folder, attempt)
        if folder.is_dir():
            register_models(Registry(home, store), run_id)
            apply_keep(home, store, run_id)
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
            pass  # a run may have been marked just before the lock was released


if __name__ == "__main__":
    main()
