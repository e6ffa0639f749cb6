"""Print the run with the smallest loss, of files that `phalanx run --json` wrote."""

import json
import sys
from pathlib import Path

runs = [json.loads(Path(file).read_text()) for file in sys.argv[1:]]
best = min(runs, key=lambda run: run["summary"]["loss"])
print(json.dumps({"run": best["id"], "lr": best["params"]["lr"], "loss": best["summary"]["loss"]}))
