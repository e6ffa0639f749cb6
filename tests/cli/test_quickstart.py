from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from phalanx.cli.commands import quickstart
from phalanx.cli.commands.quickstart import BROKEN, FILES, example_files, next_steps, prepare_home, write_example
from phalanx.errors import CallError
from phalanx.submission.snapshots import files_of
from tests.cli.homes import wait_for
from tests.cli.running import COMMAND, Answer

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "quickstart"
PATIENCE_S = 240


def environment(**more: str) -> dict[str, str]:
    """As a new user has it: no `phalanx` on the PATH, and nothing of ours in the environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
    ours = str(Path(sys.executable).parent)
    path = os.pathsep.join(folder for folder in kept["PATH"].split(os.pathsep) if folder != ours)
    return {**kept, "PATH": path, **more}


def called(*arguments: str, cwd: Path, **more: str) -> Answer:
    done = subprocess.run(
        [COMMAND, "quickstart", *arguments],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(name="finished", scope="module")
def finished_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Answer]]:
    """A home after `make demo`, and what the command printed."""
    folder = tmp_path_factory.mktemp("demo")
    home = folder / "a home"
    yield home, called(str(EXAMPLE), "--home", str(home), cwd=folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_it_trains_loads_the_page_and_ends_by_itself(finished: tuple[Path, Answer]) -> None:
    home, answer = finished
    assert answer.code == 0, answer.err
    assert "ok: polyaxonfile.yml" in answer.out
    assert "rank 3 of 4 done" in answer.out
    assert "succeeded" in answer.out
    assert "The page works" in answer.out or "page is not built" in answer.out
    assert not (home / "server.json").exists()
    assert not (EXAMPLE / "home").exists()


@pytest.mark.slow
def test_every_command_that_it_suggests_works(finished: tuple[Path, Answer]) -> None:
    home, answer = finished
    steps = [line.strip().partition("  #")[0].rstrip() for line in answer.out.partition("Try next:")[2].splitlines()]
    steps = [step for step in steps if step.startswith(("cd ", "export ", "phalanx "))]
    assert steps[-1] == "phalanx ui"
    assert str(home) in next(step for step in steps if "PHALANX_HOME" in step).replace("'", "")
    script = ["set -eu"]
    for step in steps[:-1]:
        script += [f"echo '== {step.replace(chr(39), '')}'", f"! {step}" if step == BROKEN else step]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=home.parent,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "worker-1 failed first: RuntimeError: rank 2 is broken on purpose" in done.stdout
    assert "learning_rate" in done.stdout.partition("== phalanx compare")[2]
    assert "#SBATCH --ntasks=4" in done.stdout
    places = [step for step in steps if not step.startswith("phalanx ")]
    with subprocess.Popen(
        ["bash", "-c", "\n".join([*places, f"exec {steps[-1]} --no-browser --port 0"])],
        cwd=home.parent,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as page:
        assert page.stdout is not None
        try:
            assert "serving at http://127.0.0.1:" in page.stdout.readline()
            page.send_signal(signal.SIGINT)
            assert page.wait(60) == 0
        finally:
            page.kill()


@pytest.mark.slow
def test_it_runs_once_more_on_the_same_folder_and_answers_programs(tmp_path: Path) -> None:
    for number in (1, 2):
        answer = called("--json", "--no-ui", cwd=tmp_path, PHALANX_DATABASE="postgresql://nowhere.invalid/x")
        assert answer.code == 0, answer.err
        assert answer.data["status"] == "succeeded"
        assert answer.data["folder"] == str(tmp_path / "phalanx-quickstart")
        home = Path(answer.data["home"])
        assert home == tmp_path / "phalanx-quickstart" / "home"
        assert len([entry for entry in (home / "runs").iterdir() if not entry.name.startswith(".")]) == number
    assert "unset PHALANX_DATABASE" in answer.data["next"]


@pytest.mark.slow
def test_in_a_terminal_it_stays_with_the_page_until_ctrl_c(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in environment(TERM="xterm").items() if name not in ("CI", "SSH_CONNECTION")}
    process = subprocess.Popen(
        [COMMAND, "quickstart", "q", "--no-browser"], cwd=tmp_path, env=kept, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = bytearray()
    try:

        def is_open() -> bool:
            with suppress(OSError):
                shown.extend(os.read(ours, 65_536))
            assert process.poll() is None, shown.decode()
            return b"/runs/" in shown and b"#token=" in shown

        wait_for(is_open, PATIENCE_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"Try next, in another terminal:" in shown


@pytest.mark.slow
def test_a_run_that_fails_ends_it_with_that_code(tmp_path: Path) -> None:
    """It fails because there is no python3 on the PATH."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "git"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    answer = called("q", cwd=tmp_path, PATH=str(tools))
    assert answer.code == 127
    assert "Try next" not in answer.out
    assert "failed" in answer.err
    answer = called("q", "--json", cwd=tmp_path, PATH=str(tools))
    assert answer.code == 2
    assert answer.data["ok"] is False


