"""Writes down what this machine's Slurm says in every situation, for the tests of those who read it.

    python -m tests.slurm.record tests/backends/recorded

makes clusters of its own, brings jobs into each situation, and keeps the answers in a folder named by the version of
Slurm (`slurm-22.05`). One folder of it for each situation of a job; what only asks for the site is in `site`; what
`sbatch` refuses in `refused.json`.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.slurm.cluster import Cluster, ClusterError, Settings, can_have_network
from tests.slurm.processes import wait_until

SQUEUE = ["squeue", "-h", "-t", "all", "-o", "%A|%i|%T|%r|%S|%e|%V|%N|%k"]
SACCT = ["sacct", "-nXP", "-o", "JobID,State,ExitCode,DerivedExitCode,Reason,Start,End,NodeList,Comment"]
SBATCH_TRUE = ["sbatch", "--parsable", "--output=/dev/null", "--wrap", "true"]  # by default it writes ./slurm-<job>.out
SITE = {
    "sinfo-nodes": "sinfo -h -N -o '%N|%P|%c|%m|%G|%f|%T'",
    "sinfo-partitions": "sinfo -h -o '%P|%l|%L|%D|%s|%a'",
    "partitions": "scontrol show partition -o",
    "config": "scontrol show config",
    "associations": "sacctmgr -nP show assoc user=$USER format=Account,QOS,MaxJobs,MaxSubmit",
    "qos": "sacctmgr -nP show qos format=Name,MaxWall,MaxTRESPU",
    "mpi": "srun --mpi=list",
}
WHOLE = ["-N4", "-n4", "-c4", "--mem=4000"]  # the whole of a cluster of the usual size
SETTLED_S = 3.0
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE"}
REFUSED = {
    "invalid account": ["-A", "nobody"],
    "invalid partition": ["-p", "nowhere"],
    "too much memory": ["--mem=64000"],
    "too many GPUs": ["--gpus-per-node=3"],
    "unknown type of GPU": ["--gpus-per-node=h100:1"],
    "unknown kind of resource": ["--gres=tpu:1"],
    "invalid qos": ["--qos=golden"],
    "time too long": ["-p", "short", "-t", "31"],
    "longer than the qos allows": ["--qos=limited", "-t", "21"],
    "more CPUs than the qos allows": ["--qos=limited", "-n5"],
    "too many nodes": ["-N9"],
    "too many CPUs of a node": ["-N1", "-n1", "-c9"],
    "unknown feature": ["-C", "rack9"],
    "unknown reservation": ["--reservation=mine"],
    "invalid option": ["--no-such-option"],
    "invalid time": ["-t", "soon"],
    "unknown job to wait for": ["-d", "afterok:999999"],
    "unknown node": ["-w", "node9"],
}
FOREIGN = (  # kinds of nodes as a larger site has them; nobody runs them
    "NodeName=cpu[1-3] NodeAddr=127.0.0.1 Port=[9-11] CPUs=48 RealMemory=192000 Feature=cascade,100G",
    "NodeName=gpu[1-2] NodeAddr=127.0.0.1 Port=[12-13] CPUs=64 RealMemory=515000 Gres=gpu:a100:4 Feature=a100,nvlink",
    "NodeName=old1 NodeAddr=127.0.0.1 Port=14 CPUs=16 RealMemory=64000 Gres=gpu:p100:1,gpu:v100:1",
    "PartitionName=compute Nodes=cpu[1-3],old1 MaxTime=7-00:00:00 DefaultTime=1:00:00 State=UP",
    "PartitionName=accelerated Nodes=gpu[1-2] MaxTime=1-00:00:00 MaxNodes=2 AllowAccounts=research State=UP",
    "PartitionName=closed Nodes=cpu1 MaxTime=3:00:00 State=DOWN",
)


class Recorder:
    """One cluster, and the folder for what is said on it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.work = cluster.state / "work"
        self.work.mkdir(exist_ok=True)

    def submit(self, body: str, *options: str) -> str:
        script = self.work / "job.sh"
        script.write_text(f"#!/bin/bash\n{body}\n")
        output = f"--output={self.work}/%j.out"
        answer = self.cluster.ask("sbatch", "--parsable", "--comment=phalanx:1a2b3c4d:1", output, *options, str(script))
        return answer.partition(";")[0]

    def state(self, job: str) -> str:
        return self.cluster.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.partition("\n")[0]

    def reason(self, job: str) -> str:
        return self.cluster.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%r").stdout.partition("\n")[0]

    def until(self, job: str, *states: str, patience_s: float = 60.0) -> None:
        wait_until(lambda: self.state(job) in states, patience_s, f"job {job} to be {' or '.join(states)}")

    def until_accounted(self, job: str, *states: str) -> None:
        def accounted() -> bool:
            rows = self.cluster.call(*SACCT, "-j", job).stdout.splitlines()
            return bool(rows) and all(row.split("|")[1].split()[0] in states for row in rows)

        wait_until(accounted, 30.0, f"sacct to say of job {job} that it is {' or '.join(states)}")

    def over(self, situation: str, job: str, *states: str, patience_s: float = 60.0) -> None:
        """What is said of a job once it is over."""
        self.until(job, *states, patience_s=patience_s)
        self.until_accounted(job, *states)
        self.keep(situation, job, is_over=True)

    def pending(self, situation: str, job: str, *reasons: str) -> None:
        """What is said of a job that waits for these reasons; then it is cancelled."""
        wait_until(lambda: self.reason(job).split(",")[0] in reasons, 30.0, f"{situation}: {reasons}")
        self.keep(situation, job)
        self.cluster.ask("scancel", job)

    def keep(self, situation: str, job: str, *, is_over: bool = False) -> None:
        """Accounts of what is over arrive in pieces: the first piece is kept beside the whole when it is different."""
        folder = self.folder / situation
        self.write(folder / "squeue.txt", self.cluster.call(*SQUEUE, "-j", job).stdout)
        early = self.cluster.call(*SACCT, "-j", job).stdout
        if is_over:
            time.sleep(SETTLED_S)
        whole = self.cluster.call(*SACCT, "-j", job).stdout
        self.write(folder / "sacct.txt", whole)
        if early != whole:
            self.write(folder / "sacct-early.txt", early)
        self.write(folder / "sacct-D.txt", self.cluster.call(*SACCT, "-D", "-j", job).stdout)

    def write(self, file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.scrubbed(text))

    def scrubbed(self, text: str) -> str:
        """Nothing of this machine: its name, its folders."""
        whole = socket.gethostname()
        text = text.replace(str(self.cluster.state / "etc"), "/etc/slurm")
        text = text.replace(str(self.cluster.state), "/var/lib/slurm")
        for name in (whole, whole.partition(".")[0]):
            text = re.sub(rf"\b{re.escape(name)}\b", "login", text)
        return text

    def site(self, name: str) -> None:
        for kind, command in SITE.items():
            words = [word.replace("$USER", "root") for word in shlex.split(command)]
            done = self.cluster.call(*words)
            self.write(self.folder / name / f"{kind}.txt", done.stdout + (done.stderr if kind == "mpi" else ""))

    def refused(self) -> None:
        answers = {case: self.refusal(options) for case, options in REFUSED.items()}
        held = [self.submit("true", "--qos=limited", "--hold", "-t1") for _ in range(4)]
        answers["more jobs than the qos allows"] = self.refusal(["--qos=limited", "-t1"])
        self.cluster.ask("scancel", *held)
        name = "refused-enforced" if "EnforcePartLimits=ALL" in self.cluster.settings.more else "refused"
        self.write(self.folder / f"{name}.json", json.dumps(answers, indent=2) + "\n")

    def refusal(self, options: list[str]) -> dict[str, object]:
        """How a job is refused; of one that is taken all the same, what it waits for."""
        done = self.cluster.call(*SBATCH_TRUE, *options)
        answer = {"options": options, "code": done.returncode, "out": done.stdout, "err": self.scrubbed(done.stderr)}
        if done.returncode == 0:
            time.sleep(1.0)
            answer["then"] = self.reason(done.stdout.strip())
            self.cluster.call("scancel", done.stdout.strip())
        return answer


