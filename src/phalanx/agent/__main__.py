"""python -m phalanx.agent PLAN FACTS [--as-rank | --stay | --here | --gather FIRST | --settle | --leave]
or, in a pod, where all inputs are at fixed paths:
python -m phalanx.agent --pod | --prepare | --train-job prepare|run"""

from __future__ import annotations

import sys

from phalanx.agent.launcher import AS_RANK, launch, launched_rank, read, read_plan, serve, supervise_here, tasks_of
from phalanx.agent.preflight import PreflightFailed

MODES = (AS_RANK, "--stay", "--here", "--gather", "--settle", "--leave")
IN_PODS = "--pod | --prepare | --train-job prepare|run"


def main() -> int:
    given = sys.argv[1:]
    if given == ["--pod"]:
        from phalanx.agent import pod_entry

        return pod_entry.run()
    if given == ["--prepare"]:
        from phalanx.agent import init_container

        return init_container.prepare()
    if len(given) == 2 and given[0] == "--train-job":
        from phalanx.agent import train_job

        return train_job.run(is_prepared=given[1] != "prepare")
    if len(given) < 2 or (len(given) > 2 and given[2] not in MODES):
        print(f"usage: phalanx-agent PLAN FACTS [{' | '.join(MODES)}] | {IN_PODS}", file=sys.stderr)
        return 2
    mode = given[2] if len(given) > 2 else None
    if mode in ("--here", "--gather", "--settle", "--leave"):
        from phalanx.agent import allocation

        plan = read_plan(given[0])
        if mode == "--here":
            return allocation.report_host(plan, given[1])
        if mode == "--gather":
            return allocation.gather(plan, given[1], int(given[3]), sys.stdin)
        return allocation.conclude(plan, given[1]) if mode == "--settle" else allocation.release_node(given[1])
    plan, facts = read(given[0], given[1])
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
    tasks = tasks_of(plan, facts)
    if mode == "--stay":
        return supervise_here(tasks[0])
    launch(tasks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
