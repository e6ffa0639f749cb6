from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.errors import CallError, MissingExtra
from phalanx.launch.call_files import import_paths, make_call, name_of
from phalanx.tracking.calls.sealed_files import decode_call


def test_an_importable_function_is_sent_by_reference(tmp_path: Path) -> None:
    made = make_call(name_of, [((1,), {"a": 2}), ((), {})], tmp_path)
    found = decode_call(made.data, made.digest)
    assert (found.facts["by_value"], found.facts["name"]) == (False, "name_of")
    assert (len(found.calls), found.key) == (2, made.key)
    assert b"phalanx.launch.call_files" in found.function


def test_a_closure_is_sent_by_value(tmp_path: Path) -> None:
    found = make_call(lambda: tmp_path, [((), {})], tmp_path)
    assert decode_call(found.data, found.digest).facts["by_value"]


def test_a_closure_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(MissingExtra, match=r"needs the package `cloudpickle`.*pip install 'phalanx\[functions\]'"):
        make_call(lambda: 1, [((), {})], tmp_path)


def test_arguments_that_cannot_be_pickled_are_named(tmp_path: Path) -> None:
    with pytest.raises(CallError, match=r"name_of or its arguments cannot be pickled: .*generator"):
        make_call(name_of, [((iter(x for x in "ab"),), {})], tmp_path)


def test_folders_of_the_import_path_go_along_but_not_those_of_python(tmp_path: Path) -> None:
    paths = [str(tmp_path / "work" / "src"), "/elsewhere/lib", *sys.path[1:]]
    found = import_paths(paths, tmp_path / "work")
    assert found[:2] == ["src", "/elsewhere/lib"]
    assert not [path for path in found if "site-packages" in path or path.endswith(("/python3.11", "lib-dynload"))]


def test_importing_phalanx_loads_nothing_of_it() -> None:
    code = "import sys, phalanx; dir(phalanx); print([m for m in sys.modules if m.startswith('phalanx.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
