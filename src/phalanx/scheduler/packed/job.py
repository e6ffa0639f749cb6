"""The job of a packed group: on each node a service that runs trials, and on the first also the group's scheduler.

The scheduler is the one of a home, restricted to this group. Its database is in the node's temporary folder: everything
that lasts is in the folders of the group and of its trials. It is a process of its own, and is started again if it is
killed: the trials run on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.backends.contract import LOCAL_BACKENDS
from phalanx.backends.local.capacity import NOTHING, Capacity, allocate, excess
from phalanx.home.attempts import AttemptFolder
from phalanx.home.group_folder import GroupFolder, allocation_id
from phalanx.home.home import Home
from phalanx.home.run_tokens import server_secret
from phalanx.ingest.adoption import adopt_all
from phalanx.scheduler.executors import Executor, Executors
from phalanx.scheduler.group_pass import GroupPass
from phalanx.scheduler.local_executor import LocalExecutor, LocalStart
from phalanx.scheduler.loop import Scheduler
from phalanx.scheduler.packed.nodes import (
    THREADS,
    AllocatedNode,
    NodeLost,
    NodeService,
    NodesExecutor,
    trial_environment,
    written_folder,
)
from phalanx.store import Run, Store
from phalanx.store.statuses import Status
from phalanx.stored_plan import read_plan

BACKEND = "slurm"
SCHEDULE = "--schedule"
TURN_S = 0.02
IDLE_S = 30.0  # a job whose group is paused ends after so long without a trial
OWNED_S = 1.0  # how often to check that no later job has the group
LEAVES_S = 60.0  # before the end of the job: trials end then, and the scheduler records it
CLOSES_S = 300.0  # before that no trial starts any more; in a short job a tenth of its time
MOST_DEATHS = 20  # of the scheduler in one job
DEATH_S = 1.0


class JobHome(Home):
    """The home of the scheduler of one job: local, with the runs of the shared home. It adopts no runs by itself."""

    def __init__(self, path: Path, shared: Path) -> None:
        super().__init__(path)
        self.runs = shared / "runs"
        self.inherited = trial_environment(os.environ)

    def run_ids(self) -> list[str]:
        return []

    def environment(self, run_id: str) -> dict[str, str]:  # noqa: ARG002
        return dict(self.inherited)

    def tidy(self) -> None:
        """The drafts in the shared folder are those of others."""


class JobExecutors(Executors):
    def __init__(self, home: Home, here: NodesExecutor) -> None:
        super().__init__(home)
        self.here: NodesExecutor = here

    def of(self, run: Run) -> Executor:  # noqa: ARG002
        return self.here


class PackedScheduler(Scheduler):
    """Runs the trials of one group on the nodes of its allocation. `room`: of each node. `closes_at`: when it stops to
    start trials."""

    def __init__(self, home: Home, store: Store, group_id: str, nodes: NodesExecutor, room: Capacity) -> None:
        super().__init__(home, store, here=(*LOCAL_BACKENDS, BACKEND))
        self.groups = GroupPass(self, inside=group_id)
        self.executors = JobExecutors(home, nodes)
        self.nodes = nodes
        self.room, self.gpus = room, ()
        self.closes_at = float("inf")
        self.notices.sends = False  # the scheduler of the home does: nodes may have no network

    def enqueue_post_run(self, run: Run) -> None:
        """The scheduler of the home does that."""

    def _place(self, run: Run, used: Capacity) -> Capacity | None:
        return None if time.time() > self.closes_at else super()._place(run, used)

    def _has_room(self, run: Run, asked: Capacity, used: Capacity) -> bool:  # noqa: ARG002
        """Choose the node with the most free CPUs."""
        taken = {node.name: NOTHING for node in self.nodes.nodes}
        for other in self.started:
            if other.id in self.watched and other.id != run.id:
                taken[self.nodes.node_of(self.attempt_folder(other)).name] += self.watched[other.id].share
        is_large = excess(asked, self.room) is not None
        for node in sorted(self.nodes.nodes, key=lambda node: taken[node.name].cpus):
            there = taken[node.name]
            if (there + asked).fits_in(self.room) or (is_large and there == NOTHING):
                self.nodes.places[run.id] = node
                return True
        return False

    def _start_here(self, run: Run, attempt_folder: AttemptFolder, working: Path) -> None:
        node, plan = self.nodes.node_of(attempt_folder), self.watched[run.id].plan
        beside = [other for other in self.started if other.id != run.id and other.id in self.watched]
        there = [self.facts(other) for other in beside if self.nodes.places.get(other.id) is node]
        busy = {gpu for facts in there for given in facts.get("gpus", {}).values() for gpu in given}
        named = any(THREADS in replica.defaults for replica in plan.replicas)
        try:
            environment = {} if named else {THREADS: "1"}
            self.nodes.start(LocalStart(attempt_folder, working, environment, allocate(node.gpus, busy, plan)))
        except subprocess.SubprocessError as fault:  # the next pass finds all replicas lost
            node.call("fail_start", folder=written_folder(attempt_folder), message=str(fault))
        self.change(run, Status.STARTING, f"agents started on {node.name}")


def main(shared: Path, group_id: str, options: Sequence[str]) -> int:
    rank = int(os.environ["PHALANX_RANK"])
    if options[:1] == [SCHEDULE]:
        return schedule(shared, group_id, Path(options[1]))
    own = Path(tempfile.mkdtemp(prefix="phalanx-job-"))
    try:
        service = NodeService(LocalExecutor(Home(own / "node")), addresses()[rank], server_secret(shared))
        if rank:
            service.serve()
            return 0
        threading.Thread(target=service.serve, daemon=True).start()
        return _keep_scheduling(shared, group_id, own)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def addresses() -> list[tuple[str, int]]:
    """Of all nodes, by rank."""
    (listed,) = json.loads(os.environ["PHALANX_CLUSTER"]).values()
    parts = [text.rpartition(":") for text in listed]
    return [(host, int(port)) for host, _, port in parts]


def _keep_scheduling(shared: Path, group_id: str, own: Path) -> int:
    """Start the scheduler again if it is killed."""
    command = [sys.executable, "-m", "phalanx.scheduler.packed", str(shared), group_id, SCHEDULE, str(own / "home")]
    code = 0
    for _ in range(MOST_DEATHS):
        code = subprocess.run(command, check=False).returncode
        if code >= 0:
            return code
        print(f"phalanx: the scheduler of the group ended by signal {-code}, and is started again", flush=True)
        time.sleep(DEATH_S)
    return 1


def schedule(shared: Path, group_id: str, own: Path) -> int:
    """Run the group until it has ended, is paused without trials, or the job is over."""
    attempt = int(os.environ["PHALANX_ATTEMPT"])
    allocation = shared / "runs" / allocation_id(group_id)
    facts = read_json(allocation / run_paths.facts_file(attempt)) or {}
    home = JobHome(own, shared)
    ends_at = facts.get("ends_at")
    secret = server_secret(shared)
    names = facts.get("node", {})
    nodes = [
        AllocatedNode(str(names.get(f"master-{number}", number)), address, secret)
        for number, address in enumerate(addresses())
    ]
    executor = NodesExecutor(home, nodes, None if ends_at is None else ends_at - LEAVES_S)
    with Store.open(home.path) as store:
        scheduler = PackedScheduler(home, store, group_id, executor, room_of(allocation))
        if ends_at is not None:
            left_s = ends_at - time.time()
            scheduler.closes_at = ends_at - min(CLOSES_S, left_s / 10) - LEAVES_S
        try:
            adopt_all(home, store, [group_id])
            over = _run(scheduler, store, group_id, allocation / run_paths.claim_file(attempt + 1))
        except NodeLost as fault:
            print(f"phalanx: {fault}", flush=True)
            return 1
        finally:
            scheduler.close()
    print(f"phalanx: {over}", flush=True)
    executor.leave()
    return 0


def room_of(allocation: Path) -> Capacity:
    """Of each node, as its job requested it."""
    node = read_plan(allocation).replicas[0]
    memory_mib, gpus = node.amount("memory").reserved, node.amount("gpu").reserved
    return Capacity(node.amount("cpu").reserved or 1.0, memory_mib or float("inf"), int(gpus or 0))


def _run(scheduler: PackedScheduler, store: Store, group_id: str, next_claim: Path) -> str:
    """Returns why the job is over. Raises NodeLost."""
    group = GroupFolder(scheduler.home.run(group_id).path)
    busy_at = time.monotonic()
    owned_until = 0.0
    said = ""
    while True:
        now = time.monotonic()
        if now > owned_until:
            owned_until = now + OWNED_S
            if next_claim.exists():
                return "a later job has the group"
        scheduler.run_pass()
        if scheduler.trouble != said:
            said = scheduler.trouble
            print(f"phalanx: {said}", flush=True)
        run = store.find(group_id)
        if run.is_done:
            return f"the group has {run.status}: {run.reason}"
        if run.status != Status.WARNING or scheduler.started or group.requests():
            busy_at = time.monotonic()
        elif time.monotonic() - busy_at > IDLE_S:
            return f"the group is {run.reason}"
        time.sleep(TURN_S)
