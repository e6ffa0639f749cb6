"""A program that is called like TensorBoard, and says what it was told and what it sees in its folder."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = """#!{python}
import argparse, http.server, json, os, subprocess, sys
parser = argparse.ArgumentParser()
for name in ("logdir", "host", "port", "reload_multifile", "reload_interval"):
    parser.add_argument("--" + name)
said = parser.parse_args()
helper = subprocess.Popen(["sleep", "600"])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        seen = {{}}
        for folder, _, files in os.walk(said.logdir, followlinks=True):
            if files:
                seen[os.path.relpath(folder, said.logdir)] = sorted(files)
        body = json.dumps({{**vars(said), "seen": seen, "pids": [os.getpid(), helper.pid]}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer((said.host, int(said.port)), Handler).serve_forever()
"""


def install(folder: Path) -> Path:
    """The folder to put on PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "tensorboard"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    return folder
