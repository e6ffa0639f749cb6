"""Writes a home with runs of every kind through the installed command, and packs it as a fixture.

`tests/fixtures/home-0.2/README.md` has the commands to run it and lists what the home contains.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import signal
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.formats.encoding import data, tf_record, tf_scalar

PATIENCE_S = 90.0
PASSWORD = "not a real password"
# What only means something on this machine, and the agent, which every version packs again for itself.
NOT_PACKED = re.compile(r"(agents/.+|ballast|desks|[^/]*\.lock|phalanx\.db-shm|server[^/]*\.json)\Z")

TRAIN = """\
import json, os, sys
from phalanx import tracking

rank, outputs = int(os.environ["PHALANX_RANK"]), os.environ["PHALANX_OUTPUTS"]
print("rank", rank, "starts", flush=True)
steps = 300 if rank == 0 else 20
for step in range(steps):
    tracking.log(step=step, loss=1 / (1 + step + rank), **({"accuracy": step / 300} if rank == 0 else {}))
    tracking.progress(step + 1, steps)
if rank == 0:
    tracking.tags("tracked")
    tracking.labels({"team": "vision"})
    tracking.dataset("digits", uri="file:///data/digits", digest="sha256:0123")
    tracking.text("note", "learned fast", step=299)
    tracking.histogram("weights", [0.0, 0.5, 0.5, 1.0], step=299)
    with open(os.path.join(outputs, "summary.json"), "w") as stream:
        json.dump({"accuracy": 299 / 300}, stream)
    with open("weights.bin", "wb") as stream:
        stream.write(bytes(range(256)) * 8)
    tracking.model("weights.bin", name="digits", metrics={"accuracy": 299 / 300})
    tracking.artifact("labels.txt", name="labels.txt")
print("rank", rank, "is done", flush=True)
"""

BREAK = """\
import os, time
rank, mark = int(os.environ["PHALANX_RANK"]), os.path.join(os.environ["PHALANX_OUTPUTS"], "failed")
if rank == 1:
    open(mark, "w").close()
    raise ValueError("the labels of batch 7 are empty")
while rank == 2 or not os.path.exists(mark):
    time.sleep(0.005)
raise ConnectionResetError("Connection closed by peer")
"""

SCRIPT = """\
from phalanx import tracking

params = {"lr": 0.1, "optimizer": {"name": "sgd"}}
with tracking.start(name="script", project="plain", params=params, tags=["demo"]) as run:
    for step in range(40):
        run.log(loss=1 / (step + 1), step=step)
    run.log(loss=float("nan"), step=40)
"""

# Runs from a folder that exists on every machine, and so can be resumed wherever the home is unpacked.
RESUMABLE = """\
python3 -c 'import os; from phalanx import tracking; tracking.log(value=float(os.environ["PHALANX_ATTEMPT"]),
 step=int(os.environ["PHALANX_ATTEMPT"]))' && echo "attempt $PHALANX_ATTEMPT" >> "$PHALANX_OUTPUTS/attempts" &&
 while [ "$PHALANX_ATTEMPT" = 1 ]; do sleep 0.05; done