def waiting(here: Recorder) -> None:
    """Every reason to wait that can be had."""
    wall = "QOSMaxWallDurationPerJobLimit"
    here.pending("pending-qos-wall", here.submit("true", "--qos=limited", "-t60"), wall)
    here.pending("pending-qos-cpu", here.submit("true", "--qos=limited", "-n5"), "QOSMaxCpuPerUserLimit")
    hog = here.submit("sleep 600", *WHOLE)
    here.until(hog, "RUNNING")
    here.keep("running", hog)
    first = here.submit("true", *WHOLE)
    second = here.submit("true", *WHOLE)
    wait_until(lambda: here.reason(first) == "Resources", 30.0, "a reason")
    here.pending("pending-priority", second, "Priority")
    here.pending("pending-resources", first, "Resources")
    here.pending("pending-begin-time", here.submit("true", "--begin=now+1hour"), "BeginTime")
    here.pending("pending-dependency", here.submit("true", "-d", f"afterany:{hog}"), "Dependency")
    here.pending("pending-held-by-user", here.submit("true", "--hold"), "JobHeldUser", "JobHeldAdmin")
    here.pending("pending-partition-time-limit", here.submit("true", "-p", "short", "-t60"), "PartitionTimeLimit")
    with suppress(ClusterError):  # newer ones refuse it
        many = here.submit("true", "-N9")
        here.pending("pending-too-many-nodes", many, "PartitionNodeLimit", "PartitionConfig", "Resources")
    here.cluster.ask("scontrol", "update", "nodename=node4", "state=drain", "reason=a test, with a comma | and a bar")
    here.pending("pending-node-drained", here.submit("true", "-w", "node4"), "ReqNodeNotAvail", "Resources")
    here.cluster.ask("scontrol", "update", "nodename=node4", "state=resume")
    waits = here.submit("true", "--deadline=now+65seconds", "-t1", *WHOLE)
    here.over("deadline", waits, "DEADLINE", patience_s=150.0)
    pair = ("-N2", "-n2", "-c1", "--mem=100", ":", "-N1", "-n1", "-c2", "--mem=200", "--gpus-per-node=1")
    het = here.submit("sleep 60", *pair)
    wait_until(lambda: here.reason(het) in ("Resources", "Priority"), 30.0, "a reason")
    here.keep("het-pending", het)
    here.cluster.ask("scancel", het)
    here.over("het-cancelled-while-pending", het, "CANCELLED")
    lost = here.submit("true", "--begin=now+1hour")
    here.cluster.ask("scancel", lost)
    here.over("cancelled-while-pending", lost, "CANCELLED")
    here.cluster.ask("scontrol", "suspend", hog)
    here.until(hog, "SUSPENDED")
    here.keep("suspended", hog)
    here.cluster.ask("scontrol", "resume", hog)
    here.cluster.ask("scancel", hog)
    here.over("cancelled-while-running", hog, "CANCELLED")


