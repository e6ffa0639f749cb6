"""CPU time of a pass of the scheduler over a pipeline of 1,000 ops, beside one over 1,000 queued runs.

The ops wait for the first one, or are queued as runs: in both cases nothing can start, so that a pass is all there is.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phalanx.backends.local.capacity import Capacity
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.scheduler.loop import Scheduler
from phalanx.store import Store
from phalanx.submission.model import CodeSource, Submission
from phalanx.submission.submit import submit
from table import Beside, Of, Row, at_most

OPS = 1000
PASSES = 100
ROUNDS = 3
FULL = Capacity(1.0, 1e6, 0)
LARGE = {"environment": {"resources": {"cpu": {"requests": 1}}}}


def submitted(home: Home, store: Store, folder: Path, content: dict[str, Any]) -> None:
    spec, tree = load([("file.yml", json.dumps({"version": 1, **content}).encode())], {})
    asked = Submission(spec=spec, tree=tree, environment=dict(os.environ), code=CodeSource(folder))
    submit(home, store, asked)


def pipeline(*, is_chain: bool) -> dict[str, Any]:
    """All ops after the first one; or all at once."""
    first = {"name": "op-0", "template": {"name": "t"}}
    after = {"dependencies": ["op-0"]} if is_chain else {}
    others = [{"name": f"op-{number}", "template": {"name": "t"}, **after} for number in range(1, OPS)]
    template = {"kind": "job", "name": "t", "run": {"cmd": "sleep 600"}, **LARGE}
    return {"kind": "pipeline", "ops": [first, *others], "templates": [template]}


def pass_s(contents: list[dict[str, Any]]) -> float:
    """CPU time of one pass, once all that can start has started."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Home(Path(name) / "home")
        with Store.open(home.path) as store:
            for content in contents:
                submitted(home, store, Path(name), content)
            scheduler = Scheduler(home, store)
            scheduler.room, scheduler.gpus = FULL, ()
            try:
                for _ in range(OPS // 20):
                    scheduler.run_pass()
                best = min(_measured(scheduler) for _ in range(ROUNDS))
            finally:
                _end(scheduler, store)
    return best


def _measured(scheduler: Scheduler) -> float:
    began = time.thread_time()
    for _ in range(PASSES):
        scheduler.run_pass()
    return (time.thread_time() - began) / PASSES


def _end(scheduler: Scheduler, store: Store) -> None:
    """Stop what runs."""
    for run in scheduler.started:
        scheduler.home.run(run.id).ask_to_stop("measured")
    deadline = time.monotonic() + 30
    while store.runs("status:starting|running, kind:job") and time.monotonic() < deadline:
        scheduler.room = Capacity(0.0, 0.0, 0)
        scheduler.run_pass()
    scheduler.close()


def passes() -> Iterator[Row]:
    queued = pass_s([{"kind": "job", "run": {"cmd": "sleep 600"}, **LARGE}] * OPS)
    peer = Beside(f"{OPS:,} queued runs", queued)
    for what, is_chain in {"that wait for one": True, "that are queued": False}.items():
        ours = pass_s([pipeline(is_chain=is_chain)])
        yield Row(f"a pass over {OPS:,} ops {what}", ours, "s", peer=peer, aim=at_most(1.2, Of.PEER))


PARTS = {"passes": passes}
