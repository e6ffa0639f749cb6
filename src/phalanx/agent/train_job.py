"""The agent of a TrainJob's pod, where one container does everything and may be started more than once.

A TrainJob can add no init container, so this one prepares the replica before it runs it. Nor can a TrainJob say that
containers are not restarted: in most runtimes the kubelet restarts each one that fails. So the first container leaves a
marker in the memory that the containers of the pod share. One that finds it runs nothing. It reports the end again,
if there is one, because a restart hides what the first container wrote; then it waits for the scheduler to remove
the pod. It does not exit at once: a Job whose pods have restarted six times removes all of them, also those whose ends
have not been read yet.

Signals are blocked from the first line on. While the replica is prepared, a handler takes them; otherwise they wait
until they are polled. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import signal
import sys

from phalanx import run_paths
from phalanx.agent import init_container, pod_entry
from phalanx.agent.pod_entry import ENDING, MISUSED, ROOT, ROOT_VARIABLE, STOPPED, Pod
from phalanx.agent.supervisor import WATCHED

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a volume of the pod
MARKER = ".phalanx-begun"
HELD_S = 600.0  # for the scheduler to see the end and remove the pod; start.sh has the same


def run(*, is_prepared: bool) -> int:
    """Returns the exit code of the container. `is_prepared`: nothing needs to be done before the replica starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    pod_entry.hide_environment()
    is_restarted = not _leave_marker(_shared_memory())
    pod = pod_entry.arrived()
    if is_restarted:
        return _report_again(pod)
    if pod is None:
        return MISUSED
    code = 0 if is_prepared else init_container.prepare_replica(pod)
    return code or pod_entry.run_replica(pod).code


def _shared_memory() -> str:
    root = os.environ.get(ROOT_VARIABLE) or ROOT
    return SHARED_MEMORY if root == ROOT else os.path.join(root, "shm")


def _leave_marker(folder: str) -> bool:
    """Whether this is the first container of its pod, as far as can be detected."""
    try:
        os.close(os.open(os.path.join(folder, MARKER), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError:
        pass  # no such folder, or no room in it: no reason not to run
    return True


def _report_again(pod: Pod | None) -> int:
    if pod is not None and os.path.exists(os.path.join(pod.folder(pod.member), run_paths.END)):
        # The agent of a known pod starts over after a restart; any other keeps the end that it finds.
        unnamed = {name: text for name, text in pod.environment.items() if name != "PHALANX_POD"}
        if pod_entry.run_replica(pod._replace(environment=unnamed)).is_end_requested:
            return STOPPED
    else:
        print("phalanx: what ran in this pod has ended, and is not started again", file=sys.stderr, flush=True)
    return 1 if signal.sigtimedwait(ENDING, HELD_S) is None else STOPPED
