"""phalanx completion"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from phalanx.cli import VERBS
from tests.cli.running import COMMAND, called, quick


def offered(words: str) -> list[str]:
    """What bash is offered after these words, the last of which is being typed."""
    answer = called(_PHALANX_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    assert answer.err == ""
    return [line.partition(",")[2] for line in answer.out.splitlines()]


def test_the_script_for_bash_is_accepted_by_bash() -> None:
    answer = called("completion", "bash")
    assert (answer.code, answer.err) == (0, "")
    assert subprocess.run(["bash", "-n"], input=answer.out, text=True, check=False).returncode == 0


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_there_are_scripts_for_other_shells(shell: str) -> None:
    answer = quick("completion", shell)
    assert answer.code == 0
    assert "_PHALANX_COMPLETE" in answer.out


@pytest.mark.slow  # `make test` needs nothing but Python
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_for_other_shells_are_accepted_by_them(shell: str) -> None:
    answer = quick("completion", shell)
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    assert subprocess.run([shell, "-n"], input=answer.out, text=True, check=False).returncode == 0


def test_every_verb_is_offered() -> None:
    assert offered("phalanx ") == list(VERBS)


def test_the_beginning_of_a_verb_is_completed() -> None:
    assert offered("phalanx conv") == ["convert"]


def test_options_are_offered() -> None:
    assert {"--file", "--params", "--json", "--on", "--output", "--replica"} <= set(offered("phalanx plan --"))


def test_backends_and_shells_are_offered() -> None:
    assert "local" in offered("phalanx plan --on ")
    assert offered("phalanx completion ") == ["bash", "zsh", "fish"]


def test_bash_really_completes(tmp_path: Path) -> None:
    script = """
        eval "$(phalanx completion bash)"
        COMP_WORDS=(phalanx sch) COMP_CWORD=1
        _phalanx_completion phalanx
        echo "${COMPREPLY[@]}"
    """
    folder = str(Path(COMMAND).parent)
    answer = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert (answer.stdout, answer.stderr) == ("schema\n", "")


def test_the_script_comes_as_json_too() -> None:
    data = quick("completion", "bash", "--json").data
    assert data["shell"] == "bash"
    assert data["script"].strip() == quick("completion", "bash").out.strip()


@pytest.mark.parametrize("arguments", [["tcsh"], []])
def test_other_shells_are_a_wrong_call(arguments: list[str]) -> None:
    assert quick("completion", *arguments).code == 2
