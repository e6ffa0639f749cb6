"""A real Kubernetes control plane on this one machine, with nodes whose pods are processes of it.

etcd is Debian's; API server, controllers and scheduler are built from Debian's sources (scripts/build_kubernetes.py).
All listen on loopback, and on a bridge of their own that pods are wired to. Nodes are played by kubelet.py: it runs
what is bound to them in namespaces. A later Kubernetes is played by face.py and jobs.py, as far as Jobs go. Everything
is kept in one folder, the `state`; nothing of the machine is changed, but for the packages that are installed.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from scripts import build_kubernetes, environments

from tests.kubernetes.rest import Answered, Rest, kubeconfig
from tests.slurm import debian
from tests.slurm.debian import PATH, ClusterError
from tests.slurm.processes import Daemon, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCKS = 16  # clusters that one machine may have at once: each has its own addresses and its own bridge
IDENTITIES = {  # name: user, groups
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVICES = "10.96.0.0/16"
START_S = 90.0
FIRST_PORT, PORTS = 20_000, 12_000


class Settings(NamedTuple):
    """`is_pretended`: pods only say that they ran. `node_loss_s`: after which silence a node counts as lost.
    `version`: of the Kubernetes that users see, and of its Jobs, where that is not the API server's own."""

    nodes: int = 3
    cpus: int = 8
    memory_mib: int = 16_000
    gpus: int = 2
    block: int = 0
    port: int = 0
    has_operators: bool = True
    mpi_version: str = "v2beta1"
    is_pretended: bool = False
    node_loss_s: int = 5
    version: str = ""
    face_port: int = 0

    @property
    def names(self) -> list[str]:
        return [f"node-{index}" for index in range(self.nodes)]

    @property
    def bridge(self) -> str:
        return f"phxk{self.block}"

    @property
    def gateway(self) -> str:
        """This machine, as pods reach it."""
        return f"10.77.{self.block * 16}.1"

    def address(self, number: int) -> str:
        """Of a pod, in the cluster's block of 4096 addresses."""
        low = 16 + number % 4000
        return f"10.77.{self.block * 16 + low // 256}.{low % 256}"


