"""The base of groups and pipelines for Python: fields of their summary as attributes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class SummaryView(ABC):
    """Something as it was when it was read; `refresh` reads it again. The fields of `summary` are attributes."""

    id: str
    status: str

    def __init__(self, summary: Mapping[str, Any]) -> None:
        self.summary = summary

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "summary" or name not in self.summary:
            raise AttributeError(name)
        return self.summary[name]

    @abstractmethod
    def refresh(self) -> None:
        """Read the summary again."""
