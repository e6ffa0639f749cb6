"""Names of replicas, final statuses and labels, and what no name may contain, used by all packages. Standard library
only, Python 3.8+."""

from __future__ import annotations

import re

LAUNCHER = "launcher"  # role of the replica that starts the ranks, if there is one
QUEUED_STATUSES = ("created", "resuming", "warning")  # of a run that waits for its turn
FINAL_STATUSES = ("succeeded", "failed", "upstream_failed", "stopped", "skipped")  # of a run
PARENT = "phalanx.parent"  # the label of a run that was started by another run: its id
SERVING = ("ps", "server")  # roles that only serve, unless the framework says otherwise: a run finishes without them


# Control characters, line and paragraph separators, lone surrogates: a name with one of them could forge lines of a
# list or a log, and control a terminal. Other invisible characters are part of some scripts: they are escaped where
# names are displayed.
_CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"  # compiled on first use


def has_control_characters(name: str) -> bool:
    """Whether a text cannot be the name of a project, run, user, tag or the like."""
    return re.search(_CONTROL, name) is not None


def without_control_characters(name: str) -> str:
    """The nearest name without control characters."""
    return re.sub(_CONTROL, "_", name)


def is_launcher(name: str) -> bool:
    return name.startswith(f"{LAUNCHER}-")


def member_name(role: str, index: int, local: int = 0) -> str:
    """`worker-1`; further processes of that replica are `worker-1.1`, `worker-1.2`, …"""
    return f"{role}-{index}.{local}" if local else f"{role}-{index}"
