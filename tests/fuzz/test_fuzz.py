"""Files that once broke the reader stay mended, and the fuzzer finds, tells apart and shrinks what is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.cases import Case, read_cases
from tests.fuzz.minimiser import minimise
from tests.fuzz.mutations import Seeds, make_case
from tests.fuzz.seed_files import ROOT, seed_texts
from tests.fuzz.yaml_trees import parse, to_text

KEPT = Path(__file__).with_name("cases")
FILES = 3_000  # of the short run: about half a minute
EXPERIMENT = "version: 1\nkind: experiment\nparams: {a: 1}\nrun:\n  cmd: x {{ a }}\n"


def fuzz(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The fuzzer in its own process: it forks, which a process with threads must not."""
    command = [sys.executable, "-m", "tests.fuzz", "--keep", str(folder / "kept"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_kept_case_passes_every_door(tmp_path: Path) -> None:
    done = fuzz("--kept", str(KEPT), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(read_cases(KEPT))} cases" in done.stdout


@pytest.mark.slow
def test_thousands_of_mutated_files_give_no_internal_error(tmp_path: Path) -> None:
    done = fuzz("--seed", "1", "--files", str(FILES), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FILES:,} files in" in done.stdout


@pytest.mark.slow
def test_some_mutated_files_of_every_sort_give_no_internal_error(tmp_path: Path) -> None:
    done = fuzz("--seed", "2", "--files", "150", "--jobs", "1", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "150 files in" in done.stdout
    assert "convert" in done.stdout


@pytest.mark.slow
def test_a_planted_crash_is_found_shrunk_and_kept_once(tmp_path: Path) -> None:
    done = fuzz("--seed", "3", "--files", "120", "--jobs", "1", "--plant", "logging", folder=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 kinds of failures" in done.stdout
    kept = read_cases(tmp_path / "kept")
    (case,) = kept.values()
    assert case.size < 40
    assert b"logging" in case.files[0][1]
    (report,) = (tmp_path / "kept").glob("*.txt")
    assert "ZeroDivisionError" in report.read_text(encoding="utf-8")


def test_the_same_number_makes_the_same_case() -> None:
    seeds = Seeds(seed_texts())
    assert seeds.valid > 20
    first = [make_case(Random(f"1:{number}"), seeds) for number in range(50)]
    assert first == [make_case(Random(f"1:{number}"), seeds) for number in range(50)]
    assert len(set(first)) == 50


def test_a_written_tree_reads_back(tmp_path: Path) -> None:
    for text in seed_texts():
        tree = parse(text)
        if tree is not None:
            assert parse(to_text(tree)) == tree


def test_a_case_becomes_smaller_while_it_fails() -> None:
    case = Case((("yml", EXPERIMENT.encode()), ("yml", b"a: 1\n")), ("a=1", "b=2"))
    small = minimise(case, lambda tried: any(b"cmd" in text for _, text in tried.files))
    assert small.params == ()
    assert [text for _, text in small.files] == [b"cmd"]


def test_a_case_is_kept_as_files(tmp_path: Path) -> None:
    cases = {
        "one": Case((("yml", b"a: 1\n"),)),
        "two": Case((("yml", b"a: 1\n"), ("json", b"{}")), ("a=\udc80", "b=\n")),
    }
    for name, case in cases.items():
        case.write(tmp_path, name)
    assert read_cases(tmp_path) == cases
    assert json.loads((tmp_path / "two.params").read_bytes()) == ["a=\udc80", "b=\n"]
