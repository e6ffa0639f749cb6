"""A drill: many faults of all kinds, one after the other, while runs are submitted, wait, run and end.

Each run counts its starts. At the end none is lost (it has a true end), doubled (two jobs did the same attempt) or
orphaned (a job goes on though its run is over). PHALANX_FAULTS is the number of faults, PHALANX_SEED repeats a drill.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.cli.homes import wait_for
from tests.slurm.cluster import Cluster
from tests.slurm.configuration import URGENT_QOS
from tests.slurm.debian import PATH
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import DONE, ON_SLURM, folder, handle_of, in_front_of, kill_schedulers, see

FAULTS = int(os.environ.get("PHALANX_FAULTS", "6"))
SEED = int(os.environ.get("PHALANX_SEED", str(int(time.time()))))
PATIENCE_S = 300.0
# Each start of an attempt leaves a line in its outputs, by attempt: two lines mean that it was done twice.
COMMAND = (
    "echo $SLURM_JOB_ID >>$PHALANX_OUTPUTS/attempt-$PHALANX_ATTEMPT; sleep 0.$((RANDOM % 9)); sleep $((RANDOM % 3))"
)
# sbatch, slow before and after the controller has the job, so that every phase of a submission is hit
SLOW_SBATCH = f"""case $((RANDOM % 4)) in
0) sleep 0.$((RANDOM % 9)) ;;
1) {shutil.which("sbatch", path=PATH)} "$@"; code=$?; sleep 0.$((RANDOM % 9)); exit $code ;;
esac"""


class Drill:
    """A home on the cluster, its runs, and the faults."""

    def __init__(self, place: SlurmPlace, dice: Random) -> None:
        self.place, self.cluster, self.dice = place, place.cluster, dice
        self.path = in_front_of(place, "sbatch", SLOW_SBATCH)
        self.file = place.file(COMMAND, environment={"max_restarts": 9, "resources": {"memory": {"limits": 100}}})
        self.touched: set[str] = set()  # runs that a person stopped or cancelled: they may end in any way
        self.made: Counter[str] = Counter()

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.place.start("run", "-f", self.file, "-d", *ON_SLURM, PATH=self.path)

    def look(self) -> dict[str, str]:
        """The runs by status. The command leaves a scheduler, if there is none. Nothing, if it fails meanwhile."""
        answer = self.place.call("ps", "--json", "-n", "1000", PATH=self.path)
        return {row["id"]: row["status"] for row in answer.data["runs"]} if answer.code == 0 else {}

    # faults

    def kill_scheduler(self) -> None:
        time.sleep(self.dice.uniform(0.0, 1.5))
        kill_schedulers(self.place)

    def kill_scheduler_and_command(self) -> None:
        """A login node that is rebooted: all of our processes that are not in a job."""
        time.sleep(self.dice.uniform(0.0, 1.0))
        kill_schedulers(self.place)
        for pid in submitting(self.place):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze_controller(self) -> None:
        self.cluster.freeze_controller()
        time.sleep(self.dice.uniform(0.5, 6.0))
        if self.dice.random() < 0.5:
            kill_schedulers(self.place)
        self.cluster.thaw_controller()

    def restart_controller(self) -> None:
        """It writes its state down, as an administrator's restart does; a crash may lose jobs, which is Slurm's own."""
        self.cluster.daemon("slurmctld").stop(signal.SIGTERM, grace_s=30.0)
        time.sleep(self.dice.uniform(0.0, 3.0))
        self.cluster.start_controller()

    def lose_database(self) -> None:
        self.cluster.kill_database()
        time.sleep(self.dice.uniform(0.5, 4.0))
        self.cluster.start_database()

    def cut_node(self) -> None:
        node = self.dice.choice(self.cluster.nodes)
        self.cluster.power_cut(node)
        self.cluster.boot(node)

    def requeue(self) -> None:
        if job := self._job("RUNNING"):
            self.cluster.call("scontrol", "requeue", job)

    def preempt(self) -> None:
        node = self.dice.choice(self.cluster.nodes)
        self.place.submit("sleep 1", "-w", node, "-c4", "--mem=4000", f"--qos={URGENT_QOS}")

    def cancel(self) -> None:
        if job := self._job("RUNNING", "PENDING"):
            self.touched.add(self._run_of(job))
            self.cluster.call("scancel", job)

    def stop(self) -> None:
        going = [run for run, status in self.look().items() if status not in DONE]
        if going:
            run = self.dice.choice(going)
            self.touched.add(run)
            self.place.start("stop", run)

    def lose_disk(self) -> None:
        """On the login node, nothing of the home can be written for a moment; nodes go on."""
        home = str(self.place.home)
        subprocess.run(["mount", "--bind", home, home], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", home], check=True)
            time.sleep(self.dice.uniform(0.2, 2.0))
        finally:
            subprocess.run(["umount", "-l", home], check=True)

    def _job(self, *states: str) -> str:
        """A job of ours in one of these states."""
        rows = self.cluster.call("squeue", "-h", "-t", ",".join(states), "-o", "%A %j").stdout.splitlines()
        ours = [row.split()[0] for row in rows if " phalanx-" in row]
        return self.dice.choice(ours) if ours else ""

    def _run_of(self, job: str) -> str:
        return self.cluster.call("squeue", "-h", "-j", job, "-o", "%j").stdout.strip().removeprefix("phalanx-")

    @property
    def kinds(self) -> list[Callable[[], None]]:
        return [
            *(self.kill_scheduler, self.kill_scheduler_and_command, self.freeze_controller, self.restart_controller),
            *(self.lose_database, self.cut_node, self.lose_disk, self.requeue, self.preempt, self.cancel, self.stop),
        ]

    def run(self, faults: int) -> None:
        kinds = self.kinds
        order = [kinds[number % len(kinds)] for number in range(faults)]
        self.dice.shuffle(order)
        for kind in order:
            self.submit(self.dice.randint(1, 2))
            if self.dice.random() < 0.5:
                self.look()
            kind()
            self.made[kind.__name__] += 1
            self.look()

    # the end

    def end(self) -> list[str]:
        """What is wrong once all is over."""
        for process in self.place.started:
            process.wait(120)
        wait_for(self._are_all_done, PATIENCE_S)
        wait_for(lambda: not self._left(), PATIENCE_S)
        return [fault for run in self.place.run_ids() for fault in self._faults_of(run)]

    def _are_all_done(self) -> bool:
        time.sleep(0.5)
        now = self.look()
        return set(self.place.run_ids()) == set(now) and all(status in DONE for status in now.values())

    def _left(self) -> str:
        return self.cluster.call("squeue", "-h", "-o", "%A %j %T").stdout.strip()

    def _faults_of(self, run: str) -> Iterator[str]:
        found = see(self.place, run)
        if run not in self.touched and found["status"] != "succeeded":
            yield f"lost: {run} {found['status']}: {found['reason']}"
        outputs = folder(self.place, run) / "outputs"
        for path in sorted(outputs.glob("attempt-*")):
            if len(path.read_text().split()) > 1:
                yield f"doubled: {run} {path.name} by {path.read_text().split()}"
        attempt = int(found["attempt"])
        if found["status"] == "succeeded" and handle_of(self.place, run, attempt) is None:
            yield f"orphaned: {run} has no handle"


def submitting(place: SlurmPlace) -> list[int]:
    """All processes that submit a run of this home."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes()
            if b"--comment=phalanx:" in words and str(place.home).encode() in words:
                found.append(int(path.parent.name))
    return found


@pytest.mark.timeout(3000)
def test_faults_of_all_kinds_lose_double_and_orphan_nothing(place: SlurmPlace, cluster: Cluster) -> None:
    drill = Drill(place, Random(SEED))
    drill.run(FAULTS)
    cluster.up()
    wrong = drill.end()
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(drill.made.items()))
    found = f"{len(place.run_ids())} runs: {len(wrong)} lost, doubled or orphaned"
    print(f"\nseed {SEED}: {drill.made.total()} faults ({kinds}), {found}")
    assert wrong == [], f"seed {SEED}"
