"""What goes along to the machines, for any Python 3.8+ and with nothing to install beside it: one file each.

The agent is run; the tracking client stands on the training's PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import os
import py_compile
import shutil
import tempfile
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_MODULES = ("__init__.py", "frames.py", "naming.py", "placeholders.py", "posting.py", "spool.py")
_MAIN = "import sys\nfrom phalanx.agent.__main__ import main\nsys.exit(main())\n"
# Where Phalanx is installed beside the training, the rest of it is found through the client's package.
_REST = """
import os
import sys

_others = [os.path.join(place, "phalanx") for place in sys.path if place]
__path__ += [place for place in _others if os.path.isdir(place) and place not in __path__]
"""


_OLDEST = (1980, 1, 1, 0, 0, 0)  # of what a zip can name: when a file was written says nothing of what is in it


def agent_file(folder: Path) -> Path:
    """The agent in a folder; made there when it is missing or another version."""
    return _packed(folder, "agent", "pyz", _own("agent"))


def client_file(folder: Path) -> Path:
    """The tracking client in a folder, in the same way."""
    return _packed(folder, "tracking", "zip", _own("tracking"))


def _own(room: str) -> dict[str, str]:
    """Files that are made for a room's archive."""
    if room == "agent":
        return {"__main__.py": _MAIN}
    return {"phalanx/__init__.py": (_PACKAGE / "__init__.py").read_text(encoding="utf-8") + _REST}


def client_paths(folder: Path) -> list[str]:
    """What belongs at the end of the training's PYTHONPATH: `phalanx.tracking`, and `polyaxon_client` in its shape."""
    client = client_file(folder)
    return [str(client), str(client / "phalanx" / "tracking" / "polyaxon")]


def carry(job: Path, kept: Path) -> None:
    """Both into the folder of a job that may wait for days, or go elsewhere: it does not depend on us any more then.
    `kept`: where they are once made. Raises OSError."""
    job.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, source in (("agent.pyz", agent_file(kept)), ("tracking.zip", client_file(kept))):
        target = job / name
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another filesystem
            shutil.copyfile(source, target)
            target.chmod(0o600)


@cache
def carried() -> tuple[bytes, bytes]:
    """Agent and client as they travel inside of other objects, which are not large: sources alone, the same bytes
    wherever and whenever they are made."""
    return _small("agent"), _small("tracking")


def _small(room: str) -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in sorted({**_read(_sources(room)), **_own(room)}.items()):
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # Unix, wherever it is made
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


def _sources(room: str) -> list[Path]:
    return [*(_PACKAGE / name for name in _MODULES), *sorted((_PACKAGE / room).rglob("*.py"))]


def _read(sources: list[Path]) -> dict[str, str]:
    return {path.relative_to(_PACKAGE.parent).as_posix(): path.read_text(encoding="utf-8") for path in sources}


def _packed(folder: Path, room: str, ending: str, own: dict[str, str]) -> Path:
    """A room and what it needs, with files of our own, in one file that is named by its content."""
    sources = _sources(room)
    stamp = "".join(f"{path.stat().st_mtime_ns}:{path.stat().st_size};" for path in sources) + repr(own)
    target = folder / f"{room}-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.{ending}"
    if not target.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(target, {**_read(sources), **own})
    return target


def _write(target: Path, files: dict[str, str]) -> None:
    """Sources, and what this Python makes of them: other Pythons compile for themselves, this one need not."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        draft = Path(scratch) / "archive"
        source, compiled = Path(scratch) / "module.py", Path(scratch) / "module.pyc"
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
                source.write_text(text, encoding="utf-8")
                py_compile.compile(
                    str(source), str(compiled), dfile=name, doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )  # fmt: skip
                archive.write(compiled, str(Path(name).with_suffix(".pyc")))
        draft.chmod(0o600)
        os.replace(draft, target)
