"""Starts replicas from `plan.json` and the facts of an attempt.

A plan has placeholders for hosts, ports and folders; the facts (one small file per attempt, written by the backend)
resolve them. One process starts all replicas of this machine and forks one supervisor for each.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from phalanx import launched_ranks, run_paths
from phalanx.agent import preflight, processes
from phalanx.agent.deadlines import limits_of
from phalanx.agent.interactive.hold import hold
from phalanx.agent.preflight import Address
from phalanx.agent.processes import boot_id
from phalanx.agent.supervisor import WATCHED, NotebookTask, Supervisor, Task
from phalanx.atomic_files import write_atomic, write_new
from phalanx.ends import Cause, End
from phalanx.naming import LAUNCHER, is_launcher
from phalanx.placeholders import Hole, Value, fill
from phalanx.stored_plan import PlannedReplica, StoredPlan, read_plan_file

AGENT_MARK = "PHALANX_AGENT_OF"  # in the environment of agents, to find them again
AS_RANK = "--as-rank"
APPEARS_S = 60.0
NO_PYTHON: dict[str, Any] = {"variables": {}, "path": "", "before": []}
SERVED_S = 10.0  # for ranks elsewhere to finish with a server whose own replica has ended
LINGER_S = 3.0  # a failed rank ends the others on a cluster: give them a moment to exit by themselves


def read(plan_file: str, facts_file: str) -> tuple[StoredPlan, dict[str, Any]]:
    """Read both files. On a shared filesystem a file just written elsewhere may take a while to appear. Raises OSError,
    PlanDamaged."""
    deadline = time.monotonic() + APPEARS_S
    while not os.path.exists(facts_file) and time.monotonic() < deadline:
        time.sleep(0.2)
    with open(facts_file, encoding="utf-8") as stream:
        return read_plan_file(plan_file), json.load(stream)


def tasks_of(plan: StoredPlan, facts: dict[str, Any], rank: int | None = None) -> list[Task]:
    """The tasks of the replicas in the facts, without those that a launcher starts; only those of one rank if `rank` is
    given."""
    members = plan.members

    def answer(hole: Hole) -> str:
        table: dict[str, Any] = facts.get(hole.kind, {"*": ""})
        return str(table[hole.of] if hole.of in table else table["*"])

    def filled(values: Mapping[str, Value]) -> dict[str, str]:
        return {name: fill(value, members, answer) for name, value in values.items()}

    shared = filled(plan.environment)
    base = facts.get("environment") or dict(os.environ)
    base.pop(AGENT_MARK, None)
    base.pop("PHALANX_OUTSIDE", None)  # a tracked script may be the caller; its replicas have an agent
    places = addresses(plan, facts)
    first = next(iter(places.values()), None)
    patience_s = facts.get("meeting_s", preflight.PATIENCE_S)
    key = f"{plan.run_id}.{facts['attempt']}"
    meetings = preflight.meetings(plan, places, key, patience_s)
    is_remote = "job" in facts
    is_shared = is_remote and "pod" not in facts  # a job whose processes all get its signals and see the same files
    tasks = []
    for replica in plan.replicas:
        name = replica.name
        if name not in facts["folders"] or not _starts_here(plan, replica, rank):
            continue
        gpus = facts.get("gpus", {}).get(name)
        python = facts.get("python", {}).get(facts.get("node", {}).get(name), NO_PYTHON)
        environment = {**filled(replica.defaults), **base, **shared, **filled(replica.environment)}
        environment.update({key: base[key] for key in facts.get("yields", ()) if key in base})
        _use_python(environment, python)
        _complete(environment, name, plan, facts)
        if is_shared and "SLURM_CPUS_PER_TASK" in base:
            environment.setdefault("OMP_NUM_THREADS", base["SLURM_CPUS_PER_TASK"])  # where the file names no CPUs
        if gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        tasks.append(
            Task(
                name=name,
                attempt=facts["attempt"],
                folder=facts["folders"][name],
                working=facts["working"],
                argv=[
                    *python["before"],
                    *(fill(argument, members, answer) for argument in _argv(plan, replica)),
                ],
                environment=environment,
                is_contained=bool(python["before"]),
                memory_mib=replica.amount("memory").limits,
                limits=limits_of(plan, facts),
                grace_s=facts.get("grace_s", 10.0),
                gpus=facts.get("watched", {}).get(name) if gpus is None else gpus,
                meeting=meetings.get(name),
                server=first if plan.service else None,
                serves=_served(plan, facts, name) if is_shared else (),
                is_remote=is_remote,
                shares_signals=is_shared and not facts.get("relays_signals"),
                patience_s=patience_s,
                outputs=str(facts["path"].get("outputs", "")),
                collect=plan.collect if plan.notebook is None or "pod" in facts else None,
                siblings=tuple(
                    facts["folders"][other.name] for other in plan.with_command if other.name in facts["folders"]
                ),
                hold_s=facts.get("hold_s"),
                notebook=None if plan.notebook is None else NotebookTask(plan.notebook, _port(facts, name, is_shared)),
                offers_mlflow=_offers_mlflow(plan, replica, environment, is_remote=is_remote),
            )
        )
    return tasks


def _port(facts: dict[str, Any], name: str, is_shared: bool) -> int | None:
    """The port of a notebook; none in a job whose nodes other users can use, too."""
    return None if is_shared else int(facts["port"][name])


def _use_python(environment: dict[str, str], python: dict[str, Any]) -> None:
    """Use the Python that was prepared on this node."""
    if python["path"]:
        environment["PATH"] = python["path"] + os.pathsep + environment.get("PATH", "")
        environment.pop("PYTHONHOME", None)
    environment.update(python["variables"])


def _offers_mlflow(
    plan: StoredPlan, replica: PlannedReplica, environment: Mapping[str, str], *, is_remote: bool
) -> bool:
    """Unless MLflow is sent elsewhere, or the user's launcher passes the address on to other machines."""
    is_passed_on = replica.role == LAUNCHER or (plan.launch == "own" and is_remote)
    return "MLFLOW_TRACKING_URI" not in environment and not is_passed_on


