"""MPIJobs: one pod has the command that starts all ranks; the others let it in.

mpi-operator (v2beta1) reaches the pods over ssh, with a key of the job's own; training-operator (v1) through the API
server. In v2beta1 the launcher is a rank's pod as well: the first replica, so that what rank 0 records is where the
agent is. In v1 it is a pod beside those of all replicas.

The ssh server needs no rights: it has a key of its own, a port above 1024 and no PAM. But ssh wants a user who has a
name, so the image needs one of that number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from phalanx.backends.kubernetes import operators, pods
from phalanx.backends.kubernetes.operators import MPIJOB, MPIJOB_V1, Operated, Order
from phalanx.backends.kubernetes.place import MEMBERS
from phalanx.errors import CallError
from phalanx.naming import LAUNCHER
from phalanx.placeholders import Value
from phalanx.plan.model import Plan, Replica

SSH_PORT, SSH_AT = 2222, "/phalanx/ssh"
SSH = (
    f"-p {SSH_PORT} -i {SSH_AT}/id_rsa -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
    "-o ConnectionAttempts=30"
)
MOST_HOSTS = 100 << 10  # characters in one argument; beyond it the operator's host file serves
_WIRINGS = ("mpi", "horovod")
_RSH = "OMPI_MCA_plm_rsh_args"
_AS_ROOT: Mapping[str, Value] = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_OVER_GLOO = (
    "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_GLOO_IFACE", "HOROVOD_SIZE", "HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME",
)  # fmt: skip
_OF_THE_AGENT = (
    "PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "PHALANX_ATTEMPT", "PHALANX_LAUNCH", "PHALANX_TRACK"
)  # fmt: skip
_SSHD_AS_ROOT = ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_CHROOT")
_SSHD = """\
sshd=$(command -v sshd || echo /usr/sbin/sshd)
if ! [ -x "$sshd" ] || ! command -v ssh-keygen >/dev/null; then
  echo "phalanx: MPI comes to this pod over ssh, and its image has no sshd: use one with openssh-server" >&2
  exit 78
fi
if ! id -un >/dev/null 2>&1; then
  echo "phalanx: ssh wants a user with a name, and the image has none of the number $(id -u): add one to it, or set" >&2
  echo "phalanx: runAsUser in environment.kubernetes.pod to one that it has" >&2
  exit 78
fi
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
keys=$(mktemp -d) && ssh-keygen -q -t ed25519 -N "" -f "$keys/host" || exit 78
exec "$sshd" -D -e -f /dev/null -p "$1" -h "$keys/host" -o PidFile=none -o UsePAM=no -o StrictModes=no \\
  -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o PermitRootLogin=prohibit-password \\
  -o "AuthorizedKeysFile=$2/authorized_keys" -o LogLevel=ERROR -o MaxStartups=1000 -o MaxSessions=1000 \\
  -o "SetEnv=PATH=$PATH LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
