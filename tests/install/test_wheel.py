"""The wheel in an empty environment: every verb works, or says in one sentence which extra it needs."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from phalanx import __version__
from phalanx.cli import phalanx
from phalanx.extras import EXTRAS
from tests.cli.running import Answer, is_silent_about_itself
from tests.install.environments import (
    OWN_VERSION,
    ROOT,
    VERB_S,
    VERSIONS,
    Environment,
    Installed,
    interpreter,
    kill_group,
    must,
    path_without,
)

FILE = {"version": 1, "kind": "experiment", "framework": "pytorch", "environment": {"replicas": {"n_workers": 1}}}
RANDOM = {"random_search": {"n_experiments": 1}, "metric": {"name": "loss", "optimization": "minimize"}}
TPE = {"tpe": {"n_experiments": 2, "metric": {"name": "loss"}}}
PROGRAM = """
import os
from pathlib import Path
from phalanx import tracking
run = tracking.start()
for step in range(50):
    run.log(loss=1 / (step + 1), step=step)
Path(os.environ["PHALANX_OUTPUTS"], "best.pt").write_text("weights")
print("trained")
"""
ONE_SHOT = ("serve", "ui")  # they go on until they are ended, and have tests of their own
# How each verb is called on the home below. {first}, {spare}: runs that are over; {group}: a group that is; {url}: a
# server of that home. A verb that is not here is called with nothing but --json.
CALLS: dict[str, list[str]] = {
    "run": ["-f", "file.yml", "--name", "another"],
    "show": ["{first}"],
    "logs": ["{first}"],
    "events": ["{first}"],
    "top": ["--once"],
    "stop": ["{first}"],
    "shell": ["{first}"],
    "exec": ["{first}", "--", "true"],
    "group add": ["{added}", "x=0.5"],
    "group best": ["{group}"],
    "group extend": ["{extended}", "--n", "2"],
    "group pause": ["{group}"],
    "group resume": ["{resumed}"],
    "group set": ["{group}", "concurrency=2"],
    "group show": ["{group}"],
    "group stop": ["{group}"],
    "group trials": ["{group}"],
    "statuses": ["{first}"],
    "wait": ["{first}"],
    "priority": ["{first}", "3"],
    "archive": ["{spare}"],
    "unarchive": ["{spare}"],
    "star": ["{first}"],
    "unstar": ["{first}"],
    "tag": ["{first}", "+a"],
    "rename": ["{spare}", "renamed"],
    "note": ["{first}", "hello"],
    "tensorboard": ["{first}"],
    "restart": ["{first}"],
    "resume": ["{spare}"],
    "copy": ["{first}"],
    "rerun": ["{first}"],
    "rm": ["{extra}", "--yes"],
    "code": ["{first}"],
    "config get": ["project"],
    "config set": ["backend", "local"],
    "config unset": ["backend"],
    "projects create": ["team/vision"],
    "projects describe": ["default", "where runs go"],
    "projects rm": ["team"],
    "projects show": ["default"],
    "notify": ["{first}"],
    "gc": ["--dry-run"],
    "advise": ["{first}"],
    "size": ["-f", "file.yml", "--try", "cpu=1", "--for", "1s"],
    "metrics": ["{first}", "loss", "--plot"],
    "compare": ["{first}", "{spare}"],
    "outputs": ["{first}", "--push", "file://{store}"],
    "artifacts": ["{first}"],
    "report create": ["report.md", "--project", "install"],
    "report export": ["{report}", "--output", "report.html"],
    "report rm": ["{old_report}", "--yes"],
    "report show": ["{report}"],
    "report update": ["{report}", "report.md"],
    "models alias": ["net/1", "champion"],
    "models compare": ["net/1", "net/2"],
    "models delete": ["spare", "--yes"],
    "models describe": ["net", "a small one"],
    "models get": ["net/1", "--to", "got"],
    "models history": ["net"],
    "models register": ["{first}", "outputs/best.pt", "--name", "net"],
    "models show": ["net/1"],
    "models unalias": ["net", "held"],
    "import": ["metrics.csv"],
    "export": ["{first}", "--output", "exported"],
    "check": ["-f", "file.yml"],
    "plan": ["-f", "file.yml", "--on", "slurm", "--output", "job"],
    "convert": ["-f", "file.yml"],
    "init": ["--output", "started.yml"],
    "site show": ["narval"],
    "wheels": ["nothing", "--wheelhouse", "."],
    "token create": ["laptop"],
    "token revoke": ["old"],
    "users add": ["ana"],
    "users password": ["bob"],
    "users remove": ["eve"],
    "users role": ["bob", "editor"],
    "login": ["{url}"],
    "sync": ["--server", "{url}"],
    "completion": ["bash"],
}
STDIN = {"users add": "a long password\n", "users password": "another long password\n", "login": "{token}\n"}
# What cannot succeed here, and what it says then
REFUSED = {
    "site init": "login node",
    "wheels": "",
    "group pause": "has ended",
    "group set": "has ended",
    "group stop": "has ended",
    "priority": "has ended",
    "mcp": "pip install 'phalanx[mcp]'",
    "report export": "pip install 'phalanx[reports]'",
    "tensorboard": "pip install tensorboard",
    "notebook": "pip install jupyterlab",
    "shell": "is not running",
    "exec": "is not running",
}
# What needs an extra, each with its arguments and variables
NEEDS: list[tuple[str, list[str], dict[str, str]]] = [
    ("series", ["export", "{first}", "--format", "parquet", "--output", "table"], {}),
    ("kubernetes", ["run", "-f", "file.yml", "--on", "kubernetes", "--detach"], {}),
    ("kubernetes", ["run", "-f", "file.yml", "--on", "kubeflow"], {}),
    ("kubernetes", ["doctor", "--on", "kubernetes"], {}),
    ("reports", ["report", "export", "{report}"], {}),
    ("mcp", ["mcp"], {}),
    ("search", ["run", "-f", "tpe.yml"], {}),
    ("postgres", ["ps"], {"PHALANX_DATABASE": "postgresql://nowhere/runs"}),
    ("postgres", ["serve", "--port", "0"], {"PHALANX_DATABASE": "postgresql://nowhere/runs"}),
    ("s3", ["outputs", "{first}", "--push", "s3://bucket/runs"], {}),
    ("gcs", ["outputs", "{first}", "--push", "gs://bucket/runs"], {}),
    ("azure", ["outputs", "{first}", "--push", "az://bucket/runs"], {}),
]


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every verb, and those below it."""
    if isinstance(command, click.Group):
        if command.invoke_without_command and path:
            yield " ".join(path)
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, (*path, name))
    else:
        yield " ".join(path)