# its files --------------------------------------------------------------------------------------------------------


def test_the_wheel_has_every_file_of_the_example() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"] == {
        f"examples/quickstart/{name}": f"phalanx/examples/quickstart/{name}" for name in FILES
    }
    assert example_files() == {name: (EXAMPLE / name).read_bytes() for name in FILES}


def test_an_empty_folder_is_filled_and_a_full_one_is_kept(tmp_path: Path) -> None:
    for folder in (tmp_path / "new" / "deep", tmp_path / "empty"):
        folder.parent.mkdir(exist_ok=True)
        write_example(folder, force=False)
        write_example(folder, force=False)
        assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("precious")
    for force in (False, True):
        with pytest.raises(CallError, match="name another folder"):
            write_example(tmp_path, force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert (tmp_path / "train.py").read_text() == "precious"


@pytest.mark.parametrize("path", ["a file", "a file/below"])
def test_a_file_in_the_way_is_a_clear_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "a file").touch()
    answer = called(path, cwd=tmp_path)
    assert answer.code == 2
    assert "name another folder" in answer.err


def test_a_changed_file_is_only_restored_on_demand(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    write_example(folder, force=False)
    (folder / "train.py").write_text("mine")
    with pytest.raises(CallError, match=r"train\.py was changed: run your version with `phalanx run` in that folder"):
        write_example(folder, force=False)
    assert (folder / "train.py").read_text() == "mine"
    write_example(folder, force=True)
    assert (folder / "train.py").read_bytes() == (EXAMPLE / "train.py").read_bytes()


@pytest.mark.parametrize("in_git", [False, True])
def test_the_runs_beside_the_code_are_not_part_of_it(tmp_path: Path, in_git: bool) -> None:
    write_example(tmp_path / "q", force=False)
    prepare_home(tmp_path / "q" / "home")
    (tmp_path / "q" / "home" / "token").touch()
    if in_git:
        subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    assert sorted(map(str, files_of(tmp_path / "q"))) == sorted(FILES)


# what it suggests -------------------------------------------------------------------------------------------------


def test_the_path_is_only_suggested_where_the_shell_finds_another_phalanx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [COMMAND])
    found = {**environment(), "PATH": str(Path(COMMAND).parent)}
    run = type("Run", (), {"id": "abc"})()
    commands = [step.command for step in next_steps(Path("a b"), tmp_path, run, found)]
    assert commands[:2] == ["cd 'a b'", f"export PHALANX_HOME={tmp_path}"]
    assert not any("PATH=" in command for command in commands[2:])
    commands = [
        step.command for step in next_steps(Path("q"), tmp_path, run, {"PATH": "/nowhere", "PHALANX_SERVER": "x"})
    ]
    assert commands[2] == "unset PHALANX_SERVER"
    assert commands[3] == f'export PATH={Path(COMMAND).parent}:"$PATH"'


def test_without_a_terminal_no_one_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert quickstart.is_interactive() is False
