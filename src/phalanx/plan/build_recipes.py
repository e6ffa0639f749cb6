"""Recipes of images: a Dockerfile, or a definition file of Apptainer, from the section `build` of a file. Pure.

No text of a user becomes a line of a recipe: in a Dockerfile it is a JSON string or a quoted value, in a definition
file a quoted word on one line, so that it can begin neither an instruction nor a section.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from phalanx.deferred_patterns import deferred_pattern
from phalanx.errors import CallError
from phalanx.plan.document import is_secret
from phalanx.spec.model import Build

LONGEST_LINE = 60_000  # bytes: the builders' limit
# Dependency files, copied before the rest of the code, so that a change of the code alone does not repeat the steps.
COPIED_FIRST = ("*requirements*.txt", "*conda_env*.y*ml", "*setup.sh")
IMAGE = deferred_pattern(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}\Z")
_VARIABLE = deferred_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,200}\Z", re.ASCII)
_BOOTSTRAPS = ("docker", "library", "oras", "shub", "docker-archive", "oci-archive", "oci", "docker-daemon")
_LOCALE = ("LC_ALL", "LANG", "LANGUAGE")


def dockerfile(build: Build, image: str, first: Iterable[str] = ()) -> str:
    """Write the Dockerfile as Polyaxon did, from an image and steps. `first`: lines that copy the dependency files
    before the steps; without them, all code is copied before. Values that look secret are left out: every user who may
    pull the image can read its layers, and the run gets them anyway. Raises CallError."""
    _check_image(image)
    lines = [f"FROM {image}"]
    lines += [_variable(name, value) for name, value in variables_of(build)]
    lines.append("WORKDIR /code")
    everything = copy_line(".")
    copied = [*first]
    lines += copied or [everything]
    lines += [f"RUN {_words('/bin/sh', '-c', step)}" for step in build.build_steps]
    lines += [everything] if copied else []
    return _joined(lines)


def definition(build: Build, image: str) -> str:
    """Write the definition file of Apptainer. Its steps see the code in /code; the image does not contain it: a run
    binds the folder that it works in. Raises CallError."""
    _check_image(image)
    source, _, name = image.partition(":")
    if source in _BOOTSTRAPS and name:
        lines = [f"Bootstrap: {source}", f"From: {name.removeprefix('//')}"]
    else:
        lines = [f"Bootstrap: {'localimage' if image.endswith('.sif') else 'docker'}", f"From: {image}"]
    exports = [f"    export {name}={shell_word(value)}" for name, value in variables_of(build)]
    lines += ["", "%setup", '    mkdir -p "${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}/code"']
    lines += ["", "%environment", *exports] if exports else []
    lines += ["", "%post", *exports, "    cd /code || exit 1"]
    lines += [f"    /bin/sh -c {shell_word(step)} || exit $?" for step in build.build_steps]
    return _joined(lines)


def variables_of(build: Build) -> Iterator[tuple[str, str]]:
    """The variables of an image. Raises CallError for what no image can hold."""
    from unicodedata import category

    locale = ((name, build.lang_env) for name in _LOCALE) if build.lang_env else ()
    for name, value in (*locale, *build.env_vars):
        if is_secret(name):
            continue
        if not _VARIABLE.match(name):
            raise CallError(f"`build.env_vars`: `{name[:100]}` is not a valid variable name")
        if any(category(sign) in ("Cc", "Cs") for sign in value):
            raise CallError(
                f"`build.env_vars`: the value of `{name}` contains newlines or control characters, which an image "
                "cannot hold: put it into `environment.env_vars`"
            )
        yield name, value


def key_of(recipe: bytes, files: Iterable[tuple[bytes, bytes]]) -> str:
    """A key of all that an image depends on: the recipe, and the names and contents of the files that its steps read.
    The scripts of `builders.py` make the same one."""
    from hashlib import sha256  # slow to import, and most files build no image

    digest = sha256(recipe)
    for name, content in files:
        digest.update(b"\0" + name + b"\0" + content)
    return digest.hexdigest()[:24]


def shell_word(text: str) -> str:
    """A text as one word of a POSIX shell, on one line, that no reader of the file takes for something else: Apptainer
    replaces `{{ NAME }}`, begins a section at a line with `%`, and its own shell keeps the backslash of `\\'`."""
    if text.isprintable() and not any(sign in text for sign in ("'", "\\", "{{")):
        return f"'{text}'"
    first = "\\055" if text.startswith("-") else _printed(text[:1])  # not an option of printf
    return f"\"$(printf '{first}{''.join(map(_printed, text[1:]))}')\""


def _printed(sign: str) -> str:
    """A character in the format of `printf`, between single quotes."""
    if (sign and sign in "\\%'{") or not sign.isprintable():
        return "%%" if sign == "%" else "".join(f"\\{byte:03o}" for byte in sign.encode("utf-8", "surrogateescape"))
    return sign


def copy_line(*patterns: str) -> str:
    return f"COPY {_words(*patterns, './')}"


def _check_image(image: str) -> None:
    if not IMAGE.match(image):
        raise CallError(f"`build.image`: `{image[:100]}` is not a valid image name")


def _words(*words: str) -> str:
    """JSON in ASCII: no newlines, no variable expansion, nothing that looks like a here-document."""
    return json.dumps(words).replace("<", "\\u003c")


def _variable(name: str, value: str) -> str:
    quoted = re.sub(r'([\\"$])', r"\\\1", value)
    return f'ENV {name}="{quoted}"'


def _joined(lines: list[str]) -> str:
    for line in lines:
        if len(line.encode("utf-8", "surrogateescape")) > LONGEST_LINE:
            raise CallError(f"a step or variable of `build` has more than {LONGEST_LINE:,} bytes: put it into a script")
    return "\n".join(lines) + "\n"
