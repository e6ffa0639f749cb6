"""Valid Kubernetes names from user input. A hash keeps changed names unique.

Object names are DNS labels that start with a letter, so a Service can use them too, and leave room for the suffix of a
Job's controller (`-<index>`). Valid names stay unchanged.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

from phalanx.backends.kubernetes.target import ATTEMPT, DOMAIN, MEMBERS, NAME, PROJECT, ROLE, RUN
from phalanx.plan.model import Plan

LONGEST = 63  # limit of a DNS label, a label's value and the name in its key
INDEX_ROOM = 6  # `-99999`: the hostname of a pod is its Job's name and index
LONGEST_SUBDOMAIN = 253
LONGEST_ANNOTATIONS = 200 << 10  # all keys and values of an object; the API server accepts 256 KiB
ORIGINAL = f"{DOMAIN}/original-"
OURS = (f"{DOMAIN}/", "app.kubernetes.io/")

_HASH = 8
_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?\Z")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")
_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class ValidName(NamedTuple):
    """A valid text; `original` is set if it differs from the input."""

    valid: str
    original: str | None = None


def object_name(*parts: str, room: int = INDEX_ROOM) -> str:
    """Join the parts into an object name, with `room` characters left for a suffix."""
    return kept_name(*parts, room=room).valid


def kept_name(*parts: str, room: int = INDEX_ROOM) -> ValidName:
    written = "-".join(parts)
    longest = LONGEST - room
    if len(written) <= longest and all(parts) and _LABEL.match(written):
        return ValidName(written)
    plain = re.sub(r"[^a-z0-9]+", "-", written.lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"x-{plain}".rstrip("-")
    return ValidName(_hashed(plain, "\0".join(parts), longest), written)


def label_value(text: str) -> ValidName:
    """Make a valid label value. The empty text is valid."""
    if not text or _WORD.match(text):
        return ValidName(text)
    return ValidName(_hashed(_word(text), text, LONGEST), text)


def label_key(text: str) -> ValidName:
    """Make a valid key of a label or annotation: `name` or `domain/name`. An invalid domain becomes part of the
    name."""
    if is_key(text):
        return ValidName(text)
    domain, slash, name = text.rpartition("/")
    if slash and is_subdomain(domain):
        return ValidName(f"{domain}/{_hashed(_word(name), text, LONGEST)}", text)
    return ValidName(_hashed(_word(text), text, LONGEST), text)


def is_key(text: str) -> bool:
    domain, slash, name = text.partition("/")
    if not slash:
        return _WORD.match(text) is not None
    return is_subdomain(domain) and _WORD.match(name) is not None


def is_label_value(text: str) -> bool:
    return not text or _WORD.match(text) is not None


def is_subdomain(text: str) -> bool:
    """Return whether most objects may have this name: `gpu-pool`, `team.example`."""
    return len(text) <= LONGEST_SUBDOMAIN and all(map(_DNS_LABEL.match, text.split(".")))


def is_dns_label(text: str) -> bool:
    """Return whether containers and volumes may have this name."""
    return _DNS_LABEL.match(text) is not None


def is_variable(text: str) -> bool:
    return _VARIABLE.match(text) is not None


def base(made: Plan) -> str:
    """The prefix of every object of a run."""
    return object_name("phalanx", made.run_id)


def labels(made: Plan, role: str | None = None, users: Mapping[str, str] | None = None) -> dict[str, str]:
    """The labels of an object of a run: the user's, made valid, and Phalanx's, which cannot be overridden. The attempt
    is added at submission."""
    run = label_value(made.run_id).valid
    ours = {
        "app.kubernetes.io/name": "phalanx",
        "app.kubernetes.io/instance": run,
        "app.kubernetes.io/component": role or "run",
        "app.kubernetes.io/managed-by": "phalanx",
        RUN: run,
        ATTEMPT: "1",
    }
    if role is not None:
        ours[ROLE] = role
    return {key: kept.valid for key, kept, _ in _valid_labels(users)} | ours


def annotations(
    made: Plan,
    members: Iterable[str] = (),
    users: Mapping[str, str] | None = None,
    users_labels: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The run's names for users to search by, and the original text of changed labels."""
    project = made.shared.get("PHALANX_PROJECT")
    ours = {
        NAME: made.name or made.run_id,
        PROJECT: project if isinstance(project, str) else "",
        MEMBERS: ",".join(members),
    }
    originals = {
        f"{ORIGINAL}{_part_of_key(key)}": original for key, _, original in _valid_labels(users_labels) if original
    }
    if label_value(made.run_id).original is not None:
        originals[f"{ORIGINAL}run"] = made.run_id
    theirs = {}
    for written, value in (users or {}).items():
        key = label_key(written)
        if key.valid.startswith(OURS):
            continue
        theirs[key.valid] = value
        if key.original is not None:
            originals[f"{ORIGINAL}{_part_of_key(key.valid)}"] = key.original
    return theirs | originals | {key: value for key, value in ours.items() if value}


def _valid_labels(users: Mapping[str, str] | None) -> Iterable[tuple[str, ValidName, str | None]]:
    """Key, value, and the original label if it was not valid."""
    for written, text in (users or {}).items():
        key, value = label_key(written), label_value(text)
        if key.valid.startswith(OURS):
            continue
        original = None
        if key.original is not None:
            original = f"{written}={text}"
        elif value.original is not None:
            original = text
        yield key.valid, value, original


def _part_of_key(key: str) -> str:
    """A key in a form that fits into the name of another key."""
    name = key.replace("/", "_")
    room = LONGEST - len(ORIGINAL.partition("/")[2])
    return name if len(name) <= room else _hashed(name, key, room)


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")


def _hashed(plain: str, written: str, longest: int) -> str:
    """As much of the text as fits, and a hash that makes it unique."""
    digest = sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    start = plain[: longest - _HASH - 1].rstrip("-_.")
    return f"{start}-{digest}" if start else f"x-{digest}"