VERBS = list(leaves(phalanx))


# what is built ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """With hatchling, and nothing of ours."""
    environment = Environment(tmp_path_factory.mktemp("builder") / "venv")
    environment.install("hatchling")
    return environment


@pytest.fixture(scope="session")
def built(builder: Environment, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    must([builder.python, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder], cwd=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_the_wheel_has_the_page_and_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    names = set(contents(built[0]))
    listed = must(["git", "ls-files", "src/phalanx"], cwd=ROOT, within_s=VERB_S).out.splitlines()
    assert len(listed) > 100
    assert {name.removeprefix("src/") for name in listed} <= names
    assert "phalanx/server/page/index.html" in names
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []


def test_the_sdist_builds_the_same_wheel_without_node_and_without_network(
    builder: Environment, built: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "in", filter="data")
    (tree,) = (tmp_path / "in").iterdir()
    env = {"PATH": path_without(tmp_path / "commands", "node", "npm"), "PIP_NO_INDEX": "1"}
    must([builder.python, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "out"], cwd=tree, env=env)
    (again,) = (tmp_path / "out").glob("*.whl")
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


# what is installed --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def environment(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    found = Environment(tmp_path_factory.mktemp("installed") / "venv")
    found.install(built[0])
    return found


class Home(Installed):
    """A home with two runs that were really made there, models, tokens and users, and a server."""

    def __init__(self, base: Path, environment: Environment) -> None:
        super().__init__(base, environment)
        self.names: dict[str, str] = {}

    def fill(self) -> None:
        (self.folder / "program.py").write_text(PROGRAM)
        (self.folder / "file.yml").write_text(json.dumps({**FILE, "run": {"cmd": "python program.py"}}))
        for name, search in (("group", RANDOM), ("tpe", TPE)):
            group = {"version": 1, "kind": "group", "hptuning": {"matrix": {"x": {"uniform": [0, 1]}}, **search}}
            (self.folder / f"{name}.yml").write_text(json.dumps({**group, "run": {"cmd": "python program.py"}}))
        (self.folder / "metrics.csv").write_text("step,loss\n0,1.5\n1,1.25\n")
        self.names |= {name: self.made(name) for name in ("first", "spare", "extra")}
        for name in ("group", "added", "extended", "resumed"):
            self.names[name] = str(self.ok("run", "-f", "group.yml", "--name", name, "--json").data["id"])
        self.names["store"] = str(self.base / "store")
        (self.base / "store").mkdir()
        for model in ("net", "net", "spare"):
            self.ok("models", "register", self.names["first"], "outputs/best.pt", "--name", model)
        self.ok("models", "alias", "net/2", "held")
        (self.folder / "report.md").write_text("# Report\n\n```chart\nmetric: loss\n```\n")
        for name in ("report", "old_report"):
            self.names[name] = str(self.ok("report", "create", "report.md", "--json").data["report"]["id"])
        self.ok("token", "create", "old")
        for user in ("bob", "eve"):
            self.ok("users", "add", user, stdin=b"a very long password\n")

    def made(self, name: str) -> str:
        return str(self.ok("run", "-f", "file.yml", "--name", name, "--json").data["id"])

    def ok(self, *arguments: str, stdin: bytes = b"") -> Answer:
        answer = self.call(*arguments, stdin=stdin)
        assert answer.code == 0, f"{arguments}\n{answer.out}\n{answer.err}"
        return answer

    @contextmanager
    def served(self, *arguments: str) -> Iterator[tuple[str, str]]:
        """The address of a server, and its owner's token. It ends well when it is told to."""
        process = self.start(*arguments, "--port", "0", "--json")
        assert process.stdout is not None
        late = threading.Timer(VERB_S, kill_group, [process])
        late.start()
        try:
            announced = json.loads(process.stdout.readline() or "null")
            assert announced is not None, process.communicate(timeout=VERB_S)[1]
            yield announced["url"].rstrip("/"), Path(announced["token_file"]).read_text().strip()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=VERB_S)
            assert (process.returncode, "Traceback" in err) == (0, False), err
        finally:
            late.cancel()
            kill_group(process)


@pytest.fixture(scope="session")
def home(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    found = Home(tmp_path_factory.mktemp("home"), environment)
    try:
        found.fill()
        yield found
    finally:
        found.end()


def assert_no_fault_of_ours(answer: Answer) -> None:
    assert is_silent_about_itself(answer), answer
    assert answer.code in (0, 1, 2), answer


def test_the_plain_installation_brings_no_extra(environment: Environment) -> None:
    there = environment.packages()
    assert {"phalanx", "fastapi", "uvicorn"} <= there
    assert {extra.package for extra in EXTRAS.values()} & there == set()


def test_the_old_extra_of_the_server_still_installs(environment: Environment, built: tuple[Path, Path]) -> None:
    before = environment.packages()
    environment.install(f"phalanx[server] @ {built[0].as_uri()}")
    assert environment.packages() == before


def test_the_version_names_the_python_of_the_environment(home: Home, environment: Environment) -> None:
    first, second = home.ok("--version").out.splitlines()
    assert first.startswith(f"phalanx {__version__} (Python 3.")
    assert first.endswith(f", {environment.python})")
    assert second == f"extras: none; not installed: {', '.join(EXTRAS)} (see `phalanx doctor`)"


def test_every_verb_has_help(home: Home) -> None:
    assert len(VERBS) > 40
    for verb in VERBS:
        answer = home.call(*verb.split(), "--help")
        assert (answer.code, answer.err) == (0, ""), verb
        assert answer.out.startswith("Usage: phalanx"), verb
        assert_no_fault_of_ours(answer)


def test_the_doctor_lists_every_extra_as_missing(home: Home) -> None:
    parts = home.ok("doctor", "--json").data["installed"]["parts"]
    found = {part["name"]: part["found"] for part in parts}
    assert found["page"] == "built"
    assert {name: found[name] for name in EXTRAS} == dict.fromkeys(EXTRAS)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ONE_SHOT])