def ending(here: Recorder) -> None:
    """Every way to end that needs no accident."""
    timeout = here.submit("sleep 600", "-t1", "--mem=100")
    here.over("completed", here.submit("echo done", "-N2"), "COMPLETED")
    failed = here.submit("exit 7")
    here.over("failed-exit-7", failed, "FAILED")
    here.pending("pending-dependency-never", here.submit("true", "-d", f"afterok:{failed}"), "DependencyNeverSatisfied")
    here.over("failed-in-step", here.submit("srun -n2 sh -c 'exit $SLURM_PROCID'", "-N2", "-n2"), "FAILED")
    here.over("completed-after-failed-step", here.submit("srun sh -c 'exit 3'\nexit 0"), "COMPLETED")
    here.over("failed-exit-137", here.submit("exit 137"), "FAILED")
    here.over("failed-by-signal", here.submit("kill -9 $$"), "FAILED")
    nowhere = here.submit("true", "--output=/proc/none/out")
    here.over("failed-no-output-folder", nowhere, "FAILED")
    stubborn = here.submit("trap '' TERM\nwhile :; do sleep 0.1; done")
    here.until(stubborn, "RUNNING")
    time.sleep(1.0)
    here.cluster.ask("scancel", stubborn)
    here.until(stubborn, "COMPLETING")
    here.keep("completing", stubborn)
    here.over("cancelled-killed", stubborn, "CANCELLED")
    pair = ("-N2", "-n2", "-c1", "--mem=100", ":", "-N1", "-n1", "-c2", "--mem=200", "--gpus-per-node=1")
    het = here.submit("srun -l --het-group=0 sleep 5 : --het-group=1 sleep 5", *pair)
    here.until(het, "RUNNING")
    here.keep("het-running", het)
    here.over("het-completed", het, "COMPLETED")
    failing = "srun -l --het-group=0 sh -c 'exit 0' : --het-group=1 sh -c 'exit 4'"
    here.over("het-failed", here.submit(failing, *pair), "FAILED")
    het = here.submit("sleep 60", *pair)
    here.until(het, "RUNNING")
    here.cluster.ask("scancel", het)
    here.over("het-cancelled-while-running", het, "CANCELLED")
    here.over("timeout", timeout, "TIMEOUT", patience_s=200.0)


