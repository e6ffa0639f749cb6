"""Files to plan, and a replica's environment as its process would see it."""

from __future__ import annotations

from textwrap import dedent, indent

from phalanx import plan, spec
from phalanx.placeholders import Hole, fill
from phalanx.plan import Plan, Replica

FILE = "polyaxonfile.yml"
RUN_ID = "r-1"

# Polyaxon's own example of per-index overrides: worker 2 has no gpu, parameter server 0 more memory.
EXAMPLE = """
version: 1
kind: experiment
framework: {framework}
environment:
  resources:
    cpu: {{requests: 1, limits: 2}}
    memory: {{requests: 256, limits: 1024}}
    gpu: {{requests: 1, limits: 1}}
  replicas:
    n_workers: 7
    n_ps: 3
    default_worker:
      resources:
        cpu: {{requests: 1, limits: 2}}
        memory: {{requests: 256, limits: 1024}}
        gpu: {{requests: 1, limits: 1}}
    worker:
      - index: 2
        resources:
          cpu: {{requests: 1, limits: 2}}
          memory: {{requests: 256, limits: 1024}}
    default_ps:
      resources:
        cpu: {{requests: 1, limits: 1}}
        memory: {{requests: 256, limits: 256}}
    ps:
      - index: 0
        resources:
          cpu: {{requests: 1, limits: 1}}
          memory: {{requests: 512, limits: 512}}
run:
  cmd: python train.py
"""


def planned(text: str, run_id: str = RUN_ID, project: str = "default") -> Plan:
    """The plan of a file; common indentation does not matter."""
    return plan.make(spec.load([(FILE, dedent(text).encode())]), run_id, project)


def distributed(
    framework: str,
    n_workers: int = 2,
    n_ps: int = 0,
    *,
    command: str = "python train.py",
    more: str = "",
    top: str = "",
) -> Plan:
    """A small distributed run; `more` stands inside `environment`, `top` beside it."""
    text = f"""\
version: 1
kind: experiment
framework: {framework}
environment:
  replicas:
    n_workers: {n_workers}
    n_ps: {n_ps}
"""
    text += indent(dedent(more), "  ") + dedent(top) + f"run:\n  cmd: {command}\n"
    return planned(text)


def answer(hole: Hole) -> str:
    return {"host": f"{hole.of}.example", "port": "2222", "path": f"/run/{hole.of}", "interface": "eth0"}[hole.kind]


def replica(made: Plan, name: str) -> Replica:
    return next(found for found in made.replicas if found.name == name)


def environment(made: Plan, name: str) -> dict[str, str]:
    """Every variable of a replica, with its holes answered, on a machine that has none of them itself."""
    found = replica(made, name)
    values = {**found.defaults, **made.shared, **found.environment}
    return {key: fill(value, made.members, answer) for key, value in values.items()}


def argv(made: Plan, name: str) -> list[str]:
    return [fill(argument, made.members, answer) for argument in replica(made, name).argv]


def messages(made: Plan) -> list[str]:
    return [note.message for note in made.notes]
