"""Logs and frames of pods, home into the folders of their replicas."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from phalanx import atomic_files
from phalanx.backends.contract import ENDED, WAITING
from phalanx.backends.kubernetes.cluster.api import Api, connect
from phalanx.backends.kubernetes.engine import pod_logs, reconciler
from phalanx.backends.kubernetes.engine.launcher_hosts import HOSTLESS_S
from phalanx.backends.kubernetes.engine.pod_logs import LogReaderPool, PodLogReader, read_positions
from phalanx.backends.kubernetes.engine.reconciler import AttemptReconciler
from phalanx.backends.kubernetes.observe import states
from phalanx.backends.kubernetes.observe.attempt_objects import AttemptObjects
from phalanx.frames import PREFIX, Encoder
from phalanx.home.attempts import AttemptFolder
from tests.backends.kubernetes.runs import GANG, ONE, Works, an_end, log_lines, mode_of, read_end, until, works
from tests.backends.kubernetes.test_states import INDEX, failed, job, pod


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Works]:
    with works(tmp_path) as found:
        yield found


def a_pod(there: Works, name: str = "one", phase: str = "Running") -> str:
    spec = {"containers": [{"name": "phalanx", "image": "python"}]}
    there.server.put(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )
    there.server.set_pod_phase(name, phase)
    return name


class Home:
    """The folder of an attempt, and a reader of one pod that writes there."""

    def __init__(self, there: Works, members: tuple[str, ...] = ("worker-0",), **more: Any) -> None:
        self.there = there
        self.api: Api = connect(there.settings, ask=False)
        self.folder = there.folder / "run"
        self.folder.mkdir(exist_ok=True)
        self.attempt_folder = AttemptFolder(self.folder, "abc", 1, members)
        self.pod = a_pod(there)
        self.heard: list[tuple[str, str, bytes]] = []
        self.reader = self.another(**more)

    def another(self, **more: Any) -> PodLogReader:
        source = (self.pod, "phalanx")
        return PodLogReader(
            self.api,
            self.attempt_folder,
            source,
            self.attempt_folder.replicas,
            lambda *said: self.heard.append(said),
            **more,
        )

    def read(self, name: str = "log", member: str = "worker-0") -> bytes:
        return (self.attempt_folder.folder(member) / name).read_bytes()

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


def test_growing_files_and_whole_ones_come_home_with_their_bytes(there: Works) -> None:
    home = Home(there, ("worker-0", "worker-0.1"))
    encoder = Encoder("worker-0")
    noise = bytes(range(256)) * 100 + b"\n::phalanx {}\nend"
    there.say(home.pod, *encoder.log(0, b"hello\n"), *encoder.grown("worker-0", "a.points", 0, noise[:9000]))
    there.say(home.pod, *encoder.log(6, noise), *encoder.grown("worker-0", "a.points", 9000, noise[9000:]))
    there.say(home.pod, *encoder.grown("worker-0.1", "log", 0, b"second\n"))
    there.say(home.pod, *encoder.whole("worker-0", "media/image.png", noise))
    there.say(home.pod, *encoder.whole("worker-0", "end.json", b'{"cause": "finished"}'))
    home.reader.read(follow=False)
    assert home.read() == b"hello\n" + noise
    assert home.read("a.points") == noise
    assert home.read("log", "worker-0.1") == b"second\n"
    assert home.read("media/image.png") == noise
    assert home.heard == [("worker-0", "end.json", b'{"cause": "finished"}')]
    for path in home.folder.rglob("*"):
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600)


def frame(**content: Any) -> bytes:
    return PREFIX + json.dumps(content, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(
    "file",
    [
        "../../evil", "/etc/evil", "media/../../evil", ".evil", "media/.evil", "plan.json", "a/b.points", "x.points/",
        "", "outputs/../evil", "outputs/../../evil", "outputs//evil", "outputs/.evil", "code/evil",
    ],
)  # fmt: skip
def test_no_pod_writes_outside_of_its_replica_s_folder(there: Works, file: str) -> None:
    home = Home(there)
    data = base64.b64encode(b"x").decode()
    for member in ("worker-0", "worker-1", "..", "worker-0/..", "worker-0./../.."):
        there.say(home.pod, frame(r=member, f=file, o=0, d=data), frame(r=member, f=file, o=0, d=data, n=1))
        there.say(home.pod, frame(r=member, f="log", o=1 << 40, d=data))
    home.reader.read(follow=False)
    assert home.files() <= {"replicas/worker-0/attempt-1/log"}  # what is no frame is a line like any other
    assert not (there.folder / "evil").exists()


def test_outputs_come_home_into_the_run_s_folder_but_through_no_link(there: Works) -> None:
    home = Home(there)
    elsewhere = there.folder / "elsewhere"
    elsewhere.mkdir()
    atomic_files.make_private(home.folder / "outputs", home.folder)
    (home.folder / "outputs" / "link").symlink_to(elsewhere)
    (home.folder / "outputs" / "file").symlink_to(elsewhere / "file")
    (home.folder / "outputs" / "folder").mkdir()
    names = (
        "outputs/a b/model.pt",
        "models/m/1",
        "outputs/link/x",
        "outputs/link/new/x",
        "outputs/file",
        "outputs/folder",
    )
    for name in names:
        there.say(home.pod, *Encoder("worker-0").whole("worker-0", name, name.encode() * 9000))
    home.reader.read(follow=False)
    for name in names[:2]:
        assert (home.folder / name).read_bytes() == name.encode() * 9000
        assert mode_of(home.folder / name) == 0o600
    assert list(elsewhere.iterdir()) == []
    assert list((home.folder / "outputs" / "folder").iterdir()) == []


def test_a_link_in_the_folder_is_not_followed(there: Works) -> None:
    home = Home(there)
    atomic_files.make_private(home.attempt_folder.folder("worker-0"), home.folder)
    target = there.folder / "precious"
    target.write_text("mine")
    (home.attempt_folder.folder("worker-0") / "log").symlink_to(target)
    there.say(home.pod, b"overwritten\n")
    with pytest.raises(OSError, match="link"):
        home.reader.read(follow=False)
    assert target.read_text() == "mine"


def test_what_was_read_is_not_read_again(there: Works) -> None:
    home = Home(there)
    there.say(home.pod, *log_lines("worker-0", b"one\ntwo\n"))
    home.reader.read(follow=False)
    assert home.reader.decoder.has_agent
    (home.attempt_folder.folder("worker-0") / "log").write_bytes(b"")
    there.say(home.pod, *Encoder("worker-0").log(8, b"three\n"))
    home.reader.read(follow=False)
    assert home.read().lstrip(b"\0") == b"three\n"
    asked = [request.query.get("sinceTime") for request in there.server.requests if request.path.endswith("/log")]
    assert asked[0] is None
    assert asked[1] is not None


def test_lines_of_the_same_instant_are_distinguished(there: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubelets know only whole seconds when they are asked for what came since."""
    home = Home(there)
    same = datetime(2026, 1, 1, tzinfo=UTC)
    lines = [b"a\n", b"b\n", b"c\n", b"d\n"]
    given: list[int] = []

    def log(_: Api, *__: Any, **___: Any) -> Any:
        stamped = [
            (same + timedelta(seconds=number // 3)).isoformat().encode() + b" " + line
            for number, line in enumerate(lines)
        ]
        return nullcontext(iter(stamped[: given[-1]]))

    monkeypatch.setattr(Api, "log", log)
    for number in (1, 2, 2, 4):
        given.append(number)
        home.reader.read(follow=False)
    assert home.read() == b"a\nb\nc\nd\n"


RETRIEVE = b"unable to retrieve container logs for containerd://0123456789abcdef"


@pytest.mark.parametrize("error", [RETRIEVE, RETRIEVE + b"\n", b"failed to try resolving symlinks in path\n"])
def test_an_error_message_of_the_kubelet_is_no_line_of_the_log(
    there: Works, monkeypatch: pytest.MonkeyPatch, error: bytes
) -> None:
    home = Home(there)
    stamp = b"2026-01-01T00:00:00.123456789Z "

    def log(_: Api, *__: Any, **___: Any) -> Any:
        return nullcontext(iter([stamp + b"one\n", stamp + b"\n", error]))

    monkeypatch.setattr(Api, "log", log)
    home.reader.over_at = time.monotonic()
    home.reader.read(follow=False)
    assert home.read() == b"one\n\n"
    assert reconciler.tail_of(home.api, home.pod, "phalanx") == ["one"]


@pytest.mark.parametrize("with_agent", [True, False])
@pytest.mark.parametrize("cut", range(1, 9))
@pytest.mark.slow
def test_a_reader_that_comes_after_any_line_misses_none_and_writes_none_twice(
    there: Works, cut: int, with_agent: bool
) -> None:
    home = Home(there)
    text = b"".join(b"line %d\n" % number for number in range(6))
    lines = log_lines("worker-0", text) if with_agent else text.splitlines(keepends=True)
    there.say(home.pod, *lines[:cut])
    home.reader.read(follow=False)
    again = home.another(kept=json.loads(json.dumps(home.reader.kept())))  # killed before it could read anything
    there.say(home.pod, *lines[cut:])
    home.another(kept=json.loads(json.dumps(again.kept()))).read(follow=False)
    assert home.read() == text


def test_a_log_that_was_rotated_leaves_a_gap_and_no_wrong_line(there: Works) -> None:
    home = Home(there)
    encoder = Encoder("worker-0")
    there.say(home.pod, *encoder.log(0, b"begin\n"))
    home.reader.read(follow=False)
    kept = {**home.reader.kept(), "stamp": "", "count": 0}
    lost, rest = b"x" * 100 + b"\n", b"after\n"
    tail = [*encoder.log(6, lost + rest)][2:]  # the position and the first line are gone
    there.server.logs[home.pod] = b"".join([*tail, *encoder.log(6 + len(lost + rest), b"last\n")])
    home.another(kept=kept).read(follow=False)
    assert home.read().startswith(b"begin\n\0")
    assert home.read().endswith(b"last\n")


def test_many_pods_take_turns(there: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "FOLLOWED", 3)
    monkeypatch.setattr(pod_logs, "THREADS", 5)
    monkeypatch.setattr(pod_logs, "POLL_S", 0.05)
    monkeypatch.setattr(pod_logs, "POLLS_APART_S", 0.001)
    names = tuple(f"worker-{number}" for number in range(20))
    home = Home(there, names)
    log_readers = LogReaderPool()
    readers = []
    for name in names:
        a_pod(there, f"pod-{name}")
        there.say(f"pod-{name}", *log_lines(name, b"one\n"))
        reader = PodLogReader(home.api, home.attempt_folder, (f"pod-{name}", "phalanx"), (name,), lambda *_: None)
        readers.append(reader)
        log_readers.add(reader)
    until(lambda: all((home.attempt_folder.folder(name) / "log").exists() for name in names))
    assert log_readers.threads <= 5
    for name in names:
        there.say(f"pod-{name}", *Encoder(name).log(4, b"two\n"))
    until(lambda: all(home.read("log", name) == b"one\ntwo\n" for name in names))
    for name, reader in zip(names, readers, strict=True):
        there.server.set_pod_phase(f"pod-{name}", "Succeeded")
        reader.over_at = time.monotonic()
        log_readers.wake(reader)
    until(lambda: all(reader.is_done for reader in readers))
    log_readers.close()


def test_a_log_that_cannot_be_reached_is_given_up_in_the_end(there: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "UNREACHABLE_S", 0.2)
    home = Home(there)
    there.server.fail_next(500, times=100, path="/log", message="dial tcp 10.0.0.1:10250: i/o timeout")
    log_readers = LogReaderPool()
    home.reader.over_at = time.monotonic()
    log_readers.add(home.reader)
    until(lambda: home.reader.is_done)
    assert "10250" in home.reader.trouble
    log_readers.close()


# attempts, by what the cluster has of them


class Seen:
    """An attempt without a server: its pods are what a test says."""

    def __init__(self, folder: Path, names: tuple[str, ...], **more: Any) -> None:
        self.attempt_folder = AttemptFolder(folder, "abc", 1, names)
        self.attempt = AttemptReconciler(None, LogReaderPool(), self.attempt_folder, "h", **more)  # type: ignore[arg-type]

    def look(self, *pods: dict[str, Any], **parts: Any) -> None:
        parts.setdefault("works", [job()])
        self.attempt.reconcile(AttemptObjects("abc", 1, pods=pods, **parts))
        if self.attempt.concluded is not None:
            self.attempt.release()

    def end(self, name: str) -> Any:
        return read_end(self.attempt_folder, name)

    def later(self, seconds: float, patch: pytest.MonkeyPatch) -> None:
        now = time.monotonic()
        patch.setattr(time, "monotonic", lambda: now + seconds)


def running(name: str, **more: Any) -> dict[str, Any]:
    status = {"name": "phalanx", "state": {"running": {"startedAt": "2026-11-16T10:00:00Z"}}}
    return pod(name, members=name, phase="Running", containerStatuses=[status], **more)


def test_agents_that_could_not_reach_their_server_are_read_to_the_end(
    there: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part of it came by the server, before that was gone; all of it stands in the log of the pod."""
    home = Home(there)
    name = home.pod
    there.say(name, *log_lines("worker-0", b"one\ntwo\n", {}))
    there.server.set_pod_phase(name, "Succeeded")
    folder = home.attempt_folder.folder("worker-0")
    atomic_files.make_private(folder, home.folder)
    atomic_files.write_atomic(folder / "agent.json", b"{}")
    (folder / "log").write_bytes(b"one\n")
    meta = {"uid": "u", "name": name, "annotations": {"phalanx.dev/members": "worker-0"}}
    over = pod(name, members="worker-0", phase="Succeeded", meta=meta, containerStatuses=[
        {"name": "phalanx", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}])  # fmt: skip
    log_readers = LogReaderPool()
    attempt = AttemptReconciler(home.api, log_readers, home.attempt_folder, "h", courier="server")
    group = AttemptObjects("abc", 1, pods=[over], works=[job()])
    attempt.reconcile(group)
    assert attempt.readers == []
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + reconciler.SETTLES_S * 0.7)
    attempt.reconcile(group)
    monkeypatch.undo()
    until(lambda: attempt.readers[0].is_done)
    log_readers.close()
    assert (folder / "log").read_bytes() == b"one\ntwo\n"
    attempt.reconcile(group)
    assert attempt.ends.is_home


def test_agents_that_send_by_themselves_are_only_stood_in_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(tmp_path, ("worker-0", "worker-0.1"), courier="volume")
    for name in seen.attempt_folder.replicas:
        atomic_files.make_private(seen.attempt_folder.folder(name), tmp_path)
        atomic_files.write_atomic(seen.attempt_folder.folder(name) / "agent.json", b"{}")
    seen.look(running("worker-0"))
    assert seen.attempt.readers == []  # nothing is read that comes by another way
    dead = failed(137, "OOMKilled", members="worker-0", meta={"uid": "worker-0", "name": "worker-0",
                  "annotations": {"phalanx.dev/members": "worker-0"}})  # fmt: skip
    seen.look(dead)
    assert seen.end("worker-0") is None  # its own word may be under way
    seen.later(reconciler.SETTLES_S + 1, monkeypatch)
    seen.look(dead)
    assert {seen.end(name)["cause"] for name in seen.attempt_folder.replicas} == {"memory"}
    assert seen.attempt.over is not None
    assert seen.attempt.over.cause == "memory"


def test_a_node_that_does_not_answer_is_lost_and_its_pod_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(tmp_path, ("worker-0",), courier="volume")
    long_ago = {"deletionTimestamp": "2026-01-01T00:00:00Z", "uid": "u", "name": "n"}
    pods = running("worker-0", meta={**long_ago, "annotations": {"phalanx.dev/members": "worker-0"}})
    seen.look(pods)
    seen.later(reconciler.SETTLES_S + 1, monkeypatch)
    seen.look(pods)
    end = seen.end("worker-0")
    assert (end["cause"], end["message"]) == ("lost", "its node no longer responds")


def test_a_replica_whose_node_is_away_is_lost_also_if_the_others_failed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lose their connections to it before the cluster gives up on the node, and are the reason to end it."""
    seen = Seen(tmp_path, ("worker-0",))
    seen.attempt.log_readers.close()
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    seen.look(running("worker-0", conditions=conditions))
    seen.attempt.signalled["worker-0"] = 15
    seen.look()
    seen.later(7 * reconciler.SETTLES_S, monkeypatch)
    seen.look()
    end = seen.end("worker-0")
    assert (end["cause"], end["message"]) == ("lost", "its node node-1 does not respond")


def test_the_ranks_of_a_launcher_end_with_it(tmp_path: Path) -> None:
    names = ("worker-0", "worker-1", "launcher-0")
    seen = Seen(tmp_path, names, courier="volume", by_launcher=True)
    pods = [running(name) for name in names]
    seen.look(*pods)
    folder = seen.attempt_folder.folder("launcher-0")
    atomic_files.make_private(folder, tmp_path)
    atomic_files.write_atomic(folder / "agent.json", b"{}")
    seen.look(*pods)
    assert (seen.attempt_folder.folder("worker-1") / "agent.json").exists()
    atomic_files.write_atomic(folder / "end.json", json.dumps(an_end("launcher-0")).encode())
    seen.look(*pods)
    assert {seen.end(name)["cause"] for name in names} == {"finished"}
    assert seen.attempt.over is not None
    assert seen.attempt.over.state == ENDED  # though the pods of the ranks go on


def test_a_launcher_that_lost_a_host_says_what_became_of_that(tmp_path: Path) -> None:
    """Hosts of MPI's ranks run nothing of ours."""
    seen = Seen(tmp_path, ("worker-0",))
    launcher = running("worker-0")
    host = failed(137, "OOMKilled", members="worker-1", meta={"uid": "h", "name": "h",
                  "annotations": {"phalanx.dev/members": "worker-1"}})  # fmt: skip
    seen.attempt.log_readers.close()
    seen.look(launcher, host)
    (tracked,) = seen.attempt.pods.values()
    said = an_end("worker-0", cause="error", code=1, message="exit code 1")
    seen.attempt._heard(tracked, "worker-0", "end.json", json.dumps(said).encode())
    seen.look(launcher, host)
    end = seen.end("worker-0")
    assert end["cause"] == "memory"
    assert end["message"].startswith("worker-1: killed for memory")


def a_host(code: int = 78, **status: Any) -> dict[str, Any]:
    """A pod in which MPI starts a rank: nothing in it is a replica that says its end."""
    meta = {"uid": "h", "name": "h", "annotations": {"phalanx.dev/members": "worker-1"}}
    return failed(code, members="worker-1", meta=meta, **status)


REFUSAL = json.dumps(
    {"phalanx": 1, "ends": {"host": {"cause": "setup", "code": 78, "signal": None, "message": "no sshd"}}}
)


@pytest.fixture(name="tails")
def tails_fixture(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Whose last lines are asked for."""
    asked: list[tuple[str, str]] = []

    def tail_of(_: Api, name: str, container: str) -> list[str]:
        asked.append((name, container))
        return ["said last"]

    monkeypatch.setattr(reconciler, "tail_of", tail_of)
    return asked


def test_a_launcher_that_will_never_come_has_failed_with_the_host_that_keeps_it_away(
    tmp_path: Path, tails: list[tuple[str, str]]
) -> None:
    seen = Seen(tmp_path, ("worker-0",))
    seen.look(a_host())
    end = seen.end("worker-0")
    assert (end["cause"], end["code"], end["message"]) == ("error", 78, "worker-1: exit code 78")
    assert (end["last_lines"], tails) == (["said last"], [("h", "phalanx")])


def test_a_host_whose_step_failed_is_reported_by_what_that_said(tmp_path: Path, tails: list[tuple[str, str]]) -> None:
    seen = Seen(tmp_path, ("worker-0",))
    step = {"name": "prepare", "state": {"terminated": {"exitCode": 3}}}
    seen.look({**a_host(), "status": {"phase": "Failed", "initContainerStatuses": [step]}})
    assert seen.end("worker-0")["message"] == "worker-1: step `prepare` failed: exit code 3"
    assert tails == [("h", "prepare")]


@pytest.mark.usefixtures("tails")
def test_a_launcher_that_waits_for_a_host_that_failed_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is the operator that lets it come last is not sure."""
    seen = Seen(tmp_path, ("worker-0",), courier="volume")
    launcher, host = running("worker-0"), a_host()
    seen.attempt.log_readers.close()
    host["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = REFUSAL
    seen.look(launcher, host)
    assert not seen.attempt.ends.all  # it may say more itself
    seen.later(HOSTLESS_S + 1, monkeypatch)
    seen.look(launcher, host)
    end = seen.end("worker-0")
    assert (end["cause"], end["code"], end["message"]) == ("setup", 78, "worker-1: no sshd")


def test_hosts_that_end_because_we_say_so_are_no_failure(tmp_path: Path) -> None:
    seen = Seen(tmp_path, ("worker-0",))
    seen.attempt.cancelled_at = time.monotonic()
    seen.look(a_host(255))
    assert not seen.attempt.ends.all


def test_ends_are_recorded_only_when_the_cluster_says_that_the_pods_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be away when a run is stopped, and then take its time."""
    names = ("worker-0", "worker-1")
    seen = Seen(tmp_path, names)
    seen.attempt.log_readers.close()
    pods = [running(name) for name in names]
    seen.look(*pods)
    seen.attempt.is_cancel_requested = True  # which never arrived
    seen.later(3600, monkeypatch)
    seen.look(*pods)
    seen.attempt.cancelled_at = time.monotonic()
    seen.later(3600, monkeypatch)
    seen.look(*pods)
    assert not seen.attempt.ends.all
    seen.look(pods[1])
    seen.later(7 * reconciler.SETTLES_S, monkeypatch)
    seen.look(pods[1])
    assert (seen.end("worker-0")["cause"], seen.end("worker-1")) == ("stopped", None)
    seen.look(works=[])
    seen.later(7 * reconciler.SETTLES_S, monkeypatch)
    seen.look(works=[])
    assert (seen.end("worker-1")["cause"], seen.end("worker-1")["message"]) == ("stopped", "stopped")


def test_a_launcher_whose_hosts_we_took_was_stopped(tmp_path: Path) -> None:
    """All are told to end at once, and it may see the others go before it hears of it."""
    seen = Seen(tmp_path, ("worker-0",))
    seen.attempt.log_readers.close()
    launcher, host = running("worker-0"), a_host(255)
    host["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    seen.look(launcher, host)
    seen.attempt.cancelled_at = time.monotonic()
    (tracked,) = seen.attempt.pods.values()
    said = an_end("worker-0", cause="error", code=1, message="exit code 1")
    seen.attempt._heard(tracked, "worker-0", "end.json", json.dumps(said).encode())
    seen.look(launcher, host)
    assert (seen.end("worker-0")["cause"], seen.end("worker-0")["message"]) == ("stopped", "stopped")


def test_the_first_pod_of_a_replica_counts_and_not_what_an_operator_puts_in_its_place(tmp_path: Path) -> None:
    seen = Seen(tmp_path, ("worker-0",), courier="volume")
    first = running("worker-0", meta={"uid": "1", "name": "p", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {"phalanx.dev/members": "worker-0"}})  # fmt: skip
    second = {**first, "metadata": {**first["metadata"], "uid": "2", "creationTimestamp": "2026-01-02T00:00:00Z"}}
    seen.look(second, first)
    assert list(seen.attempt.pods) == ["1"]
    seen.look(second)
    assert seen.attempt.pods["1"].is_gone


def test_a_job_that_failed_without_a_pod_ends_its_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(tmp_path, ("worker-0",))
    late = job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"})
    seen.look(works=[late])
    assert seen.end("worker-0") is None
    seen.later(reconciler.SETTLES_S + 1, monkeypatch)
    seen.look(works=[late])
    assert seen.end("worker-0")["cause"] == "timeout"


@pytest.mark.parametrize("is_failed", [True, False])
def test_pods_ended_by_their_job_after_a_failure_were_not_deleted_by_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_failed: bool
) -> None:
    """Jobs with one limit for all pods do so; they fail in the same way when somebody deletes one."""
    names = ("worker-0", "worker-1")
    seen = Seen(tmp_path, names, courier="volume")
    both = [running(name) for name in names]
    for name in names:
        seen.attempt.ends.write_agent(name, name)
    over = job({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"})
    seen.look(*both, works=[job()])
    bad = failed(7, meta=both[0]["metadata"])
    seen.look(*([bad] if is_failed else []), works=[over])
    seen.later(10 * reconciler.SETTLES_S, monkeypatch)
    seen.look(*([bad] if is_failed else []), works=[over])
    assert seen.attempt.concluded is not None
    if is_failed:
        assert seen.end("worker-0")["cause"] == "error"
        assert (seen.end("worker-1")["cause"], seen.end("worker-1")["message"]) == ("stopped", reconciler.WITH_ANOTHER)
        assert seen.attempt.concluded.cause != "stopped"
    else:
        assert (seen.attempt.concluded.cause, seen.attempt.concluded.why) == ("stopped", states.NOT_BY_US)


def test_indexed_pods_find_their_replicas(tmp_path: Path) -> None:
    names = ("worker-0", "worker-2", "worker-2.1")
    seen = Seen(tmp_path, names, courier="volume")
    pods = [pod(f"p{n}", members="worker-0,worker-2", index=str(n)) for n in range(2)]
    assert all(INDEX in one["metadata"]["annotations"] for one in pods)
    seen.look(*pods)
    assert [tracked.names for tracked in seen.attempt.pods.values()] == [("worker-0",), ("worker-2", "worker-2.1")]


# an image that is built first


def built(there: Works) -> AttemptFolder:
    """A run with a Job that comes before all others."""
    attempt_folder = there.run(ONE)
    path = attempt_folder.run_folder / "manifests.json"
    owner, *others = json.loads(path.read_text())
    first = json.loads(json.dumps(next(one for one in others if one["kind"] == "Job")))
    first["metadata"] |= {"name": "phalanx-abc-build"}
    for meta in (first["metadata"], first["spec"]["template"]["metadata"]):
        meta["labels"] |= {"phalanx.dev/stage": "build"}
        meta["annotations"].pop("phalanx.dev/members", None)
    path.write_text(json.dumps([owner, first, *others]))
    return attempt_folder


def test_an_image_is_built_before_anything_runs(there: Works) -> None:
    engine, attempt_folder = there.engine(), built(there)
    handle = there.submit(engine, attempt_folder)
    assert there.server.names("Job") == ["phalanx-abc-build"]
    engine.fetch(attempt_folder, handle)
    seen = until(lambda: engine.observe([handle]).get(handle))
    assert (seen.state, seen.why) == (WAITING, "its image is being built")
    (build,) = there.server.spawn_pods("phalanx-abc-build")
    there.server.set_pod_phase(build, "Running")
    there.server.set_pod_phase(build, "Succeeded")
    until(lambda: there.server.names("Job") == ["phalanx-abc-build", "phalanx-abc-master"])
    work = there.server.get("Job", "phalanx-abc-master")
    assert work is not None
    assert work["metadata"]["ownerReferences"][0]["name"] == "phalanx-abc"
    (pod_name,) = there.server.spawn_pods("phalanx-abc-master")
    there.server.set_pod_phase(pod_name, "Running")
    there.say(pod_name, *log_lines("master-0", b"x\n", {}))
    there.server.set_pod_phase(pod_name, "Succeeded")
    until(lambda: engine.observe([handle])[handle].state == ENDED)
    assert read_end(attempt_folder, "master-0")["cause"] == "finished"


def test_a_build_that_failed_ends_the_run_with_its_last_lines(there: Works) -> None:
    engine, attempt_folder = there.engine(), built(there)
    handle = there.submit(engine, attempt_folder)
    engine.fetch(attempt_folder, handle)
    (build,) = there.server.spawn_pods("phalanx-abc-build")
    there.server.set_pod_phase(build, "Running")
    there.say(build, b"step 3/3: RUN make\n", b"make: *** no rule\n")
    there.server.set_pod_phase(build, "Failed", exit_code=1)
    seen = until(lambda: (found := engine.observe([handle]).get(handle)) and found.state == ENDED and found)
    assert seen.cause == "setup"
    end = read_end(attempt_folder, "master-0")
    assert end["cause"] == "setup"
    assert end["message"].startswith("its image could not be built: ")
    assert end["last_lines"] == ["step 3/3: RUN make", "make: *** no rule"]
    assert engine.log_of(attempt_folder.run_folder, handle).read_text().endswith("make: *** no rule\n")
    until(lambda: not there.server.names("ConfigMap"))


def test_positions_are_kept_for_the_next_reader(there: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "POSITIONS_S", 0.05)
    engine, attempt_folder = there.engine(), there.run(GANG)
    handle = there.submit(engine, attempt_folder)
    for name, found in there.spawn(attempt_folder).items():
        there.say(found, *log_lines(name, b"x\n"))
    engine.fetch(attempt_folder, handle)
    until(lambda: [kept["has_agent"] for kept in read_positions(attempt_folder).values()] == [True] * 3)
    assert mode_of(attempt_folder.run_folder / "job" / "attempt-1.positions.json") == 0o600
