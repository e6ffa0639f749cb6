"""What Phalanx adds to the start of PyTorch, Horovod and MPI: 4 ranks that start, meet, sum one number and end.

Beside the least that starts them, and beside the framework's own launcher. Importing a framework takes seconds and is
the same under all of them, so what counts is the time to the first line of the last rank; the whole run stands
beside it. Needs the real frameworks: `make frameworks FRAMEWORKS=torch`.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from measuring import PHALANX, ROOT
from phalanx.agent.rendezvous import serving
from table import Beside, Row

RANKS = 4
ROUNDS = 5
LOCALHOST = "127.0.0.1"

# The first line comes before all imports that cost something, the last one sees that the ranks have really met.
FIRST = "import os, time; open(os.path.join(os.environ['STAMPS'], str(os.getpid())), 'w').write(repr(time.time()))"
LAST = f"if total != {sum(range(1, RANKS + 1))}: raise SystemExit(f'the ranks have summed up to {{total}}')"
PROGRAMS = {
    "pytorch": """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
total = value.item()
dist.destroy_process_group()
""",
    "horovod": """
import torch
import horovod.torch as hvd
hvd.init()
assert hvd.gloo_enabled() and not hvd.mpi_enabled(), "this is to go over Gloo"
total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
hvd.shutdown()
""",
    "mpi": """
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.Get_rank() + 1)
""",
}


class Times(NamedTuple):
    """Seconds from the launcher's start."""

    first_line: float
    whole: float


