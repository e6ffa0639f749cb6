"""Before the replica of a pod starts, in a container of its own: the code in its place, and the steps of the file run.
What fails there is the end of the replica. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from phalanx.agent import processes
from phalanx.agent.delivering import fetch
from phalanx.agent.podded import MISUSED, STOPPED, Pod, arrived, forget, keep_to_ourselves, say_end, whose
from phalanx.agent.preparing import NotPrepared, install, make_venv_above, unpack_code
from phalanx.posting import Post, Refused, Unavailable

FETCH_S = 300.0


def prepare() -> int:
    """The code in its place, and the steps of the file run. What fails is the end of the replica."""
    signal.signal(signal.SIGTERM, _leave_at_once)  # the first process of a container heeds no other
    keep_to_ourselves()
    pod = arrived()
    if pod is None:
        return MISUSED
    try:
        _bring_code(pod)
        _make_python(pod, lambda text: print(text, flush=True))
    except NotPrepared as fault:
        say_end(pod, f"{fault}{_advice(fault)}", fault.lines)
        return MISUSED
    return 0


def _leave_at_once(*_: object) -> None:
    processes.send((stat.pid for stat in processes.descendants(os.getpid())), signal.SIGKILL)
    os._exit(STOPPED)


def _bring_code(pod: Pod) -> None:
    """Raises NotPrepared."""
    code = pod.place.get("code") or {}
    if code.get("kind") not in ("bundle", "server"):
        return
    bundle = os.path.join(pod.root, "bundle", "code.tar.gz")
    target = str(code.get("path") or os.path.join(pod.root, "code"))
    if os.path.exists(bundle):
        unpack_code(bundle, target)
        return
    if not (pod.server and pod.token):
        raise NotPrepared("the run's code did not come along, and there is no server to fetch it from", [])
    fetched = os.path.join(target, ".phalanx-code.tar.gz")
    try:
        os.makedirs(target, exist_ok=True)
        fetch(Post(pod.server, pod.token), str(pod.plan["run_id"]), pod.attempt, fetched, FETCH_S)
        unpack_code(fetched, target)
    except (Refused, Unavailable, OSError) as fault:
        raise NotPrepared(f"the code could not be fetched: {fault}", []) from None
    finally:
        if os.path.exists(fetched):
            os.unlink(fetched)


def _make_python(pod: Pod, say: Callable[[str], None]) -> None:
    """Raises NotPrepared."""
    os.environ.setdefault("PIP_NO_CACHE_DIR", "1")  # nobody installs it a second time here
    asked = {"steps": pod.place.get("steps") or (), "requirements": _requirements(pod)}
    if not asked["steps"] and not asked["requirements"]:
        return
    forget(pod.build)
    try:
        os.makedirs(pod.build, mode=0o700)
    except OSError as fault:
        raise NotPrepared(f"{pod.build} cannot be made: {fault.strerror or fault}{whose(fault)}", []) from None
    working = pod.working if os.path.isdir(pod.working) else os.getcwd()
    install(asked, os.path.join(pod.build, "venv"), working, say, make_venv_above)
    with open(os.path.join(pod.build, "done"), "wb"):
        pass


def _requirements(pod: Pod) -> tuple[str, ...]:
    return tuple((pod.plan.get("python") or {}).get("requirements") or ())


def _advice(fault: Exception) -> str:
    """For what cannot work in a pod."""
    if any(word in str(fault).split() for word in ("`apt-get", "`apt", "`yum", "`dnf", "`apk", "`sudo")):
        return (
            ": pods are not root, so nothing is installed into their system. Name an image that has it "
            "(`build: {image: …}`), or set `registry` in kubernetes.yml so that one is built"
        )
    return ""
