"""Commands of containers as bash runs them.

A container starts `command` and `args` as they are, without a shell. Here each item becomes one quoted word, and what a
template renders is quoted when it is rendered: `--name={{ name|quote }}`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from phalanx.spec.commands import fold, quote
from phalanx.spec.templates import is_template

_BLOCK = re.compile(r"(\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\})", re.DOTALL)
_SIMPLE = re.compile(r"[A-Za-z_]\w*(?:\|\w+)*\Z")
_SHELLS = re.compile(r"(?:/usr)?(?:/bin/)?(?:ba|da|z)?sh\Z")


class CommandLine(NamedTuple):
    """`text` for bash; `is_script`: its lines must be kept."""

    text: str
    is_script: bool = False


class Quoting(NamedTuple):
    """How values are quoted. `numbers`: inputs whose values need no quotes. `lists`: those with several values, which
    are one word unless they are all of `args`."""

    numbers: Collection[str] = ()
    lists: Collection[str] = ()


ALL_QUOTED = Quoting()


def command_line(words: Sequence[str], quoting: Quoting) -> CommandLine | None:
    """The command of a container. None if there are no words."""
    if not words:
        return None
    if len(words) == 3 and _SHELLS.match(words[0]) and words[1] in ("-c", "-ec", "-xec"):
        flags = words[1].strip("-c")
        text = words[2].strip("\n")
        text = f"set -{flags}\n{text}" if flags else text
        return CommandLine(text, is_script=fold(text) != text.strip())
    line = " ".join(filter(None, (quoted(word, quoting) for word in words)))
    return CommandLine(line) if line else None


def quoted(word: str, quoting: Quoting = ALL_QUOTED) -> str:
    """One word of bash, whatever its templates render. A word that renders to nothing is none."""
    if not is_template(word):
        return quote(word)
    parts = _BLOCK.split(word)
    parts[::2] = [quote(part) for part in parts[::2]]
    parts[1::2] = [_quoted_block(part, quoting) for part in parts[1::2]]
    return "".join(parts)


def _quoted_block(block: str, quoting: Quoting) -> str:
    inner = block[2:-2].strip()
    if not block.startswith("{{") or inner in quoting.numbers or inner.endswith("|quote"):
        return block
    if inner in quoting.lists:
        return f"{{{{ {inner}|string|quote }}}}"
    return f"{{{{ {inner if _SIMPLE.match(inner) else f'({inner})'}|quote }}}}"


def with_steps(steps: Iterable[str], main: CommandLine) -> CommandLine:
    """A command after other steps, each of which must succeed."""
    before = list(steps)
    if not before:
        return main
    if main.is_script or any("\n" in step for step in before) or _has_operators(main.text):
        return CommandLine("\n".join([*(f"{step} || exit" for step in before), main.text]), is_script=True)
    return CommandLine(" && ".join([*before, main.text]))


def _has_operators(text: str) -> bool:
    return any(sign in text for sign in (";", "||", "\n", " & ", "#")) or text.endswith("&")


def by_role(lines: Sequence[tuple[str, CommandLine]]) -> CommandLine:
    """One command for replicas whose roles run different ones."""
    if len({line for _, line in lines}) == 1:
        return lines[0][1]
    roles: dict[CommandLine, list[str]] = {}
    for role, line in lines:
        roles.setdefault(line, []).append(role)
    cases = "".join(f"{'|'.join(named)})\n{line.text}\n;;\n" for line, named in roles.items())
    return CommandLine(f'case "$PHALANX_ROLE" in\n{cases}esac', is_script=True)


def file_step(path: str, content: str, mode: str | None) -> str:
    """A step that writes a file."""
    folder = path.rpartition("/")[0]
    made = f"mkdir -p {quote(folder)} && " if folder else ""
    changed = f" && chmod {mode} {quote(path)}" if mode is not None else ""
    return f"{made}printf %s {quoted(content)} > {quote(path)}{changed}"
