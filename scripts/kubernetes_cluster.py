"""A real Kubernetes control plane on this machine, whose pods are processes, for tests and experiments.

    eval "$(python scripts/kubernetes_cluster.py up --nodes 3 --gpus 2 --kubernetes 1.34)"
    kubectl get nodes
    phalanx run -f polyaxonfile.yml --on kubernetes
    python scripts/kubernetes_cluster.py lose-node node-1
    python scripts/kubernetes_cluster.py down

It needs root and Debian; missing programs are installed, and built once. See
tests/kubernetes/cluster.py for its parts.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.kubernetes.cluster import Cluster, ClusterError, Settings, free_block, free_port

STATE = Path(tempfile.gettempdir()) / "phalanx-kubernetes"
ON_A_NODE = ("lose-node", "return-node")
ON_A_POD = ("evict", "preempt")
ON_THE_SERVER = ("stop-server", "start-server")


def main() -> int:
    asked = _parser().parse_args()
    try:
        return _do(asked)
    except ClusterError as error:
        print(f"kubernetes_cluster: {error}", file=sys.stderr)
        return 1


def _do(asked: argparse.Namespace) -> int:
    found = Cluster.found(asked.state)
    if asked.verb == "up":
        cluster = found or Cluster(asked.state, _settings(asked))
        cluster.up()
        print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
        print(f'export PATH={shlex.quote(str(cluster.kubectl.parent))}:"$PATH"')
        return 0
    if found is None:
        print(f"kubernetes_cluster: there is no cluster in {asked.state}", file=sys.stderr)
        return 0 if asked.verb == "down" else 1
    if asked.verb == "down":
        found.down()
    elif asked.verb == "status":
        print(json.dumps({"settings": found.settings._asdict(), "pids": found.alive()}, indent=2))
        return 0 if all(found.alive().values()) else 1
    elif asked.verb in ON_THE_SERVER:
        getattr(found, asked.verb.replace("-", "_"))()
    elif asked.verb in ON_A_NODE:
        found.fault(asked.verb, node=asked.node)
    else:
        found.fault(asked.verb, pod=asked.pod if "/" in asked.pod else f"default/{asked.pod}")
    return 0


def _settings(asked: argparse.Namespace) -> Settings:
    return Settings(
        nodes=asked.nodes,
        cpus=asked.cpus,
        memory_mib=asked.memory,
        gpus=asked.gpus,
        block=free_block(),
        port=free_port() if asked.kubernetes else asked.port or free_port(),
        version=asked.kubernetes,
        face_port=asked.port or free_port(),
        has_operators=not asked.no_operators,
        mpi_version=asked.mpi,
        is_pretended=asked.pretend,
    )


def _parser() -> argparse.ArgumentParser:
    usual = Settings()
    parser = argparse.ArgumentParser(
        prog="kubernetes_cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
    up.add_argument("--port", type=int, help="port of the API server")
    up.add_argument(
        "--kubernetes",
        default=usual.version,
        metavar="1.34",
        help="report that version and support its Jobs (default: 1.20)",
    )
    up.add_argument("--no-operators", action="store_true", help="without TFJob, PyTorchJob, MPIJob, …")
    up.add_argument("--mpi", choices=("v1", "v2beta1"), default=usual.mpi_version, help="version of MPIJob to serve")
    up.add_argument("--pretend", action="store_true", help="pods only report that they ran: allows hundreds")
    verbs.add_parser("down", parents=[common], help="stop the cluster and remove everything")
    verbs.add_parser("status", parents=[common], help="list the processes; exit code 1 if one is dead")
    for verb in ON_A_NODE:
        verbs.add_parser(verb, parents=[common]).add_argument("node")
    for verb in ON_A_POD:
        verbs.add_parser(verb, parents=[common]).add_argument("pod", help="name, or namespace/name")
    for verb in ON_THE_SERVER:
        verbs.add_parser(verb, parents=[common])
    return parser


if __name__ == "__main__":
    sys.exit(main())
