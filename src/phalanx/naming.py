"""Names of replicas and of final statuses, used by all packages. Standard library only, Python 3.8+."""

from __future__ import annotations

LAUNCHER = "launcher"  # role of the replica that starts the ranks, if there is one
FINAL_STATUSES = ("succeeded", "failed", "upstream_failed", "stopped", "skipped")  # of a run
SERVING = ("ps", "server")  # roles that only serve, unless the framework says otherwise: a run finishes without them


def is_launcher(name: str) -> bool:
    return name.startswith(f"{LAUNCHER}-")


def member_name(role: str, index: int, local: int = 0) -> str:
    """`worker-1`; further processes of that replica are `worker-1.1`, `worker-1.2`, …"""
    return f"{role}-{index}.{local}" if local else f"{role}-{index}"