class Cluster:
    """Every method may be called twice, and in another process than the one that brought the cluster up."""

    def __init__(self, state: Path, settings: Settings) -> None:
        self.state = state.resolve()
        self.settings = settings

    @classmethod
    def found(cls, state: Path) -> Cluster | None:
        """The cluster that lives there, whoever brought it up."""
        try:
            return cls(state, Settings(**json.loads((state / "settings.json").read_text())))
        except OSError:
            return None

    @classmethod
    def new(cls, settings: Settings) -> Cluster:
        """In a folder of its own, beside any other cluster of this machine; not up yet."""
        state = Path(tempfile.mkdtemp(prefix="phxk"))
        state.chmod(0o755)
        return cls(state, settings._replace(block=free_block(), port=free_port(), face_port=free_port()))

    @property
    def server(self) -> str:
        """As users see it."""
        return f"https://127.0.0.1:{self.settings.face_port}" if self.settings.version else self._inner

    @property
    def _inner(self) -> str:
        """The API server itself."""
        return f"https://127.0.0.1:{self.settings.port}"

    @property
    def kubeconfig(self) -> Path:
        """For an administrator."""
        return self.state / "admin.kubeconfig"

    @property
    def kubectl(self) -> Path:
        return build_kubernetes.place() / "kubectl"

    @cached_property
    def api(self) -> Rest:
        return Rest.of(self.kubeconfig)

    def daemon(self, name: str) -> Daemon:
        return Daemon(name, self.state / "run", self.state / "log" / f"{name}.out")

    @property
    def daemons(self) -> list[str]:
        """In the order in which they start."""
        return ["etcd", "apiserver", "controllers", "scheduler", *self._ours]

    @property
    def _ours(self) -> list[str]:
        later = ["face", "jobs"] if self.settings.version else []
        return [*later, "kubelet", *(["operators"] if self.settings.has_operators else [])]

    def alive(self) -> dict[str, int | None]:
        return {name: self.daemon(name).pid for name in self.daemons}

    # life

    def up(self) -> None:
        """What is dead is started."""
        must_be_possible()
        programs = build_kubernetes.build()
        debian.install(build_kubernetes.needed())
        with self._locked():
            self._write()
            self._lay_bridge()
            self._start_etcd()
            self._start_server(programs)
            self._start_others(programs)
            self._start_ours()
            self.await_nodes()

    def down(self) -> None:
        """Nothing is left: no process, no mount, no bridge, no network, no cgroup, no file."""
        if not self.state.is_dir():
            return
        with self._locked():
            self.api.close()
            for name in reversed(self.daemons):
                self.daemon(name).stop(grace_s=20.0)
            remove_networks(self.settings)
            remove_groups(self.settings)
            _ip("link", "delete", self.settings.bridge, must=False)
            shutil.rmtree(self.state)

    def stop_server(self, sign: int = signal.SIGKILL) -> None:
        """The API server alone; what it knows is in etcd."""
        self.daemon("apiserver").stop(sign)
        wait_until(lambda: _is_free(self.settings.port), 10.0, "the port of the API server")

    def start_server(self) -> None:
        self._start_server(build_kubernetes.place())

    def kubeconfig_of(self, account: str, namespace: str, path: Path) -> Path:
        """For a ServiceAccount that exists: what it may do is what its Roles say."""
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [ISSUER]}}
        given = self.api.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked)
        token = given["status"]["token"]
        return kubeconfig(path, self.server, token=token, namespace=namespace, authority=self._authority)

    def await_nodes(self, patience_s: float = START_S) -> None:
        wait_until(self._is_ready, patience_s, "nodes that are ready")

    # ways to break it: the kubelet's

    def fault(self, what: str, **words: str) -> None:
        """`evict`, `preempt` (pod=namespace/name), `lose-node`, `return-node` (node=…)."""
        port = json.loads((self.state / "kubelet.json").read_text())["port"]
        answer = httpx.post(
            f"https://127.0.0.1:{port}/faults/{what}", params=words, verify=False, timeout=30.0, trust_env=False
        )
        if answer.is_error:
            raise ClusterError(f"the kubelet cannot do {what} {words}: {answer.text}")

    # pieces

    @property
    def _authority(self) -> Path:
        return self.state / "certificates" / "apiserver.crt"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.state.mkdir(mode=0o755, parents=True, exist_ok=True)
        with (self.state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _clean(self) -> dict[str, str]:
        own = {"HOME": str(self.state), "PYTHONPATH": str(ROOT), "PHALANX_FRAMEWORKS": str(environments.CACHE)}
        return {"PATH": PATH, "LC_ALL": "C.UTF-8", "TZ": "UTC", **own}

    def _write(self) -> None:
        for folder in ("run", "log", "pods", "claims"):
            (self.state / folder).mkdir(mode=0o755, exist_ok=True)
        tokens = self.state / "tokens.csv"
        if not tokens.exists():
            key = self.state / "accounts.key"
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
            rows = []
            for name, (user, groups) in IDENTITIES.items():
                token = secrets.token_hex(16)
                credentials = {"token": token, "authority": self._authority}
                if name == "admin":
                    kubeconfig(self.state / "inner.kubeconfig", self._inner, **credentials)  # type: ignore[arg-type]
                    self._write_admin(token)
                else:
                    kubeconfig(self.state / f"{name}.kubeconfig", self._inner, **credentials)  # type: ignore[arg-type]
                rows.append(f"{token},{user},{user}{f',{groups}' if groups else ''}\n")
            tokens.touch(mode=0o600)
            tokens.write_text("".join(rows))
        (self.state / "settings.json").write_text(json.dumps(self.settings._asdict()))

    def _write_admin(self, token: str) -> None:
        """By a certificate, as most clusters know their administrators; a face can only hand on tokens."""
        if self.settings.version:
            kubeconfig(self.kubeconfig, self.server, token=token, authority=self._authority)
            return
        authority = ["-x509", "-subj", "/CN=users", "-out", str(self._users)]
        request = ["-subj", "/O=system:masters/CN=admin", "-out", str(self.state / "admin.csr")]
        for name, options in (("users", authority), ("admin", request)):
            made = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-days", "30", *options]
            subprocess.run([*made, "-keyout", str(self.state / f"{name}.key")], check=True, capture_output=True)
        files = {"in": "admin.csr", "out": "admin.crt", "CA": "users.crt", "CAkey": "users.key"}
        given = [word for option, name in files.items() for word in (f"-{option}", str(self.state / name))]
        signed = ["openssl", "x509", "-req", "-days", "30", "-CAcreateserial", *given]
        subprocess.run(signed, check=True, capture_output=True)
        certificate = self.state / "admin.crt"
        kubeconfig(self.kubeconfig, self.server, certificate=certificate, authority=self._authority)

    @property
    def _users(self) -> Path:
        """Who says who users are."""
        return self.state / "users.crt"

    def _lay_bridge(self) -> None:
        bridge = self.settings.bridge
        if Path(f"/sys/class/net/{bridge}").exists():
            return
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{self.settings.gateway}/20", "dev", bridge)
        _ip("link", "set", bridge, "up")

    def _start_etcd(self) -> None:
        etcd = self.daemon("etcd")
        if etcd.pid is None:
            (self.state / "etcd.json").write_text(json.dumps([free_port(), free_port()]))
            clients, peers = self._etcd
            command = ["etcd", f"--data-dir={self.state}/etcd", "--unsafe-no-fsync"]
            command += [f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"]
            command += [f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"]
            etcd.start([*command, f"--initial-cluster=default={peers}"], self._clean())
        etcd.await_ready(lambda: _is_healthy(f"{self._etcd[0]}/health"))

    @property
    def _etcd(self) -> list[str]:
        """For clients, and for peers, of which there are none."""
        return [f"http://127.0.0.1:{port}" for port in json.loads((self.state / "etcd.json").read_text())]

    def _start_server(self, programs: Path) -> None:
        server = self.daemon("apiserver")
        if server.pid is None:
            key, lost = self.state / "accounts.key", self.settings.node_loss_s
            options = {
                "etcd-servers": self._etcd[0],
                "secure-port": self.settings.port,
                "bind-address": "127.0.0.1",
                "advertise-address": self.settings.gateway,
                "cert-dir": self._authority.parent,
                "kubelet-preferred-address-types": "InternalIP",
                "service-account-key-file": key,
                "service-account-signing-key-file": key,
                "service-account-issuer": ISSUER,
                "token-auth-file": self.state / "tokens.csv",
                **({"client-ca-file": self._users} if self._users.exists() else {}),
                "authorization-mode": "RBAC",
                "service-cluster-ip-range": SERVICES,
                "default-unreachable-toleration-seconds": lost,
                "default-not-ready-toleration-seconds": lost,
                "min-request-timeout": 60,
            }
            server.start([str(programs / "kube-apiserver"), *_options(options)], self._clean())
        server.await_ready(self._answers, START_S)

    def _start_others(self, programs: Path) -> None:
        lost = self.settings.node_loss_s
        common = {"leader-elect": "false", "bind-address": "127.0.0.1"}
        controllers, scheduler = self.daemon("controllers"), self.daemon("scheduler")
        if controllers.pid is None:
            options = {
                **common,
                "kubeconfig": self.state / "controllers.kubeconfig",
                "secure-port": free_port(),
                "service-account-private-key-file": self.state / "accounts.key",
                "use-service-account-credentials": "true",
                "root-ca-file": self._authority,
                "node-monitor-period": "1s",
                "node-monitor-grace-period": f"{lost}s",
                "controllers": "*,-job" if self.settings.version else "*",
                "port": 0,
            }
            controllers.start([str(programs / "kube-controller-manager"), *_options(options)], self._clean())
        if scheduler.pid is None:
            options = {
                **common,
                "kubeconfig": self.state / "scheduler.kubeconfig",
                "secure-port": free_port(),
                "port": 0,
            }
            scheduler.start([str(programs / "kube-scheduler"), *_options(options)], self._clean())

    def _start_ours(self) -> None:
        for name in self._ours:
            if self.daemon(name).pid is None:
                self.daemon(name).start(
                    [sys.executable, "-m", f"tests.kubernetes.{name}", str(self.state)], self._clean()
                )

    def _answers(self) -> bool:
        quietly = suppress(httpx.HTTPError, Answered, ssl.SSLError, OSError)
        with quietly, closing(Rest.of(self.state / "inner.kubeconfig")) as api:
            return api.text("/readyz") == "ok"
        return False

    def _is_ready(self) -> bool:
        for name, pid in self.alive().items():
            if pid is None:
                raise ClusterError(f"{name} died:\n{self.daemon(name).last_words()}")
        with suppress(httpx.HTTPError):
            if self.api.find("/api/v1/namespaces/default/serviceaccounts/default") is not None:
                return self._has_all()
        return False

    def _has_all(self) -> bool:
        if self.settings.has_operators and not (self.state / "operators.ready").exists():
            return False
        nodes = self.api.items("/api/v1/nodes")
        return len(nodes) >= self.settings.nodes and all(is_ready(node) for node in nodes)


def is_ready(thing: dict[str, Any]) -> bool:
    """A node or a pod."""
    conditions = thing.get("status", {}).get("conditions") or ()
    taints = thing.get("spec", {}).get("taints") or ()
    return not taints and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def must_be_possible() -> None:
    """Says why no cluster can be had here."""
    if os.geteuid() != 0:
        raise ClusterError("a cluster needs root: its pods have namespaces and users of their own")
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "true"],
        env={"PATH": PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        raise ClusterError(f"this machine does not let pods have namespaces: {tried.stderr.strip()}")


def free_port() -> int:
    """Below those that the kernel gives to whoever connects: a server that restarts must find its port free."""
    for _ in range(100):
        port = FIRST_PORT + secrets.randbelow(PORTS)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise ClusterError("no free port was found on this machine")


def _is_free(port: int) -> bool:
    """A process of many threads lets go of its port some time after it has died."""
    with socket.socket() as one, suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", port))
        one.listen()
        return True
    return False


def free_block() -> int:
    """A block of addresses that no other cluster of this machine has."""
    first = os.getpid() % BLOCKS  # so that two who look at once find different ones
    for block in ((first + step) % BLOCKS for step in range(BLOCKS)):
        if not Path(f"/sys/class/net/{Settings(block=block).bridge}").exists():
            return block
    raise ClusterError("all blocks of addresses for clusters are taken on this machine")


def remove_networks(settings: Settings) -> None:
    for name in Path("/run/netns").glob(f"{settings.bridge}-*"):
        _ip("netns", "delete", name.name, must=False)


def remove_groups(settings: Settings) -> None:
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")):
        for group in root.glob(f"{settings.bridge}-*"):
            with suppress(OSError):  # a group in which someone lives is not ours
                group.rmdir()


def _is_healthy(address: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(address, trust_env=False).is_success
    return False


def _options(options: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _ip(*words: str, must: bool = True) -> None:
    done = subprocess.run(["ip", *words], env={"PATH": PATH}, capture_output=True, text=True, check=False)
    if must and done.returncode != 0:
        raise ClusterError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")


__all__ = ["Cluster", "ClusterError", "Settings", "is_ready"]
