"""Commands, holds and notebooks in pods."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests import notebook
from tests.cli.homes import wait_for
from tests.cli.running import Answer
from tests.kubernetes.cluster import free_port
from tests.kubernetes.places import PATIENCE_S, KubernetesPlace
from tests.kubernetes.sandboxes import JUPYTER_IMAGE
from tests.kubernetes.worlds import GIVEN
from tests.notebook.environment import jupyter_folder

TWO = {"framework": "pytorch", "environment": {"replicas": {"n_workers": 1}, "env_vars": [["MY_SECRET", "s3cret"]]}}
SAY = 'echo "$MY_SECRET $RANK $PHALANX_REPLICA"; cat; exit 9'


class Direct:
    """Calls that lead to the API server itself: kubectl's connections cannot pass the proxies of other tests."""

    def __init__(self, place: KubernetesPlace) -> None:
        self.place = place
        cluster = place.world.cluster
        self.kubeconfig = place.world.kubeconfig if cluster is None else cluster.state / "inner.kubeconfig"
        self.options = ("--namespace", place.world.namespace)

    def call(self, *words: str, stdin: bytes = b"") -> Answer:
        return self.place.call(*words, stdin=stdin, KUBECONFIG=str(self.kubeconfig))

    def submitted(self, command: str, *options: str, **fields: Any) -> str:
        file = self.place.file(command, **fields)
        answer = self.call("run", "-f", file, "-d", "--on", "kubernetes", *self.options, *options)
        assert answer.code == 0, answer.err
        return answer.out.strip()

    def entered(self, run: str, rank: int, *words: str) -> Answer:
        return self.call("exec", run, "--rank", str(rank), "--", *words, stdin=b"typed")


@pytest.fixture(name="direct")
def direct_fixture(place: KubernetesPlace) -> Direct:
    return Direct(place)


@pytest.mark.smoke
def test_a_command_runs_in_the_pod_of_its_replica_and_a_failed_pod_is_held(direct: Direct) -> None:
    run = direct.submitted("while [ ! -e fail ]; do sleep 0.2; done; exit 4", "--hold", "10m", **TWO)
    wait_for(lambda: direct.entered(run, 1, "true").code == 0)
    answer = direct.entered(run, 1, "sh", "-c", SAY)
    assert (answer.code, answer.out) == (9, "s3cret 1 worker-0\ntyped"), answer.err
    assert direct.entered(run, 1, "touch", "fail").code == 0, "in the working folder of the replica"
    reason = wait_for(
        lambda: found if (found := direct.call("show", run, "--json").data["reason"]).startswith("held") else ""
    )
    assert "worker-0: exit code 4" in reason
    answer = direct.entered(run, 1, "sh", "-c", SAY)
    assert (answer.code, answer.out) == (9, "s3cret 1 worker-0\ntyped"), "its command has ended, its pod has not"
    assert direct.call("stop", run).code == 0
    found = direct.call("show", run, "--json").data
    assert (found["status"], found["reason"]) == ("failed", "worker-0: exit code 4")
    answer = direct.entered(run, 1, "true")
    assert (answer.code, "is not running" in answer.err) == (2, True)


# notebooks -----------------------------------------------------------------------------------------------------------

CELL = Path(notebook.__file__).with_name("cell.py")
LOGGING = """
from phalanx import tracking
for step in range(3):
    tracking.log(loss=1.0 / (step + 1), step=step)
open("notes.txt", "a").write("and by a cell\\n")
open("made.txt", "w").write("kept")
print("in", __import__("os").environ["PHALANX_REPLICA"])
"""


class Notebook:
    """A notebook in a pod, and the tunnel that its user was told to open."""

    def __init__(self, direct: Direct, *options: str) -> None:
        self.direct, self.place = direct, direct.place
        self.place.file(None, name="notebook.yml", kind="notebook", build={"image": JUPYTER_IMAGE})
        jupyter_folder()  # now, so that the image has it
        self.port = free_port()
        asked = ("-f", "notebook.yml", "--json", "--port", str(self.port), "--on", "kubernetes", *direct.options)
        answer = direct.call("notebook", *asked, *options)
        assert answer.code == 0, answer.err
        self.found = answer.data
        self.run = str(self.found["id"])
        (self.token,) = parse_qs(urlsplit(self.found["url"]).query)["token"]

    @contextmanager
    def tunnel(self) -> Iterator[None]:
        (step,) = self.found["tunnel"]
        assert step["where"] == "a machine with this kubeconfig"
        words = shlex.split(step["command"])
        assert words[-3:-1] == ["port-forward", next(word for word in words if word.startswith("pod/"))]
        environment = self.place.environment(KUBECONFIG=str(self.direct.kubeconfig))
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith(f"Forwarding from 127.0.0.1:{self.port}")
                yield
            finally:
                process.kill()

    def status(self, path: str, token: str = "") -> int:
        address = f"http://127.0.0.1:{self.port}{path}"
        return httpx.get(address, params={"token": token} if token else {}, trust_env=False, timeout=60).status_code

    def cell(self, code: str, tmp_path: Path) -> str:
        address = {"socket": None, "port": self.port, "token": self.token}
        (tmp_path / "address.json").write_text(json.dumps(address))
        call = [str(jupyter_folder() / "python"), str(CELL), str(tmp_path / "address.json"), code]
        done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.skipif(GIVEN is not None, reason="the image with Jupyter is large")
def test_a_notebook_is_reached_with_the_printed_line_and_what_it_wrote_survives_its_stop(
    direct: Direct, tmp_path: Path
) -> None:
    place = direct.place
    (place.folder / "notes.txt").write_text("written at home\n")
    notebook = Notebook(direct)
    run = notebook.run
    with notebook.tunnel():
        assert (notebook.status("/api/contents"), notebook.status("/api/contents", notebook.token)) == (403, 200)
        page = httpx.get(notebook.found["url"], trust_env=False, follow_redirects=True, timeout=60)
        assert "<title>JupyterLab</title>" in page.text
        assert notebook.cell(LOGGING, tmp_path) == "in master-0\n"
        again = direct.call("notebook", "--url", run, "--json", "--port", str(notebook.port))
        assert again.data["url"] == notebook.found["url"]
    wait_for(lambda: place.call("metrics", run, "--json").data.get("metrics"), PATIENCE_S)
    assert direct.call("stop", run).code == 0
    assert place.until(run, "stopped") == "stopped"
    outputs = place.home / "runs" / run / "outputs"
    kept = {path.name: path.read_text() for path in outputs.rglob("*.txt")}
    assert kept == {"notes.txt": "written at home\nand by a cell\n", "made.txt": "kept"}
    everything = [path for path in place.home.rglob("*") if path.is_file()]
    assert not [path for path in everything if notebook.token.encode() in path.read_bytes()]
    place.until_nothing_is_left(run)


@pytest.mark.skipif(GIVEN is not None, reason="the image with Jupyter is large")
def test_an_idle_notebook_in_a_pod_ends_by_itself(direct: Direct, tmp_path: Path) -> None:
    notebook = Notebook(direct, "--idle", "3s")
    with notebook.tunnel():
        assert notebook.cell("open('made.txt', 'w').write('kept'); print('done')", tmp_path) == "done\n"
    assert direct.place.until(notebook.run, "succeeded", patience_s=3 * PATIENCE_S) == "succeeded"
    outputs = direct.place.home / "runs" / notebook.run / "outputs"
    assert [path.read_text() for path in outputs.rglob("made.txt")] == ["kept"]
    direct.place.until_nothing_is_left(notebook.run)
