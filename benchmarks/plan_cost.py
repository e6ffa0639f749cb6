"""Plans of 10,000 and 100,000 replicas: CPU time and memory of whole commands, beside a bare `python -c pass`."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from measuring import PHALANX, PYTHON, Cost, command_cost
from table import Beside, Row, at_most

ROUNDS = 3
MOST_S, MOST_MIB = 2.0, 300.0  # of 10,000 replicas on any backend
MOST_LARGE_S, MOST_LARGE_MIB = 6.0, 1000.0  # of 100,000
MOST_CHECK_S = 1.0
FRAMEWORKS = ("pytorch", "tensorflow", "horovod")
BACKENDS = ("local", "slurm", "kubernetes", "kubeflow")
FILE = """\
version: 1
kind: experiment
framework: {framework}
{top}environment:
  resources: {{cpu: {{requests: 4, limits: 8}}, memory: {{requests: 16Gi}}}}
  replicas:
    n_workers: {workers}
    default_worker:
      resources: {{cpu: {{requests: 4, limits: 8}}, memory: {{requests: 16Gi}}}}
run:
  cmd: python train.py
"""


def median_cost(command: Sequence[str], folder: Path) -> Cost:
    """The median CPU time of a command, its largest memory, and its exit code: 2 if it refuses the file."""
    seen = [command_cost(command, cwd=folder, may_fail=True) for _ in range(ROUNDS)]
    cpu_s, peak_mib = statistics.median(one.cpu_s for one in seen), max(one.peak_mib for one in seen)
    return seen[0]._replace(cpu_s=cpu_s, peak_mib=peak_mib)


def plans(workers: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        floor = Beside("python -c pass", median_cost([*PYTHON, "-c", "pass"], folder).cpu_s)
        for framework in FRAMEWORKS:
            yield from compare(folder, framework, workers, floor)


def compare(folder: Path, framework: str, workers: int, floor: Beside) -> Iterator[Row]:
    aims = (MOST_LARGE_S, MOST_LARGE_MIB) if workers > 10_000 else (MOST_S, MOST_MIB)
    for backend in (None, *BACKENDS):
        if (framework, backend) == ("horovod", "kubeflow"):
            continue  # an MPIJob, with other settings
        file = folder / "polyaxonfile.yml"
        top = "backend: kubeflow\n" if backend == "kubeflow" else ""
        file.write_text(FILE.format(framework=framework, workers=workers - 1, top=top))
        words = ["check"] if backend is None else ["plan", "--on", "kubernetes" if top else backend]
        found = median_cost([*PHALANX, *words, "-f", str(file)], folder)
        if found.code not in (0, 2):
            raise RuntimeError(f"phalanx {' '.join(words)} ended with {found.code}")
        work = f"{workers:,} {framework}, {'plan --on kubeflow' if top else ' '.join(words)}"
        refused = ", refused" if found.code else ""
        most_s = MOST_CHECK_S if backend is None else aims[0]
        yield Row(f"{work}{refused}, CPU", found.cpu_s, "s", floor, aim=at_most(most_s))
        yield Row(f"{work}{refused}, memory", found.peak_mib, "MiB", aim=at_most(aims[1]))


PARTS = {f"{workers}": partial(plans, workers) for workers in (1_000, 10_000, 100_000)}
