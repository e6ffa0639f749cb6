"""Calls of kubectl: for connections to a running pod, which need the streaming protocols of a cluster."""

from __future__ import annotations

import shutil

from phalanx.backends.kubernetes.cluster.api import PODS, connect
from phalanx.backends.kubernetes.observe.attempt_objects import AttemptObjects, Object, has_run, main_state, replicas_of
from phalanx.backends.kubernetes.target import ATTEMPT, RUN, Settings
from phalanx.errors import CallError
from phalanx.home.attempts import AttemptFolder
from phalanx.stored_plan import read_plan

INSTALL = "https://kubernetes.io/docs/tasks/tools/"


def kubectl(settings: Settings) -> list[str]:
    """The start of a call: the program, and the options that select the cluster. Raises CallError."""
    if shutil.which("kubectl") is None:
        raise CallError(f"`kubectl` is not on the PATH, and a connection to a pod needs it: see {INSTALL}")
    named = {"kubeconfig": settings.kubeconfig, "context": settings.context, "namespace": settings.namespace}
    return ["kubectl", *(f"--{option}={value}" for option, value in named.items() if value)]


def pod_of(settings: Settings, attempt_folder: AttemptFolder, replica: str) -> Object:
    """The running pod of a replica. Raises CallError, SystemFault."""
    run_id, attempt = attempt_folder.run_id, attempt_folder.attempt
    api = connect(settings, ask=False)
    try:
        found = api.list(PODS, selector=f"{RUN}={run_id},{ATTEMPT}={attempt}").items
    finally:
        api.close()
    first = read_plan(attempt_folder.run_folder).by_name[replica].first_process
    pod = replicas_of(AttemptObjects(run_id, attempt, pods=found)).get(first)
    if pod is None or not has_run(pod):
        raise CallError(f"{replica} of run {run_id} has no pod, or its container has not started yet")
    if main_state(pod).get("running") is None:
        raise CallError(f"{replica} of run {run_id} cannot be entered: its container has ended")
    return pod
