"""The agent as one file that any Python 3.8+ runs, with nothing to install beside it."""

from __future__ import annotations

import hashlib
import os
import py_compile
import tempfile
import zipfile
from pathlib import Path

import phalanx

_PACKAGE = Path(phalanx.__file__).parent
_MODULES = ("__init__.py", "placeholders.py", "spool.py")
_MAIN = b"import sys\nfrom phalanx.agent.__main__ import main\nsys.exit(main())\n"


def _sources() -> list[Path]:
    return [*(_PACKAGE / name for name in _MODULES), *sorted((_PACKAGE / "agent").glob("*.py"))]


def agent_file(folder: Path) -> Path:
    """The agent in a folder; made there when it is missing or another version."""
    sources = _sources()
    stamp = "".join(f"{path.stat().st_mtime_ns}:{path.stat().st_size};" for path in sources)
    target = folder / f"agent-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.pyz"
    if not target.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_agent(target)
    return target


def write_agent(target: Path) -> None:
    """Sources, and what this Python makes of them: other Pythons compile for themselves, this one need not."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        draft = Path(scratch) / "agent.pyz"
        with zipfile.ZipFile(draft, "w") as archive:
            archive.writestr("__main__.py", _MAIN)
            for source in _sources():
                name = source.relative_to(_PACKAGE.parent)
                archive.write(source, str(name))
                compiled = Path(scratch) / "module.pyc"
                py_compile.compile(
                    str(source), str(compiled), dfile=str(name), doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )  # fmt: skip
                archive.write(compiled, str(name.with_suffix(".pyc")))
        draft.chmod(0o600)
        os.replace(draft, target)
