"""What a call of `tracking.start` asks for, made safe: nothing that a user gives raises.

Standard library only, Python 3.8+."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.tracking import external_folder
from phalanx.tracking.notices import plain_name, warn
from phalanx.tracking.recorder import note_keyword
from phalanx.tracking.values import clean, error_text, guarded

KNOWN = (
    *("name", "project", "params", "tags", "description", "server"),
    *("id", "resume", "group", "config", "notes", "nested"),
)
SYNONYMS = {"run_name": "name", "run_id": "id", "experiment_name": "project"}  # MLflow's words
ALLOW, MUST, NEVER = "allow", "must", "never"


class RunRequest(NamedTuple):
    name: str | None = None
    project: str | None = None
    description: str | None = None
    server: str | None = None
    tags: tuple[str, ...] = ()
    id: str | None = None
    resume: str = ALLOW
    group: str | None = None
    params: Any = None
    is_nested: bool = False

    @classmethod
    def read(cls, given: Mapping[str, Any], others: Mapping[str, Any]) -> RunRequest:
        """`given`: the known keywords, `others`: all others. Those without a meaning are noted once."""
        known = dict(given)
        for word, value in others.items():
            if word in SYNONYMS:
                known[SYNONYMS[word]] = value if known.get(SYNONYMS[word]) is None else known[SYNONYMS[word]]
            else:
                note_keyword("start", word, KNOWN)
        texts = {word: _name(known.get(word)) for word in ("name", "project", "group")}
        params = [value for value in (known.get("config"), known.get("params")) if value is not None]
        return cls(
            **texts,
            server=_text(known.get("server")),
            id=_id(_text(known.get("id"))),
            description=_text(known.get("description")) or _text(known.get("notes")),
            tags=_words(known.get("tags")),
            resume=_resume(known.get("resume")),
            params=params or None,
            is_nested=known.get("nested") is True,
        )

    @property
    def is_other(self) -> bool:
        """Whether it describes a run: then it does not mean the one that is there."""
        return any(value for value in self._replace(resume="")) or self.params is not None


def _id(text: str | None) -> str | None:
    run_id = text and external_folder.valid_id(text)
    if run_id and run_id != text:
        warn(f"an id has 4 to 64 lowercase letters, digits and dashes: `{str(text)[:100]}` is stored as {run_id}")
    return run_id


def _resume(given: Any) -> str:
    with guarded(lambda fault: warn(f"resume cannot be read: {error_text(fault)}")):
        word = ALLOW if given in (None, True, False, "auto", "") else str(given).lower()
        if word in (ALLOW, MUST, NEVER):
            return word
        warn(f"resume must be allow, must or never, not `{clean(word)[:100]}`; `allow` is used")
    return ALLOW


def _text(value: Any) -> str | None:
    """A name given by the user, as text."""
    with guarded(lambda fault: warn(f"a {type(value).__name__} cannot be used as text: {error_text(fault)}")):
        return None if value is None else clean(str(value)) or None
    return None


def _name(value: Any) -> str | None:
    text = _text(value)
    return None if text is None else plain_name(text)


def _words(tags: Any) -> tuple[str, ...]:
    with guarded(lambda fault: warn(f"the tags could not be recorded: {error_text(fault)}")):
        return () if tags is None else tuple(plain_name(clean(tag)) for tag in external_folder.parse_tags(tags))
    return ()
