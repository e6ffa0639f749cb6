"""The rules that apply to a run: those of its own file, of its project and of its home.

<run>/notify.json    the rules of its file, and whether that came over a server
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.settings.home_settings import HomeSettings
from phalanx.spec.model import Kind, NotifyEvent, NotifyRule
from phalanx.store import Run
from phalanx.store.project_scope import enclosing_projects


class FileRules(NamedTuple):
    """The rules of a file. `is_remote`: it was submitted over a server, and may do less."""

    rules: tuple[NotifyRule, ...] = ()
    is_remote: bool = False


class AppliedRule(NamedTuple):
    rule: NotifyRule
    is_remote: bool = False

    @property
    def key(self) -> str:
        """The same for the same rule: a rule that two places have is applied once."""
        return hashlib.sha256(json.dumps(encode_rule(self.rule)).encode()).hexdigest()[:16]


def encode_rule(rule: NotifyRule) -> dict[str, Any]:
    return {**rule._asdict(), "target": list(rule.target), "on": [str(event) for event in rule.on]}


def decode_rule(data: Mapping[str, Any]) -> NotifyRule:
    """Raises ValueError, KeyError, TypeError for damaged data."""
    target, on = tuple(map(str, data["target"])), tuple(map(NotifyEvent, data["on"]))
    return NotifyRule(**{**data, "target": target, "on": on})


def encode_rules(found: FileRules) -> bytes:
    return json.dumps({"remote": found.is_remote, "rules": list(map(encode_rule, found.rules))}, indent=1).encode()


def read_rules(run_folder: Path) -> FileRules:
    """The rules of its file; none if they are missing or damaged."""
    data = read_json(run_folder / run_paths.NOTIFY)
    try:
        return FileRules(tuple(map(decode_rule, data["rules"])), bool(data["remote"])) if data else FileRules()
    except (ValueError, KeyError, TypeError):
        return FileRules()


def rules_of(run: Run, own: FileRules, settings: HomeSettings) -> list[AppliedRule]:
    """The rules for a run, each once: as one of the home, if that has it, too. Trials of a group are told of only by
    rules that say so: the group is told of as a whole."""
    found = [AppliedRule(rule, own.is_remote) for rule in own.rules]
    for project in enclosing_projects(run.project):
        if project in settings.projects:
            found += map(AppliedRule, settings.projects[project].notify)
    found += map(AppliedRule, settings.notify)
    is_whole = run.group is None or run.kind == Kind.PIPELINE  # also the pipeline of a schedule
    wanted = [one for one in found if is_whole or one.rule.trials]
    return list({one.key: one for one in wanted}.values())
