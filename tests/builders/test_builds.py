"""Builds by real builders, from the command line to the image."""

from __future__ import annotations

import json
import re
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.builders.conftest import BASE, BuildPlace
from tests.cli.homes import wait_for

STEPS = [
    "cat requirements.txt",
    'echo "$WORD" >/word\ncat /word',
    "cat <<EOF >/made\n%files {{ x }} it's 50%\nRUN evil\nEOF",
]
MADE = "%files {{ x }} it's 50%\nRUN evil\n"


def build(place: BuildPlace, to: str, **fields: Any) -> Any:
    (place.folder / "requirements.txt").write_text("some==1\n")
    (place.folder / "train.py").write_text("print(1)\n")
    content = {
        "version": 1,
        "kind": "build",
        "image": BASE,
        "build_steps": [step.replace("{{", "{{ '{{' }}") for step in STEPS],
        "env_vars": {"WORD": "it's $HOME"},
        **fields,
    }
    (place.folder / "build.yml").write_text(json.dumps(content))
    return place.call("run", "-f", "build.yml", "--to", to)


def files_of(archive: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of an image in an archive, and its settings."""
    with tarfile.open(archive) as outer:
        manifest = json.load(outer.extractfile("manifest.json") or pytest.fail("no manifest"))[0]
        settings = json.load(outer.extractfile(manifest["Config"]) or pytest.fail("no settings"))
        found: dict[str, bytes] = {}
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=outer.extractfile(layer)) as inner:
                for member in inner.getmembers():
                    if member.isfile():
                        found[member.name] = inner.extractfile(member).read()  # type: ignore[union-attr]
    return found, settings["config"]


@pytest.mark.parametrize(
    "builder",
    [pytest.param(name, marks=pytest.mark.smoke) for name in ("buildah", "podman")] + ["docker"],
    indirect=True,
)
def test_a_builder_makes_an_archive_with_the_code_and_what_the_steps_did(place: BuildPlace, builder: str) -> None:
    (place.folder / "out").mkdir()
    (place.folder / "out" / "image.tar.part").write_text("of a build that was killed")
    answer = build(place, "out/image.tar")
    assert answer.code == 0, answer.out + answer.err
    found, settings = files_of(place.folder / "out" / "image.tar")
    assert found["made"].decode() == MADE
    assert found["word"] == b"it's $HOME\n"
    assert found["code/train.py"] == b"print(1)\n"
    key = place.call("plan", "-f", "build.yml", "--to", "out/image.tar", "--json").data["recipe"]["key"]
    assert settings["Labels"]["phalanx.build"] == key
    again = build(place, "out/image.tar")
    assert "Using cache" in again.out
    fresh = build(place, "out/image.tar", nocache=True)
    assert (fresh.code, "Using cache" in fresh.out) == (0, False)
    layout = build(place, "oci-archive:layout.tar")
    if builder == "docker":
        assert (layout.code, "docker saves no oci-archive" in layout.out) == (1, True)
    else:
        with tarfile.open(place.folder / "layout.tar") as archive:
            assert "oci-layout" in {name.removeprefix("./") for name in archive.getnames()}


def test_a_builder_pushes_to_a_registry(place: BuildPlace, registry: str, builder: str) -> None:
    def tags() -> Any:
        with urllib.request.urlopen(f"http://{registry}/v2/team/name/tags/list") as answer:
            return json.load(answer)["tags"]

    def is_up() -> bool:
        try:
            urllib.request.urlopen(f"http://{registry}/v2/").close()
        except OSError:
            return False
        return True

    wait_for(is_up)
    answer = build(place, f"{registry}/team/name:1")
    assert answer.code == 0, answer.out + answer.err
    assert tags() == ["1"]
    refused = build(place, "127.0.0.1:1/team/name:1")
    assert refused.code == 1
    assert re.search(rf"phalanx: (/.*/)?{builder} push failed with code", refused.out), refused.out


def test_a_dockerfile_and_its_context_are_built(place: BuildPlace) -> None:
    context = place.folder / "module"
    context.mkdir()
    (context / "a").write_text("from the context\n")
    (place.folder / "Dockerfile").write_text(f"FROM {BASE}\nCOPY a /a\n")
    content = {"version": 1, "kind": "build", "dockerfile": "Dockerfile", "context": "module"}
    (place.folder / "build.yml").write_text(json.dumps(content))
    answer = place.call("run", "-f", "build.yml", "--to", "image.tar")
    assert answer.code == 0, answer.out + answer.err
    assert files_of(place.folder / "image.tar")[0]["a"] == b"from the context\n"
    missing = place.call("run", "-f", "build.yml", "-f", "-", "--to", "image.tar", stdin=b"dockerfile: nothing")
    assert "phalanx: there is no file './nothing'" in missing.out


def test_apptainer_makes_an_image_once_for_the_same_content(with_apptainer: BuildPlace) -> None:
    place = with_apptainer
    base = f"docker-archive:{place.variables['TMPDIR']}/base.tar"
    answer = build(place, "out/image.sif", image=base)
    assert answer.code == 0, answer.out + answer.err
    image = str(place.folder / "out" / "image.sif")
    assert place.ask("apptainer", "exec", image, "cat", "/made", "/word") == f"{MADE}it's $HOME\n"
    assert place.ask("apptainer", "exec", image, "sh", "-c", 'echo "$WORD"') == "it's $HOME\n"
    again = build(place, "out/image.sif", image=base)
    assert "the same content was built before" in again.out
    changed = build(place, "out/image.sif", image=base, env_vars={"WORD": "other"})
    assert changed.code == 0
    assert "the same content" not in changed.out
    assert place.ask("apptainer", "exec", image, "cat", "/word") == "other\n"
    failed = build(place, "out/image.sif", image=base, build_steps=["exit 9"])
    assert failed.code == 1
    assert place.ask("apptainer", "exec", image, "cat", "/word") == "other\n"  # a failed build leaves what was there
