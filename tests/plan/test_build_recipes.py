"""Recipes of images: no text of a user begins an instruction or a section; a shell reads what was written."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.errors import CallError
from phalanx.plan import build_recipes
from phalanx.spec.model import Build

NASTY = [
    "a\n%files\n    /etc/shadow /x",
    "a\r\n%post\nevil",
    "{{ EVIL }} {{",
    'it\'s "quoted" $(evil) `evil` ${EVIL} \\',
    "cat <<EOF\nFROM evil\nEOF\n",
    "50% of 100%% \\n \\012",
    "\u2028%post \x85 \x0b \x7f tab\tend",
    "'; evil; '",
    "-e \\c é 漢 \N{SMILE}",
    "#!/bin/sh",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


def definition(*steps: str, **fields: object) -> list[str]:
    return build_recipes.definition(Build(build_steps=steps, **fields), "python:3.11").split("\n")  # type: ignore[arg-type]


def test_the_parts_of_a_definition() -> None:
    build = Build(build_steps=("pip install x",), env_vars=(("A", "it's"), ("API_TOKEN", "secret")), lang_env="C.UTF-8")
    exports = "".join(f"    export {name}='C.UTF-8'\n" for name in ("LC_ALL", "LANG", "LANGUAGE"))
    exports += "    export A=\"$(printf 'it\\047s')\"\n"
    assert build_recipes.definition(build, "python:3.11") == (
        "Bootstrap: docker\nFrom: python:3.11\n\n"
        '%setup\n    mkdir -p "${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}/code"\n\n'
        "%environment\n"
        f"{exports}\n"
        "%post\n"
        f"{exports}"
        "    cd /code || exit 1\n"
        "    /bin/sh -c 'pip install x' || exit $?\n"
    )


@pytest.mark.parametrize(
    ("image", "source", "name"),
    [
        ("registry.example:5000/a:1", "docker", "registry.example:5000/a:1"),
        ("docker://a/b", "docker", "a/b"),
        ("docker-archive:base.tar", "docker-archive", "base.tar"),
        ("oras://r.example/a:1", "oras", "r.example/a:1"),
        ("bases/my.sif", "localimage", "bases/my.sif"),
    ],
)
def test_where_the_first_image_comes_from(image: str, source: str, name: str) -> None:
    assert build_recipes.definition(Build(), image).startswith(f"Bootstrap: {source}\nFrom: {name}\n")


@given(text=TEXT)
@example(NASTY[0])
@example(NASTY[2])
def test_a_step_stays_on_its_line_and_begins_no_section(text: str) -> None:
    lines = definition(text, "second")
    assert len(lines) == len(definition("first", "second"))
    assert [line for line in lines if line.startswith("%")] == ["%setup", "%post"]
    assert not any("{{" in line or sign in line for line in lines for sign in "\r\v\f\x85\u2028\u2029")
    recipe = build_recipes.dockerfile(Build(build_steps=(text,)), "scratch")
    assert [line.partition(" ")[0] for line in recipe.splitlines()] == ["FROM", "WORKDIR", "COPY", "RUN"]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_reads_what_was_written(shell: str) -> None:
    script = "\n".join(f"printf '%s\\0' {build_recipes.shell_word(text)}" for text in NASTY)
    done = subprocess.run([shell, "-c", script], capture_output=True, check=True)
    # A substitution drops newlines at the end, which mean nothing to a shell.
    assert done.stdout.decode().split("\0")[:-1] == [text.rstrip("\n") for text in NASTY]


@pytest.mark.parametrize("image", ["a b", "a\nRUN evil", "-v", "$(evil)", ""])
def test_what_is_no_image_is_refused(image: str) -> None:
    for render in (build_recipes.definition, build_recipes.dockerfile):
        with pytest.raises(CallError, match=r"build\.image"):
            render(Build(), image)


@pytest.mark.parametrize(("name", "value"), [("A B", "x"), ("A=x\nB", "x"), ("A", "x\ny"), ("A", "\x1b[0m")])
def test_what_no_image_can_hold_is_refused(name: str, value: str) -> None:
    for render in (build_recipes.definition, build_recipes.dockerfile):
        with pytest.raises(CallError, match="env_vars"):
            render(Build(env_vars=((name, value),)), "python")


def test_a_key_depends_on_the_recipe_and_on_each_file() -> None:
    keys = {
        build_recipes.key_of(b"FROM a", []),
        build_recipes.key_of(b"FROM b", []),
        build_recipes.key_of(b"FROM a", [(b"requirements.txt", b"")]),
        build_recipes.key_of(b"FROM a", [(b"requirements.txt", b"x")]),
        build_recipes.key_of(b"FROM a", [(b"setup.sh", b"x")]),
    }
    assert len(keys) == 5
    assert all(len(key) == 24 for key in keys)
