"""Patterns of paths, as `outputs` and `models` of a file write them, and which files look like models.

`*` and `?` match within a name, `**` matches any number of folders. A pattern without `/` matches a name in every
folder. A pattern that matches a folder matches everything below it. Standard library only, Python 3.8+.
"""

from __future__ import annotations

from collections.abc import Iterable

MODEL_ENDINGS = (
    *(".pt", ".pth", ".ckpt", ".safetensors", ".keras", ".h5", ".onnx", ".params", ".joblib", ".pkl"),
    *(".tflite", ".gguf"),
)
SAVED_MODEL = "saved_model.pb"  # TensorFlow's: the model is the whole folder
_MODEL_NAMES = (SAVED_MODEL, "pytorch_model.bin")


def is_model_file(path: str) -> bool:
    """Whether a path looks like that of a model. Only the name is looked at."""
    name = path.rpartition("/")[2]
    return name.lower().endswith(MODEL_ENDINGS) or name in _MODEL_NAMES


def is_event_file(path: str) -> bool:
    """Whether a path looks like that of TensorBoard's event files."""
    return ".tfevents." in path.rpartition("/")[2]


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns matches a relative path or a folder above it."""
    steps = path.split("/")
    return any(_matches(steps, pattern_steps(pattern)) for pattern in patterns)


def pattern_steps(pattern: str) -> list[str]:
    """The parts of a pattern. Raises ValueError if it can only match something outside of the folder."""
    steps = [step for step in pattern.split("/") if step not in ("", ".")]
    if pattern.startswith(("/", "~")) or ".." in steps or "\0" in pattern or not steps:
        raise ValueError("not a pattern of paths below the folder")
    return steps if "/" in pattern.rstrip("/") else ["**", *steps]


def _matches(steps: list[str], wanted: list[str]) -> bool:
    """Follow all ways through the pattern at once: the time does not explode, however many `**` there are."""
    places = _skipped({0}, wanted)
    for step in steps:
        places = _skipped(
            {place + (wanted[place] != "**") for place in places if place < len(wanted) and _fits(step, wanted[place])},
            wanted,
        )
        if len(wanted) in places:
            return True
    return False


def _skipped(places: set[int], wanted: list[str]) -> set[int]:
    """Also the places behind `**`, which may match nothing."""
    found = set(places)
    for place in sorted(places):
        while place < len(wanted) and wanted[place] == "**":
            place += 1  # noqa: PLW2901
            found.add(place)
    return found


def _fits(name: str, wanted: str) -> bool:
    """Whether a name matches one part of a pattern, in linear space and without backtracking further than the last
    `*`."""
    at = place = 0
    star, resume = -1, 0
    while at < len(name):
        if place < len(wanted) and wanted[place] == "*":
            star, resume = place, at
            place += 1
        elif place < len(wanted) and wanted[place] in ("?", name[at]):
            place += 1
            at += 1
        elif star >= 0:
            resume += 1
            place, at = star + 1, resume
        else:
            return False
    return not wanted[place:].strip("*")
