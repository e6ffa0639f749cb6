"""The script that every container of a run begins with, in shells as images have them."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import phalanx.backends.kubernetes.render
from tests.agent.running import wait_for
from tests.leftovers import PATIENCE_S, Moment, marked

SCRIPT = Path(phalanx.backends.kubernetes.render.__file__).parent / "start.sh"


def shells() -> list[list[str]]:
    found = [[path] for name in ("dash", "bash") if (path := shutil.which(name))]
    busybox = shutil.which("busybox")
    return [*found, *([[busybox, "sh"]] if busybox else [])]


@pytest.fixture(params=shells(), ids=lambda shell: " ".join(map(os.path.basename, shell)))
def shell(request: pytest.FixtureRequest) -> list[str]:
    found: list[str] = request.param
    return found


class Image:
    """A PATH with some programs, and what a pod mounts."""

    def __init__(self, folder: Path, shell: list[str], *tools: str) -> None:
        self.root, self.programs, self.shell = folder / "phalanx", folder / "bin", shell
        for name in ("job", "agent", "bundle", "code", "shm"):
            (self.root / name).mkdir(parents=True)
        self.programs.mkdir()
        self.place(steps=[], working=str(self.root / "code"))
        for name in tools:
            found = shutil.which(name)
            assert found is not None
            os.symlink(found, self.programs / name)

    def place(self, **settings: Any) -> None:
        """As `carrying` writes it."""
        content = {
            "steps": settings["steps"],
            "code": {"kind": "bundle", "working": settings["working"]},
            "server": None,
        }
        (self.root / "job" / "place.json").write_text(json.dumps(content, indent=1) + "\n")

    def program(self, name: str, text: str) -> Path:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def python(self, name: str, version: str) -> Path:
        """Says how it was called."""
        is_old = version.startswith(("2", "3.6"))
        return self.program(name, f'[ "$3" = -c ] && exit {int(is_old)}; echo {version} "$@"')

    def command(self, *arguments: str) -> list[str]:
        script = SCRIPT.read_text()
        for path in ("/usr/local/bin/python3", "/usr/bin/python3", "/opt/conda/bin/python3"):
            assert path in script
            script = script.replace(path, "/no" + path)  # those of this machine are not the image's
        (self.root / "job" / "start.sh").write_text(script)
        return [*self.shell, str(self.root / "job" / "start.sh"), *arguments]

    def variables(self, **more: str) -> dict[str, str]:
        return {"PATH": str(self.programs), "PHALANX_POD_ROOT": str(self.root), **more}

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        answer = subprocess.run(
            self.command(*arguments), env=self.variables(**variables),
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        return answer.returncode, answer.stdout, answer.stderr


def pack(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("sub/train.txt")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"code"))


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("run", "--pod"),
        ("prepare", "--prepare"),
        ("train-job prepare", "--train-job prepare"),
        ("train-job run", "--train-job run"),
    ],
)
def test_the_agent_takes_over_where_there_is_a_python(tmp_path: Path, shell: list[str], mode: str, wanted: str) -> None:
    image = Image(tmp_path, shell)
    image.python("python3", "3.9")
    code, out, err = image.run(*mode.split(), "echo", "$(never read)")
    assert (code, err) == (0, "")
    assert out == f"3.9 -I -S {image.root}/agent/agent.pyz {wanted}\n"


def test_an_old_python_is_passed_over(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    image.python("python3", "3.6")
    image.python("python", "3.12")
    assert image.run("run", "true")[1].startswith("3.12 -I -S ")


def test_the_python_that_is_named_comes_first(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    image.python("python3", "3.9")
    named = image.python("other", "3.11")
    assert image.run("run", PHALANX_PYTHON=str(named))[1].startswith("3.11 ")
    assert image.run("run", PHALANX_PYTHON="/no/such; echo evil")[1].startswith("3.9 ")


def test_it_is_a_real_python_that_is_asked(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    (image.root / "agent" / "agent.pyz").write_text("import sys; print(sys.argv[1:], sys.flags.isolated)")
    assert image.run("run", PHALANX_PYTHON=sys.executable)[:2] == (0, "['--pod'] 1\n")


def test_without_python_the_command_itself_runs(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell, "env")
    image.program("train", 'pwd; for word in "$@"; do echo "[$word]"; done; env; exit 7')
    code, out, err = image.run("run", "train", "a b", "$(echo evil)", "", "it's", PHALANX_RUN_TOKEN="phr_secret")
    assert code == 7
    assert out.splitlines()[:5] == [str(image.root / "code"), "[a b]", "[$(echo evil)]", "[]", "[it's]"]
    assert "phr_secret" not in out + err
    assert err.startswith("phalanx: no Python of at least 3.8 in this image")
    assert err.count("\n") == 1


def test_a_user_whom_the_image_does_not_know_has_a_name(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    image.program("train", 'echo "$USER $LOGNAME"')
    assert image.run("run", "train", USER="eve")[1] == "eve \n"
    if "busybox" in shell[0]:
        pytest.skip("it has an `id` of its own")
    assert image.run("run", "train")[1] == "phalanx phalanx\n", "not every image has `id`"
    image.program("id", 'echo 1000; echo "id: cannot find name for user ID 1000" >&2; exit 1')
    _, out, err = image.run("run", "train")
    assert (out, err.count("\n")) == ("phalanx phalanx\n", 1)
    image.program("id", "echo ada")
    assert image.run("run", "train")[1] == "ada ada\n"
    image.program("python3", '[ "$3" = -c ] || echo "$USER"')
    assert image.run("run", "train")[1] == "ada\n"


def test_it_runs_where_the_place_says_or_the_image(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    image.program("train", "pwd")
    image.place(steps=[], working=None)
    assert image.run("run", "train")[1].strip() == os.getcwd()
    image.place(steps=[], working=str(tmp_path))
    assert image.run("run", "train")[1].strip() == str(tmp_path)
    image.place(steps=[], working="/no/such")
    assert image.run("run", "train")[0] == 78


def test_without_python_and_command_it_says_so(tmp_path: Path, shell: list[str]) -> None:
    code, _, err = Image(tmp_path, shell).run("run")
    assert code == 78
    assert "there is no command" in err


def test_without_python_the_code_is_unpacked_by_tar(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell, "mkdir", "tar", "gzip", "cat")
    pack(image.root / "bundle" / "code.tar.gz")
    assert image.run("prepare") == (0, "", "")
    assert (image.root / "code" / "sub" / "train.txt").read_text() == "code"


def test_code_in_pieces_is_joined(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell, "mkdir", "tar", "gzip", "cat")
    whole = image.root / "bundle" / "code.tar.gz"
    pack(whole)
    data = whole.read_bytes()
    whole.write_bytes(data[:20])
    (image.root / "bundle" / "code.tar.gz.1").write_bytes(data[20:40])
    (image.root / "bundle" / "code.tar.gz.2").write_bytes(data[40:])
    assert image.run("prepare") == (0, "", "")
    assert (image.root / "code" / "sub" / "train.txt").read_text() == "code"


@pytest.mark.parametrize(
    ("tools", "steps", "has_bundle", "wanted"),
    [
        (("mkdir",), [], True, "neither Python nor tar"),
        (("mkdir", "tar", "gzip", "cat"), [], False, "fetching the code needs a Python"),
        (("mkdir", "tar", "gzip", "cat"), ["pip install x"], True, "build steps need a Python"),
    ],
)
def test_what_cannot_be_prepared_without_python_is_reported(  # noqa: PLR0917 - one for each thing
    tmp_path: Path, shell: list[str], tools: tuple[str, ...], steps: list[str], has_bundle: bool, wanted: str
) -> None:
    if shell[-1] == "sh" and "tar" not in tools:
        pytest.skip("this shell has a tar of its own")
    image = Image(tmp_path, shell, *tools)
    image.place(steps=steps, working=None)
    if has_bundle:
        pack(image.root / "bundle" / "code.tar.gz")
    code, _, err = image.run("prepare")
    assert code == 78
    assert wanted in err


def test_a_damaged_archive_is_reported(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell, "mkdir", "tar", "gzip", "cat")
    (image.root / "bundle" / "code.tar.gz").write_bytes(b"no archive")
    code, _, err = image.run("prepare")
    assert code == 78
    assert "could not be unpacked" in err


def test_where_there_is_no_bash_its_ancestor_runs_the_command(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    code, said, _ = image.run("run", "bash", "-c", 'echo "it ran"; exit 3')
    assert (code, said) == (3, "it ran\n")


# a TrainJob's container, without a Python ----------------------------------------------------------------------------


def test_one_container_unpacks_the_code_and_runs_the_command(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell, "mkdir", "tar", "gzip", "cat")
    image.program("train", 'cat sub/train.txt; for word in "$@"; do echo "[$word]"; done; exit 7')
    pack(image.root / "bundle" / "code.tar.gz")
    code, out, _ = image.run("train-job", "prepare", "train", "a b", "$(echo evil)", "it's")
    assert (code, out) == (7, "code[a b]\n[$(echo evil)]\n[it's]\n")


def test_what_cannot_be_unpacked_is_not_run(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell, "mkdir", "tar", "gzip", "cat")
    image.program("train", "echo ran")
    assert image.run("train-job", "prepare", "train")[:2] == (78, "")


def test_code_that_is_in_the_image_is_not_unpacked(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    image.program("train", "echo ran")
    assert image.run("train-job", "run", "train")[:2] == (0, "ran\n")


def test_without_shared_memory_the_command_runs(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    image.program("train", "echo ran")
    (image.root / "shm").rmdir()
    code, out, err = image.run("train-job", "run", "train")
    assert (code, out) == (0, "ran\n")
    assert err.count("\n") == 1, "nothing but that there is no Python"


@pytest.mark.slow
def test_a_container_that_is_restarted_runs_nothing_and_waits_to_be_removed(tmp_path: Path, shell: list[str]) -> None:
    image = Image(tmp_path, shell)
    image.program("train", "echo ran")
    image.program("sleep", f'echo "$1" >>{tmp_path}/slept')
    assert image.run("train-job", "run", "train")[:2] == (0, "ran\n")
    if "busybox" in shell[0]:
        pytest.skip("it has a `sleep` of its own")
    code, out, err = image.run("train-job", "run", "train")
    assert (code, out) == (1, "")
    assert err == "phalanx: what ran in this pod has ended, and is not started again\n"
    assert sum(map(int, (tmp_path / "slept").read_text().split())) == 600


# signals -------------------------------------------------------------------------------------------------------------

UNSHARE = (shutil.which("unshare") or "unshare", "--pid", "--fork", "--kill-child")
needs_namespaces = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("unshare") is None, reason="only root makes a namespace"
)


def first_below(process: subprocess.Popen[bytes]) -> int:
    """The first process of the namespace that `unshare` has made."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(children.read_text)
    return int(children.read_text())


