"""What a test cluster is, and the files that tell Slurm so. Data in, text out."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NamedTuple

CLUSTER = "test"
GPU_TYPE = "fake"
ACCOUNT = "research"
LIMITED_QOS = "limited"
URGENT_QOS = "urgent"  # whoever has it may take the place of jobs with an ordinary one
PARTITIONS = {"main": "UNLIMITED", "short": "30:00"}
MOST_NODES = 200
CONTROLLER_PORT, DATABASE_PORT, NODE_PORT = 17, 19, 100  # beyond the port of the cluster


class Settings(NamedTuple):
    """All that makes one cluster different from another."""

    nodes: int = 4
    cpus: int = 4
    memory_mib: int = 4000
    gpus: int = 2
    isolation: str = "node"  # `net`: each node also has a network address of its own, and a cable to pull
    has_database: bool = True
    has_cgroups: bool = False  # the kernel ends who takes too much memory
    port: int = 26800
    more: tuple[str, ...] = ()  # lines for slurm.conf

    @property
    def names(self) -> list[str]:
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    @property
    def network(self) -> str:
        """The first three numbers of the addresses of a cluster with cables."""
        return f"10.{100 + self.port // 1000 % 100}.{self.port // 100 % 10}"

    @property
    def bridge(self) -> str:
        return f"phx{self.port}"

    def cable(self, node: str) -> str:
        """The end of a node's cable at the bridge."""
        return f"phx{self.port}.{self.number(node)}"

    def number(self, node: str) -> int:
        return self.names.index(node) + 1

    def address(self, node: str) -> str:
        return f"{self.network if self.isolation == 'net' else '127.0.1'}.{self.number(node)}"

    def node_port(self, node: str) -> int:
        return self.port + NODE_PORT + (0 if self.isolation == "net" else self.number(node) - 1)

    @property
    def controller_address(self) -> str:
        return f"{self.network}.254" if self.isolation == "net" else "127.0.0.1"


# Keeps what Slurm would send: its arguments are `-s SUBJECT ADDRESS`.
MAIL = """#!/bin/sh
echo "$3: $2" >>{mails}
"""


def files(settings: Settings, state: Path) -> dict[str, str]:
    """The files of the folder `etc`, by name."""
    made = {
        "slurm.conf": "\n".join(_slurm(settings, state)) + "\n",
        "gres.conf": _gres(settings, state),
        "cgroup.conf": CGROUPS,
        "hosts": _hosts(settings),
        "node.sh": NODE,
        "prolog.sh": PROLOG.format(scratch=state / "scratch"),
        "task_prolog.sh": TASK_PROLOG.format(scratch=state / "scratch"),
        "epilog.sh": EPILOG.format(scratch=state / "scratch"),
        "mail.sh": MAIL.format(mails=state / "log" / "mails"),
    }
    if settings.has_database:
        made["slurmdbd.conf"] = _slurmdbd(settings, state)
    return made


def _slurm(settings: Settings, state: Path) -> list[str]:
    gpus = f" Gres=gpu:{GPU_TYPE}:{settings.gpus}" if settings.gpus else ""
    lines = [
        f"ClusterName={CLUSTER}",
        f"SlurmctldHost={socket.gethostname().partition('.')[0]}({settings.controller_address})",
        f"SlurmctldPort={settings.port + CONTROLLER_PORT}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        # a job that was requeued may start again only when the credential of its last start has expired: 120 s usually
        f"AuthInfo=socket={state}/run/munge.socket,cred_expire=10",
        f"StateSaveLocation={state}/controller",
        f"SlurmdSpoolDir={state}/spool",  # a folder of the node's own; PMIx does not understand `%n` in it
        f"SlurmctldPidFile={state}/run/slurmctld.pid",
        f"SlurmdPidFile={state}/run/%n.pid",
        f"SlurmctldLogFile={state}/log/slurmctld.log",
        f"SlurmdLogFile={state}/log/%n.log",
        f"MailProg={state}/etc/mail.sh",
        "MpiDefault=none",
        f"TmpFS={state}/scratch",  # PMIx of each node wants a folder of the same name, and /tmp they share
        "PropagateResourceLimits=NONE",
        # nodes have what they say, whatever this machine has
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        f"DefMemPerCPU={max(1, settings.memory_mib // settings.cpus)}",
        # tests do not want to wait: heterogeneous jobs are started by the backfill scheduler alone, every 30 s usually
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=1,bf_hetjob_immediate,sched_interval=5,batch_sched_delay=0",
        "SlurmdTimeout=10",
        "SlurmctldTimeout=10",
        "MessageTimeout=10",
        "TCPTimeout=2",
        "KillWait=3",
        "InactiveLimit=0",
        "MinJobAge=300",
        "ReturnToService=1",
        "JobRequeue=1",
        "EpilogMsgTime=0",
        f"Prolog={state}/etc/prolog.sh",
        f"TaskProlog={state}/etc/task_prolog.sh",
        f"Epilog={state}/etc/epilog.sh",
        "PrologFlags=Alloc",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=1",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={state}/log/ended.txt",
        *(_contained() if settings.has_cgroups else _watched()),
        *(_accounted(settings, state) if settings.has_database else ["AccountingStorageType=accounting_storage/none"]),
        *(["GresTypes=gpu"] if settings.gpus else []),
    ]
    for name in settings.names:
        rack = 1 if settings.number(name) <= (settings.nodes + 1) // 2 else 2
        lines.append(
            f"NodeName={name} NodeHostname={name} NodeAddr={settings.address(name)} Port={settings.node_port(name)} "
            f"CPUs={settings.cpus} RealMemory={settings.memory_mib}{gpus} Feature=rack{rack} State=UNKNOWN"
        )
    for name, longest in PARTITIONS.items():
        default = " Default=YES" if name == "main" else ""
        lines.append(f"PartitionName={name} Nodes={','.join(settings.names)} MaxTime={longest} State=UP{default}")
    return [*lines, *settings.more]


