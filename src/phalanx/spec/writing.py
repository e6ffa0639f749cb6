"""Spec to file: the modern form, in a settled order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from phalanx.spec.model import Spec, thaw
from phalanx.spec.schema import sections

_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Several lines as a block, so that a long command stays readable."""


def _text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def modern_document(spec: Spec) -> dict[str, Any]:
    """The file in its modern form: sections in the order of the reference, what is empty left out."""
    written = thaw(spec.document)
    order = [*sections(spec.kind).fields, *written]
    document = {key: written[key] for key in dict.fromkeys(order) if key in written}
    return {key: value for key, value in document.items() if value is not None and value != {}}


def to_yaml(document: Mapping[str, Any]) -> str:
    """YAML that reads back as the same document."""
    text = yaml.dump(
        thaw(document),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=100,
    )
    return str(text)
