"""MPIJobs: one pod runs the command that starts all ranks; the others are its hosts.

mpi-operator (v2beta1) reaches the pods over ssh, with a key per job; training-operator (v1) through the API server. In
v2beta1 the launcher is also a rank's pod: the first replica, so the records of rank 0 are where the agent is. In v1 it
is an additional pod.

The ssh server needs no privileges: it has its own key, a port above 1024 and no PAM. But ssh needs a user with a name:
if the image has none for the user ID, the pod's list of users gets one.

The operator does not reliably start the launcher after the others are ready: while Kueue holds the job back it creates
the launcher's Job at once, and DNS names exist before their pods. So the launcher checks for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from phalanx.backends.kubernetes.operators import job_kinds
from phalanx.backends.kubernetes.operators.job_kinds import MPIJOB, MPIJOB_V1, OperatorJob, OperatorKind
from phalanx.backends.kubernetes.render import payload, pods, volumes
from phalanx.backends.kubernetes.target import MEMBERS
from phalanx.errors import CallError
from phalanx.naming import LAUNCHER
from phalanx.placeholders import Numbered, OwnNumbers, OwnValues, Value
from phalanx.plan.model import Plan, Replica, template_of

SSH_PORT, SSH_AT = 2222, "/phalanx/ssh"
OWN_KEY = "/tmp/phalanx-ssh/id_rsa"  # noqa: S108 - in a container that no other user shares
SSH = (
    f"-p {SSH_PORT} -o IdentityFile={OWN_KEY} -o IdentityFile={SSH_AT}/id_rsa -o StrictHostKeyChecking=no "
    "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectionAttempts=30"
)
HOSTFILE, KUBEXEC = "/etc/mpi/hostfile", "/etc/mpi/kubexec.sh"  # set up by the operators
USER_STEP = "phalanx-user"
USERS, USERS_AT, USERS_FILE = "phalanx-users", "/phalanx/users", "/etc/passwd"
MOST_HOSTS = 100 << 10  # characters in one argument; above this the operator's host file is used
_WIRINGS = ("mpi", "horovod")
_RSH, _RSH_5 = "OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args"  # of Open MPI 4, and of 5
_BY_ITSELF = ("OMPI_", "PRTE_")  # mpirun passes these on by itself
_AGENT_5 = "PRTE_MCA_plm_ssh_agent"
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
# A volume makes the key readable for a group, and for root ssh rejects keys that others can read.
_KEY = f"""\
[ "$(id -u)" -ne 0 ] || (umask 077 && mkdir -p {OWN_KEY.rpartition("/")[0]} && cat "$at/id_rsa" >{OWN_KEY})
"""
_SSHD = (
    """\
refuse() {
  echo "phalanx: $1" >&2
  said='{"phalanx": 1, "ends": {"host": {"cause": "setup", "code": 78, "signal": null, "message": "%s"}}}'
  [ ! -w /dev/termination-log ] || printf "$said" "$1" >/dev/termination-log
  exit 78
}
port=$1 at=$2
sshd=$(command -v sshd || echo /usr/sbin/sshd)
if ! [ -x "$sshd" ] || ! command -v ssh-keygen >/dev/null; then
  refuse "MPI comes to this pod over ssh, and its image has no sshd: use one with openssh-server"
fi
if ! id -un >/dev/null 2>&1; then
  refuse "ssh wants a user with a name, and the image has none of the number $(id -u): add one to it, or set \
runAsUser in environment.kubernetes.pod to one that it has"
fi
"""
    + _KEY
    + """\
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
keys=$(mktemp -d) && ssh-keygen -q -t ed25519 -N "" -f "$keys/host" || refuse "sshd has no folder for a key of its own"
set -- -f /dev/null -h "$keys/host"
# Images for mpi-operator give their sshd a right by which it may not be started where there are none: a copy has none.
if ! "$sshd" -t "$@" 2>/dev/null && cp "$sshd" "$keys/sshd" && "$keys/sshd" -t "$@" 2>/dev/null; then
  sshd=$keys/sshd
