"""Prepares the replica of a pod, usually in an init container: unpacks the code and runs the file's steps.

A failure here is the end of the replica. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from phalanx import run_paths
from phalanx.agent import processes
from phalanx.agent.pod_entry import (
    ENDING,
    MISUSED,
    STOPPED,
    Pod,
    arrived,
    forget,
    hide_environment,
    permission_hint,
    report_end,
)
from phalanx.agent.server_courier import fetch
from phalanx.agent.supervisor import WATCHED
from phalanx.agent.virtualenv import VirtualenvError, install, make_venv_above, unpack_code
from phalanx.uploads import Uploader, UploadRefused, UploadUnavailable

FETCH_S = 300.0


def prepare() -> int:
    """Run the init container. Returns its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    hide_environment()
    pod = arrived()
    return MISUSED if pod is None else prepare_replica(pod)


def prepare_replica(pod: Pod) -> int:
    """Unpack the code and run the steps of the file. A failure is the end of the replica. Returns an exit code.

    The caller has blocked the signals in `WATCHED`, so that none arrives before the handlers are set; they are
    blocked again when this returns.
    """
    processes.adopt_orphans()
    for number in ENDING:
        signal.signal(number, _leave_at_once)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    try:
        _bring_code(pod)
        _make_python(pod, lambda text: print(text, flush=True))
    except VirtualenvError as fault:
        report_end(pod, f"{fault}{_advice(fault)}", fault.lines)
        return MISUSED
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
    return 0


def _leave_at_once(*_: object) -> None:
    """Kill all descendants by the kernel's list: a child is on that list at every moment."""
    processes.kill_descendants()
    os._exit(STOPPED)


def _bring_code(pod: Pod) -> None:
    """Raises VirtualenvError."""
    code = pod.place.get("code") or {}
    if code.get("kind") not in ("bundle", "server"):
        return
    pieces = _bundle(os.path.join(pod.root, "bundle", "code.tar.gz"))
    target = str(code.get("path") or os.path.join(pod.root, run_paths.CODE))
    if len(pieces) == 1:
        unpack_code(pieces[0], target)
        return
    if not pieces and not (pod.server and pod.token):
        raise VirtualenvError("the run's code is missing, and there is no server to fetch it from", [])
    fetched = os.path.join(target, ".phalanx-code.tar.gz")
    try:
        os.makedirs(target, exist_ok=True)
        if pieces:
            _join(pieces, fetched)
        else:
            fetch(Uploader(pod.server, pod.token), pod.plan.run_id, pod.attempt, fetched, FETCH_S)
        unpack_code(fetched, target)
    except (UploadRefused, UploadUnavailable, OSError) as fault:
        raise VirtualenvError(f"the code could not be fetched: {fault}", []) from None
    finally:
        if os.path.exists(fetched):
            os.unlink(fetched)


def _bundle(first: str) -> list[str]:
    """The pieces of the packed code: `code.tar.gz`, `code.tar.gz.1`, …; none if it is not in objects of the run."""
    pieces = [first] if os.path.exists(first) else []
    while pieces and os.path.exists(f"{first}.{len(pieces)}"):
        pieces.append(f"{first}.{len(pieces)}")
    return pieces


def _join(pieces: list[str], path: str) -> None:
    with open(path, "wb") as joined:
        for piece in pieces:
            with open(piece, "rb") as stream:
                joined.write(stream.read())


def _make_python(pod: Pod, say: Callable[[str], None]) -> None:
    """Raises VirtualenvError."""
    os.environ.setdefault("PIP_NO_CACHE_DIR", "1")  # nothing is installed twice here
    requirements = tuple(pod.plan.python.get("requirements") or ())
    asked = {"steps": pod.place.get("steps") or (), "requirements": requirements}
    if not asked["steps"] and not asked["requirements"]:
        return
    forget(pod.build)
    try:
        os.makedirs(pod.build, mode=0o700)
    except OSError as fault:
        raise VirtualenvError(
            f"{pod.build} cannot be created: {fault.strerror or fault}{permission_hint(fault)}", []
        ) from None
    working = pod.working if os.path.isdir(pod.working) else os.getcwd()
    install(asked, os.path.join(pod.build, "venv"), working, say, make_venv_above)
    with open(os.path.join(pod.build, "done"), "wb"):
        pass


def _advice(fault: Exception) -> str:
    """Advice for steps that cannot work in a pod."""
    if any(word in str(fault).split() for word in ("`apt-get", "`apt", "`yum", "`dnf", "`apk", "`sudo")):
        return (
            ": pods do not run as root, so nothing can be installed into their system. Use an image that has it "
            "(`build: {image: …}`), or set `registry` in kubernetes.yml to have one built"
        )
    return ""
