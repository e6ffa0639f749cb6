"""The command as a whole: its verbs, its exit codes, and what it lets through to a terminal."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from phalanx import __version__
from phalanx.cli import SECTIONS, VERBS, phalanx
from phalanx.extras import EXTRAS
from tests.cli.running import called, in_shell, in_terminal, is_silent_about_itself, quick
from tests.cli.samples import ALONE, HEAD, SECTION

EVIL = r"\e]0;owned\a\e[2J\x9b2J\x7f\u202E"  # as YAML writes it between double quotes
OURS = re.compile(r"\x1b\[[0-9;]*m")


# verbs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_reported_with_its_python_and_extras(option: str) -> None:
    answer = called(option)
    assert (answer.code, answer.err) == (0, "")
    first, second = answer.out.splitlines()
    assert first == f"phalanx {__version__} (Python {platform.python_version()}, {sys.executable})"
    there, _, missing = (
        second.removeprefix("extras: ").removesuffix(" (see `phalanx doctor`)").partition("; not installed: ")
    )
    assert {*there.split(", "), *missing.split(", ")} - {"", "none"} == set(EXTRAS)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_every_verb(option: str) -> None:
    answer = called(option)
    assert (answer.code, answer.err) == (0, "")
    listed = [line.split()[0] for line in answer.out.splitlines() if line.startswith("  ")]
    assert [verb for verb in VERBS if verb not in listed] == []
    assert all(f"{title}:\n" in answer.out for title in SECTIONS)


def calls() -> list[tuple[str, ...]]:
    """Every verb, and those below it."""
    found: list[tuple[str, ...]] = []
    for verb in VERBS:
        command = phalanx.get_command(click.Context(phalanx), verb)
        below = list(command.commands) if isinstance(command, click.Group) else []
        found += [(verb, name) for name in below] or [(verb,)]
    return found


@pytest.mark.parametrize("verb", calls(), ids=" ".join)
def test_every_verb_has_help_and_json(verb: tuple[str, ...]) -> None:
    for option in ("--help", "-h"):
        answer = quick(*verb, option)
        assert answer.code == 0
        assert "--json" in answer.out


@pytest.mark.parametrize(("typed", "meant"), [("chek", "check"), ("conver", "convert"), ("shcema", "schema")])
def test_a_mistyped_verb_is_a_wrong_call_with_a_suggestion(typed: str, meant: str) -> None:
    answer = called(typed)
    assert (answer.code, answer.out) == (2, "")
    assert f"did you mean `{meant}`?" in answer.err


def test_a_verb_like_no_other_is_a_wrong_call() -> None:
    answer = quick("zzzz")
    assert answer.code == 2
    assert "did you mean" not in answer.err
    assert "zzzz" in answer.err


def test_no_verb_at_all_shows_the_help() -> None:
    answer = quick()
    assert answer.code in (0, 2)
    assert "Installation and servers:" in answer.out + answer.err


# what comes before the work ---------------------------------------------------------------------------------------


def modules_after(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_starting_imports_no_verb_and_nothing_heavy() -> None:
    loaded = modules_after("import phalanx.cli")
    assert not {"yaml", "jinja2", "phalanx.spec", "phalanx.plan", "phalanx.cli.commands.check"} & loaded


def test_checking_an_ordinary_file_does_not_import_the_template_engine(tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_text(ALONE, encoding="utf-8")
    loaded = modules_after(
        f"from phalanx.cli import phalanx\nphalanx(['check', '-f', {str(file)!r}], standalone_mode=False)"
    )
    assert "phalanx.spec.loader" in loaded
    assert "jinja2" not in loaded


HEAVY = {"fastapi", "starlette", "uvicorn", "pydantic", "anyio", "httpx", "fsspec", "pyarrow", "kubernetes", "pandas"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check", "-f", "FILE"], ["ps"]], ids=" ".join)
def test_verbs_in_daily_use_import_no_server_and_no_extra(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_text(ALONE, encoding="utf-8")
    called_with = [str(file) if word == "FILE" else word for word in arguments]
    loaded = modules_after(
        f"import os; os.environ.update(PHALANX_HOME={str(tmp_path / 'home')!r}); os.environ.pop('PHALANX_SERVER', 0)\n"
        f"from phalanx.cli import phalanx\nphalanx({called_with!r}, standalone_mode=False)"
    )
    assert "phalanx.cli" in loaded
    assert HEAVY & loaded == set()


# Modules that a verb imports beyond those of Python itself: most of the time of a short command.
BUDGETS = {"--help": 66, "check -f FILE": 164, "ps": 134, "ps --json": 135, "show --help": 102}
NOT_NEEDED = {"logging", "asyncio", "ssl", "email", "importlib.metadata", "subprocess", "socket", "yaml", "shutil"}
NOT_NEEDED |= {"inspect", "uuid", "hashlib", "dataclasses", "urllib.parse", "gettext"}


@pytest.mark.parametrize("call", BUDGETS)
def test_verbs_in_daily_use_stay_within_their_import_budget(call: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_text(ALONE, encoding="utf-8")
    called_with = [str(file) if word == "FILE" else word for word in call.split()]
    loaded = modules_after(
        f"import os; os.environ.update(PHALANX_HOME={str(tmp_path / 'home')!r}); os.environ.pop('PHALANX_SERVER', 0)\n"
        f"from phalanx.cli import phalanx\nphalanx({called_with!r}, standalone_mode=False)"
    )
    found = loaded - modules_after("pass")
    assert "phalanx.scheduler.loop" not in found  # nothing is to be scheduled
    assert len(found) <= BUDGETS[call], sorted(found)
    if call.startswith("ps"):
        assert not NOT_NEEDED & found


def test_exit_hooks_run_and_output_is_complete_although_the_process_leaves_at_once() -> None:
    script = """import atexit, sys
