"""The Slurm backend: one job, possibly heterogeneous, whose script starts an agent for every rank.

The script is self-contained: it also works with plain `sbatch`, on a machine without Phalanx. It contains no unquoted
user text, and no shell evaluates the users' commands and variables: the agents read them from `plan.json`.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote

from phalanx import run_paths, sites
from phalanx.backends.contract import NO_OPTIONS, Backend, Connections, Diagnosis, Engine, Job, Requirement, Review
from phalanx.errors import CallError
from phalanx.naming import LAUNCHER
from phalanx.plan.document import document, document_text
from phalanx.plan.model import Plan
from phalanx.plan.variable_limit import AddressLengths, refuse_too_long
from phalanx.sites import node_layout
from phalanx.sites.model import Site
from phalanx.sites.node_layout import Component

MPIRUN = "mpirun"
DEFAULT_MPI = "pmix"
MOST_COMPONENTS = 128  # of a heterogeneous job: MAX_HET_JOB_COMPS of Slurm
_SCRIPT = """\
#!/bin/bash
{directives}
# Run {run_id}: {words}
# Submit it in the folder of the code: sbatch run.sh. Logs and outputs go beside this script, below replicas/ and
# outputs/; the agent in job/ needs a Python of at least 3.8. Arguments: [FOLDER [ATTEMPT [FIRST]]].
fail() {{
  echo "phalanx: $*" >&2
  exit 1
}}
here=${{1:-}}
job=${{SLURM_ARRAY_TASK_ID:+${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID}}
job=${{job:-$SLURM_JOB_ID}}
if [ -z "$here" ]; then # Slurm runs a copy of this script, and knows where it came from
  here=$(scontrol show job "$job" | sed -n 's/^ *Command=//p' | head -n 1)
  here=${{here%/*}}
fi
[ -f "$here/job/agent.pyz" ] || fail "there is no job/agent.pyz in '$here': keep it beside run.sh"
{modules}python=
at_least_3_8() {{
  "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8) or print(sys.executable))' 2>/dev/null
}}
{direct}for found in "${{PHALANX_PYTHON:-}}" {candidates} "${{PHALANX_FOUND_PYTHON:-}}"; do
  [ -n "$found" ] && itself=$(at_least_3_8 "$found") && python=$found && break
done
[ -n "$python" ] || fail "no Python of at least 3.8 on this node: load a module, or set PHALANX_PYTHON"
[ -x "$itself" ] && python=$itself
umask 077
# The coordinator claims an attempt: one job runs it, even if two were submitted. A job that Slurm starts again is the
# next attempt. It hears where all ranks are and writes that down for them; its end is that of the job.
coproc coordinator {{
  trap '' TERM
  exec "$python" -I -S -c '{coordinate}' "$here/job/agent.pyz" "$here" "${{2:-by-hand}}" "${{3:-${{2:-1}}}}"
}}
coordinator_pid=$!
exec {{to}}>&"${{coordinator[1]}}"- {{from}}<&"${{coordinator[0]}}"-
read -r attempt <&"$from" || fail "cannot run an attempt in '$here'"
[ -n "$attempt" ] || exit 0
agent=("$python" -I -S "$here/job/agent.pyz" "$here/plan.json" "$here/{facts}")
said=$here/{errors}
{unset}step() {{ # tries again while the controller is away: then no rank has started
  local code until=$((SECONDS + {controller_s}))
  while :; do
    {{
      start "$@" 2>&1 >&3 3>&- | (trap '' TERM && exec tee "$said" >&2)
      code=${{PIPESTATUS[0]}}
    }} 3>&1
    if [ "$code" -eq 0 ] || [ "$SECONDS" -ge "$until" ] || compgen -G "$here/{agents}" >/dev/null; then break; fi
    grep -Eq '{away}' "$said" || break
    sleep 5
  done
  rm -f "$said"
  return "$code"
}}
start() {{
{unset_here}{step}
}}
{main}
{leave}exec {{to}}>&- {{from}}<&-
wait "$coordinator_pid"
code=$?
if [ "$code" -eq 85 ]; then # the time of this segment is over, that of the run is not
  scontrol requeue "$job" && sleep 60
fi
exit "$code"
"""
# What `python -c` runs: it imports less than the agent, and so is ready sooner.
_COORDINATE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from phalanx.agent.jobs.coordinator import main; "
    "sys.exit(main(sys.argv[2:]))"
)
_PYTHONS = "python3 python3.12 python3.11 python3.9"
_DIRECT = """\
# One that is a script (that of pyenv, for example) takes longer to start than Python itself.
is_script() {
  local begin
  IFS= read -rn 2 begin <"$(command -v "$1")" && [ "$begin" = "#!" ]
}
direct=
is_script python3 2>/dev/null && direct=${PHALANX_FOUND_PYTHON:-}
"""
# Ranks report where they are, wait for the others and start: one step. srun passes no input to several components.
_ONE_STEP = 'step {mpi} --join <&"$from" >&"$to"'
# All report in a step of their own, before the ranks or one launcher for all of them start.
_TWO_STEPS = """\
if step none --here >&"$to" && echo prepared >&"$to" && read -r go <&"$from" && [ "$go" = go ]; then
  {main}
fi"""
_UNSET = """\
# The options of sbatch must not apply to a step of several components.
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_MEM_PER_GPU SLURM_NTASKS_PER_NODE SLURM_EXPORT_ENV
"""
CONTROLLER_S = 300  # how long a job waits for a controller that restarts
_AWAY = (
    "Unable to (create step|confirm allocation).*: (Unable to contact|Socket timed out|Zero Bytes|Connection refused"
    "|Transport endpoint|Communication connection|Unexpected message|Slurm backup)"
)
_MODULES = """\
if ! type module >/dev/null 2>&1; then
  for found in "${{LMOD_PKG:-}}/init/bash" "${{MODULESHOME:-}}/init/bash" /etc/profile.d/{{*modules,lmod}}.sh; do
    # shellcheck source=/dev/null
    [ -f "$found" ] && . "$found" 2>/dev/null
    type module >/dev/null 2>&1 && break
  done
fi
type module >/dev/null 2>&1 || fail "this node has no modules, and the file asks for some"
module load {names} || fail "cannot load the modules: {names}"
"""


class SlurmJobs(Backend):
    name = "slurm"
    is_batch = True
    options = ("site",)

    def target(
        self,
        home: Path,
        plan: Plan | None = None,
        *,
        options: Mapping[str, str | None] = NO_OPTIONS,
        ask: bool = False,  # noqa: ARG002 - a profile makes queries unnecessary
    ) -> Site | None:
        return sites.find(options.get("site") or (plan.slurm.site if plan is not None else None), home)

    def render(self, plan: Plan, target: Site | None = None) -> Job:
        plan, site = adapted(plan), target
        parts = node_layout.components(plan, site)
        placed = {
            **document(plan),
            "order": [name for part in parts for name in part.names],
            "interface": site.interface if site is not None else None,
            "scratch": site.scratch if site is not None else None,
        }
        files = {"run.sh": _script(plan, parts, site), run_paths.PLAN: document_text(placed)}
        return Job(files, start="sbatch {folder}/run.sh", shown="run.sh", carries_agent=True)

    def engine(self, target: Site | None, connections: Connections) -> Engine:  # noqa: ARG002 - it runs commands, without connections
        from phalanx.backends.slurm.engine import SlurmEngine

        if target is None:
            return SlurmEngine()
        return SlurmEngine(target.submit_interval_s, has_node_ssh=target.node_ssh)

    def review(
        self,
        plans: Iterable[tuple[str, Plan]],
        home: Path,
        environment: Mapping[str, str],
        options: Mapping[str, str | None] = NO_OPTIONS,
    ) -> Review:
        """Check the plans against the site profile, and ask sbatch. Raises CallError, SpecErrors for an invalid
        profile."""
        from phalanx.backends.slurm.review import review

        return review(plans, home, environment, options.get("site"), script_of)

    def diagnose(self, home: Path, environment: Mapping[str, str], options: Mapping[str, str | None]) -> Diagnosis:
        site = self.target(home, options=options)
        found = super().diagnose(home, environment, options)
        if site is None:
            return replace(found, notes=["no site profile: `phalanx site init` writes one"], data={"site": None})
        return replace(found, facts={"site": site.title or site.name}, data={"site": site.name})

    def requirements(self, home: Path) -> Iterable[Requirement]:  # noqa: ARG002
        yield Requirement("sbatch", shutil.which("sbatch"), "use a login node of the cluster", "runs on Slurm")


def _script(plan: Plan, parts: list[Component], site: Site | None) -> str:
    """Raises CallError for what no job can run."""
    by_launcher = plan.launch in ("own", MPIRUN)
    _refuse(parts, by_launcher=by_launcher)
    refuse_too_long(plan, AddressLengths())
    is_prepared = bool(plan.python.requirements or plan.setup_steps)
    return _SCRIPT.format(
        leave=f'[ -e "$here/{run_paths.facts_file("$attempt")}" ] && step none --leave\n' if is_prepared else "",
        directives="\n".join(_directives(plan, parts, site)),
        run_id=_word(plan.run_id),
        coordinate=_COORDINATE,
        direct="" if is_prepared else _DIRECT,
        candidates=_PYTHONS if is_prepared else f'"$direct" {_PYTHONS}',
        facts=run_paths.facts_file("$attempt"),
        agents=f"{run_paths.attempt_folder('*', '$attempt')}/{run_paths.AGENT}",
        controller_s=CONTROLLER_S,
        away=_AWAY,
        errors=run_paths.step_errors_file("$attempt"),
        words=_words(parts),
        modules=_modules(plan),
        unset="" if plan.slurm.batch is not None else _UNSET,
        unset_here=_UNSET if plan.slurm.batch is not None else "",
        step=_step(parts, one_node=plan.slurm.batch is not None),
        main=_main(plan, by_launcher=by_launcher, is_one_component=len(parts) == 1),
    )


def _main(plan: Plan, *, by_launcher: bool, is_one_component: bool) -> str:
    if by_launcher:
        return _TWO_STEPS.format(main='(exec {to}>&- {from}<&- && exec "${agent[@]}" --stay)')
    if not is_one_component:
        return _TWO_STEPS.format(main=f"step {_mpi(plan)} --as-rank")
    return _ONE_STEP.format(mpi=_mpi(plan))


def script_of(plan: Plan, site: Site | None) -> str:
    """The script of a job, without its plan. Raises CallError."""
    fitting = adapted(plan)
    return _script(fitting, node_layout.components(fitting, site), site)


def adapted(plan: Plan) -> Plan:
    """The plan as Slurm runs it: srun starts the MPI ranks, unless the file selects mpirun. A script for sbatch starts
    its own steps."""
    if plan.slurm.batch is not None and not plan.is_distributed:
        return replace(plan, launch="own")
    if plan.launch != MPIRUN or plan.slurm.mpi == MPIRUN:
        return plan
    return replace(plan, launch="srun", launcher=(), replicas=tuple(r for r in plan.replicas if r.role != LAUNCHER))


def _mpi(plan: Plan) -> str:
    return (plan.slurm.mpi or DEFAULT_MPI) if plan.launch == "srun" else "none"


def _refuse(parts: list[Component], *, by_launcher: bool) -> None:
    if by_launcher and len(parts) > 1:
        raise CallError(
            "one launcher starts the ranks, and it cannot reach the components of a heterogeneous job: "
            "request the same for all workers, or write `environment.slurm.layout: homogeneous`"
        )
    if len(parts) > MOST_COMPONENTS:
        raise CallError(
            f"the replicas have {len(parts)} different requests, and a heterogeneous job has at most "
            f"{MOST_COMPONENTS} components: request the same for more replicas, "
            "or write `environment.slurm.layout: homogeneous`"
        )
    if any(len(part.names) % part.size.processes for part in parts):
        raise CallError(
            "replicas with different numbers of processes cannot share one component: "
            "write `environment.slurm.layout: heterogeneous`"
        )


def _directives(plan: Plan, parts: list[Component], site: Site | None) -> Iterator[str]:
    """Options of the whole job are repeated for each component: Slurm does not pass all of them on."""
    slurm = plan.slurm
    own = dict(slurm.directives)
    run_wide = {
        "time": _time(plan),
        "account": slurm.account,
        "partition": slurm.partition,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "reservation": slurm.reservation,
    }
    yield f"#SBATCH --job-name={_word(plan.name or plan.run_id)}"
    yield f"#SBATCH --comment=phalanx:{_word(plan.run_id)}"
    yield "#SBATCH --open-mode=append"
    if (slurm.segment_s is not None or plan.max_restarts) and not {"requeue", "no-requeue"} & own.keys():
        yield "#SBATCH --requeue"
    if slurm.batch is not None:
        yield from _options({"time": _time(plan), **dict(slurm.batch)})
        return
    for number, part in enumerate(parts):
        if number:
            yield "#SBATCH hetjob"
        options = {**run_wide, **_size(part, plan, site), **own}
        yield from _options(options)


def _options(options: Mapping[str, str | None]) -> Iterator[str]:
    for name, value in options.items():
        if value is not None:
            yield f"#SBATCH --{name}={_checked(name, value)}" if value != "" else f"#SBATCH --{name}"


def _size(part: Component, plan: Plan, site: Site | None) -> dict[str, str | None]:
    """Memory is requested per CPU: all components of a job must use the same unit, on any distribution of replicas."""
    size = part.size
    options: dict[str, str | None] = {
        "nodes": None if part.nodes is None else str(part.nodes),
        "ntasks": str(len(part.names)),
        "ntasks-per-node": None if part.per_node is None else str(part.per_node * size.processes),
        "cpus-per-task": str(part.cpus_per_task),
    }
    if size.memory_mib is not None:
        options["mem-per-cpu"] = f"{math.ceil(size.memory_mib / (part.cpus_per_task * size.processes))}M"
    if size.gpus and part.per_node is not None:
        kind = f"{plan.slurm.gpu_type}:" if plan.slurm.gpu_type else ""
        asked = f"{kind}{size.gpus * part.per_node}"
        by_gres = site is not None and site.gpu_option == "gres"
        options |= {"gres": f"gpu:{asked}"} if by_gres else {"gpus-per-node": asked}
    return options


def _time(plan: Plan) -> str | None:
    """The time limit in whole minutes, as days-hours:minutes."""
    times = [time for time in (plan.timeout_s, plan.slurm.segment_s) if time is not None]
    if not times:
        return None
    minutes = max(1, math.ceil(min(times) / 60))
    return f"{minutes // 1440}-{minutes % 1440 // 60:02}:{minutes % 60:02}"


def _step(parts: list[Component], *, one_node: bool) -> str:
    """`step MPI ARGUMENTS…`: starts the agent for every rank, in one rank space."""
    nodes = "--nodes=1 " if one_node else ""
    calls = []
    for number, part in enumerate(parts):
        group = f"--het-group={number} " if len(parts) > 1 else ""
        calls.append(
            f"{group}{nodes}--ntasks={len(part.names)} --cpus-per-task={part.cpus_per_task} --mem=0 --export=ALL "
            f'--mpi="$1" --kill-on-bad-exit=1 --distribution=block "${{agent[@]}}" "${{@:2}}"'
        )
    return "  srun " + " : \\\n    ".join(calls)


def _modules(plan: Plan) -> str:
    names = " ".join(map(quote, plan.python.modules))
    return _MODULES.format(names=names) if names else ""


def _words(parts: list[Component]) -> str:
    described = []
    for part in parts:
        size = part.size
        memory = f", {size.memory_mib} MiB" if size.memory_mib else ""
        gpus = f", {size.gpus} GPUs" if size.gpus else ""
        described.append(f"{part.replicas} of {size.cpus} CPUs{memory}{gpus}")
    return "; ".join(described)


def _word(text: str) -> str:
    """A text as one word without special characters."""
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)[:200] or "_"


def _checked(name: str, value: str) -> str:
    """Check again what the reader of the file has checked: an invalid value would inject text into the script."""
    if not re.fullmatch(r"[\w.,@%+:=/&|?*()\[\]!-]*", value):
        raise CallError(f"{value[:60]!r} is not a valid value of --{name}")
    return value


BACKEND = SlurmJobs()
