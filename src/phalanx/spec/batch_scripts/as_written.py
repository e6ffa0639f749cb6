"""Scripts and commands that run as they are, as documents of polyaxonfiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from phalanx.spec.batch_scripts.directives import BatchScript
from phalanx.spec.commands import quote

LEFT_OUT = {  # directives that a run sets itself, and what to use instead
    "output": "the log is kept with the run: `phalanx logs`",
    "error": "the log is kept with the run: `phalanx logs`",
    "open-mode": "the log is kept with the run",
    "comment": "Phalanx uses it to find its jobs",
    "chdir": "the script runs in the folder of the call",
    "parsable": "it is an option of the call",
    "quiet": "it is an option of the call",
    "verbose": "it is an option of the call",
    "wait": "it is an option of the call",
    "test-only": "use `phalanx plan --on slurm`",
}
_NAME = re.compile(r"[^-a-zA-Z0-9_]+")
_NODES = re.compile(r"--nnodes(?:=|\s+)(?:\d+:)?(\d+)")
_LAUNCHERS = (
    (
        "pytorch",
        re.compile(r"(?:^|\s)(?:torchrun|accelerate\s+launch|-m\s+torch\.distributed\.(?:run|launch))(?:\s|$)"),
    ),
    ("deepspeed", re.compile(r"^deepspeed(?:\s|$)")),
)


def document_of_script(
    script: BatchScript, name: str, arguments: Sequence[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """A script as one run that keeps its directives, and notes on those it cannot. Raises ValueError."""
    if "array" in script.directives:
        raise ValueError("`--array` is not run as it is: a run is one job; write `kind: group` for several runs")
    notes = list(script.notes)
    for key, why in LEFT_OUT.items():
        if key in script.directives:
            notes.append(f"`--{key}` is left out: {why}")
    own = {key: value for key, value in script.directives.items() if key not in LEFT_OUT and key != "job-name"}
    given = "".join(f" {quote(word) or chr(39) * 2}" for word in arguments)
    text = f"set --{given}\n{script.text}" if given else script.text
    document = {
        "version": 1,
        "kind": "experiment",
        "name": plain_name(script.directives.get("job-name") or name),
        "environment": {"slurm": {"batch": {key: value or True for key, value in own.items()}}},
        "run": {"script": unrendered(text)},
    }
    return document, notes


def document_of_command(words: Sequence[str]) -> dict[str, Any]:
    """A command line as one run. A launcher of several nodes becomes a framework with workers."""
    line = " ".join(quote(word) or "''" for word in words)
    document: dict[str, Any] = {"version": 1, "kind": "experiment", "run": {"cmd": unrendered(line)}}
    nodes = _NODES.search(" ".join(words))
    framework = next((name for name, found in _LAUNCHERS if found.search(" ".join(words))), None)
    if framework is not None and nodes is not None and int(nodes[1]) > 1:
        document["framework"] = framework
        document["environment"] = {"replicas": {"n_workers": int(nodes[1]) - 1}}
    return document


def plain_name(text: str) -> str:
    return _NAME.sub("-", text).strip("-")[:100] or "script"


def unrendered(text: str) -> str:
    """A text that no template of ours changes."""
    if not any(marker in text for marker in ("{{", "{%", "{#")):
        return text
    if "endraw" in text:
        raise ValueError("the text contains `endraw` beside braces, which a template cannot keep")
    return f"{{% raw %}}{text}{{% endraw %}}"