from phalanx.cli import main
atexit.register(lambda: print('hook', end=''))
sys.argv = ['phalanx', {!r}]
main()"""
    for verb, code, last in (("--help", 0, "hook"), ("nonsense", 2, "hook")):
        command = [sys.executable, "-c", script.format(verb)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout[-4:]) == (code, last)


def test_a_full_disk_at_the_very_end_is_reported() -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-c", "from phalanx.cli import main; main()", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "cannot write the output" in done.stderr


# terminals --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_colours_are_for_terminals_only(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yml", tmp_path / "bad.yml"
    good.write_text(SECTION, encoding="utf-8")
    bad.write_text(HEAD + "rnu: 1\n", encoding="utf-8")
    for file, code in ((good, 0), (bad, 1)):
        plain = called("check", "-f", str(file))
        assert plain.code == code
        assert "\x1b" not in plain.out + plain.err
        shown_code, shown = in_terminal("check", "-f", str(file))
        assert shown_code == code
        assert OURS.search(shown)
        assert OURS.sub("", shown).replace("\r\n", "\n") == plain.out + plain.err


def obeyed(shown: str, categories: tuple[str, ...] = ("Cc", "Cf", "Zl", "Zp")) -> list[str]:
    """Characters by which a text could move the cursor, recolour, retitle or reorder what a person sees."""
    rest = OURS.sub("", shown)
    return [repr(c) for c in rest if unicodedata.category(c) in categories and c not in "\r\n\t"]


def coloured(*arguments: str, stdin: str) -> Result:
    """The command as on a terminal: with colours off, click itself takes some sequences out."""
    result = CliRunner().invoke(phalanx, arguments, input=stdin, color=True)
    assert result.exit_code in (0, 1), result.output
    return result


SPITEFUL = {
    "an unknown key": HEAD + f'"x{EVIL}": 1\n',
    "an unknown key far below": HEAD + f'environment: {{resources: {{"x{EVIL}": 1}}}}\n',
    "a wrong word": HEAD + f'logging: {{level: "x{EVIL}"}}\n',
    "a wrong number": HEAD + f'environment: {{resources: {{cpu: {{limits: "{EVIL}"}}}}}}\n',
    "a wrong kind": f'version: 1\nkind: "x{EVIL}"\n',
    "a wrong backend": HEAD + f'backend: "x{EVIL}"\nrun: {{cmd: ls}}\n',
    "an unknown name in a template": HEAD + f'run: {{cmd: "x{EVIL} {{{{ nobody }}}}"}}\n',
    "a broken template": HEAD + f'run: {{cmd: "{{{{ x {EVIL} }}}}"}}\n',
    "a key that stands twice": HEAD + f'params: {{"{EVIL}": 1, "{EVIL}": 2}}\n',
    "an image": HEAD + f'build: {{image: "a b{EVIL}"}}\n',
    "an unknown framework": HEAD + f'framework: "x{EVIL}"\nenvironment: {{replicas: {{n_workers: 1}}}}\n',
    "a label of a framework": HEAD + f'framework: "x{EVIL}"\nrun: {{cmd: ls}}\n',
    "a command": HEAD + f'run: {{cmd: "echo x{EVIL}"}}\n',
    "a param": HEAD + f'params: {{"x{EVIL}": "y{EVIL}"}}\nrun: {{cmd: ls}}\n',
    "tags that are read as a list": HEAD + f'tags: "a{EVIL},b"\nrun: {{cmd: ls}}\n',
    "a level that is read otherwise": HEAD + f'logging: {{level: warning, path: "x{EVIL}"}}\nrun: {{cmd: ls}}\n',
    "a variable": HEAD + f'environment: {{env_vars: [[A, "x{EVIL}"]]}}\nrun: {{cmd: ls}}\n',
    "a label": HEAD + f'environment: {{labels: {{"a{EVIL}": "x{EVIL}"}}}}\nrun: {{cmd: ls}}\n',
    "the backend of a job": f'version: 1\nkind: job\nbackend: "x{EVIL}"\nrun: {{cmd: ls}}\n',
    "a matrix": f'version: 1\nkind: group\nhptuning: {{matrix: {{"x{EVIL}": {{values: ["{EVIL}"]}}}}}}\n',
    "a template elsewhere": f'version: 1\nkind: pipeline\nops: [{{name: a, template: {{path: "x{EVIL}"}}}}]\n',
    "a step of a build": f'version: 1\nkind: build\nimage: python:3\nbuild_steps: ["x{EVIL}"]\n',
}  # fmt: skip


@pytest.mark.parametrize("name", SPITEFUL)
@pytest.mark.parametrize("verb", ["check", "plan"])
def test_no_text_of_a_file_is_obeyed_by_a_terminal(name: str, verb: str) -> None:
    assert obeyed(coloured(verb, "-f", "-", stdin=SPITEFUL[name]).output) == []


@pytest.mark.parametrize("name", SPITEFUL)
def test_no_text_of_a_converted_file_is_obeyed_by_a_terminal(name: str) -> None:
    result = coloured("convert", "-f", "-", stdin=SPITEFUL[name])
    assert obeyed(result.stderr) == []
    assert obeyed(result.stdout, ("Cc",)) == []  # a file may well be written from right to left


@pytest.mark.parametrize("name", SPITEFUL)
def test_no_text_in_json_is_obeyed_by_a_terminal(name: str) -> None:
    for verb in ("check", "plan", "convert"):
        assert obeyed(coloured(verb, "--json", "-f", "-", stdin=SPITEFUL[name]).output, ("Cc",)) == []


def test_a_spiteful_file_in_a_real_terminal(tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_text(SPITEFUL["an unknown key"], encoding="utf-8")
    code, shown = in_terminal("check", "-f", str(file))
    assert code == 1
    assert obeyed(shown) == []


@pytest.mark.parametrize("verb", ["check", "plan", "convert"])
@pytest.mark.parametrize("text", [SECTION, HEAD + "rnu: 1\n"])
def test_the_name_of_a_file_is_not_obeyed_either(tmp_path: Path, verb: str, text: str) -> None:
    file = tmp_path / "a\x1b]0;owned\x07\x9b2J.yml"
    file.write_text(text, encoding="utf-8")
    _, shown = in_terminal(verb, "-f", str(file))
    assert obeyed(shown) == []


def test_the_name_of_a_folder_is_not_obeyed_either(tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_text(HEAD + "run: {cmd: ls}\n", encoding="utf-8")
    _, shown = in_terminal("plan", "-f", str(file), "-o", str(tmp_path / "job\x1b]0;owned\x07"))
    assert obeyed(shown) == []


# pipes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["schema", "plan --json -f file.yml", "plan -f file.yml", "convert -f file.yml"])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, verb: str) -> None:
    variables = "".join(f"    V{number}: {'x' * 100}\n" for number in range(2000))
    (tmp_path / "file.yml").write_text(
        f"{HEAD}environment:\n  env_vars:\n{variables}run: {{cmd: ls}}\n", encoding="utf-8"
    )
    answer = in_shell(f'"$PHALANX" {verb} | head -c 10 > /dev/null; echo "${{PIPESTATUS[0]}}"', tmp_path)
    assert answer.err == ""
    assert int(answer.out) in (0, 141)  # never 1 or 2: neither the file nor the call is wrong


def test_a_full_disk_is_reported_and_not_called_a_bug(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("only Linux has a disk that is always full")
    answer = in_shell('"$PHALANX" schema > /dev/full', tmp_path)
    assert answer.code != 0
    assert "no space left" in answer.err.lower()
    assert is_silent_about_itself(answer)


def test_closed_outputs_do_no_harm(tmp_path: Path) -> None:
    answer = in_shell('"$PHALANX" --version >&-; "$PHALANX" check -f nothing.yml 2>&-; echo $?', tmp_path)
    assert answer.out == "2\n"
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_knows_few_characters_is_no_error(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "file.yml").write_text(HEAD + "日本: 1\n", encoding="utf-8")
    answer = called("check", "-f", "file.yml", cwd=tmp_path, PYTHONIOENCODING=encoding, LC_ALL="C")
    assert answer.code == 1
    assert "日本" in answer.err or r"\u65e5\u672c" in answer.err
    assert is_silent_about_itself(answer)
