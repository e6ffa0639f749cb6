from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from phalanx.deferred_patterns import deferred_pattern, patterns_deferred


def test_a_deferred_pattern_behaves_like_the_compiled_one() -> None:
    pattern = deferred_pattern(r"(\w+)=(\d+)", re.IGNORECASE)
    found = pattern.match("Lr=5")
    assert found is not None
    assert found.groups() == ("Lr", "5")
    assert pattern.sub("_", "a=1 b=2") == "_ _"
    assert pattern.groups == 2


def test_an_invalid_pattern_is_reported_on_first_use() -> None:
    pattern = deferred_pattern("(")
    with pytest.raises(re.error):
        pattern.search("x")


def test_modules_imported_inside_compile_nothing_and_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_patterns.py").write_text("import re\nX = re.compile('(')\nY = re.compile('[a-z]+', re.ASCII)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with patterns_deferred():
        module = import_module("late_patterns")  # would raise for X
    assert sys.modules["re"] is re
    assert module.Y.fullmatch("abc")
    del sys.modules["late_patterns"]


def test_reading_a_file_does_not_compile_the_patterns_of_the_yaml_library() -> None:
    script = (
        "import phalanx.spec.yaml_reader, yaml.reader\n"
        "print(type(yaml.reader.Reader.NON_PRINTABLE).__name__, yaml.safe_load('a: [1, 2.5, yes]'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == ["_DeferredPattern", "{'a': [1, 2.5, True]}\n"]