"""


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found


class Writer:
    def __init__(self, base: Path, command: Path) -> None:
        self.home, self.work, self.command = base / "home", base / "work", command
        self.work.mkdir(mode=0o700)
        self.environment = {
            "PATH": f"{command.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(base),
            "USER": "ana",
            "LOGNAME": "ana",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PHALANX_HOME": str(self.home),
        }

    def call(self, *arguments: str, cwd: Path | None = None, stdin: str = "", code: int = 0) -> str:
        """The output of the command, which must end with this code."""
        done = subprocess.run(
            [self.command, *arguments],
            cwd=cwd or self.work,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, f"phalanx {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def file(self, command: str, **fields: Any) -> str:
        """A polyaxonfile; JSON is YAML."""
        path = self.work / "polyaxonfile.yml"
        path.write_text(json.dumps({"version": 1, "kind": "experiment", "run": {"cmd": command}, **fields}))
        return str(path)

    def status(self, run: str) -> str:
        return str(json.loads(self.call("show", run, "--json"))["status"])

    def until(self, run: str, *statuses: str) -> None:
        wait_for(lambda: self.status(run) in statuses)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The address of a server."""
        server = subprocess.Popen(
            [self.command, "serve", "--port", "0", "--json"],
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            yield str(json.loads(server.stdout.readline())["url"])
        finally:
            server.terminate()
            server.communicate(timeout=PATIENCE_S)

    # The runs ---------------------------------------------------------------------------------------------------------

    def distributed(self) -> None:
        (self.work / "train.py").write_text(TRAIN)
        (self.work / "labels.txt").write_text("zero\none\ntwo\n")
        file = self.file(
            "python3 train.py",
            environment={"replicas": {"n_workers": 2}},
            framework="pytorch",
            params={"lr": 0.01, "layers": 3, "seed": 7},
            tags=["digits"],
        )
        options = ("--name", "distributed", "--description", "three ranks", "--project", "vision", "--snapshot")
        self.call("run", "-f", file, *options)
        self.call("models", "alias", "digits/1", "champion", "--reason", "the first")
        self.call("models", "register", "distributed", "outputs/summary.json", "--name", "digits")
        self.call("models", "alias", "digits/2", "challenger", "--reason", "to be compared")
        self.call("models", "describe", "digits", "reads digits", "--label", "team=vision")

    def clones(self) -> None:
        self.call("run", "-f", self.file("echo again >> $PHALANX_OUTPUTS/list"), "--name", "first")
        original = json.loads(self.call("show", "first", "--json"))["id"]
        self.call("restart", original)
        self.call("copy", original)

    def failed(self) -> None:
        (self.work / "break.py").write_text(BREAK)
        file = self.file("python3 break.py", environment={"replicas": {"n_workers": 2}}, framework="pytorch")
        self.call("run", "-f", file, "--name", "failed", "--project", "vision", code=1)

    def retried(self) -> None:
        command = "echo attempt $PHALANX_ATTEMPT && test $PHALANX_ATTEMPT = 2"
        self.call("run", "-f", self.file(command, environment={"max_restarts": 1}), "--name", "retried")

    def stopped(self) -> None:
        run_id = self.call("run", "-f", self.file(RESUMABLE), "--name", "stopped", "-d", cwd=Path("/tmp")).strip()
        wait_for((self.home / "runs" / run_id / "outputs" / "attempts").exists)
        self.call("stop", run_id)

    def script(self) -> None:
        (self.work / "script.py").write_text(SCRIPT)
        python = self.command.with_name("python")
        subprocess.run([python, "script.py"], cwd=self.work, env=self.environment, check=True, timeout=PATIENCE_S)
        self.until("script", "succeeded")

    def boards(self) -> None:
        events = [tf_scalar("train/loss", 1 / (step + 1), step, 1.7e9 + step) for step in range(20)]
        (self.work / "board").write_bytes(b"".join([tf_record(data(3, "brain.Event:2")), *events]))
        command = "mkdir $PHALANX_OUTPUTS/tb && cp board $PHALANX_OUTPUTS/tb/events.out.tfevents.1700000000.trainer"
        self.call("run", "-f", self.file(command), "--name", "boards", "--project", "vision")

    def imported(self) -> None:
        (self.work / "history.csv").write_text("epoch,loss,val_loss\n0,1.50,1.62\n1,0.75,0.98\n2,0.50,0.91\n")
        self.call("import", "history.csv", "--run-name", "imported", "--project", "elsewhere")

    def mlflow(self, url: str, token: str) -> None:
        def post(path: str, **fields: Any) -> Any:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            address = f"{url.rstrip('/')}/api/2.0/mlflow/{path}"
            request = urllib.request.Request(address, json.dumps(fields).encode(), headers)
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)

        experiment = post("experiments/create", name="tabular")["experiment_id"]
        begun = 1_700_000_000_000
        run = post("runs/create", experiment_id=experiment, run_name="mlflow", start_time=begun)["run"]["info"][
            "run_id"
        ]
        metrics = [{"key": "rmse", "value": 4.0 / (n + 1), "timestamp": begun + n, "step": n} for n in range(8)]
        post("runs/log-batch", run_id=run, metrics=metrics, params=[{"key": "depth", "value": "6"}])
        post("runs/set-tag", run_id=run, key="team", value="tables")
        post("runs/update", run_id=run, status="FINISHED", end_time=begun + 60_000)

    def people(self) -> str:
        """Returns a token."""
        self.call("users", "add", "ana", "--role", "editor", stdin=f"{PASSWORD}\n")
        self.call("users", "add", "ben", "--role", "viewer", "--project", "vision", stdin=f"{PASSWORD}\n")
        return self.call("token", "create", "ci", "--role", "editor").strip()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """A run that ended after its scheduler was killed, and one that waits for it in the queue. Both stay so."""
        go = self.work / "go"
        everything = {"resources": {"cpu": {"requests": 1_000_000}}}  # more than there is: it runs alone
        file = self.file(f"echo begun; until [ -e {go} ]; do sleep 0.02; done", environment=everything)
        run_id = self.call("run", "-f", file, "--name", "unobserved", "-d").strip()
        self.until(run_id, "running")
        command = 'echo "at last" > "$PHALANX_OUTPUTS/done"'
        self.call("run", "-f", self.file(command), "--name", "queued", "-d", cwd=Path("/tmp"))
        with (self.home / "scheduler.lock").open("r+") as lock:
            wait_for(lambda: self.have_no_scheduler(lock.fileno()))
            go.touch()
            wait_for((self.home / "runs" / run_id / "replicas/master-0/attempt-1/end.json").exists)
            yield

    def have_no_scheduler(self, lock: int) -> bool:
        """Kill those in the background, which `run -d` leaves behind, and take their lock."""
        listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            if line.endswith(f" -m phalanx.scheduler {self.home}"):
                os.kill(int(line.split()[0]), signal.SIGKILL)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def write(base: Path, command: Path, target: Path) -> None:
    """The home, in BASE/home; and in TARGET packed, with what signs people in to it."""
    writer = Writer(base, command)
    writer.distributed()
    wait_for(lambda: not any((writer.home / "settling").iterdir()))  # it is compacted; the later runs are not
    writer.clones()
    writer.failed()
    writer.retried()
    writer.stopped()
    writer.script()
    writer.boards()
    writer.imported()
    token = writer.people()
    with writer.serving() as url:
        writer.mlflow(url, token)
    target.mkdir(parents=True, exist_ok=True)
    with writer.under_way():
        pack(writer.home, target / "home.tar.gz")
    access = {"user": "ana", "password": PASSWORD, "token": token}
    (target / "access.json").write_text(json.dumps(access, indent=1) + "\n")


def pack(home: Path, archive: Path) -> None:
    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return None if NOT_PACKED.match(entry.name.removeprefix("home/")) else entry

    with tarfile.open(archive, "w:gz") as packed:
        packed.add(home, "home", filter=chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phalanx", type=Path, required=True, help="the command of the version to write with")
    parser.add_argument("--base", type=Path, required=True, help="a folder without home/ and work/")
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    os.umask(0o077)
    write(options.base, options.phalanx, options.target)


if __name__ == "__main__":
    main()