def _contained() -> list[str]:
    return ["ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup"]


def _watched() -> list[str]:
    """Slurm itself looks once a second whether someone takes too much memory."""
    return ["ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherParams=OverMemoryKill"]


def _accounted(settings: Settings, state: Path) -> list[str]:
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={settings.controller_address}",
        f"AccountingStoragePort={settings.port + DATABASE_PORT}",
        f"AccountingStoragePass={state}/run/munge.socket",  # AuthInfo is not for this connection
        "AccountingStorageEnforce=associations,limits,qos",
        "AccountingStoreFlags=job_comment",
        *(["AccountingStorageTRES=gres/gpu"] if settings.gpus else []),
        "PreemptType=preempt/qos",
        "PreemptMode=REQUEUE",
    ]


def _slurmdbd(settings: Settings, state: Path) -> str:
    return f"""AuthType=auth/munge
AuthInfo=socket={state}/run/munge.socket
DbdHost=localhost
DbdPort={settings.port + DATABASE_PORT}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
LogFile={state}/log/slurmdbd.log
PidFile={state}/run/slurmdbd.pid
"""


def _gres(settings: Settings, state: Path) -> str:
    return "".join(
        f"NodeName={name} Name=gpu Type={GPU_TYPE} File={state}/devices/gpu{index}\n"
        for name in settings.names
        for index in range(settings.gpus)
    )


def _hosts(settings: Settings) -> str:
    """Nodes know each other's names; the machine's own file stays as it is."""
    own = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else "127.0.0.1 localhost\n"
    rows = [f"{settings.address(name)} {name}" for name in settings.names]
    if settings.isolation == "net":
        rows.append(f"{settings.controller_address} login")
    return own.rstrip("\n") + "\n" + "\n".join(rows) + "\n"


CGROUPS = """CgroupPlugin=autodetect
IgnoreSystemd=yes
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
"""

# The first process of a node. Whoever ends it cuts the power: nobody in the node outlives it.
NODE = """#!/bin/bash
state=$1 name=$2 address=$3
hostname "$name"
mount --bind "$state/etc/hosts" /etc/hosts
for folder in spool scratch; do mount --bind "$state/local/$name/$folder" "$state/$folder"; done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
if [ -n "$address" ]; then
    ip link set lo up
    until ip address add "$address" dev eth0 2>/dev/null; do sleep 0.02; done
    ip link set eth0 up
fi
slurmd -D -N "$name" &
slurmd=$!
trap 'kill -TERM $slurmd' TERM
while kill -0 $slurmd 2>/dev/null; do wait -n; done   # and bury whoever lost their parent
"""

# A folder on the node's own disk for each job, as many sites have it.
PROLOG = """#!/bin/sh
folder={scratch}/${{SLURM_HET_JOB_ID:-$SLURM_JOB_ID}}
mkdir -p "$folder" && chown "$SLURM_JOB_UID" "$folder" && chmod 700 "$folder"
exit 0
"""
TASK_PROLOG = """#!/bin/sh
echo "export SLURM_TMPDIR={scratch}/${{SLURM_HET_JOB_ID:-$SLURM_JOB_ID}}"
"""
EPILOG = """#!/bin/sh
[ -n "$SLURM_JOB_ID" ] && rm -rf "{scratch}/${{SLURM_HET_JOB_ID:-$SLURM_JOB_ID}}"
exit 0
"""
