"""`make bench`: one table, the same as JSON, and the difference to another run. The figures are not what is tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/bench.py"), *words]
    environment = {**os.environ, "ROUNDS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_rows_are_printed_written_and_compared_with_an_earlier_run(tmp_path: Path) -> None:
    file, earlier = tmp_path / "now.json", tmp_path / "earlier.json"
    row = {"script": "check_cost", "work": "phalanx --help, cold, CPU", "ours": 1.0, "unit": "s", "ratio": 100.0}
    earlier.write_text(json.dumps({"commit": "abc1234", "rows": [row]}), encoding="utf-8")
    done = bench("check_cost:help", "--json", str(file), "--against", str(earlier))
    assert done.returncode == 0, done.stderr
    head, line = done.stdout.splitlines()
    assert head.split()[:6] == ["work", "floor", "peer", "ours", "ratio", "aim"]
    assert "at abc1234" in head
    (found,) = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert found["work"] == row["work"]
    assert found["floor"]["name"] == "python -c pass"
    assert found["ratio"] == found["ours"] / found["floor"]["value"] > 1
    assert found["met"] == (found["ratio"] <= found["aim"]["limit"])
    assert ("MISSED" in line) != found["met"]
    assert line.endswith(f"{found['ratio'] / 100 - 1:+.0%}")


def test_an_unknown_benchmark_or_part_is_named() -> None:
    assert "there is no benchmarks/nothing.py" in bench("nothing").stderr
    done = bench("check_cost:nothing")
    assert (done.returncode, "it has help, check, ps" in done.stderr) == (1, True)