fi
carried="SetEnv=PATH=$PATH LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
if "$sshd" -t "$@" -o "$carried" 2>/dev/null; then  # before 7.8 it knows no such thing
  set -- "$@" -o "$carried"
fi
exec "$sshd" -D -e "$@" -p "$port" -o PidFile=none -o UsePAM=no -o StrictModes=no \\
  -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o PermitRootLogin=prohibit-password \\
  -o "AuthorizedKeysFile=$at/authorized_keys" -o LogLevel=ERROR -o MaxStartups=1000 -o MaxSessions=1000
"""
)
_LAUNCH = (
    """\
refuse() {
  echo "phalanx: $1" >&2
  exit 78
}
patience=$1 port=$2 at=$3 hosts=$4
shift 4
if [ "$1" = mpirun ] && ! command -v mpirun >/dev/null; then
  refuse "mpirun starts the ranks, and this image has none: use one with Open MPI"
fi
if ! command -v ssh >/dev/null; then
  refuse "MPI goes to the other pods over ssh, and this image has none: use one with openssh-client"
fi
"""
    + _KEY
    + """\
left= told=
while read -r host _; do
  case $host in
  "$(uname -n)" | "$(uname -n)".*) ;;
  *) left="$left $host" ;;
  esac
done <"$hosts"
until=$(($(date +%s) + patience))
while [ -n "$left" ] && command -v ssh-keyscan >/dev/null; do
  seen=$(ssh-keyscan -T 5 -t ed25519 -p "$port" $left 2>/dev/null)
  more=
  for host in $left; do
    case $seen in
    *"[$host]:$port "*) ;;
    *) more="$more $host" ;;
    esac
  done
  left=$more
  [ -n "$left" ] || break
  [ "$(date +%s)" -lt "$until" ] || refuse "after $patience s ssh does not reach$left"
  [ -n "$told" ] || echo "phalanx: waiting for the ssh servers of$left" >&2
  told=yes
  sleep 1
done
exec "$@"
"""
)
_LAUNCHED = ("/bin/sh", "-c", _LAUNCH, "launch")
_NAME_USER = """\
me=$(id -u) named=
while IFS=: read -r name word uid rest || [ -n "$name" ]; do
  [ -n "$name" ] || continue
  if [ "$uid" = "$me" ]; then
    named=yes shell=${rest##*:}
    case $shell in
    */nologin | */false) shell= ;;
    esac
    [ -x "$shell" ] || rest=${rest%:*}:/bin/sh
  fi
  printf '%s\\n' "$name:$word:$uid:$rest"
