"""Writes down what it is told and where it is, then waits a moment: showing.py [PAUSE_S] [ARGUMENT]…"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

content = {
    "environment": dict(os.environ),
    "arguments": sys.argv[2:],
    "working": os.getcwd(),
    "host": socket.gethostname(),
    "python": sys.prefix,
}
(Path(os.environ["PHALANX_OUTPUTS"]) / f"{os.environ['PHALANX_REPLICA']}.json").write_text(json.dumps(content))
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
