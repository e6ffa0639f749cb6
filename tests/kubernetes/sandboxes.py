"""What a container is made of on this machine: its network, its memory, its files, and the processes in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scripts import environments

from tests.kubernetes.cluster import Settings
from tests.kubernetes.logs import Writer
from tests.kubernetes.volumes import DEFAULT_PATH, Resolver, expanded, quantity
from tests.slurm.debian import PATH, ClusterError

HERE = Path(__file__).parent
GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")  # version 1, version 2
MISSING_IMAGE, NO_PYTHON_IMAGE = "phalanx.test/missing", "phalanx.test/no-python"
JUPYTER_IMAGE = "quay.io/jupyter/base-notebook"
FEW = (
    *(
        "sh",
        "bash",
        "dash",
        "cat",
        "echo",
        "sleep",
        "tar",
        "gzip",
        "ls",
        "env",
        "sed",
        "grep",
        "true",
        "false",
        "mkdir",
        "rm",
    ),
    *("touch", "date", "seq", "hostname", "id", "head", "test"),
)
PYTHON = Path(sys.base_prefix)


class Network:
    """A network namespace that is wired to the cluster's bridge."""

    def __init__(self, settings: Settings, number: int) -> None:
        self.name = f"{settings.bridge}-{number}"
        self.address = settings.address(number)
        self.settings = settings

    @property
    def path(self) -> Path:
        return Path("/run/netns") / self.name

    def up(self) -> None:
        cable = f"{self.settings.bridge}v{self.name.rpartition('-')[2]}"
        _ip(
            f"netns add {self.name}",
            f"link add {cable} type veth peer name eth0 netns {self.name}",
            f"link set {cable} master {self.settings.bridge} up",
        )
        inside = [f"address add {self.address}/20 dev eth0", "link set eth0 up", "link set lo up"]
        _ip(*inside, f"route add default via {self.settings.gateway}", namespace=self.name)

    def down(self) -> None:
        """Its cable goes with it, once nobody is in it."""
        with suppress(ClusterError):
            _ip(f"netns delete {self.name}")


