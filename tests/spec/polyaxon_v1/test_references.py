"""References to other files are followed within bounds, and only where the caller can read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from phalanx.errors import SpecError, SpecErrors
from phalanx.spec import Kind, Spec, load
from phalanx.spec.polyaxon_v1 import ReferenceFault

COMPONENT = "version: 1.1\nkind: component\nrun: {kind: job, container: {image: a, command: [echo, hi]}}\n"


class Folder:
    """Files by name, as a caller would read them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def read_path(self, base: str, path: str) -> tuple[str, bytes]:
        if path not in self.files:
            raise ReferenceFault(f"`{path}` is missing", "write it")
        return path, self.files[path].encode()

    def read_url(self, base: str, url: str) -> tuple[str, bytes]:
        return self.read_path(base, url)


def _load(text: str, **files: str) -> Spec:
    named = {name.replace("_yml", ".yml"): content for name, content in files.items()}
    return load([("file.yml", text.encode())], references=Folder(named))


def _error(text: str, **files: str) -> SpecError:
    with pytest.raises(SpecErrors) as caught:
        _load(text, **files)
    (error,) = caught.value.errors
    return error


def _operation(path: str, more: str = "") -> str:
    return f"version: 1.1\nkind: operation\npathRef: {path}\n{more}"


def test_the_component_of_a_path_is_run() -> None:
    assert _load(_operation("c.yml"), c_yml=COMPONENT).command == "echo hi"


def test_an_operation_may_refer_to_an_operation() -> None:
    again = _operation("c.yml", "runPatch: {container: {args: [there]}}\n")
    assert _load(_operation("o.yml"), o_yml=again, c_yml=COMPONENT).command == "echo hi there"


def test_an_error_in_a_referenced_file_names_that_file() -> None:
    error = _error(_operation("c.yml"), c_yml=COMPONENT.replace("image", "imag"))
    assert (error.place.file, error.place.line) == ("c.yml", 3)
    assert error.suggestion == "did you mean `image`?"


def test_files_that_refer_to_each_other_are_refused() -> None:
    error = _error(_operation("a.yml"), a_yml=_operation("b.yml"), b_yml=_operation("a.yml"))
    assert error.message == "`a.yml` refers to itself"


def test_a_long_chain_of_references_is_refused() -> None:
    files = {f"f{number}_yml": _operation(f"f{number + 1}.yml") for number in range(100)}
    assert _error(_operation("f0.yml"), **files).message == "more than 50 references in one file"


def test_a_missing_file_is_one_error_at_the_reference() -> None:
    error = _error(_operation("none.yml"))
    assert (error.message, error.path, error.place.line) == ("`none.yml` is missing", "pathRef", 3)


def test_a_file_that_was_sent_alone_says_how_to_send_it() -> None:
    with pytest.raises(SpecErrors) as caught:
        load([("file.yml", _operation("c.yml").encode())])
    assert caught.value.errors[0].suggestion == "run `phalanx convert` beside the file, and send what it prints"


def test_a_later_file_over_one_of_ours_is_refused() -> None:
    with pytest.raises(SpecErrors) as caught:
        load([("a.yml", b"version: 1\nkind: job\nrun: {cmd: ls}\n"), ("b.yml", COMPONENT.encode())])
    assert "cannot be laid over" in caught.value.errors[0].message


def test_a_preset_alone_has_nothing_to_run() -> None:
    spec = _load("isPreset: true\nrunPatch: {container: {resources: {limits: {cpu: 2}}}}\n")
    assert (spec.kind, spec.command) == (Kind.EXPERIMENT, None)
    assert any("lay this file over a component" in note.message for note in spec.notes)


def test_a_layer_in_our_own_form_is_laid_over_the_converted_file() -> None:
    own = b"environment: {max_restarts: 3, resources: {cpu: {limits: 2}}}\n"
    spec = load([("a.yml", COMPONENT.encode()), ("b.yml", own)])
    assert spec.environment.settings.max_restarts == 3
    assert spec.command == "echo hi"