def test_every_verb_works(home: Home, verb: str) -> None:
    words, names = CALLS.get(verb, ["--json"]), dict(home.names)
    with ExitStack() as held:
        if "{url}" in words:
            names["url"], names["token"] = held.enter_context(home.served("serve"))
        stdin = STDIN.get(verb, "").format(**names)
        answer = home.call(*verb.split(), *(word.format(**names) for word in words), stdin=stdin.encode())
    assert_no_fault_of_ours(answer)
    if verb in REFUSED:
        assert answer.code in (1, 2), answer
        assert REFUSED[verb] in answer.out + answer.err
    else:
        assert answer.code == 0, answer


@pytest.mark.parametrize(("extra", "arguments", "variables"), NEEDS, ids=lambda value: str(value)[:40])
def test_what_needs_an_extra_names_it_in_one_sentence(
    home: Home, extra: str, arguments: list[str], variables: dict[str, str]
) -> None:
    words = [word.format(**home.names) for word in arguments]
    answer = home.call(*words, stdin=b"", **variables)
    assert (answer.code, answer.out) == (2, "")
    (said,) = answer.err.splitlines()
    assert said.startswith("error: ")
    assert said.endswith(f"which is not installed: {EXTRAS[extra].install}")


def test_python_names_the_extra_as_well(home: Home, environment: Environment) -> None:
    code = "import phalanx\ntry: phalanx.open().pandas()\nexcept Exception as fault: print(fault)"
    said = must([environment.python, "-c", code], env=home.environment(), within_s=VERB_S).out
    assert said.strip().endswith(f"which is not installed: {EXTRAS['pandas'].install}")