def starting_again(here: Recorder) -> None:
    once = '[ -n "$SLURM_RESTART_COUNT" ] && exit 0\n'
    job = here.submit(once + "sleep 600", "--requeue")
    here.until(job, "RUNNING")
    here.cluster.ask("scontrol", "requeue", job)
    here.until(job, "PENDING")
    here.until_accounted(job, "PENDING", "REQUEUED")
    here.keep("requeued-pending", job)
    here.over("requeued-completed", job, "COMPLETED")
    itself = here.submit(once + "scontrol requeue $SLURM_JOB_ID\nsleep 60", "--requeue")
    here.over("requeued-by-itself-completed", itself, "COMPLETED")
    pair = ("-n1", "--mem=100", ":", "-n1", "--mem=200")
    het = here.submit(once + "sleep 600", "--requeue", *pair)
    here.until(het, "RUNNING")
    here.cluster.ask("scontrol", "requeue", het)
    here.until(het, "PENDING")
    here.keep("het-requeued-pending", het)
    here.over("het-requeued-completed", het, "COMPLETED")
    held = here.submit("sleep 600", "--requeue")
    here.until(held, "RUNNING")
    here.cluster.ask("scontrol", "requeuehold", held)
    here.until(held, "PENDING")
    here.keep("requeued-held", held)
    here.cluster.ask("scancel", held)
    urged(here, once)


def urged(here: Recorder, once: str) -> None:
    """Jobs that must make way for one of a higher service."""
    victim = here.submit(once + "sleep 600", "--requeue", *WHOLE)
    here.until(victim, "RUNNING")
    urgent = here.submit("sleep 3", "--qos=urgent", *WHOLE)
    here.until(urgent, "RUNNING")
    here.keep("preempted-requeued", victim)
    here.over("preempted-requeued-completed", victim, "COMPLETED")
    victim = here.submit("sleep 600", "--no-requeue", *WHOLE)
    here.until(victim, "RUNNING")
    urgent = here.submit("true", "--qos=urgent", *WHOLE)
    here.over("preempted", victim, "PREEMPTED")
    here.until(urgent, "COMPLETED")


def breaking(here: Recorder) -> None:
    """Accidents of nodes."""
    both = here.submit("sleep 600", "--no-requeue", "-w", "node1,node4", "-N2", "--mem=100")
    once = '[ -n "$SLURM_RESTART_COUNT" ] && exit 0\n'
    again = here.submit(once + "sleep 600", "--requeue", "-N2", "-w", "node2,node4", "--mem=100")
    pair = ("-n1", "-w", "node3", "--mem=100", ":", "-n1", "-w", "node4", "--mem=100")
    het = here.submit("srun --het-group=0,1 sleep 600", "--no-requeue", *pair)
    for job in (both, again, het):
        here.until(job, "RUNNING")
    here.cluster.power_cut("node4")
    here.over("node-fail", both, "NODE_FAIL", patience_s=90.0)
    here.until(again, "PENDING")
    here.keep("node-fail-requeued", again)
    here.until(het, *ENDED)
    here.until_accounted(het, *ENDED)
    here.keep("het-node-fail", het)
    lost = here.submit("true", "-w", "node4")
    here.pending("pending-node-down", lost, "ReqNodeNotAvail", "Resources")
    here.cluster.ask("scontrol", "update", "nodename=node3", "state=drain", "reason=a test")
    here.site("site-broken")
    here.cluster.boot("node4")
    here.cluster.await_nodes()
    here.over("node-fail-requeued-completed", again, "COMPLETED")