class Bench:
    """The programs, a home of Phalanx and what all launchers are given, in a folder."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self.stamps = folder / "stamps"
        self.stamps.mkdir()
        self.output = folder / "output"
        self.programs: dict[str, list[str]] = {}
        for framework, body in PROGRAMS.items():
            path = folder / f"sum_{framework}.py"  # `horovod.py` would hide Horovod
            path.write_text(f"{FIRST}\n{body}{LAST}\n")
            self.programs[framework] = [str(python), str(path)]
        self.environment = {
            **os.environ,
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "PHALANX_HOME": str(folder / "home"),
            "STAMPS": str(self.stamps),
            "OMP_NUM_THREADS": "1",  # as Phalanx and torchrun have it
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Phalanx is not to be compiled in every round

    def command(self, *words: str) -> Callable[[], None]:
        """A launcher that is a command."""
        return lambda: self.wait([self.start(list(words), {})])

    def phalanx(self, framework: str) -> Callable[[], None]:
        small = {"resources": {"cpu": {"requests": 0.1}}}
        has_master = framework != "mpi"
        content = {
            "version": 1,
            "kind": "experiment",
            "framework": framework,
            "environment": {
                **(small if has_master else {}),
                "replicas": {"n_workers": RANKS - has_master, "default_worker": small},
            },
            "run": {"cmd": shlex.join(self.programs[framework])},
        }
        file = self.folder / f"{framework}.yml"
        file.write_text(json.dumps(content))
        return self.command(*PHALANX, "run", "-f", str(file))

    def pytorch_by_hand(self) -> None:
        with socket.create_server((LOCALHOST, 0)) as free:
            port = free.getsockname()[1]
        shared = {"MASTER_ADDR": LOCALHOST, "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
        own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)]
        self.wait([self.start(self.programs["pytorch"], {**shared, **one}) for one in own])

    def horovod_by_hand(self) -> None:
        """As Phalanx does it: each rank is a host of its own, and a key-value server tells them of each other."""
        hosts = [f"worker-{rank}" for rank in range(RANKS)]
        server = serving(
            socket.create_server((LOCALHOST, 0)),
            {"global": RANKS, "cross_0": RANKS, **{f"local_{host}": 1 for host in hosts}},
        )
        Thread(target=server.serve_forever, daemon=True).start()
        shared = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": "lo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": LOCALHOST,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(server.server_address[1]),
            "HOROVOD_SIZE": str(RANKS),
            "HOROVOD_LOCAL_RANK": "0",
            "HOROVOD_LOCAL_SIZE": "1",
            "HOROVOD_CROSS_SIZE": str(RANKS),
        }
        own = [
            {"HOROVOD_RANK": str(rank), "HOROVOD_CROSS_RANK": str(rank), "HOROVOD_HOSTNAME": host}
            for rank, host in enumerate(hosts)
        ]
        self.wait([self.start(self.programs["horovod"], {**shared, **one}) for one in own])
        server.shutdown()
        server.server_close()

    def start(self, command: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
        with self.output.open("ab") as output:
            return subprocess.Popen(
                command,
                env={**self.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Linux shares the cores out by session, and most launchers give every rank one: so has the floor.
                start_new_session=True,
            )

    def wait(self, processes: list[subprocess.Popen[bytes]]) -> None:
        """Until all have ended well. Otherwise ends the benchmark with what they printed."""
        try:
            codes = [process.wait() for process in processes]
        finally:
            for process in processes:
                process.terminate()  # Ctrl-C does not reach other sessions
            for process in processes:
                process.wait()
        if any(codes):
            printed = self.output.read_text(errors="replace")[-8_000:]
            raise RuntimeError(f"{processes[0].args!r} ended with {codes}:\n{printed}")

    def measured(self, launch: Callable[[], None]) -> Times:
        for old in self.stamps.iterdir():
            old.unlink()
        self.output.unlink(missing_ok=True)
        began = time.time()
        launch()
        whole = time.time() - began
        stamps = [float(path.read_text()) for path in self.stamps.iterdir()]
        assert len(stamps) == RANKS, f"{len(stamps)} ranks of {RANKS} started"
        return Times(max(stamps) - began, whole)

    def compare(self, title: str, launchers: dict[str, Callable[[], None]]) -> Iterator[Row]:
        """All launchers in turn, so that noise meets them alike: the floor, ours, and the peer if there is one."""
        found: dict[str, list[Times]] = {name: [] for name in launchers}
        for turn in range(ROUNDS + 1):
            for name, launch in launchers.items():
                times = self.measured(launch)
                if turn:  # the first one warms the page cache
                    found[name].append(times)
        medians = {name: Times(*map(statistics.median, zip(*times, strict=True))) for name, times in found.items()}
        for measure in ("first_line", "whole"):
            floor, ours, *peers = (Beside(name, getattr(times, measure)) for name, times in medians.items())
            what = {"first_line": "to the last one's first line", "whole": "whole run"}[measure]
            yield Row(f"{title}, {RANKS} ranks, {what}", ours.value, "s", floor, peers[0] if peers else None)


def bench(make: Callable[[Bench, Path], Iterator[Row]]) -> Iterator[Row]:
    sys.path.insert(0, str(ROOT))  # `scripts` is not installed
    from scripts.environments import built

    python = built("torch")
    if python is None:
        raise FileNotFoundError("there is no environment `torch` here: `make frameworks FRAMEWORKS=torch`")
    with tempfile.TemporaryDirectory() as name:
        yield from make(Bench(Path(name), python), python)


def pytorch(bench: Bench, python: Path) -> Iterator[Row]:
    torchrun = [str(python.with_name("torchrun")), "--standalone", "--nproc_per_node", str(RANKS)]
    launchers = {
        "by hand": bench.pytorch_by_hand,
        "phalanx run": bench.phalanx("pytorch"),
        "torchrun": bench.command(*torchrun, bench.programs["pytorch"][1]),
    }
    return bench.compare("PyTorch, Gloo", launchers)


def horovod(bench: Bench, python: Path) -> Iterator[Row]:
    horovodrun = [str(python.with_name("horovodrun")), "--gloo", "--disable-cache", "-np", str(RANKS)]
    launchers = {
        "by hand": bench.horovod_by_hand,
        "phalanx run": bench.phalanx("horovod"),
        "horovodrun": bench.command(*horovodrun, *bench.programs["horovod"]),
    }
    return bench.compare("Horovod, Gloo", launchers)


def mpi(bench: Bench, _: Path) -> Iterator[Row]:
    launchers = {
        "mpirun": bench.command("mpirun", "--oversubscribe", "-np", str(RANKS), *bench.programs["mpi"]),
        "phalanx run": bench.phalanx("mpi"),
    }
    return bench.compare("MPI", launchers)


PARTS = {make.__name__: partial(bench, make) for make in (pytorch, horovod, mpi)}
