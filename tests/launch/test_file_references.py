"""`pathRef` reads files inside of the folder of its file or the current folder, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import SpecErrors
from phalanx.launch.file_references import FileReferences, load_files

COMPONENT = "version: 1.1\nkind: component\nrun: {kind: job, container: {image: a, command: [echo, hi]}}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    for name in ("jobs", "components"):
        (folder / name).mkdir(parents=True)
    (folder / "components" / "echo.yml").write_text(COMPONENT)
    (tmp_path / "secret.yml").write_text(COMPONENT)
    monkeypatch.chdir(folder)
    return folder


def _messages(reference: str, file: str = "jobs/job.yml") -> list[str]:
    text = f"version: 1.1\nkind: operation\npathRef: {reference}\n"
    with pytest.raises(SpecErrors) as caught:
        load_files([(file, text.encode())], {})
    return [error.message for error in caught.value.errors]


def test_a_reference_into_the_current_folder_is_read_and_sent_as_one_file(project: Path) -> None:
    text = "version: 1.1\nkind: operation\npathRef: ../components/echo.yml\nparams: {lr: 1}\n"
    loaded = load_files([("jobs/job.yml", text.encode())], {"lr": "2"})
    assert loaded.spec.command == "echo hi"
    ((name, data),) = loaded.files
    assert name == "jobs/job.yml"
    assert b"pathRef" not in data
    assert load_files(loaded.files, loaded.params).spec == loaded.spec


@pytest.mark.usefixtures("project")
def test_files_without_references_are_sent_as_they_are() -> None:
    texts = [("a.yml", COMPONENT.encode())]
    assert load_files(texts, {"a": "1"}).files is texts


@pytest.mark.parametrize("reference", ["../../secret.yml", "../link.yml", "/etc/passwd"])
def test_a_path_out_of_the_folder_is_refused(project: Path, reference: str) -> None:
    (project / "link.yml").symlink_to(project.parent / "secret.yml")
    assert _messages(reference) == [f"`{reference}` is outside of the folder of this file"]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("reference", ["none.yml", "../components", '"a\\0b"', "/dev/zero"])
def test_what_cannot_be_read_is_one_error(reference: str) -> None:
    assert len(_messages(reference)) == 1


@pytest.mark.usefixtures("project")
def test_an_address_is_not_fetched() -> None:
    text = "version: 1.1\nkind: operation\nurlRef: http://127.0.0.1:9/c.yml\n"
    with pytest.raises(SpecErrors) as caught:
        load_files([("job.yml", text.encode())], {})
    assert caught.value.errors[0].message == "`http://127.0.0.1:9/c.yml` is not fetched"
    assert FileReferences().used == []
