"""Hooks of the build: the page is built when it is missing, and the README is made fit for PyPI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class PageHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's names
        """`version` is "editable" when a tree is installed as it stands: `make page` is for those."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from scripts import build_page

            if not build_page.is_built(build_page.ROOT):
                build_page.build()
        except ImportError:
            self.app.display_warning("the page is not built: there is no scripts/build_page.py here")
        except Exception as fault:  # noqa: BLE001 - whatever it is, a server without its page is better than none
            self.app.display_warning(f"the page is not built: {fault}")
        finally:
            sys.path.remove(self.root)


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        try:
            from scripts.pypi_readme import pypi_readme
        finally:
            sys.path.remove(self.root)
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": pypi_readme(text)}