@pytest.mark.parametrize("is_first", [False, pytest.param(True, marks=needs_namespaces)])
def test_who_waits_to_be_removed_ends_when_reported(tmp_path: Path, shell: list[str], is_first: bool) -> None:
    image = Image(tmp_path, shell, "sleep")
    (image.root / "shm" / ".phalanx-begun").touch()
    said = tmp_path / "said"
    with marked() as here, said.open("wb") as err:
        before = UNSHARE if is_first else ()
        process = here.start([*before, *image.command("train-job", "run", "true")], image.variables(), stderr=err)
        wait_for(lambda: b"not started again" in said.read_bytes())
        os.kill(first_below(process) if is_first else process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
        assert here.left() == []


@needs_namespaces
@pytest.mark.parametrize("mode", ["run", "prepare", "train-job run"])
def test_as_the_first_process_it_hears_before_the_agent_is_there(tmp_path: Path, shell: list[str], mode: str) -> None:
    image = Image(tmp_path, shell, "sleep")
    asked, go_on = tmp_path / "asked", tmp_path / "go-on"
    image.program("python3", f': >"{asked}"; until [ -e "{go_on}" ]; do sleep 0.02; done; echo "$@"')
    said = tmp_path / "said"
    with marked() as here, said.open("wb") as out:
        process = here.start([*UNSHARE, *image.command(*mode.split(), "true")], image.variables(), stdout=out)
        wait_for(asked.exists)
        os.kill(first_below(process), signal.SIGTERM)
        go_on.touch()
        assert process.wait(PATIENCE_S) == 143
        assert said.read_bytes() == b""


@pytest.mark.skipif(shutil.which("bash") is None, reason="only bash says what it is about to do")
@pytest.mark.slow
def test_whenever_it_is_asked_to_end_nothing_of_it_stays(tmp_path: Path) -> None:
    for number in count(1):
        folder = tmp_path / str(number)
        image = Image(folder, [str(shutil.which("bash"))], "mkdir", "tar", "gzip", "cat", "sleep")
        image.program("train", f': >"{folder}/ran"; sleep 600')
        pack(image.root / "bundle" / "code.tar.gz")
        moment = Moment(tmp_path, number)
        with marked() as here:
            command = image.command("train-job", "prepare", "train")
            process = here.start(command, image.variables(**moment.variables), stderr=subprocess.DEVNULL)
            here.wait_for_any(process, moment.file, folder / "ran")
            if not moment.has_come:  # the command has come first
                break
            assert process.wait(PATIENCE_S) == -signal.SIGTERM
            assert here.left() == []
    assert number > 20
