"""`JobEnvironment`: the place of a function in its job, from the variables of Phalanx."""

from __future__ import annotations

import json
import os
import socket
from functools import cached_property

from phalanx.stored_plan import PlanDamaged, read_plan


class JobEnvironment:
    """Raises RuntimeError outside of a run."""

    def __init__(self) -> None:
        if "PHALANX_RUN_ID" not in os.environ:
            raise RuntimeError("JobEnvironment is for code that runs in a job: PHALANX_RUN_ID is not set")
        self.cluster = "slurm" if "SLURM_JOB_ID" in os.environ else "local"

    @property
    def job_id(self) -> str:
        return os.environ["PHALANX_RUN_ID"]

    raw_job_id = job_id

    @property
    def array_job_id(self) -> str | None:
        return os.environ.get("PHALANX_GROUP_ID")

    @property
    def array_task_id(self) -> str | None:
        return os.environ.get("PHALANX_TRIAL")

    @property
    def hostname(self) -> str:
        return socket.gethostname()

    @property
    def hostnames(self) -> list[str]:
        """The hosts of the job, each once, in the order of ranks."""
        return list(dict.fromkeys(self._host_of_rank))

    @property
    def num_tasks(self) -> int:
        return int(os.environ.get("PHALANX_WORLD_SIZE") or 1)

    @property
    def num_nodes(self) -> int:
        return len(self.hostnames)

    @property
    def node(self) -> int:
        return self.hostnames.index(self._host_of_rank[self.global_rank])

    @property
    def global_rank(self) -> int:
        return int(os.environ.get("PHALANX_RANK") or 0)

    @property
    def local_rank(self) -> int:
        """The number of ranks before this one on the same host."""
        return self._host_of_rank[: self.global_rank].count(self._host_of_rank[self.global_rank])

    @cached_property
    def _host_of_rank(self) -> list[str]:
        """By the addresses of the replicas; each process of a replica is on its host."""
        cluster = json.loads(os.environ.get("PHALANX_CLUSTER") or "{}")
        hosts = [address.rpartition(":")[0] for addresses in cluster.values() for address in addresses]
        try:
            planned = read_plan(os.path.dirname(os.environ["PHALANX_OUTPUTS"])).with_command
            roles = {role: [one.rpartition(":")[0] for one in addresses] for role, addresses in cluster.items()}
            hosts = [roles[one.role][one.number] for one in sorted(planned, key=lambda one: one.rank)]
        except (OSError, PlanDamaged, KeyError, IndexError):
            hosts = hosts if len(hosts) == self.num_tasks else []
        return hosts if len(hosts) > self.global_rank else [self.hostname] * self.num_tasks

    def __repr__(self) -> str:
        return (
            f"JobEnvironment(job_id={self.job_id}, hostname={self.hostname}, "
            f"local_rank={self.local_rank}({self.num_tasks // self.num_nodes}), "
            f"node={self.node}({self.num_nodes}), global_rank={self.global_rank}({self.num_tasks}))"
        )