"""
_STAY = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


def is_mpi(made: Plan) -> bool:
    """Whether ranks would be started by MPI, if there were more than one."""
    return made.wiring in _WIRINGS


def adapted(made: Plan, known: Operated) -> Plan:
    """The plan as an operator runs it: the first replica has the command that starts all ranks, and the others are
    hosts. A plan that is so already stays as it is. Raises CallError."""
    ranks = tuple(replica for replica in made.replicas if replica.role != LAUNCHER)
    first, *others = ranks
    if made.launch == "each" and made.wiring == "mpi":
        raise CallError(
            "`launcher: direct` has every rank start by itself, and an MPIJob starts them by mpirun: "
            "leave `environment.replicas.launcher` out; or `backend: native` runs it"
        )
    over_ssh = known == MPIJOB
    shared = {name: value for name, value in made.shared.items() if name not in _OVER_GLOO}
    if over_ssh:
        shared[_RSH] = SSH
    defaults = {name: value for name, value in first.defaults.items() if name not in _OVER_GLOO}
    plan = replace(
        made,
        launch="own",
        launcher=(),
        meets=(),
        service=None,
        shared=shared,
        replicas=tuple(_without_gloo(replica) for replica in ranks),
    )
    first, *others = plan.replicas
    if made.launch != "own":
        first = replace(first, argv=(*_mpirun(plan, known), *ranks[0].argv), defaults={**_AS_ROOT, **defaults})
    return replace(plan, replicas=(first, *(replace(other, argv=()) for other in others)))


def _without_gloo(replica: Replica) -> Replica:
    return replace(
        replica,
        environment={name: value for name, value in replica.environment.items() if name not in _OVER_GLOO},
        defaults={name: value for name, value in replica.defaults.items() if name not in _OVER_GLOO},
    )


def _mpirun(made: Plan, known: Operated) -> Iterator[Value]:
    """Open MPI's. Pods of one node would all take its first cores: ranks are not bound. Values of variables are passed
    on by their names, so none stands here."""
    yield from ("mpirun", "-np", str(len(made.replicas)), "--bind-to", "none")
    if known in (MPIJOB, MPIJOB_V1):
        hosts = ",".join(_hosts(made, known))
        if len(hosts) <= MOST_HOSTS:
            yield from ("--host", hosts)
    if known == MPIJOB:
        yield from ("--mca", "plm_rsh_args", SSH)
    first = made.replicas[0]
    wanted = {*made.shared, *first.environment, *first.defaults, *_OF_THE_AGENT}
    for name in sorted(name for name in wanted if not name.startswith("OMPI_")):  # those it passes on by itself
        yield from ("-x", name)


def _hosts(made: Plan, known: Operated) -> Iterator[str]:
    """The launcher by its bare name, which its pod knows before any service does."""
    base, slots = operators.job_name(made), operators.processes(made)
    count = sum(not replica.local for replica in made.replicas)
    if known == MPIJOB_V1:
        yield from (f"{base}-worker-{number}:{slots}" for number in range(count))
        return
    yield f"{base}-launcher:{slots}"
    yield from (f"{base}-worker-{number}.{base}:{slots}" for number in range(count - 1))


def fields(order: Order) -> dict[str, Any]:
    """What only jobs of this kind have."""
    slots = {"slotsPerWorker": operators.processes(order.made)}
    if order.known == MPIJOB_V1:
        return {**slots, "mainContainer": order.known.container}
    has_workers = sum(not replica.local for replica in order.made.replicas) > 1
    return {
        **slots,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": SSH_AT,
        "runLauncherAsWorker": True,
        "launcherCreationPolicy": "WaitForWorkersReady" if has_workers else "AtStartup",
    }


def templates(order: Order) -> dict[str, tuple[int, dict[str, Any]]]:
    """Launcher and Worker, each with its number of pods and their template."""
    known = order.known
    replicas = [replica for replica in order.made.replicas if not replica.local]
    operators.alike(known, "Worker", replicas)
    launcher = operators.template(order, replicas[:1], is_counted=False)
    hosts = replicas if known == MPIJOB_V1 else replicas[1:]
    found = {"Launcher": (1, launcher)}
    if hosts:
        found["Worker"] = (len(hosts), _host(order, hosts))
    if hosts and known == MPIJOB:
        _count_from_launcher(found["Worker"][1], replicas)
    if known == MPIJOB_V1:  # it asks the API server to start the ranks, with an account that the operator makes
        launcher["spec"]["automountServiceAccountToken"] = True
        _take_nothing(operators.main_of(launcher, known))
        _be_hosts(found["Worker"][1], len(hosts), known)
    return found


def _host(order: Order, hosts: list[Replica]) -> dict[str, Any]:
    template: dict[str, Any] = operators.template(order, hosts, is_launched=True)
    main = operators.main_of(template, order.known)
    if order.known == MPIJOB_V1:
        main["command"] = ["/bin/sh", "-c", pods.unexpanded(_STAY)]
        return template
    main["command"] = ["/bin/sh", "-c", pods.unexpanded(_SSHD), "sshd", str(SSH_PORT), SSH_AT]
    main["ports"] = [*main.get("ports", ()), {"name": "ssh", "containerPort": SSH_PORT}]
    main["readinessProbe"] = {"tcpSocket": {"port": SSH_PORT}, "periodSeconds": 2}  # then its name can be found
    asked = {**template["spec"].get("securityContext", {}), **main.get("securityContext", {})}
    if asked.get("runAsUser") == 0:
        capabilities = main.setdefault("securityContext", {}).setdefault("capabilities", {})
        capabilities["add"] = sorted({*capabilities.get("add", ()), *_SSHD_AS_ROOT})
    return template


def _count_from_launcher(template: dict[str, Any], replicas: list[Replica]) -> None:
    """Where the launcher is a worker, too, mpi-operator gives the number 0 to it, and numbers the others from 1 on."""
    listed = ",".join(replica.name for replica in replicas)
    if MEMBERS in template["metadata"].get("annotations", {}):
        template["metadata"]["annotations"][MEMBERS] = listed
    for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
        for variable in container.get("env", ()):
            if variable["name"] == "PHALANX_MEMBERS":
                variable["value"] = listed


def _take_nothing(main: dict[str, Any]) -> None:
    """Of a launcher that computes nothing: the devices are for the ranks."""
    for amounts in main.get("resources", {}).values():
        for name in [name for name in amounts if "/" in name]:
            del amounts[name]


def _be_hosts(template: dict[str, Any], count: int, known: Operated) -> None:
    """Pods beside the launcher, which speaks for the first replica: what they say is not that replica's."""
    listed = ",".join(f"host-{number}" for number in range(count))
    template["metadata"]["annotations"][MEMBERS] = listed
    for variable in operators.main_of(template, known)["env"]:
        if variable["name"] == "PHALANX_MEMBERS":
            variable["value"] = listed
