"""A job whose replicas all run on one machine: writes the facts of the attempt there, starts all and waits for them.

For the script of a job of any batch system. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from phalanx import run_paths
from phalanx.agent.allocation import GRACE_S, PORTS, attempt_of, client_paths, free_port
from phalanx.agent.claims import ClaimRefused, claim
from phalanx.agent.launcher import launch, serve, tasks_of
from phalanx.agent.preflight import PreflightFailed
from phalanx.atomic_files import write_atomic
from phalanx.ends import Cause, read_end
from phalanx.naming import LAUNCHER
from phalanx.stored_plan import StoredPlan

RELAYED = (signal.SIGTERM, signal.SIGINT)


def run(plan: StoredPlan, facts_file: str, handle: str) -> int:
    """`handle`: of the job, as its engine has it. 0 when the run has finished, or another job runs it."""
    os.umask(0o077)
    try:
        claim(os.path.dirname(os.path.dirname(os.path.abspath(facts_file))), attempt_of(facts_file), handle)
    except ClaimRefused as refusal:
        print(f"nothing to do: {refusal}", file=sys.stderr)
        return 0
    signal.pthread_sigmask(signal.SIG_BLOCK, RELAYED)  # until there are replicas to forward them to
    facts = _facts(plan, facts_file, handle)
    write_atomic(facts_file, json.dumps(facts).encode())
    os.makedirs(facts["path"]["outputs"], exist_ok=True)
    try:
        serve(plan, facts)
    except PreflightFailed as fault:
        print(fault, file=sys.stderr)
        return 1
    running = launch(tasks_of(plan, facts))
    for number in RELAYED:
        signal.signal(number, lambda number, _: _relay(list(running), number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RELAYED)
    while running:
        pid, _ = os.wait()
        running.pop(pid, None)
    return 0 if all(_has_finished(facts["folders"][name]) for name in plan.deciding) else 1


def _facts(plan: StoredPlan, facts_file: str, handle: str) -> dict[str, Any]:
    attempt, job = attempt_of(facts_file), os.path.dirname(os.path.abspath(facts_file))
    run_folder = os.path.dirname(job)
    names = [replica.name for replica in plan.replicas]
    ranks = sum(replica.role != LAUNCHER for replica in plan.replicas)
    write_atomic(os.path.join(job, run_paths.HOSTFILE), f"127.0.0.1 slots={ranks}\n".encode())
    write_atomic(os.path.join(job, run_paths.HOSTS_SCRIPT), f"echo localhost:{ranks}\n".encode())
    return {
        "attempt": attempt,
        "job": handle,
        "relays_signals": True,
        "host": {"*": "127.0.0.1"},
        "interface": {"*": "lo"},
        "port": {name: free_port(os.getpid() % len(PORTS), place) for place, name in enumerate(names)},
        "path": {
            "outputs": os.path.join(run_folder, run_paths.OUTPUTS),
            "logs": os.path.join(run_folder, run_paths.REPLICAS),
            "hostfile": os.path.join(job, run_paths.HOSTFILE),
            "hosts.sh": os.path.join(job, run_paths.HOSTS_SCRIPT),
            "*": os.path.join(run_folder, "data"),
        },
        "folders": {name: os.path.join(run_folder, run_paths.attempt_folder(name, attempt)) for name in names},
        "working": os.getcwd(),
        "client": client_paths(job),
        "grace_s": GRACE_S,
    }


def _relay(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it ended just now
            pass


def _has_finished(folder: str) -> bool:
    end = read_end(folder)
    return end is not None and end.cause == Cause.FINISHED