def _served(plan: StoredPlan, facts: dict[str, Any], name: str) -> tuple[str, ...]:
    """The folders of the replicas that one that only serves waits for: it may end when they have ended."""
    deciding = plan.deciding
    return () if name in deciding else tuple(facts["folders"][each] for each in deciding)


def _starts_here(plan: StoredPlan, replica: PlannedReplica, rank: int | None) -> bool:
    if rank is not None:
        return replica.rank == rank
    return bool(replica.argv) and (plan.launch != "mpirun" or replica.role == LAUNCHER)


def _complete(environment: dict[str, str], name: str, plan: StoredPlan, facts: dict[str, Any]) -> None:
    """Add variables known only on this machine and in this attempt, and some that make a program easier to watch."""
    environment["PHALANX_ATTEMPT"] = str(facts["attempt"])
    if plan.checkpoint.signal:
        environment["PHALANX_CHECKPOINT_SIGNAL"] = plan.checkpoint.signal
    environment["PHALANX_TRACK"] = facts["folders"][name]
    if facts.get("client"):
        paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        more = [path for path in facts["client"] if path not in paths]  # a launcher's ranks inherit it
        environment["PYTHONPATH"] = os.pathsep.join([*paths, *more])
    if is_launcher(name):
        environment[AGENT_MARK] = plan.run_id  # what it starts are agents
    elif "PHALANX_MLFLOW" in environment:  # a separate URL for each replica, for separate metrics
        environment["MLFLOW_TRACKING_URI"] = f"{environment.pop('PHALANX_MLFLOW')}/{name}"
    if "pod" not in facts and not _sends_to_wandb(environment):  # files in a pod do not come home
        environment.update(WANDB_MODE="offline", WANDB_DIR=facts["folders"][name])
    if plan.launch == "own":
        environment["PHALANX_LAUNCH"] = "own"  # the user's launcher sets the ranks
    environment.setdefault("PYTHONUNBUFFERED", "1")
    environment.setdefault("PYTHONFAULTHANDLER", "1")  # prints a traceback at a crash, or when a hang is ended
    environment[launched_ranks.AT_START] = launched_ranks.record(environment)
    if plan.launch == "own":
        _export_to_steps(environment)


