"""Writes a spec as a file: the modern form, in a fixed order."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from phalanx.spec.model import Spec, thaw_written
from phalanx.spec.scalars import WrittenBool, WrittenFloat, WrittenInt, WrittenNull, WrittenScalar, resolve_plain
from phalanx.spec.schema import sections

_EXPONENT = re.compile(r"[-+]?[0-9][0-9_.]*[eE][-+]?[0-9]+\Z")  # a number in YAML 1.2, of any length
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Several lines as a block, so that a long command stays readable."""

    def ignore_aliases(self, data: Any) -> bool:
        return isinstance(data, WrittenScalar) or bool(super().ignore_aliases(data))


def _text(dumper: Any, text: str) -> Any:
    """In quotes, where we or another reader of YAML would read something else than a text without them."""
    is_text = text != "<<" and not _EXPONENT.match(text) and isinstance(resolve_plain(text or "x"), str)
    style = "|" if "\n" in text else None if is_text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _written(dumper: Any, scalar: WrittenScalar | float) -> Any:
    """The characters of a value, unquoted. Those of an ordinary number follow from it: PyYAML writes others."""
    text = str(scalar)
    tag = dumper.resolve(yaml.ScalarNode, text, (True, False))  # the one that needs no mark
    return dumper.represent_scalar(tag, text)


def _float(dumper: Any, number: float) -> Any:
    return _written(dumper, number) if math.isfinite(number) else dumper.represent_float(number)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(float, _float)
for _kind in (WrittenInt, WrittenFloat, WrittenBool, WrittenNull):
    _Dumper.add_representer(_kind, _written)


def modern_document(spec: Spec) -> dict[str, Any]:
    """The file in its modern form: sections in the order of the reference, what is empty left out. Scalars keep their
    characters; `thaw` removes them, for JSON."""
    written = thaw_written(spec.document)
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
    return str(yaml.dump(thaw_written(document), Dumper=_Dumper, allow_unicode=allow_unicode, **settings))
