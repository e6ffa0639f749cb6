"""Suggestions for names that are misspelled, and for keys that belong in another place or have another name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

Steps = tuple[str, ...]  # where a key belongs, from the top of the file

_REPLICAS = ("environment", "replicas")
_RESOURCES = ("environment", "resources")
OTHER_NAMES: Mapping[str, Steps] = {
    **dict.fromkeys(("nworkers", "workers", "num_workers", "worker_count"), (*_REPLICAS, "n_workers")),
    **dict.fromkeys(("n_servers", "n_server", "nservers", "servers", "nps", "num_ps"), (*_REPLICAS, "n_ps")),
    "server": (*_REPLICAS, "ps"),
    "default_server": (*_REPLICAS, "default_ps"),
    **dict.fromkeys(("gpus", "nvidia.com/gpu"), (*_RESOURCES, "gpu")),
    **dict.fromkeys(("cpus", "cores"), (*_RESOURCES, "cpu")),
    **dict.fromkeys(("mem", "ram"), (*_RESOURCES, "memory")),
    **dict.fromkeys(("cmd", "command", "commands", "args", "script", "entrypoint"), ("run", "cmd")),
    "env": ("environment", "env_vars"),
}
AMOUNTS = {
    bound: f"name the resource first: `cpu: {{{bound}: 1}}`, `gpu: {{{bound}: 1}}`" for bound in ("requests", "limits")
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to the written one, if any is close."""
    from difflib import get_close_matches

    by_fold = {name.casefold(): name for name in known}
    found = get_close_matches(word[:80].casefold(), list(by_fold), n=1, cutoff=0.66)
    return by_fold[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    match = nearest(word, known)
    return f"did you mean `{match}`?" if match else None


def places_of(tables: Mapping[Steps, Collection[str]]) -> dict[str, Steps]:
    """Where each key belongs. `tables`: the keys of each section; the first section that has a key counts."""
    places = dict(OTHER_NAMES)
    for section, keys in tables.items():
        for key in keys:
            places.setdefault(key, (*section, key))
    return places


def hints(places: Mapping[str, Steps], section: Steps, fields: Collection[str]) -> dict[str, str]:
    """What to write instead of a key that a section with these fields does not have."""
    depth = len(section)
    return {
        key: f"write `{_nested(steps[depth:])}`"
        for key, steps in places.items()
        if steps[:depth] == section and len(steps) > depth and steps[depth] in fields and key not in fields
    }


def _nested(steps: Steps) -> str:
    text = f"{steps[-1]}: ..."
    for step in reversed(steps[:-1]):
        text = f"{step}: {{{text}}}"
    return text
