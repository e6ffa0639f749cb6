"""Planning a run of 10,000 workers: time and memory of the whole command, beside a bare `python -c pass`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from measuring import PHALANX, PYTHON, children_peak_mib, interleaved_s, report

ROUNDS = 5
MOST_S = 1.5
MOST_MIB = 300.0
FILE = """\
version: 1
kind: experiment
framework: {framework}
environment:
  resources: {{cpu: {{requests: 4, limits: 8}}, memory: {{requests: 16Gi}}, gpu: {{requests: 1, limits: 1}}}}
  replicas:
    n_workers: 10000
    default_worker:
      resources: {{cpu: {{requests: 4, limits: 8}}, memory: {{requests: 16Gi}}, gpu: {{requests: 1, limits: 1}}}}
    worker:
      - index: 2
        resources: {{cpu: {{requests: 2}}}}
run:
  cmd: python train.py
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        commands = {"python -c pass": [*PYTHON, "-c", "pass"]}
        for framework in ("pytorch", "tensorflow"):
            path = Path(folder, f"{framework}.yml")
            path.write_text(FILE.format(framework=framework))
            for flags in ([], ["--json"]):
                name = " ".join([f"phalanx plan, {framework}", *flags])
                commands[name] = [*PHALANX, "plan", *flags, "-f", str(path)]
        medians = interleaved_s(commands, ROUNDS)
    floor = medians.pop("python -c pass")
    print(f"floor: python -c pass {floor * 1000:.1f} ms (median of {ROUNDS}); 10,000 workers")
    for name, seconds in medians.items():
        report(f"{name} ({seconds / floor:.0f}x floor)", f"{seconds:.2f} s", f"{MOST_S} s", met=seconds <= MOST_S)
    peak = children_peak_mib()
    report("largest resident size of any of them", f"{peak:.0f} MiB", f"{MOST_MIB:.0f} MiB", met=peak <= MOST_MIB)


if __name__ == "__main__":
    main()
