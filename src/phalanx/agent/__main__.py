"""python -m phalanx.agent PLAN FACTS [--as-rank | --stay]
or, in the script of a job:
python -m phalanx.agent PLAN FACTS --join | --here | --leave
or, for all replicas on one machine:
python -m phalanx.agent PLAN FACTS --all-here HANDLE
or, to fork agents for a process that starts many:
python -m phalanx.agent --fork-server DESCRIPTOR MARK
or, to run a command beside a replica of this machine (without one, a shell):
python -m phalanx.agent PLAN FACTS --enter REPLICA [COMMAND...]
or, in a pod, where all inputs are at fixed paths:
python -m phalanx.agent --pod | --prepare | --train-job prepare|run | --enter REPLICA [COMMAND...]"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from phalanx.agent.interactive.entry import ENTER, enter_here
from phalanx.agent.launcher import AS_RANK, launch, launched_rank, read, serve, supervise, supervise_here, tasks_of
from phalanx.agent.preflight import PreflightFailed
from phalanx.stored_plan import PlanDamaged, read_plan_file

if TYPE_CHECKING:
    from phalanx.agent.fork_server import StartReport

ALL_HERE = "--all-here"
JOIN = "--join"  # report, wait for all other ranks, and run as a rank
OF_JOBS = (ALL_HERE, "--here", "--leave")
MODES = (AS_RANK, JOIN, "--stay", *OF_JOBS)
DAMAGED = 78  # EX_CONFIG of sysexits
IN_PODS = "--pod | --prepare | --train-job prepare|run | --enter REPLICA [COMMAND...]"


def main(report: StartReport | None = None) -> int:
    """`report`: of a process that was forked to become an agent."""
    given = sys.argv[1:]
    if given == ["--pod"]:
        from phalanx.agent import pod_entry

        return pod_entry.run()
    if given == ["--prepare"]:
        from phalanx.agent import init_container

        return init_container.prepare()
    if len(given) == 3 and given[0] == "--fork-server":
        from phalanx.agent import fork_server

        return fork_server.serve(int(given[1]), given[2], main)
    if len(given) == 2 and given[0] == "--train-job":
        from phalanx.agent import train_job

        return train_job.run(is_prepared=given[1] != "prepare")
    if len(given) >= 2 and given[0] == ENTER:
        from phalanx.agent import pod_entry

        return pod_entry.enter(given[1], given[2:])
    if len(given) >= 4 and given[2] == ENTER:
        return enter_here(read(given[0], given[1])[1], given[3], given[4:])
    if len(given) < 2 or (len(given) > 2 and given[2] not in MODES) or given[2:] == [ALL_HERE]:
        print(f"usage: phalanx-agent PLAN FACTS [{' | '.join(MODES)}] | {IN_PODS}", file=sys.stderr)
        return 2
    mode = given[2] if len(given) > 2 else None
    try:
        if mode is not None and mode in OF_JOBS:
            return _of_a_job(mode, *given[:2], *given[3:])
        if mode == JOIN:
            code = _join(given[0], given[1])
            if code != 0:
                return code
            mode = AS_RANK
        return _replicas(mode, given[0], given[1], report)
    except PlanDamaged as fault:
        print(f"phalanx: {fault}", file=sys.stderr)
        return DAMAGED


def _replicas(mode: str | None, plan_file: str, facts_file: str, report: StartReport | None) -> int:
    """Start the replicas of this machine, or the one that a launcher started this process for."""
    plan, facts = read(plan_file, facts_file)
    tasks = tasks_of(plan, facts) if mode is None else []
    if report is not None:
        if len(tasks) == 1 and not plan.service:
            report.send()
            supervise(tasks[0])
        report.close()
    try:
        if mode == AS_RANK:
            rank = launched_rank(plan)
            if rank == 0:
                serve(plan, facts)
            (task,) = tasks_of(plan, facts, rank)
            return supervise_here(task)
        serve(plan, facts)
    except PreflightFailed as fault:
        print(fault, file=sys.stderr)
        return 1
    if mode == "--stay":
        return supervise_here(tasks_of(plan, facts)[0])
    launch(tasks)
    return 0


def _of_a_job(mode: str, plan_file: str, facts_file: str, *more: str) -> int:
    """What the script of a job calls, on a machine or beside every rank."""
    from phalanx.agent import allocation
    from phalanx.agent.jobs import one_machine

    plan = read_plan_file(plan_file)
    if mode == ALL_HERE:
        return one_machine.run(plan, facts_file, *more)
    return allocation.report_host(plan, facts_file) if mode == "--here" else allocation.release_node(facts_file)


def _join(plan_file: str, facts_file: str) -> int:
    from phalanx.agent import allocation

    code = allocation.report_host(read_plan_file(plan_file), facts_file)
    return code if code != 0 or allocation.may_start(sys.stdin) else 1


if __name__ == "__main__":
    sys.exit(main())
