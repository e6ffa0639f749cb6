"""Run kinds with replica types as a framework and its replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from phalanx.spec.polyaxon_v1.command_lines import CommandLine, by_role
from phalanx.spec.polyaxon_v1.containers import ReplicaType
from phalanx.spec.polyaxon_v1.sections import REPLICA, ROLES, known_keys
from phalanx.spec.rewrites import Map
from phalanx.spec.tree import Diagnostics, Node

ReadReplica = Callable[[Map, Node], ReplicaType]
FRAMEWORKS = {
    "tfjob": "tensorflow",
    "pytorchjob": "pytorch",
    "mpijob": "mpi",
    "mxjob": "mxnet",
    "xgbjob": "xgboost",
}
_MASTERS = {"tfjob": "chief", "pytorchjob": "master", "mpijob": "launcher", "mxjob": "scheduler", "xgbjob": "master"}
_SERVERS = {"tfjob": "ps", "mxjob": "server"}
_ROLES_OF_SERVERS = {"tfjob": "ps", "mxjob": "server"}  # in PHALANX_ROLE


class Gang(NamedTuple):
    """A run in the modern form: `settings` are those of the master, and of `environment`."""

    command: CommandLine | None
    place: Node | None
    image: Node | None
    settings: Map
    kubernetes: Map
    framework: str | None = None
    replicas: Map = {}  # noqa: RUF012 - a default that nothing changes


def gang_of(kind: str, run: Map, read: ReadReplica, findings: Diagnostics) -> Gang | None:
    """The replicas of a run section; None after adding the reason to the findings."""
    origin = next(iter(run.values()), None)
    if kind == "job" or kind not in FRAMEWORKS:
        if origin is None:
            return Gang(None, None, None, {}, {}) if kind == "job" else None
        own = read(run, origin)
        return Gang(own.command, own.place, own.image, own.settings, own.kubernetes)
    found: dict[str, ReplicaType] = {}
    for role in ROLES[kind]:
        if role in run:
            found[role] = read(known_keys(run[role], REPLICA, role, findings), run[role])
    if not found:
        if origin is not None:
            findings.error(origin, f"a run of kind {kind} needs replicas: {', '.join(ROLES[kind])}")
        return None
    return _Gang(kind, run, found, findings).read()


class _Gang:
    """The replica types of one distributed run."""

    def __init__(self, kind: str, run: Map, found: dict[str, ReplicaType], findings: Diagnostics) -> None:
        self.kind, self.run, self.found, self.findings = kind, run, found, findings
        self.master = found.get(_MASTERS[kind])
        self.worker = found.get("worker")
        self.servers = found.get(_SERVERS.get(kind, ""))

    def read(self) -> Gang | None:
        for role in self.found:
            if role not in (_MASTERS[self.kind], "worker", _SERVERS.get(self.kind)):
                hint = f"there are {_MASTERS[self.kind]}, worker" + (", ps" if self.kind == "tfjob" else "")
                self.findings.error(self.run[role], f"replicas of type `{role}` have no counterpart", hint, at_key=True)
        if self.kind == "mpijob":
            return self._ranks()
        masters = self._count(self.master)
        if self.master is not None and masters > 1:
            where = self.master.number or self.run[_MASTERS[self.kind]]
            self.findings.error(where, f"a run has one {_MASTERS[self.kind]}", "make the others workers")
            return None
        return self._with_master()

    def _with_master(self) -> Gang:
        workers = self._count(self.worker)
        leader = self.master
        if leader is None:
            leader = self.worker or self.servers
            assert leader is not None
            if self.worker is not None:
                workers -= 1
                self.findings.note(self.run["worker"], "no chief or master: the first worker is the master")
        replicas = self._counts(workers)
        return self._gang(
            leader,
            replicas,
            [("master", leader), ("worker", self.worker), (_ROLES_OF_SERVERS.get(self.kind, ""), self.servers)],
        )

    def _counts(self, workers: int) -> Map:
        origin = next(iter(self.run.values()))
        replicas: Map = {"n_workers": origin.like(workers)}
        if workers and self.worker is not None and self.worker.settings:
            replicas["default_worker"] = self.run["worker"].like(dict(self.worker.settings))
        if self.servers is not None:
            where = self.run[_SERVERS[self.kind]]
            replicas["n_ps"] = where.like(self._count(self.servers))
            if self.servers.settings:
                replicas["default_ps"] = where.like(dict(self.servers.settings))
        processes = self.run.get("nProcPerNode")
        if processes is not None:
            replicas["processes"] = processes
        return replicas

    def _ranks(self) -> Gang:
        """MPI: the launcher's command is that of the run; it starts where the first worker is."""
        worker = self.worker or self.master
        assert worker is not None
        leader = self.master if self.master is not None and self.master.command is not None else worker
        origin = self.run.get("worker") or self.run["launcher"]
        if self.master is not None:
            message = "the launcher is no replica of its own: its command runs beside the first worker"
            self.findings.note(self.run["launcher"], message)
        replicas: Map = {"n_workers": origin.like(self._count(worker))}
        if worker.settings:
            replicas["default_worker"] = origin.like(dict(worker.settings))
        slots = self.run.get("slotsPerWorker")
        if slots is not None and slots.value != 1:
            self.findings.note(
                slots, "`slotsPerWorker` is not used: a worker is one rank, unless the command starts more"
            )
        return self._gang(leader._replace(settings={}), replicas, [("master", leader)])

    def _gang(self, leader: ReplicaType, replicas: Map, roles: list[tuple[str, ReplicaType | None]]) -> Gang:
        present = [(role, found) for role, found in roles if found is not None]
        lines = [(role, found.command) for role, found in present if found.command is not None]
        command = by_role([(role, line) for role, line in lines if line is not None]) if lines else None
        image = leader.image or next((found.image for found in self.found.values() if found.image is not None), None)
        for role, found in self.found.items():
            if image is not None and found.image is not None and found.image.value != image.value:
                message = f"the image of `{role}` is not used: a run has one image, `{str(image.value)[:60]}`"
                self.findings.note(found.image, message)
        kubernetes: Map = {}
        for found in self.found.values():
            kubernetes |= {key: value for key, value in found.kubernetes.items() if key not in kubernetes}
        settings = dict(leader.settings)
        self._policies(settings, kubernetes)
        return Gang(command, leader.place, image, settings, kubernetes, FRAMEWORKS[self.kind], replicas)

    def _policies(self, settings: Map, kubernetes: Map) -> None:
        elastic = self.run.get("elasticPolicy")
        for theirs, holder, ours in (
            ("minReplicas", kubernetes, "min_workers"),
            ("maxReplicas", kubernetes, "max_workers"),
            ("maxRestarts", settings, "max_restarts"),
        ):
            value = elastic.get(theirs) if elastic is not None else None
            if value is not None:
                holder[ours] = value
        scheduling = self.run.get("schedulingPolicy")
        for theirs, ours in (("queue", "queue"), ("priorityClass", "priority_class")):
            value = scheduling.get(theirs) if scheduling is not None else None
            if value is not None:
                kubernetes[ours] = value
        for key in ("cleanPodPolicy", "successPolicy", "enableDynamicWorker", "implementation", "mode"):
            if key in self.run:
                self.findings.note(self.run[key], f"`{key}` is not used")

    def _count(self, replica: ReplicaType | None) -> int:
        if replica is None:
            return 0
        count = replica.number
        if count is None:
            return 1
        if isinstance(count.value, int) and not isinstance(count.value, bool) and 0 <= count.value <= 100_000:
            return count.value
        self.findings.error(count, "`replicas` must be a whole number", "write `replicas: 2`")
        return 1
