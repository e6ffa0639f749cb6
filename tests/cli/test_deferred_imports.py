from __future__ import annotations

import subprocess
import sys

import pytest

from phalanx.cli.deferred_imports import DeferredModule, deferred


def printed(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_a_stand_in_is_for_the_modules_imported_inside_and_imports_its_module_on_first_use() -> None:
    script = """
import sys
from phalanx.cli.deferred_imports import DeferredModule, deferred
with deferred(DeferredModule("colorsys")):
    import colorsys
print("colorsys" in sys.modules, colorsys.rgb_to_hsv(0, 0, 0), "colorsys" in sys.modules)
import colorsys as real
print(type(real).__name__, real.rgb_to_hsv is colorsys.rgb_to_hsv)
"""
    assert printed(script) == "False (0.0, 0.0, 0) True\nmodule True\n"


def test_a_stand_in_can_be_used_and_imported_from_inside() -> None:
    script = """
import sys
from phalanx.cli.deferred_imports import DeferredModule, deferred
with deferred(DeferredModule("colorsys", ONE_THIRD=3)):
    from colorsys import ONE_THIRD
    print(ONE_THIRD, "colorsys" in sys.modules)
    from colorsys import rgb_to_hsv
print(rgb_to_hsv.__module__, sys.modules["colorsys"].ONE_THIRD < 1)
"""
    assert printed(script) == "3 True\ncolorsys True\n"


def test_a_loaded_module_is_not_replaced() -> None:
    with deferred(DeferredModule("subprocess")):
        assert sys.modules["subprocess"] is subprocess
    assert sys.modules["subprocess"] is subprocess


def test_an_attribute_that_the_module_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = DeferredModule("subprocess").nonsense


def test_click_works_with_the_modules_that_it_got_stand_ins_for() -> None:
    script = """
import sys
from phalanx.cli import click
assert not {"inspect", "uuid", "gettext"} & set(sys.modules)
@click.command()
@click.option("--id", type=click.UUID, help="An id,\\n    on two lines.")
def show(id):
    print(type(id).__name__, id)
show(["--id", "7d0c4a55-5f0e-5c0b-9a0e-1b6a6f3f9a11"], standalone_mode=False)
show(["--help"], standalone_mode=False)
"""
    said = printed(script)
    assert said.startswith("UUID 7d0c4a55-5f0e-5c0b-9a0e-1b6a6f3f9a11\nUsage:")
    assert "An id, on two lines." in said


def test_a_path_becomes_an_address_as_ever() -> None:
    script = """
import sys
from phalanx.cli import phalanx
phalanx.get_command(None, "ps")
from pathlib import Path
print("urllib.parse" in sys.modules, Path("/a b").as_uri())
"""
    assert printed(script) == "False file:///a%20b\n"
