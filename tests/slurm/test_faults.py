"""What becomes of runs when nodes, daemons, disks, our own processes and people fail them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.cli.homes import wait_for
from tests.cli.running import is_silent_about_itself
from tests.slurm.cluster import Cluster, Settings
from tests.slurm.configuration import URGENT_QOS
from tests.slurm.debian import PATH
from tests.slurm.places import PATIENCE_S, SlurmPlace
from tests.slurm.programs import (
    ON_SLURM,
    AtOnce,
    folder,
    history,
    in_front_of,
    job_of,
    jobs_named,
    kill_schedulers,
    log,
    over,
    ran,
    replica,
    see,
    series,
    submit,
    submit_with,
    until_saved,
)
from tests.slurm.programs import program as the

MEMORY = {"memory": {"limits": 200}}


def on(*nodes: str, place: SlurmPlace, **directives: str) -> dict[str, Any]:
    """Only these nodes, one replica on each."""
    others = ",".join(node for node in place.cluster.nodes if node not in nodes)
    replicas = {"replicas": {"n_workers": len(nodes) - 1, "default_worker": {"resources": MEMORY}}}
    slurm = {"replicas_per_node": 1, "directives": {"exclude": others, **directives}}
    return {"resources": MEMORY, **(replicas if len(nodes) > 1 else {}), "slurm": slurm}


# nodes ---------------------------------------------------------------------------------------------------------------


STEPS = 20
ENDED = ("COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL")
WHEN_CUT = "echo ran >>$PHALANX_OUTPUTS/$PHALANX_RANK; until [ -e cut ]; do sleep 0.1; done"


class Storm(NamedTuple):
    """Four runs that lost a node: to a power cut and to a pulled cable, each with leave to start again and without."""

    place: SlurmPlace
    cut: str
    cut_for_good: str
    pulled: str
    pulled_for_good: str
    ended_behind: str  # behind the pulled cable


@pytest.fixture(name="storm", scope="module")
def storm_fixture(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Storm]:
    if cluster.settings.isolation != "net":
        pytest.skip("this machine cannot give nodes a network of their own")
    place = SlurmPlace(tmp_path_factory.mktemp("storm"), cluster)
    for_good = {"no-requeue": ""}
    steps = the("steps", STEPS, 0.25, "--always", "--again")
    storm = Storm(
        place,
        submit(place, steps, framework="pytorch", environment=on("node1", "node2", place=place)),
        submit(place, "sleep 300", environment=on("node2", place=place, **for_good)),
        submit(place, steps, framework="pytorch", environment=on("node3", "node4", place=place)),
        submit(place, "sleep 300", environment=on("node4", place=place, **for_good)),
        submit(place, WHEN_CUT, framework="pytorch", environment=on("node3", "node4", place=place)),
    )
    try:
        for run in storm[1:]:
            place.until(run, "running")
        for run in (storm.cut, storm.pulled):
            wait_for(lambda run=run: len(series(place, run, "loss")) == 2)  # type: ignore[misc]
        cluster.power_cut("node2")
        cluster.partition("node4")
        (place.folder / "cut").touch()
        for run in (storm.cut, storm.pulled):
            place.until_job(job_of(place, run), "PENDING")
        cluster.boot("node2")
        cluster.rejoin("node4")
        over(place, *storm[1:])
        wait_for(lambda: place.job_state(job_of(place, storm.ended_behind)) in ENDED, PATIENCE_S)
        yield storm
    finally:
        place.close()


def lost_a_node_and_went_on(place: SlurmPlace, run: str) -> None:
    found = see(place, run)
    assert found["status"] == "succeeded", found["reason"]
    assert found["attempt"] == 2, found["statuses"]
    assert job_of(place, run, 1) == job_of(place, run, 2)
    (why,) = (change["reason"] for change in found["statuses"] if change["status"] == "resuming")
    assert why.startswith("a node failed, and Slurm restarts the job"), why
    for name, points in series(place, run, "loss").items():
        continues(points, STEPS, name)
    assert "begins at step 0 in attempt 1" in log(place, run)
    assert "begins at step 0" not in log(place, run, attempt=2)


def continues(points: list[tuple[int, int]], steps: int, name: str = "master-0") -> None:
    """That a series of two attempts has no gap, and that the second did so many steps and not all of them."""
    later = [step for attempt, step in points if attempt == 2]
    assert {attempt for attempt, _ in points} == {1, 2}, name
    assert sorted({step for _, step in points}) == list(range(max(later) + 1)), name
    assert min(later) > 0, f"{name} began anew"
    assert len(later) == steps, name


def lost_a_node_for_good(place: SlurmPlace, run: str, node: str) -> None:
    found = see(place, run)
    assert (found["status"], found["attempt"]) == ("failed", 1)
    assert f"{node} failed" in found["reason"], found["reason"]


def test_a_power_cut_starts_a_run_again_and_its_series_goes_on(storm: Storm) -> None:
    lost_a_node_and_went_on(storm.place, storm.cut)


def test_a_power_cut_ends_a_run_that_shall_not_start_again(storm: Storm) -> None:
    lost_a_node_for_good(storm.place, storm.cut_for_good, "node2")


def test_a_pulled_cable_starts_a_run_again_and_its_series_goes_on(storm: Storm) -> None:
    lost_a_node_and_went_on(storm.place, storm.pulled)


def test_a_pulled_cable_ends_a_run_that_shall_not_start_again(storm: Storm) -> None:
    lost_a_node_for_good(storm.place, storm.pulled_for_good, "node4")


def test_a_run_that_finished_behind_a_pulled_cable_is_not_run_again(storm: Storm) -> None:
    """Slurm does not know that it has, and starts its job again."""
    found = see(storm.place, storm.ended_behind)
    assert (found["status"], found["attempt"]) == ("succeeded", 1)
    outputs = folder(storm.place, found["id"]) / "outputs"
    assert [(outputs / rank).read_text() for rank in "01"] == ["ran\n", "ran\n"]


class Again(NamedTuple):
    """Two runs that Slurm took back into its queue."""

    place: SlurmPlace
    preempted: str
    unseen: str  # while the controller did not answer us


@pytest.fixture(name="again", scope="module")
def again_fixture(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Again]:
    place = SlurmPlace(tmp_path_factory.mktemp("again"), cluster)
    silent = place.folder / "silent"
    words = "Unable to contact slurm controller (connect failure)"
    refusing = f"""[ -z "$SLURM_JOB_ID" ] && [ -e {silent} ] && echo "{words}" >&2 && exit 1"""
    path = {"PATH": in_front_of(place, "squeue", refusing)}
    steps, here, there = (
        the("steps", 32, 0.25, "--always", "--again"),
        on("node1", place=place),
        on("node2", place=place),
    )
    try:
        again = Again(
            place,
            submit_with(place, steps, path, environment=here),
            submit_with(place, steps, path, environment=there),
        )
        for run in again[1:]:
            wait_for(lambda run=run: series(place, run, "loss"))  # type: ignore[misc]
        place.submit("sleep 3", "-w", "node1", "-c4", "--mem=4000", f"--qos={URGENT_QOS}")
        job = job_of(place, again.unseen)
        cluster.ask("scontrol", "requeuehold", job)
        for run in again[1:]:
            wait_for(lambda run=run: see(place, run)["attempt"] == 2)  # type: ignore[misc]
        silent.touch()  # from when it is let go until it has run for longer than a run that waits is not looked at
        cluster.ask("scontrol", "release", job)
        wait_for(lambda: len({attempt for attempt, _ in series(place, again.unseen, "loss")["master-0"]}) == 2)
        wait_until_moment(7.0)
        silent.unlink()
        over(place, *again[1:])
        yield again
    finally:
        place.close()


def wait_until_moment(seconds: float) -> None:
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() > until)


def test_a_preempted_run_continues_later(again: Again) -> None:
    found = see(again.place, again.preempted)
    assert (found["status"], found["attempt"]) == ("succeeded", 2), found["statuses"]
    (why,) = (change["reason"] for change in found["statuses"] if change["status"] == "resuming")
    assert why == "preempted by a job of higher priority, and restarted"
    continues(series(again.place, again.preempted, "loss")["master-0"], 32)


def test_a_job_that_starts_again_unseen_is_not_submitted_once_more(again: Again) -> None:
    place, run = again.place, again.unseen
    found = see(place, run)
    assert (found["status"], found["attempt"]) == ("succeeded", 2), found["statuses"]
    assert jobs_named(place, run) == [job_of(place, run)]
    continues(series(place, run, "loss")["master-0"], 32)


# people and limits ---------------------------------------------------------------------------------------------------

REFUSED = {"partition": "nowhere", "account": "nobody", "qos": "golden", "constraint": "moon"}
SLEEPING = ("stopped", "cancelled", "cancelled-pair", "at-slurms-limit")


@pytest.fixture(name="ends", scope="module")
def ends_fixture(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[AtOnce]:
    """Runs that came to all kinds of ends, at the same time."""
    place = SlurmPlace(tmp_path_factory.mktemp("ends"), cluster)
    own = on("node1", place=place)
    pair = {"framework": "pytorch", "environment": on("node2", "node3", place=place)}
    three = {"framework": "pytorch", "environment": on("node1", "node2", "node3", place=place)}
    try:
        runs = {
            "at-slurms-limit": submit(place, "sleep 300", environment=on("node1", place=place, time="10")),
            "stopped": submit(place, "trap 'echo ended; exit 0' TERM; sleep 300 & wait", environment=own),
            "held": submit(place, "true", environment=on("node1", place=place, hold="")),
            "cancelled": submit(place, "sleep 300", environment=own),
            "cancelled-pair": submit(place, "sleep 300", **pair),
            "at-its-limit": submit(place, "sleep 300", "--timeout", "4"),
            "hog": submit(place, the("hog", 500), environment={"resources": {"memory": {"limits": 120}}}),
            "unlimited-hog": submit(place, the("hog", 900), environment={"resources": {"memory": {"requests": 150}}}),
            "faltering": submit(place, the("faltering", 1), **three),
            "restarting": submit(place, "[ $PHALANX_ATTEMPT = 2 ] || exit 4", environment={"max_restarts": 1}),
            **{
                name: submit(place, "true", "--unchecked", environment={"slurm": {name: word}})
                for name, word in REFUSED.items()
            },
        }
        for name in SLEEPING:
            place.until(runs[name], "running")
        cluster.ask("scontrol", "update", f"jobid={job_of(place, runs['at-slurms-limit'])}", "EndTime=now+1")
        wait_for(lambda: "JobHeldUser" in json.dumps(see(place, runs["held"])))
        answer = place.call("stop", runs["stopped"], runs["held"])
        assert answer.code == 0, answer.err
        cluster.ask("scancel", job_of(place, runs["cancelled"]), job_of(place, runs["cancelled-pair"]))
        yield AtOnce(place, dict(zip(runs, over(place, *runs.values()), strict=True)))
    finally:
        place.close()


def is_gone(place: SlurmPlace, run: str) -> bool:
    """Whether nobody finds its job in the queue any more, after a while."""
    wait_for(lambda: not place.cluster.ask("squeue", "-h", "-j", job_of(place, run)))
    return True


def test_a_rank_that_fails_is_named_and_takes_the_others_along(ends: AtOnce) -> None:
    found = ends.runs["faltering"]
    assert found["status"] == "failed"
    assert found["reason"].startswith("worker-0: RuntimeError: the loss is not a number (exit code 1)")
    names = ("master-0", "worker-0", "worker-1")
    assert [replica(found, name)["status"] for name in names] == ["stopped", "failed", "stopped"]
    assert replica(found, "worker-1")["reason"] == "stopped because worker-0 failed"
    assert is_gone(ends.place, found["id"])
    assert ends.place.until_accounted(job_of(ends.place, found["id"]), "FAILED", "COMPLETED", "CANCELLED") == "FAILED"


def test_a_run_that_may_restart_does_so_in_a_job_of_its_own(ends: AtOnce) -> None:
    found = ends.succeeded("restarting")
    assert found["attempt"] == 2
    assert [change["reason"] for change in found["statuses"] if change["status"] == "warning"] == [
        "master-0: exit code 4; restart 1 of 1 follows"
    ]
    assert job_of(ends.place, found["id"], 1) != job_of(ends.place, found["id"], 2)


@pytest.mark.parametrize("name", ["cancelled", "cancelled-pair"])
def test_a_cancelled_run_is_stopped_and_names_who_cancelled_it(ends: AtOnce, name: str) -> None:
    found = ends.runs[name]
    assert (found["status"], found["reason"]) == ("stopped", "the job was cancelled by root")
    assert {row["status"] for row in found["replicas"]} == {"stopped"}


def test_a_run_stops_while_it_runs(ends: AtOnce) -> None:
    found = ends.runs["stopped"]
    assert found["status"] == "stopped"
    assert is_gone(ends.place, found["id"])
    assert log(ends.place, found["id"]) == "ended\n", "it had time to end by itself"


def test_a_run_stops_while_it_waits(ends: AtOnce) -> None:
    found = ends.runs["held"]
    assert found["status"] == "stopped"
    assert is_gone(ends.place, found["id"])
    assert not (ends.place.attempt(found["id"]) / "log").exists()


@pytest.mark.parametrize(("name", "word"), [*zip(REFUSED, ("partition", "account", "qos", "feature"), strict=True)])
def test_what_slurm_refuses_is_reported_in_its_words(ends: AtOnce, name: str, word: str) -> None:
    found = ends.runs[name]
    assert found["status"] == "failed"
    assert found["reason"].startswith("slurm refused the job: ")
    assert word in found["reason"].lower()
    assert history(found) == ["created", "scheduled", "failed"]


def test_a_run_ends_at_its_time_limit(ends: AtOnce) -> None:
    found = ends.runs["at-its-limit"]
    assert found["status"] == "failed"
    assert found["reason"].startswith("master-0: ended by its time limit of 4 s; increase its"), found["reason"]


def test_a_run_that_slurm_ends_at_the_time_limit_of_its_job_is_reported(ends: AtOnce) -> None:
    found = ends.runs["at-slurms-limit"]
    assert found["status"] == "failed"
    assert "time limit of its job" in found["reason"], found["reason"]


def test_a_replica_that_exceeds_its_memory_is_ended_and_named(ends: AtOnce) -> None:
    found = ends.runs["hog"]
    assert found["status"] == "failed"
    assert replica(found, "master-0")["cause"] == "memory"
    assert "request more memory: `environment.resources.memory`" in found["reason"]  # whoever saw it first


def test_using_more_memory_than_slurm_allocated_is_reported(ends: AtOnce) -> None:
    """It asked for little and set itself no limit: then Slurm ends it."""
    found = ends.runs["unlimited-hog"]
    assert found["status"] == "failed", found["statuses"]
    assert "memory" in found["reason"], found["reason"]


# daemons -------------------------------------------------------------------------------------------------------------


def test_without_a_controller_nothing_is_lost_or_misreported(place: SlurmPlace) -> None:
    """Of runs that run, end, wait and are submitted meanwhile."""
    until = "until [ -e {} ]; do sleep 0.1; done"
    running, ending = (submit(place, until.format(name)) for name in ("later", "soon"))
    held = submit(place, "true", environment={"slurm": {"directives": {"hold": ""}}})
    for run in (running, ending):
        place.until(run, "running")
    wait_for(lambda: "JobHeldUser" in json.dumps(see(place, held)))
    until_saved(place, job_of(place, held))
    place.cluster.kill_controller()
    new = submit(place, "true")
    (place.folder / "soon").touch()
    assert place.until(ending, "succeeded", "failed", "stopped") == "succeeded"
    wait_for(lambda: "slurm controller" in json.dumps(see(place, new)).lower(), PATIENCE_S)
    assert {run: see(place, run)["status"] for run in (running, held, new)} == {
        running: "running",
        held: "scheduled",
        new: "scheduled",
    }
    place.cluster.start_controller()
    place.cluster.ask("scontrol", "release", job_of(place, held))
    (place.folder / "later").touch()
    runs = (running, ending, held, new)
    assert [found["status"] for found in over(place, *runs)] == ["succeeded"] * 4
    assert [found["attempt"] for found in over(place, *runs)] == [1] * 4
    for run in runs:
        wait_for(lambda run=run: jobs_named(place, run) == [job_of(place, run)])  # type: ignore[misc]


def test_without_a_database_runs_come_to_their_true_ends(place: SlurmPlace) -> None:
    place.cluster.kill_database()
    good, bad, cancelled = (submit(place, command) for command in ("true", "exit 3", "sleep 300"))
    place.until(cancelled, "running")
    place.cluster.ask("scancel", job_of(place, cancelled))
    found = over(place, good, bad, cancelled)
    assert [run["status"] for run in found] == ["succeeded", "failed", "stopped"]
    assert found[1]["reason"].startswith("master-0: exit code 3")
    assert found[2]["reason"].startswith("the job was cancelled")


# our own processes ---------------------------------------------------------------------------------------------------


# A trick is played once: the environment of a run is kept for its later submissions.
SLOW_SBATCH = """[ -e "$MARK" ] && exec {real} "$@"
case "$TRICK" in
early) echo $$ >"$MARK"; sleep 3 ;;
late) {real} "$@"; code=$?; echo $$ >"$MARK"; sleep 3; exit $code ;;
never) echo $$ >"$MARK"; sleep 300 ;;
random) sleep 0.$((RANDOM % 5)); {real} "$@"; code=$?; sleep 0.$((RANDOM % 5)); exit $code ;;
esac"""


def slow_sbatch(place: SlurmPlace) -> str:
    return in_front_of(place, "sbatch", SLOW_SBATCH.format(real=shutil.which("sbatch", path=PATH)))


def test_a_scheduler_that_is_killed_as_it_submits_leaves_one_job_of_each_run(place: SlurmPlace) -> None:
    """Before Slurm has the job, after it has but before anyone wrote that down, and with the command that submits."""
    path, runs = slow_sbatch(place), {}
    for trick in ("never", "early", "late"):
        mark = place.folder / f"mark-{trick}"
        variables = {"PATH": path, "TRICK": trick, "MARK": str(mark)}
        runs[trick] = submit_with(place, f"echo {trick} >>$PHALANX_OUTPUTS/times", variables)
        wait_for(lambda mark=mark: mark.exists() and mark.read_text().endswith("\n"))  # type: ignore[misc]
        assert kill_schedulers(place) >= 1
        if trick == "never":
            os.kill(int(mark.read_text()), signal.SIGKILL)
    found = over(place, *runs.values())
    for run, (trick, run_id) in zip(found, runs.items(), strict=True):
        assert (run["status"], run["attempt"]) == ("succeeded", 1), (trick, run["reason"])
        assert (folder(place, run_id) / "outputs" / "times").read_text() == f"{trick}\n"
        wait_for(lambda run_id=run_id: jobs_named(place, run_id))  # type: ignore[misc]
        assert len(jobs_named(place, run_id)) == 1, trick


def test_schedulers_that_are_killed_at_any_moment_lose_and_double_nothing(place: SlurmPlace) -> None:
    """In the background and in front, while each run is submitted, waits, runs and ends."""
    seed = int(time.time())
    dice, path = Random(seed), slow_sbatch(place)
    file = place.file("echo ran >>$PHALANX_OUTPUTS/times; sleep 2")
    began = time.monotonic()
    place.call("ps")
    slow = max(1.0, (time.monotonic() - began) / 0.3)  # a busy machine needs longer to come to the same moments
    for number in range(8):
        detach = ["-d"] if number % 2 else []
        place.start("run", "-f", file, *ON_SLURM, *detach, PATH=path, TRICK="random")
        for _ in range(2):
            wait_until_moment(slow * dice.uniform(0.1, 1.6))
            kill_schedulers(place)
            place.start("ps", PATH=path)  # whoever looks leaves someone who goes on
    runs = place.run_ids()
    assert len(runs) > 2
    for run in over(place, *runs):
        details = f"of seed {seed}: {run['statuses']}"
        assert (run["status"], run["attempt"]) == ("succeeded", 1), details
        assert (folder(place, run["id"]) / "outputs" / "times").read_text() == "ran\n", details
        assert len(jobs_named(place, run["id"])) == 1, details


# disks, and a site that keeps no records -----------------------------------------------------------------------------


class Small(NamedTuple):
    """A cluster of one node without a database, which soon forgets jobs, and a home on a small disk of its own; and
    another home with two runs whose jobs ended while nobody looked, one of them with its agent killed."""

    place: SlurmPlace
    disk: Path
    forgetful: SlurmPlace
    good: str
    gone: str

    def remount(self, way: str) -> None:
        """Once nothing has a file open for writing there any more."""
        wait_for(lambda: subprocess.run(["mount", "-o", f"remount,{way}", self.disk], check=False).returncode == 0)

    def remount_in_node(self, way: str) -> None:
        """Where the node alone sees it."""
        inside = ["nsenter", "-m", "-t", str(self.place.cluster.daemon("node1").pid)]
        subprocess.run([*inside, "mount", "-o", f"remount,bind,{way}", self.disk], check=True)

    def until_idle(self) -> None:
        """Nobody has a file of the home open."""
        wait_for(lambda: not self.place.processes())


@pytest.fixture(name="small", scope="module")
def small_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """The disk comes first: a node sees what was mounted when it started."""
    base = tmp_path_factory.mktemp("small")
    disk = base / "home"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk], check=True)
    cluster = Cluster.new(Settings(nodes=1, gpus=0, has_database=False, more=("MinJobAge=12",)))
    try:
        cluster.up()
        place, forgetful = SlurmPlace(base, cluster), SlurmPlace(tmp_path_factory.mktemp("forgetful"), cluster)
        yield Small(place, disk, forgetful, *let_be_forgotten(forgetful))
        place.close()
        forgetful.close()
    finally:
        cluster.down()
        subprocess.run(["umount", "-l", disk], check=True)


def let_be_forgotten(place: SlurmPlace) -> tuple[str, str]:
    good, gone = submit(place, "until [ -e go ]; do sleep 0.1; done"), submit(place, "sleep 300")
    for run in (good, gone):
        place.until(run, "running")
    jobs = [job_of(place, run) for run in (good, gone)]
    kill_schedulers(place)
    (place.folder / "go").touch()
    wait_for((place.attempt(good) / "end.json").exists)
    wait_for(lambda: place.job_state(jobs[0]) == "COMPLETED")
    for pid in place.processes():  # all that is there of the other, with whoever could tell
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(place.job_state, jobs)), PATIENCE_S)
    place.call("ps")  # from now on somebody looks for them
    return good, gone


def test_a_disk_that_is_full_is_reported(small: Small) -> None:
    """By the run that filled it, and by whoever wants to submit another; then all is well again."""
    place = small.place
    found = ran(place, "sleep 1; head -c 100000000 /dev/zero >$PHALANX_OUTPUTS/big")
    big = folder(place, found["id"]) / "outputs" / "big"
    small.until_idle()  # they had room of their own, which is free again
    try:
        with suppress(OSError), big.open("ab", buffering=0) as stream:
            while stream.write(bytes(4096)):
                pass
        answer = place.run("true", *ON_SLURM)
        assert answer.code != 0
        assert "no space left" in answer.err.lower() or "full" in answer.err, answer.err
        assert is_silent_about_itself(answer)
    finally:
        big.unlink()
    assert ran(place, "true")["status"] == "succeeded"
    assert found["status"] == "failed"
    assert "full" in found["reason"] or "o space" in found["reason"], found["reason"]


def test_a_home_that_is_read_only_is_reported(small: Small) -> None:
    place = small.place
    found = ran(place, "true")
    small.until_idle()
    small.remount("ro")
    try:
        refused = place.run("true", *ON_SLURM)
        shown = place.call("show", found["id"])
        listed = place.call("ps")
    finally:
        small.remount("rw")
    assert refused.code != 0
    assert "is not writable" in refused.err
    assert all(map(is_silent_about_itself, (refused, shown, listed)))
    assert ran(place, "true")["status"] == "succeeded"


def test_a_home_that_nodes_cannot_write_to_is_reported(small: Small) -> None:
    """As at sites whose nodes see homes but may only read them."""
    small.remount_in_node("ro")
    try:
        found = ran(small.place, "true")
    finally:
        small.remount_in_node("rw")
    assert found["status"] == "failed"
    assert "write" in found["reason"], found["reason"]
    assert ran(small.place, "true")["status"] == "succeeded"


def test_a_run_whose_job_slurm_has_forgotten_came_to_its_true_end(small: Small) -> None:
    good, gone = over(small.forgetful, small.good, small.gone)
    assert good["status"] == "succeeded"
    assert gone["status"] == "failed"
    assert "slurm no longer knows job" in gone["reason"], gone["reason"]