def test_slurm_is_refused_where_there_is_none(home: Home) -> None:
    before = home.run_ids()
    answer = home.call("run", "-f", "file.yml", "--on", "slurm", "--detach")
    assert (answer.code, answer.out) == (2, "")
    assert "`sbatch` is not on the PATH" in answer.err
    assert home.run_ids() == before


@pytest.mark.parametrize("arguments", [["serve"], ["ui", "--no-browser"]], ids=lambda words: words[0])
def test_the_server_has_the_page_and_the_api(home: Home, arguments: list[str]) -> None:
    with home.served(*arguments) as (url, token), httpx.Client(base_url=url, timeout=VERB_S, trust_env=False) as client:
        page = client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assets = re.findall(r'"(/assets/[^"]+)"', page.text)
        assert assets
        assert {client.get(asset).status_code for asset in assets} == {200}
        assert client.get("/api/v1/runs").status_code == 401
        runs: Any = client.get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).json()
        assert home.names["first"] in [run["id"] for run in runs["runs"]]


def test_no_one_in_the_background_had_a_fault(home: Home) -> None:
    logs = [path.read_text(errors="replace") for path in home.home.glob("*.log")]
    assert [log for log in logs if "Traceback" in log] == []


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != OWN_VERSION])
def test_it_installs_and_runs_with_another_python(version: str, built: tuple[Path, Path], tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    environment = Environment(tmp_path / "venv", python)
    environment.install(built[0])
    (tmp_path / "base").mkdir()
    place = Installed(tmp_path / "base", environment)
    try:
        assert f"(Python {version}." in place.call("--version").out
        (place.folder / "program.py").write_text(PROGRAM)
        answer = place.run("python program.py", "--json", framework="pytorch", environment=FILE["environment"])
        assert (answer.code, answer.data["status"]) == (0, "succeeded"), answer
        assert place.call("metrics", answer.data["id"], "loss").code == 0
        assert place.call("doctor").code == 0
    finally:
        place.end()
