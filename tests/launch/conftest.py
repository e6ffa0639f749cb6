from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.leftovers import MARK, Marked
from tests.server.conftest import LEFT_BEHIND


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(LEFT_BEHIND))


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `training.py`, in which calls are made, and beside it a home. Shared by the tests of a file."""
    base = tmp_path_factory.mktemp("launch")
    folder = base / "work"
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "training.py", folder / "training.py")
    marked = Marked()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHALANX_HOME", str(base / "home"))
        patch.setenv("XDG_CONFIG_HOME", str(base / "config"))
        patch.setenv(MARK, marked.variables[MARK])
        patch.delenv("PHALANX_SERVER", raising=False)
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        try:
            yield folder
        finally:
            sys.modules.pop("training", None)
            marked.kill()


@pytest.fixture
def training(working: Path) -> ModuleType:
    found = import_module("training")
    assert Path(str(found.__file__)).parent == working
    return found