def configuring(here: Recorder) -> None:
    """Nodes that are made ready, and nodes that cannot be."""
    etc = here.cluster.state / "etc"
    (etc / "slow.sh").write_text("#!/bin/sh\nsleep 4\n")
    (etc / "slow.sh").chmod(0o755)
    usual = (etc / "slurm.conf").read_text()
    (etc / "slurm.conf").write_text(usual + f"PrologSlurmctld={etc}/slow.sh\n")
    time.sleep(6.0)  # what the controller has not saved it does not know any more
    here.cluster.kill_controller()
    here.cluster.start_controller()
    job = here.submit("true")
    here.until(job, "CONFIGURING")
    here.keep("configuring", job)
    here.until(job, "COMPLETED")
    (etc / "slurm.conf").write_text(usual)
    time.sleep(6.0)
    here.cluster.kill_controller()
    here.cluster.start_controller()
    quick = (etc / "prolog.sh").read_text()
    (etc / "prolog.sh").write_text("#!/bin/sh\nexit 1\n")
    job = here.submit("true", "-w", "node1")
    wait_until(lambda: "launch failed" in here.reason(job), 30.0, "a failed launch")
    here.keep("launch-failed", job)
    here.cluster.ask("scancel", job)
    (etc / "prolog.sh").write_text(quick)
    here.cluster.await_nodes()


def hungry(here: Recorder) -> None:
    """Who takes more memory than asked for."""
    takes = "python3 -c 'import time; x = bytearray(300 << 20); x[::4096] = b\"x\" * len(x[::4096]); time.sleep(30)'"
    name = "out-of-memory" if here.cluster.settings.has_cgroups else "out-of-memory-seen-by-slurm"
    here.over(f"{name}-in-batch", here.submit(takes, "--mem=100"), "OUT_OF_MEMORY", "FAILED", "CANCELLED")
    here.over(f"{name}-in-step", here.submit(f"srun {takes}", "--mem=100"), "OUT_OF_MEMORY", "FAILED", "CANCELLED")


def forgotten(here: Recorder) -> None:
    job = here.submit("exit 5")
    here.until(job, "FAILED")
    wait_until(lambda: here.cluster.call(*SQUEUE, "-j", job).returncode != 0, 200.0, "a job that is forgotten")
    here.keep("purged", job)
    done = here.cluster.call(*SQUEUE, "-j", job)
    answer = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
    here.write(here.folder / "purged" / "squeue-of-it.json", json.dumps(answer, indent=2) + "\n")


def silent(here: Recorder) -> None:
    """What clients say when nobody answers them."""
    answers = {}
    for kill, start in (("kill_database", "start_database"), ("kill_controller", "start_controller")):
        getattr(here.cluster, kill)()
        for command in (SQUEUE, SACCT, SBATCH_TRUE, ["scancel", "1"]):
            begun = time.monotonic()
            done = here.cluster.call(*command)
            answers[f"{command[0]} after {kill}"] = {
                "code": done.returncode,
                "err": here.scrubbed(done.stderr),
                "seconds": round(time.monotonic() - begun),
            }
        getattr(here.cluster, start)()
    here.write(here.folder / "silent.json", json.dumps(answers, indent=2) + "\n")


@contextmanager
def cluster(**settings: object) -> Iterator[Cluster]:
    usual = Settings(isolation="net" if can_have_network() else "node")
    made = Cluster.new(usual._replace(**settings))  # type: ignore[arg-type]
    try:
        made.up()
        yield made
    finally:
        made.down()


def version(cluster: Cluster) -> str:
    """As releases are named: 22.05, 24.11."""
    return ".".join(cluster.ask("sinfo", "-V").split()[-1].split(".")[:2])


def main(folder: Path) -> None:
    with cluster() as one:
        folder = folder / f"slurm-{version(one)}"
        here = Recorder(one, folder)
        here.site("site")
        here.refused()
        for scene in (configuring, waiting, ending, starting_again, hungry, breaking):
            print(scene.__name__, flush=True)
            scene(here)
        here.write(folder / "everything" / "squeue.txt", one.ask(*SQUEUE) + "\n")
        here.write(folder / "everything" / "sacct.txt", one.ask(*SACCT) + "\n")
        here.write(folder / "everything" / "sacct-D.txt", one.ask(*SACCT, "-D") + "\n")
        silent(here)
    print("with other settings", flush=True)
    with cluster(has_cgroups=True) as one:
        hungry(Recorder(one, folder))
    with cluster(more=("EnforcePartLimits=ALL", "MinJobAge=2", *FOREIGN)) as one:
        here = Recorder(one, folder)
        here.refused()
        here.site("site-wide")
        forgotten(here)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