done </etc/passwd >"$1/passwd"
[ -n "$named" ] || printf '%s\\n' "phalanx:x:$me:$(id -g)::$2:/bin/sh" >>"$1/passwd"
"""
# A shell handles a signal after the current command, so that must be short. A background command would be left behind.
_STAY = "trap 'exit 0' TERM; while :; do sleep 1; done"


def is_mpi(made: Plan) -> bool:
    """Return whether MPI would start the ranks, if there were more than one."""
    return made.wiring in _WIRINGS


def adapted(made: Plan, known: OperatorKind) -> Plan:
    """The plan as an operator runs it: the first replica has the command that starts all ranks, and the others are
    hosts. Idempotent. Raises CallError."""
    ranks = tuple(replica for replica in made.replicas if replica.role != LAUNCHER)
    first, *others = ranks
    if made.launch == "each" and made.wiring == "mpi":
        raise CallError(
            "`launcher: direct` starts every rank separately, and an MPIJob starts them with mpirun: "
            "leave `environment.replicas.launcher` out; or `backend: native` runs it"
        )
    shared = {name: value for name, value in made.shared.items() if name not in _OVER_GLOO}
    if known == MPIJOB:
        shared |= {_RSH: SSH, _RSH_5: SSH}
    elif known == MPIJOB_V1:
        shared[_AGENT_5] = KUBEXEC
    defaults = {name: value for name, value in first.defaults.items() if name not in _OVER_GLOO}
    plan = replace(
        made,
        launch="own",
        launcher=(),
        meets=(),
        service=None,
        shared=shared,
        replicas=_without_gloo(ranks),
    )
    first, *others = plan.replicas
    if made.launch != "own":
        first = replace(first, argv=(*_mpirun(plan, known), *ranks[0].argv), defaults={**_AS_ROOT, **defaults})
    if known == MPIJOB and any(not other.local for other in others) and first.argv[: len(_LAUNCHED)] != _LAUNCHED:
        waits = (str(math.ceil(payload.peers_s(made))), str(SSH_PORT), SSH_AT, HOSTFILE)
        first = replace(first, argv=(*_LAUNCHED, *waits, *first.argv))
    return replace(plan, replicas=(first, *(replace(other, argv=()) for other in others)))


def _without_gloo(ranks: Iterable[Replica]) -> tuple[Replica, ...]:
    kept: dict[int, dict[str, Value]] = {}  # by the identity of what replicas share

    def without(values: Mapping[str, Value]) -> Mapping[str, Value]:
        if id(values) not in kept:
            kept[id(values)] = {name: value for name, value in values.items() if name not in _OVER_GLOO}
        return kept[id(values)]

    return tuple(
        replace(
            replica,
            environment=OwnValues(without(template_of(replica)), _numbers(replica)),
            defaults=without(replica.defaults),
        )
        for replica in ranks
    )


def _numbers(replica: Replica) -> Numbered:
    if isinstance(replica.environment, OwnValues):
        return replica.environment.numbers
    return OwnNumbers(replica.name, replica.index, replica.rank)


def _mpirun(made: Plan, known: OperatorKind) -> Iterator[Value]:
    """The command line of Open MPI. Ranks are not bound, because pods of one node would all use its first cores.
    Variables are passed on by name, so no values appear here."""
    yield from ("mpirun", "-np", str(len(made.replicas)), "--bind-to", "none")
    if known in (MPIJOB, MPIJOB_V1):
        hosts = ",".join(_hosts(made, known))
        if len(hosts) <= MOST_HOSTS:
            yield from ("--host", hosts)
    if known == MPIJOB:
        yield from ("--mca", "plm_rsh_args", SSH)
    first = made.replicas[0]
    wanted = {*made.shared, *first.environment, *first.defaults, *_OF_THE_AGENT}
    for name in sorted(name for name in wanted if not name.startswith(_BY_ITSELF)):
        yield from ("-x", name)


def _hosts(made: Plan, known: OperatorKind) -> Iterator[str]:
    """The hosts; the launcher by its bare name, which its pod can resolve before any service exists."""
    base, slots = job_kinds.job_name(made), job_kinds.processes(made)
    count = sum(not replica.local for replica in made.replicas)
    if known == MPIJOB_V1:
        yield from (f"{base}-worker-{number}:{slots}" for number in range(count))
        return
    yield f"{base}-launcher:{slots}"
    yield from (f"{base}-worker-{number}.{base}:{slots}" for number in range(count - 1))


def fields(order: OperatorJob) -> dict[str, Any]:
    """The fields that only jobs of this kind have."""
    slots = {"slotsPerWorker": job_kinds.processes(order.made)}
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


def templates(order: OperatorJob) -> dict[str, tuple[int, dict[str, Any]]]:
    """Launcher and Worker, each with its number of pods and their template."""
    known = order.known
    replicas = [replica for replica in order.made.replicas if not replica.local]
    job_kinds.alike(known, "Worker", replicas)
    launcher = job_kinds.template(order, replicas[:1], is_counted=False)
    hosts = replicas if known == MPIJOB_V1 else replicas[1:]
    found = {"Launcher": (1, launcher)}
    if hosts:
        found["Worker"] = (len(hosts), _host(order, hosts))
    if known == MPIJOB_V1:  # the API server starts the ranks, with an account that the operator creates
        launcher["spec"]["automountServiceAccountToken"] = True
        _take_nothing(job_kinds.main_of(launcher, known))
    elif hosts:
        _name_user(order, launcher)
    return found


def _host(order: OperatorJob, hosts: Sequence[Replica]) -> dict[str, Any]:
    template: dict[str, Any] = job_kinds.template(order, hosts, is_launched=True)
    main = job_kinds.main_of(template, order.known)
    if order.known == MPIJOB_V1:  # the launcher reports for the first replica; the hosts' reports are separate
        _call(order, template, [f"host-{number}" for number in range(len(hosts))])
        main["command"] = ["/bin/sh", "-c", pods.unexpanded(_STAY)]
        return template
    # mpi-operator numbers them from 1 on where the launcher is a worker, too; up to 0.6 it began with 0. In no case is
    # one of them the first replica.
    _call(order, template, [host.name for host in (hosts[0], *hosts)])
    _name_user(order, template)
    main["command"] = ["/bin/sh", "-c", pods.unexpanded(_SSHD), "sshd", str(SSH_PORT), SSH_AT]
    main["ports"] = [*main.get("ports", ()), {"name": "ssh", "containerPort": SSH_PORT}]
    main["readinessProbe"] = {"tcpSocket": {"port": SSH_PORT}, "periodSeconds": 2}
    asked = {**template["spec"].get("securityContext", {}), **main.get("securityContext", {})}
    if not asked.get("runAsUser") and not asked.get("runAsNonRoot"):  # root, or the image's user
        capabilities = main.setdefault("securityContext", {}).setdefault("capabilities", {})
        capabilities["add"] = sorted({*capabilities.get("add", ()), *_SSHD_AS_ROOT})
    return template


def _call(order: OperatorJob, template: dict[str, Any], names: Sequence[str]) -> None:
    """Name the hosts by the operator's numbers. Installed packages must be at the launcher's path, because its ranks
    use that path. On a shared volume it is the launcher's own."""
    listed = ",".join(names)
    if MEMBERS in template["metadata"]["annotations"]:  # there is room for all of them
        template["metadata"]["annotations"][MEMBERS] = listed
    is_shared = order.target.settings.home_claim is not None
    for container in template["spec"].get("initContainers", ()):
        if not is_shared:
            _set(container, ",".join([order.made.replicas[0].name] * len(names)))
        elif order.known == MPIJOB:
            _set(container, listed)
    _set(job_kinds.main_of(template, order.known), listed)


