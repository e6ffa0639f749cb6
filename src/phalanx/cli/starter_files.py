"""The starter files of `phalanx init`: one template, with additions for each framework."""

from __future__ import annotations

from typing import NamedTuple

SINGLE = "single"


class Starter(NamedTuple):
    """The parts of a starter file that differ by framework."""

    summary: str
    command: str = "python train.py --lr={{ lr }} --epochs={{ epochs }}"
    replicas: str = ""
    hint: str = ""


_PS = """\
    n_ps: 1 # {ps}
    default_ps:
      resources:
        cpu: {{requests: 1, limits: 1}}
        memory: {{requests: 512, limits: 1024}}
"""
STARTERS = {
    SINGLE: Starter("One process, with any framework."),
    "pytorch": Starter(
        "PyTorch: one master and two workers that call init_process_group('env://').",
        hint="MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK are set, as torchrun sets them.",
    ),
    "tensorflow": Starter(
        "TensorFlow: a chief, two workers and a parameter server, wired by TF_CONFIG.",
        replicas="    master_task: chief # how TF_CONFIG names the master: chief for TensorFlow 2, master for 1.x\n"
        + _PS.format(ps="parameter servers, for tf.distribute.ParameterServerStrategy"),
        hint="TF_CONFIG is set on every replica.",
    ),
    "mxnet": Starter(
        "MXNet: a scheduler, two workers and a server, for kvstore='dist_sync'.",
        command="python train.py --lr={{ lr }} --epochs={{ epochs }} --kv-store=dist_sync",
        replicas=_PS.format(ps="servers of the key-value store; the master is their scheduler"),
        hint="The DMLC_* variables are set; scheduler and servers run the same command.",
    ),
    "horovod": Starter(
        "Horovod: one master and two workers that communicate over Gloo.",
        replicas="    # launcher: mpirun # start the ranks with mpirun instead\n",
        hint="HOROVOD_RANK and HOROVOD_SIZE are set; no sshd and no horovodrun are needed.",
    ),
    "mpi": Starter(
        "MPI: ranks without a master, started with mpirun.",
        hint="Write the program only: Phalanx adds mpirun.",
    ),
    "jax": Starter(
        "JAX: one master and two workers for jax.distributed.",
        hint="Call jax.distributed.initialize() without arguments: it finds the coordinator and its process id.",
    ),
    "deepspeed": Starter(
        "DeepSpeed: one master and two workers that call deepspeed.init_distributed().",
        hint="The same variables as for PyTorch are set; no hostfile and no ssh are needed.",
    ),
    "xgboost": Starter(
        "XGBoost: one master, whose code starts the tracker, and two workers.",
        hint="DMLC_TRACKER_URI, DMLC_TRACKER_PORT, RANK and WORLD_SIZE are set.",
    ),
    "plain": Starter("Replicas that find each other through PHALANX_RANK, PHALANX_WORLD_SIZE and PHALANX_CLUSTER."),
}

_HEAD = """\
# {summary}
# Validate it with `phalanx check`; see what would run with `phalanx plan`.
version: 1
kind: experiment
# name: my-experiment
# tags: [baseline]
{framework}
params: # values for the templates below; `-P lr=0.1` overrides one for a single run
  lr: 0.01
  epochs: 3

environment:
  resources:{of_master}
    cpu: {{requests: 1, limits: 2}}
    memory: {{requests: 1024, limits: 2048}} # MiB; "2Gi" also works
    # gpu: {{requests: 1, limits: 1}}
"""
_REPLICAS = """\
  replicas:
    n_workers: 2
    default_worker:
      resources:
        cpu: {requests: 1, limits: 2}
        memory: {requests: 1024, limits: 2048}
    # worker: # settings for single workers; they replace default_worker as a whole
    #   - index: 0
    #     resources: {gpu: {requests: 1, limits: 1}}
"""


def starter_text(framework: str) -> str:
    """A complete polyaxonfile for a framework, with comments."""
    starter = STARTERS[framework]
    distributed = framework != SINGLE
    text = _HEAD.format(
        summary=starter.summary,
        framework=f"\nframework: {framework}\n" if distributed else "",
        of_master=" # of the master" if distributed and framework != "mpi" else "",
    )
    if framework == "mpi":  # without a master, there are no top-level resources
        text = text[: text.index("  resources:")]
    if distributed:
        text += _REPLICAS + starter.replicas
    hint = f"# {starter.hint}\n" if starter.hint else ""
    return f"{text}\n{hint}run:\n  cmd: {starter.command}\n"