class Memory:
    """A cgroup with a limit; where the machine has none, nobody is limited."""

    def __init__(self, name: str, limit: int) -> None:
        root = next((root for root in GROUPS if (root / "cgroup.procs").exists()), None)
        self.path = root / name if root else None
        if self.path is None:
            return
        try:
            self.path.mkdir(exist_ok=True)
            self._write(("memory.limit_in_bytes", "memory.max"), str(limit))
            self._write(("memory.memsw.limit_in_bytes", "memory.swap.max"), str(limit if root == GROUPS[0] else 0))
        except OSError:
            self.path = None

    def _write(self, names: tuple[str, ...], value: str) -> None:
        assert self.path is not None
        for name in names:
            if (self.path / name).exists():
                (self.path / name).write_text(value)

    @property
    def was_exceeded(self) -> bool:
        if self.path is None:
            return False
        for name in ("memory.oom_control", "memory.events"):
            with suppress(OSError):
                rows = dict(line.split() for line in (self.path / name).read_text().splitlines())
                return int(rows.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        if self.path is not None:
            with suppress(OSError):
                self.path.rmdir()


class Process:
    """One container at work: started once, told to end, waited for."""

    def __init__(self, name: str, specification: Path, network: Path, log: Path, memory: Memory | None) -> None:
        self.memory = memory
        self.writer = Writer(log)
        inside = [sys.executable, "-I", "-S", str(HERE / "container.py"), str(specification)]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={network}", *inside],
            env={"PATH": PATH},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.writer.take(self._process.stdout)  # type: ignore[arg-type]
        self.writer.take(self._process.stderr)  # type: ignore[arg-type]

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def first(self) -> int:
        """Its first process. Raises OSError if there is none."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        if not children:
            raise ProcessLookupError("it has ended")
        return int(children[0])

    def signal(self, number: int) -> None:
        """To its first process; SIGKILL ends all of them."""
        if self.is_over:
            return
        with suppress(OSError):
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            if children:
                os.kill(int(children[0]), number)  # the kernel ends the namespace with its first process
            elif number == signal.SIGKILL:
                self._process.kill()

    def wait(self) -> tuple[int, bool]:
        """Its exit code as a shell has it, and whether it took too much memory."""
        code = self._process.wait()
        self.writer.close()
        exceeded = self.memory is not None and self.memory.was_exceeded
        if self.memory is not None:
            self.memory.remove()
        return (128 - code if code < 0 else code), exceeded and code != 0


def image(name: str) -> tuple[list[list[str]], dict[str, str], str]:
    """What of this machine is inside: (source, target) pairs, links, and its PATH."""
    if name.startswith(NO_PYTHON_IMAGE):
        found = [Path("/usr/bin") / program for program in FEW if (Path("/usr/bin") / program).exists()]
        pairs = [[str(path.resolve()), str(path)] for path in found]
        libraries = [[str(path), str(path)] for path in (Path("/usr/lib"), Path("/usr/lib64")) if path.is_dir()]
        return [*libraries, *pairs, *_settings()], _links(), DEFAULT_PATH
    folders = [[name, name] for name in ("/usr", "/opt") if Path(name).is_dir()] + _settings()
    folders += [[path, path] for path in ("/bin", "/lib", "/lib64", "/sbin") if not Path(path).is_symlink()]
    if not PYTHON.is_relative_to("/usr"):
        folders.append([str(PYTHON), str(PYTHON)])
    programs = [PYTHON / "bin"]
    if name.startswith(JUPYTER_IMAGE):
        folders.append([str(environments.place("notebook"))] * 2)
        programs.insert(0, environments.place("notebook") / "bin")
    return folders, _links(), ":".join(map(str, [*programs, DEFAULT_PATH]))


def _settings() -> list[list[str]]:
    """Each thing in /etc by itself: containers may have volumes beside them."""
    found = sorted(path for path in Path("/etc").iterdir() if path.exists() and path.name != "mtab")
    return [[str(path.resolve()), str(path)] for path in found]


def specification(
    pod: Mapping[str, Any], container: Mapping[str, Any], resolver: Resolver, files: Mapping[str, Path]
) -> dict[str, Any]:
    """All that container.py needs to know. `files`: volumes by name, and files of the pod by path."""
    folders, links, path = image(container.get("image", ""))
    environment = resolver.environment(container)
    if environment["PATH"] == DEFAULT_PATH:
        environment["PATH"] = path
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    mounts = [
        {"source": str(source), "target": target, "read_only": True}
        for target, source in files.items()
        if target.startswith("/")
    ]
    for mount in container.get("volumeMounts") or ():
        source = files[mount["name"]]
        below = mount.get("subPath") or expanded(mount.get("subPathExpr") or "", environment)
        if below and not (source / below).exists():
            (source / below).mkdir(parents=True)
            (source / below).chmod(0o777)
        is_read_only = bool(mount.get("readOnly")) or (source / "..data").is_symlink()
        mounts.append({"source": str(source / below), "target": mount["mountPath"], "read_only": is_read_only})
    return {
        "groups": [],
        "hostname": environment["HOSTNAME"],
        "image": folders,
        "links": links,
        "mounts": mounts,
        "is_root_read_only": bool((container.get("securityContext") or {}).get("readOnlyRootFilesystem")),
        "working": container.get("workingDir") or "/",
        "user": user(pod, container),
        "command": [expanded(word, environment) for word in command] or ["/bin/sh", "-c", "exit 0"],
        "environment": environment,
    }


def user(pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, Any]:
    """Whom the command runs as: the image's user is root, as in most images."""
    context = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    uid = context.get("runAsUser", 0)
    groups = [*context.get("supplementalGroups", ()), *([context["fsGroup"]] if "fsGroup" in context else [])]
    return {
        "uid": uid,
        "gid": context.get("runAsGroup", 0),
        "groups": sorted(set(groups)),
        "no_new_privileges": context.get("allowPrivilegeEscalation") is False,
    }


def memory_of(container: Mapping[str, Any], name: str) -> Memory | None:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return Memory(name, quantity(limit)) if limit else None


def write(path: Path, content: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path


def _links() -> dict[str, str]:
    names = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
    return {name: os.readlink(name) for name in names if Path(name).is_symlink()}


def _ip(*lines: str, namespace: str | None = None) -> None:
    words = ["ip", *(["-netns", namespace] if namespace else []), "-batch", "-"]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(words, input=text, env={"PATH": PATH}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"`ip` in {namespace or 'the machine'}: {done.stderr.strip()}")
