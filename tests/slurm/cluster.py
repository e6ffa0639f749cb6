"""A real Slurm of several nodes on this one machine, and every way to break it.

Its daemons are Debian's. A node is a slurmd in namespaces of its own (names, mounts, processes, and with the isolation
`net` also the network), so that its power can be cut and its cable pulled. All nodes share the file system, as nodes of
a real cluster share homes; what is local to a node is in $SLURM_TMPDIR. Everything is kept in one folder, the `state`;
nothing of the machine is changed, but for the packages that are installed.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from tests.slurm import configuration, debian
from tests.slurm.configuration import ACCOUNT, CLUSTER, LIMITED_QOS, MOST_NODES, URGENT_QOS, Settings
from tests.slurm.debian import ClusterError
from tests.slurm.processes import Daemon, wait_until

LONGEST_STATE = 60  # sockets have short names
FOLDERS = ("etc", "run", "log", "spool", "controller", "devices", "scratch", "local")
OWN_FOLDERS = ("spool", "scratch")  # of each node, below `local`; in the node they are where the shared ones are
SPACES = ["--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
USABLE = ("idle", "mixed", "allocated", "completing")
KNOWN = ("already exists", "Nothing new")  # what sacctmgr says of what is as it should be
NULL_DEVICE = os.makedev(1, 3)


class Cluster:
    """Every method may be called twice, and in another process than the one that brought the cluster up."""

    def __init__(self, state: Path, settings: Settings) -> None:
        self.state = state.resolve()
        self.settings = settings
        if len(str(self.state)) > LONGEST_STATE:
            raise ClusterError(f"the path {self.state} is too long for sockets: choose one of {LONGEST_STATE} letters")
        if not 1 <= settings.nodes <= MOST_NODES:
            raise ClusterError(f"a cluster has 1 to {MOST_NODES} nodes, not {settings.nodes}")

    @classmethod
    def found(cls, state: Path) -> Cluster | None:
        """The cluster that lives there, whoever brought it up."""
        try:
            kept = json.loads((state / "settings.json").read_text())
        except OSError:
            return None
        return cls(state, Settings(**{**kept, "more": tuple(kept["more"])}))

    @classmethod
    def new(cls, settings: Settings) -> Cluster:
        """In a folder of its own, beside any other cluster of this machine; not up yet."""
        state = Path(tempfile.mkdtemp(prefix="phx"))
        state.chmod(0o755)  # daemons want their sockets where everybody can reach them
        return cls(state, settings._replace(port=free_port()))

    @cached_property
    def environment(self) -> dict[str, str]:
        """All that a client of Slurm needs."""
        return {"SLURM_CONF": str(self.state / "etc" / "slurm.conf")}

    def daemon(self, name: str) -> Daemon:
        return Daemon(name, self.state / "run", self.state / "log" / f"{name}.out")

    @property
    def daemons(self) -> list[str]:
        """In the order in which they start."""
        return ["munged", *(["mariadbd", "slurmdbd"] if self.settings.has_database else []), "slurmctld", *self.nodes]

    @property
    def nodes(self) -> list[str]:
        return self.settings.names

    def alive(self) -> dict[str, int | None]:
        return {name: self.daemon(name).pid for name in self.daemons}

    def call(self, *command: str, patience_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A command of Slurm, with what it said and how it ended."""
        return subprocess.run(
            command, env=self._clean(), capture_output=True, text=True, check=False, timeout=patience_s
        )

    def ask(self, *command: str) -> str:
        """The same, where only success will do."""
        done = self.call(*command)
        if done.returncode != 0:
            raise ClusterError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    # life

    def up(self) -> None:
        """What is dead is started; what is sick is healed. A cluster of other settings makes way."""
        _must_be_root()
        settings = self.settings
        debian.install(debian.missing(has_database=settings.has_database, has_network=settings.isolation == "net"))
        before = Cluster.found(self.state)
        if before is not None and before.settings != settings:
            before.down()
        with self._locked():
            self._write()
            self._start_munge()
            if settings.isolation == "net":
                self._lay_bridge()
            if settings.has_database:
                self._start_database()
            self._start_controller()
            if settings.has_database:
                _open_accounts(self)
            for name in self.nodes:
                self._start_node(name)
                if settings.isolation == "net":
                    _ip("link", "set", settings.cable(name), "up")
            self.await_nodes()

    def down(self) -> None:
        """Nothing is left: no process, no mount, no bridge, no cgroup, no file."""
        if not self.state.is_dir():
            return
        with self._locked():
            with suppress(subprocess.TimeoutExpired, ClusterError):  # while someone still keeps account of it
                self.cancel_all()
            self.daemon("slurmctld").stop()
            for name in self.nodes:
                self.daemon(name).stop(signal.SIGKILL)  # and with it all that is in the node
            for name in ("slurmdbd", "mariadbd", "munged"):
                self.daemon(name).stop(grace_s=20.0)
            if self.settings.isolation == "net":
                _ip("link", "delete", self.settings.bridge, must=False)
            if self.settings.has_cgroups:
                _remove_cgroups(self.nodes)
            shutil.rmtree(self.state)

    def await_nodes(self, names: list[str] | None = None, patience_s: float = 60.0) -> None:
        """Until these nodes, or all, take work; one that an administrator took out is put back."""
        wanted = set(self.nodes if names is None else names)

        def usable() -> bool:
            for name in wanted:
                if self.daemon(name).pid is None:
                    raise ClusterError(f"{name} died:\n{self.daemon(name).last_words()}")
            rows = self.call("sinfo", "-h", "-N", "-o", "%N %T").stdout.split()
            states = dict(zip(rows[::2], rows[1::2], strict=True))
            sick = sorted(name for name in wanted if states.get(name, "").startswith(("down", "drain", "fail")))
            if sick:
                self.call("scontrol", "update", f"nodename={','.join(sick)}", "state=resume")
            return all(states.get(name) in USABLE for name in wanted)

        wait_until(usable, patience_s, "nodes that take work")

    def cancel_all(self, patience_s: float = 90.0) -> None:
        """Until no job is left, of anyone. A controller that has just been restarted may need a second request."""
        if self.daemon("slurmctld").pid is None:
            return

        def is_empty() -> bool:
            asked = self.call("squeue", "-h", "-o", "%A", patience_s=patience_s)
            if jobs := sorted(set(asked.stdout.split())):
                self.call("scancel", *jobs, patience_s=patience_s)
            return asked.returncode == 0 and not jobs

        wait_until(is_empty, patience_s, "jobs that end", look_s=0.3)

    # ways to break it, and back

    def power_cut(self, node: str) -> None:
        """Nobody on the node has time for a last word. The controller finds out after some 30 s."""
        self._known(node).stop(signal.SIGKILL)

    def boot(self, node: str) -> None:
        self._known(node)
        self._start_node(node)
        self.await_nodes([node])

    def partition(self, node: str) -> None:
        """The node lives on, and hears nobody."""
        self._pull(node, "down")

    def rejoin(self, node: str) -> None:
        self._pull(node, "up")
        self.await_nodes([node])

    def kill_controller(self) -> None:
        self.daemon("slurmctld").stop(signal.SIGKILL)

    def freeze_controller(self) -> None:
        """It answers nobody, and keeps what it receives."""
        self._signal_controller(signal.SIGSTOP)

    def thaw_controller(self) -> None:
        self._signal_controller(signal.SIGCONT)

    def _signal_controller(self, number: signal.Signals) -> None:
        pid = self.daemon("slurmctld").pid
        if pid is not None:
            os.kill(pid, number)

    def start_controller(self) -> None:
        self._start_controller()

    def kill_database(self) -> None:
        """`sacct` and `sacctmgr` answer nobody; jobs start and end all the same."""
        self._must_account()
        self.daemon("slurmdbd").stop(signal.SIGKILL)

    def start_database(self) -> None:
        self._must_account()
        self._start_database()

    def _pull(self, node: str, way: str) -> None:
        self._known(node)
        if self.settings.isolation != "net":
            raise ClusterError("nodes have no cable of their own here: bring the cluster up with `--isolation net`")
        _ip("link", "set", self.settings.cable(node), way)

    def _known(self, node: str) -> Daemon:
        if node not in self.nodes:
            raise ClusterError(f"there is no node {node!r}, only {', '.join(self.nodes)}")
        return self.daemon(node)

    def _must_account(self) -> None:
        if not self.settings.has_database:
            raise ClusterError("this cluster was brought up without a database")

    # pieces

    def _clean(self) -> dict[str, str]:
        """The environment of daemons and of our own questions: nothing of the caller's Slurm or locale."""
        return {
            **self.environment,
            "PATH": debian.PATH,
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "MYSQL_UNIX_PORT": str(self.state / "run" / "mysql.socket"),  # where slurmdbd looks for its database
        }

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.state.mkdir(mode=0o755, parents=True, exist_ok=True)
        with (self.state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self) -> None:
        for folder in FOLDERS:
            (self.state / folder).mkdir(mode=0o755, exist_ok=True)
        for name in self.nodes:
            for kind in OWN_FOLDERS:
                (self.state / "local" / name / kind).mkdir(mode=0o755, parents=True, exist_ok=True)
        for name, text in configuration.files(self.settings, self.state).items():
            file = self.state / "etc" / name
            file.write_text(text)
            file.chmod(0o755 if name.endswith(".sh") else 0o600 if name == "slurmdbd.conf" else 0o644)
        key = self.state / "etc" / "munge.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(1024))
        for index in range(self.settings.gpus):
            _make_gpu(self.state / "devices" / f"gpu{index}")
        (self.state / "settings.json").write_text(json.dumps(self.settings._asdict()))

    def _start_munge(self) -> None:
        munged, run = self.daemon("munged"), self.state / "run"
        if munged.pid is not None:
            return
        for old in run.glob("munge.socket*"):
            old.unlink()
        places = {"socket": run / "munge.socket", "key-file": self.state / "etc" / "munge.key"}
        places |= {"pid-file": run / "munged.pid", "seed-file": run / "munge.seed"}
        places |= {"log-file": self.state / "log" / "munged.log"}
        munged.start(["munged", "-F", *(f"--{name}={place}" for name, place in places.items())], self._clean())
        munged.await_ready(lambda: self.call("munge", "-n", "-S", str(places["socket"])).returncode == 0)

    def _start_database(self) -> None:
        mariadb, slurmdbd = self.daemon("mariadbd"), self.daemon("slurmdbd")
        data, mysql = self.state / "database", self.state / "run" / "mysql.socket"
        if mariadb.pid is None:
            if not (data / "mysql").is_dir():
                self.ask(
                    *("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db"),
                    *("--auth-root-authentication-method=socket", "--skip-name-resolve"),
                )
            mariadb.start(
                [
                    *("mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={mysql}"),
                    *(f"--pid-file={self.state}/run/mariadbd.pid", "--skip-networking", "--performance-schema=off"),
                    *("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"),
                    *("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-log-file-size=32M"),
                ],
                self._clean(),
            )
            mariadb.await_ready(
                lambda: self.call("mariadb", "--no-defaults", "-S", str(mysql), "-e", "select 1").returncode == 0
            )
        if slurmdbd.pid is None:
            slurmdbd.start(["slurmdbd", "-D"], self._clean())
            slurmdbd.await_ready(lambda: self.call("sacctmgr", "-n", "show", "cluster").returncode == 0)

    def _start_controller(self) -> None:
        controller = self.daemon("slurmctld")
        self.thaw_controller()
        if controller.pid is None:
            controller.start(["slurmctld", "-D"], self._clean())
        controller.await_ready(lambda: "UP" in self.call("scontrol", "ping").stdout)

    def _start_node(self, name: str) -> None:
        daemon, settings = self.daemon(name), self.settings
        if daemon.pid is not None:
            return
        inside = [str(self.state / "etc" / "node.sh"), str(self.state), name]
        if settings.isolation != "net":
            daemon.start(["unshare", *SPACES, *inside, ""], self._clean())
            return
        _ip("link", "delete", settings.cable(name), must=False)
        command = ["unshare", "--net", *SPACES, *inside, f"{settings.address(name)}/24"]
        pid = daemon.start(command, self._clean())
        ours = Path("/proc/self/ns/net").readlink()
        wait_until(lambda: Path(f"/proc/{pid}/ns/net").readlink() != ours, 10.0, f"the network of {name}")
        _ip("link", "add", settings.cable(name), "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _ip("link", "set", settings.cable(name), "master", settings.bridge, "up")

    def _lay_bridge(self) -> None:
        bridge = self.settings.bridge
        if Path(f"/sys/class/net/{bridge}").exists():
            return
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{self.settings.controller_address}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")


def free_port() -> int:
    """The port of a cluster that nobody on this machine has."""
    ports = list(range(26800, 32000, 400))
    first = os.getpid() % len(ports)  # so that two who look at once find different ones
    for port in ports[first:] + ports[:first]:
        with socket.socket() as one, suppress(OSError):
            one.bind(("", port + configuration.CONTROLLER_PORT))
            if not Path(f"/sys/class/net/{Settings(port=port).bridge}").exists():
                return port
    raise ClusterError("all ports for clusters are taken on this machine")


def can_have_network() -> bool:
    """Whether nodes may have cables of their own here."""
    return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0


def _open_accounts(cluster: Cluster) -> None:
    """What a small site has: an account, and kinds of service with and without limits."""
    if ACCOUNT in cluster.ask("sacctmgr", "-nP", "show", "account", "format=account").split():
        return

    def change(*words: str) -> None:
        done = cluster.call("sacctmgr", "-i", *words)
        if done.returncode != 0 and not any(word in done.stdout + done.stderr for word in KNOWN):
            raise ClusterError(f"`sacctmgr {' '.join(words)}`: {done.stdout}{done.stderr}")

    qos = f"qos=normal,{LIMITED_QOS},{URGENT_QOS}"
    limits = "cpu=4,gres/gpu=2" if cluster.settings.gpus else "cpu=4"
    change("add", "cluster", CLUSTER)
    change("add", "qos", LIMITED_QOS, "MaxWall=00:20:00", f"MaxTRESPerUser={limits}", "MaxSubmitJobsPerUser=4")
    change("add", "qos", URGENT_QOS, "Preempt=normal", "Priority=1000")
    change("add", "account", ACCOUNT, f"cluster={CLUSTER}", "Description=tests", "Organization=tests")
    who = getpass.getuser()
    change("add", "user", who, f"account={ACCOUNT}", f"DefaultAccount={ACCOUNT}")
    change("modify", "user", who, "where", f"account={ACCOUNT}", "set", qos, "DefaultQOS=normal")


def _make_gpu(device: Path) -> None:
    """Slurm counts plain files, too, but tells jobs nothing of them."""
    if not device.exists():
        try:
            os.mknod(device, 0o666 | stat.S_IFCHR, NULL_DEVICE)
        except PermissionError as error:
            raise ClusterError("this machine does not let us make devices: ask for `--gpus 0`") from error


def _remove_cgroups(nodes: list[str]) -> None:
    for name in nodes:
        for root in Path("/sys/fs/cgroup").glob(f"*/slurm_{name}"):
            for folder, _, _ in os.walk(root, topdown=False):
                with suppress(OSError):  # a group in which someone lives is not ours
                    Path(folder).rmdir()


def _must_be_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("a cluster needs root: its nodes have namespaces, and its daemons start jobs of anyone")


def _ip(*words: str, must: bool = True) -> None:
    done = subprocess.run(["ip", *words], env={"PATH": debian.PATH}, capture_output=True, text=True, check=False)
    if must and done.returncode != 0:
        raise ClusterError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")


__all__ = ["Cluster", "ClusterError", "Settings", "can_have_network", "free_port"]
