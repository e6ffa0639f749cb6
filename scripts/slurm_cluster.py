"""A real Slurm cluster on this machine, for tests and experiments.

    eval "$(python scripts/slurm_cluster.py up --nodes 4 --gpus 2)"
    srun -N4 hostname
    python scripts/slurm_cluster.py power-cut node2
    python scripts/slurm_cluster.py down

It needs root and Debian; missing packages are installed. See tests/slurm/cluster.py for its parts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.slurm.cluster import Cluster, ClusterError, Settings, can_have_network, free_port

STATE = Path(tempfile.gettempdir()) / "phalanx-slurm"
ON_A_NODE = ("power-cut", "boot", "partition", "rejoin")
ON_A_DAEMON = (
    "kill-controller",
    "start-controller",
    "freeze-controller",
    "thaw-controller",
    "kill-database",
    "start-database",
)


def main() -> int:
    asked = _parser().parse_args()
    try:
        return _do(asked)
    except ClusterError as error:
        print(f"slurm_cluster: {error}", file=sys.stderr)
        return 1


def _do(asked: argparse.Namespace) -> int:
    found = Cluster.found(asked.state)
    if asked.verb == "up":
        cluster = Cluster(asked.state, _settings(asked, found))
        cluster.up()
        print(*(f"export {name}={value}" for name, value in cluster.environment.items()), sep="\n")
        return 0
    if found is None:
        print(f"slurm_cluster: there is no cluster in {asked.state}", file=sys.stderr)
        return 0 if asked.verb == "down" else 1
    if asked.verb == "down":
        found.down()
    elif asked.verb == "status":
        print(json.dumps({"settings": found.settings._asdict(), "pids": found.alive(), **found.environment}, indent=2))
        return 0 if all(found.alive().values()) else 1
    else:
        getattr(found, asked.verb.replace("-", "_"))(*([asked.node] if asked.verb in ON_A_NODE else []))
    return 0


def _settings(asked: argparse.Namespace, found: Cluster | None) -> Settings:
    return Settings(
        nodes=asked.nodes,
        cpus=asked.cpus,
        memory_mib=asked.memory,
        gpus=asked.gpus,
        isolation=asked.isolation or ("net" if can_have_network() else "node"),
        has_database=not asked.no_database,
        has_cgroups=asked.cgroups,
        port=asked.port or (found.settings.port if found else free_port()),
        more=tuple(asked.set),
    )


def _parser() -> argparse.ArgumentParser:
    usual = Settings()
    parser = argparse.ArgumentParser(
        prog="slurm_cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--state", type=Path, default=STATE, help="folder of the cluster (default: %(default)s)")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser(
        "up", parents=[common], help="start the cluster, or its dead processes; prints the variables for a shell"
    )
    up.add_argument("--nodes", type=int, default=usual.nodes)
    up.add_argument("--cpus", type=int, default=usual.cpus, help="CPUs of each node; may exceed those of the machine")
    up.add_argument(
        "--memory", type=int, default=usual.memory_mib, help="MiB of each node; may exceed that of the machine"
    )
    up.add_argument("--gpus", type=int, default=usual.gpus, help="simulated GPUs of each node")
    up.add_argument("--isolation", choices=("node", "net"), help="net: each node has its own network (if permitted)")
    up.add_argument("--no-database", action="store_true", help="without sacct and sacctmgr")
    up.add_argument("--cgroups", action="store_true", help="the kernel kills processes that exceed their memory")
    up.add_argument("--port", type=int, help="first port to use")
    up.add_argument("--set", action="append", default=[], metavar="LINE", help="line to add to slurm.conf")
    verbs.add_parser("down", parents=[common], help="stop the cluster and remove everything")
    verbs.add_parser("status", parents=[common], help="list the processes; exit code 1 if one is dead")
    for verb in ON_A_NODE:
        verbs.add_parser(verb, parents=[common]).add_argument("node")
    for verb in ON_A_DAEMON:
        verbs.add_parser(verb, parents=[common])
    return parser


if __name__ == "__main__":
    sys.exit(main())
