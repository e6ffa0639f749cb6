"""Writes a spec as a file: the modern form, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from phalanx.spec.model import Spec, thaw
from phalanx.spec.schema import sections
from phalanx.spec.yaml_reader import resolve_plain

_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Several lines as a block, so that a long command stays readable."""


def _text(dumper: Any, text: str) -> Any:
    """In quotes, where we would read something else than a text without them."""
    style = "|" if "\n" in text else "'" if text == "<<" or not isinstance(resolve_plain(text or "x"), str) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def modern_document(spec: Spec) -> dict[str, Any]:
    """The file in its modern form: sections in the order of the reference, what is empty left out."""
    written = thaw(spec.document)
    order = [*sections(spec.kind).fields, *written]
    document = {key: written[key] for key in dict.fromkeys(order) if key in written}
    return {key: value for key, value in document.items() if value is not None and value != {}}


def to_yaml(document: Mapping[str, Any]) -> str:
    """YAML that reads back as the same document. What a terminal would obey, or hide, is escaped."""
    text = _dumped(document, allow_unicode=True)
    if not all(character.isprintable() or character == "\n" for character in text):
        return _dumped(document, allow_unicode=False)
    return text


def _dumped(document: Mapping[str, Any], *, allow_unicode: bool) -> str:
    settings: dict[str, Any] = {"sort_keys": False, "default_flow_style": False, "width": 100}
    return str(yaml.dump(thaw(document), Dumper=_Dumper, allow_unicode=allow_unicode, **settings))
