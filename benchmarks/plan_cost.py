"""Plans of 10,000 and 100,000 replicas: CPU time and memory of whole commands, beside a bare `python -c pass`."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from measuring import PHALANX, PYTHON, report

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


class Cost(NamedTuple):
    cpu_s: float
    peak_mib: float
    code: int


def cost_of(command: Sequence[str], folder: Path) -> Cost:
    """The median CPU time of a command, its largest memory, and its exit code: 2 if it refuses the file."""
    seen = []
    for _ in range(ROUNDS):
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seen.append(Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, process.returncode))
    return Cost(statistics.median(one.cpu_s for one in seen), max(one.peak_mib for one in seen), seen[0].code)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        floor = cost_of([*PYTHON, "-c", "pass"], folder)
        print(
            f"floor: python -c pass, {floor.cpu_s * 1000:.0f} ms of CPU, {floor.peak_mib:.0f} MiB (median of {ROUNDS})"
        )
        for workers in (1_000, 10_000, 100_000):
            for framework in FRAMEWORKS:
                compare(folder, framework, workers, floor)


def compare(folder: Path, framework: str, workers: int, floor: Cost) -> None:
    is_large = workers > 10_000
    aims = (MOST_LARGE_S, MOST_LARGE_MIB) if is_large else (MOST_S, MOST_MIB)
    for backend in (None, *BACKENDS):
        if (framework, backend) == ("horovod", "kubeflow"):
            continue  # an MPIJob, with other settings
        file = folder / "polyaxonfile.yml"
        top = "backend: kubeflow\n" if backend == "kubeflow" else ""
        file.write_text(FILE.format(framework=framework, workers=workers - 1, top=top))
        words = ["check"] if backend is None else ["plan", "--on", "kubernetes" if top else backend]
        found = cost_of([*PHALANX, *words, "-f", str(file)], folder)
        most_s, most_mib = (MOST_CHECK_S, aims[1]) if backend is None else aims
        refused = ", refused" if found.code else ""
        report(
            f"{workers} {framework}, {' '.join(words) if not top else 'plan --on kubeflow'}{refused}"
            f" ({found.cpu_s / floor.cpu_s:.0f}x floor, {found.peak_mib:.0f} MiB)",
            f"{found.cpu_s:.2f} s",
            f"{most_s:g} s, {most_mib:g} MiB",
            met=found.cpu_s <= most_s and found.peak_mib <= most_mib and found.code in (0, 2),
        )


if __name__ == "__main__":
    main()