def _export_to_steps(environment: dict[str, str]) -> None:
    """`#SBATCH --export=NONE`, or a list of names, also applies to `srun` in a script: its tasks would not know their
    run. They get our variables in addition."""
    chosen = environment.get("SLURM_EXPORT_ENV", "ALL").split(",")
    if "ALL" not in chosen:
        ours = [name for name in environment if name.startswith("PHALANX_") or name == "PYTHONPATH"]
        kept = [name for name in chosen if name not in ("", "NONE", "NIL", *ours)]
        environment["SLURM_EXPORT_ENV"] = ",".join([*kept, *ours])


def _sends_to_wandb(environment: Mapping[str, str]) -> bool:
    """Whether the user has chosen where W&B logs: by a mode, an address, an API key or a login."""
    if any(environment.get(name) for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_DISABLED")):
        return True
    netrc = environment.get("NETRC") or os.path.join(environment.get("HOME", ""), ".netrc")
    try:
        with open(netrc, encoding="utf-8", errors="replace") as stream:
            return "wandb" in stream.read(1 << 16)
    except OSError:
        return False


def _argv(plan: StoredPlan, replica: PlannedReplica) -> Sequence[Value]:
    """The command of a replica. A launcher runs agents, which find their replica by rank."""
    return replica.argv if replica.role != LAUNCHER else [*plan.launcher, *_this_agent(), AS_RANK]


def _this_agent() -> list[str]:
    """The command line of this program, with the same plan and facts."""
    program = ["-I", "-S", sys.argv[0]] if sys.argv[0].endswith(".pyz") else ["-m", "phalanx.agent"]
    return [sys.executable, *program, *sys.argv[1:3]]


def launched_rank(plan: StoredPlan) -> int:
    """The rank that the launcher set. Slurm numbers the ranks by placement, which may be a different order."""
    number = _launched_number()
    if not plan.order or plan.launch == "mpirun":
        return number
    return plan.by_name[plan.order[number]].rank


def _launched_number() -> int:
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    raise SystemExit("phalanx: the launcher did not set the rank of this process")


def supervise_here(task: Task) -> int:
    """Supervise a task in this process, for a launcher that waits for it. Returns the exit code, as in a shell."""
    os.makedirs(task.folder, mode=0o700, exist_ok=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    if not _announce(task.folder):
        return 1
    end = Supervisor(task).run()
    hold(task, end)
    if task.is_remote and end.cause in (Cause.FINISHED, Cause.SEGMENT, Cause.STOPPED):
        return 0  # so that Slurm does not end the others
    if task.is_remote:
        time.sleep(LINGER_S)
    if end.code is not None:
        return end.code
    return 128 + (end.signal or signal.SIGTERM)


def addresses(plan: StoredPlan, facts: dict[str, Any]) -> dict[str, Address]:
    """The addresses of all replicas that run something."""
    hosts, ports = facts["host"], facts["port"]
    names = [replica.name for replica in plan.with_command]
    return {name: Address(name, str(hosts.get(name, hosts.get("*"))), int(ports[name])) for name in names}


def serve(plan: StoredPlan, facts: dict[str, Any]) -> int | None:
    """Start the key-value server of a run that needs one, beside its first replica, until all have ended. Returns its
    pid. Raises PreflightFailed if the port is in use."""
    first = plan.replicas[0].name
    if not plan.service or first not in facts["folders"]:
        return None
    listener = preflight.listen(addresses(plan, facts)[first])
    for folder in facts["folders"].values():  # a replica that has none yet is not one that was removed
        os.makedirs(folder, mode=0o700, exist_ok=True)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            _serve(listener, plan.service, facts["folders"].values(), SERVED_S if "pod" in facts else 0.0)
        finally:
            os._exit(0)
    listener.close()
    return pid


def _serve(listener: socket.socket, sizes: Mapping[str, int], folders: Iterable[str], longer_s: float) -> None:
    """`longer_s`: extra time for replicas whose ends cannot be seen from here."""
    from threading import Thread

    from phalanx.agent.rendezvous import serving

    server = serving(listener, sizes)
    Thread(target=server.serve_forever, daemon=True).start()
    while any(os.path.isdir(folder) and not os.path.exists(os.path.join(folder, run_paths.END)) for folder in folders):
        time.sleep(0.5)
    until = time.monotonic() + longer_s
    while server.store.is_used() and time.monotonic() < until:
        time.sleep(0.2)


def launch(tasks: list[Task]) -> dict[int, Task]:
    """Start one supervisor per task, each in its own session, so that it outlives the caller. Returns tasks by pid."""
    launched = {}
    for task in tasks:
        pid = os.fork()
        if pid == 0:
            supervise(task)
        launched[pid] = task
    return launched


def supervise(task: Task) -> NoReturn:
    """Supervise a task in this process, in its own session, and end with it."""
    code = 1
    try:
        if os.getsid(0) != os.getpid():
            os.setsid()
        # Once announced, the agent may be signalled to end: the signal must reach the supervisor, not kill it.
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        os.makedirs(task.folder, mode=0o700, exist_ok=True)
        log = os.open(os.path.join(task.folder, run_paths.AGENT_LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        if _announce(task.folder):
            hold(task, Supervisor(task).run())
        code = 0
    except BaseException:  # noqa: BLE001 - the edge of a process: what is said here is all that anyone will know
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _place_in_slurm(environ: Mapping[str, str]) -> dict[str, Any]:
    """The job and the node of this process, and the component of a heterogeneous job; empty outside of Slurm."""
    if "SLURM_JOB_ID" not in environ:
        return {}
    found: dict[str, Any] = {"job": environ["SLURM_JOB_ID"], "node": environ.get("SLURMD_NODENAME", "")}
    rank, component = int(environ.get("SLURM_PROCID", "0")), 0
    while (tasks := environ.get(f"SLURM_NTASKS_HET_GROUP_{component}", "")).isdigit():
        rank -= int(tasks)
        if rank < 0:
            return {**found, "component": component}
        component += 1
    return found


def _announce(folder: str) -> bool:
    """Record which process watches this replica, so that others can check it. False when another agent was faster,
    or when the replica was given up before: it must not run then."""
    stat = processes.read_stat(os.getpid())
    content = {"pid": os.getpid(), "started": stat.started if stat else 0, "boot": boot_id(), "python": sys.executable}
    content.update(_place_in_slurm(os.environ))
    if os.path.exists(os.path.join(folder, run_paths.END)):
        return False
    try:
        write_new(os.path.join(folder, run_paths.AGENT), json.dumps(content).encode(), sync=False)
    except FileExistsError:
        return False
    return True


def write_failure(task_folder: str, name: str, attempt: int, end: End, lines: Sequence[str] = ()) -> None:
    """Write the end of a replica that never started, unless it already has one."""
    os.makedirs(task_folder, mode=0o700, exist_ok=True)
    path = os.path.join(task_folder, run_paths.END)
    if os.path.exists(path):
        return
    end = end._replace(
        replica=name,
        attempt=attempt,
        message=end.message[:400],
        ended_at=time.time(),
        host=socket.gethostname(),
        last_lines=tuple(line[-400:] for line in lines),
    )
    write_atomic(path, json.dumps(end.to_json()).encode())