def _set(container: dict[str, Any], members: str) -> None:
    for variable in container.get("env", ()):
        if variable["name"] == "PHALANX_MEMBERS":
            variable["value"] = members


def _name_user(order: OperatorJob, template: dict[str, Any]) -> None:
    """Add a user with a login shell to the image's list of users: ssh needs the user's name at both ends."""
    main, spec = job_kinds.main_of(template, order.known), template["spec"]
    step: dict[str, Any] = {
        "name": USER_STEP,
        "command": ["/bin/sh", "-c", pods.unexpanded(_NAME_USER), "user", USERS_AT, volumes.home_at(order.target)],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}],
        "volumeMounts": [{"name": USERS, "mountPath": USERS_AT}],
        **{key: deepcopy(main[key]) for key in ("image", "imagePullPolicy", "securityContext") if key in main},
        **deepcopy(pods.without_devices(main, order.target)),
    }
    spec["initContainers"] = [*spec.get("initContainers", ()), step]
    spec["volumes"] = [*spec.get("volumes", ()), {"name": USERS, "emptyDir": {"sizeLimit": "1Mi"}}]
    mount = {"name": USERS, "mountPath": USERS_FILE, "subPath": "passwd", "readOnly": True}
    main["volumeMounts"] = [*main.get("volumeMounts", ()), mount]


def _take_nothing(main: dict[str, Any]) -> None:
    """Remove the devices of a launcher that computes nothing: they are for the ranks."""
    for amounts in main.get("resources", {}).values():
        for name in [name for name in amounts if "/" in name]:
            del amounts[name]
