"""Archives of the agent and of the tracking client: one file each, for any Python 3.8+, without dependencies.

The machines of a run execute the agent; the tracking client is on the training's PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import shutil
import zipfile
from functools import cache, lru_cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from io import BytesIO
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import write_atomic

_PACKAGE = Path(__file__).parent.parent
_MODULES = (
    *("__init__.py", "atomic_files.py", "ends.py", "launched_ranks.py", "locks.py", "naming.py", "placeholders.py"),
    *("run_paths.py", "spool.py", "uploads.py"),
)
_MODULES_OF_AGENT = ("frames.py", "path_patterns.py", "stored_plan.py", "working_files.py")
_MAIN = "import sys\nfrom phalanx.agent.__main__ import main\nsys.exit(main())\n"
# If Phalanx is also installed in the training's environment, its other modules are found through the client's package.
_REST = """
import os
import sys

_others = [os.path.join(place, "phalanx") for place in sys.path if place]
__path__ += [place for place in _others if os.path.isdir(place) and place not in __path__]
"""


_OLDEST = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip: the bytes must not depend on when a file was written


def agent_file(folder: Path) -> Path:
    """The agent in a folder; created if it is missing or another version."""
    return _packed(folder, "agent", "pyz", _own("agent"))


def kept_agent(folder: Path) -> Path | None:
    """The agent in a folder, if this version is there."""
    found = _target(folder, "agent", "pyz", _own("agent"))
    return found if found.exists() else None


def pack(folder: Path) -> None:
    """Create both files if they are missing. Raises OSError."""
    agent_file(folder)
    client_file(folder)


def client_file(folder: Path) -> Path:
    """The tracking client in a folder, in the same way."""
    return _packed(folder, "tracking", "zip", _own("tracking"))


def _own(room: str) -> dict[str, str]:
    """Files that are generated for the archive of a package."""
    if room == "agent":
        return {"__main__.py": _MAIN}
    return {"phalanx/__init__.py": (_PACKAGE / "__init__.py").read_text(encoding="utf-8") + _REST}


def client_paths(folder: Path) -> list[str]:
    """The paths at the end of the training's PYTHONPATH: `phalanx.tracking`, and its `polyaxon_client` interface."""
    client = client_file(folder)
    return [str(client), str(client / "phalanx" / "tracking" / "polyaxon")]


class AgentArchives(NamedTuple):
    """What the processes of an attempt need."""

    agent: Path
    client: list[str]  # paths at the end of the training's PYTHONPATH

    @classmethod
    def of(cls, folder: Path) -> AgentArchives:
        """The files in a folder; created if they are missing or another version. Raises OSError."""
        return cls(agent_file(folder), client_paths(folder))


def carry(job: Path, kept: Path) -> None:
    """Copy both into the folder of a job, which may wait for days or be moved: it must not depend on the home.
    `kept`: the folder where both are cached. Raises OSError."""
    job.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, source in ((run_paths.AGENT_ARCHIVE, agent_file(kept)), (run_paths.CLIENT_ARCHIVE, client_file(kept))):
        target = job / name
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another filesystem
            shutil.copyfile(source, target)
            target.chmod(0o600)


@cache
def carried() -> tuple[bytes, bytes]:
    """Agent and client to embed in other objects, whose size is limited: sources only, with reproducible bytes."""
    return _small("agent"), _small("tracking")


def _small(room: str) -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in sorted({**_read(_sources(room)), **_own(room)}.items()):
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # always Unix
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


def _modules(room: str) -> tuple[str, ...]:
    return (*_MODULES, *(_MODULES_OF_AGENT if room == "agent" else ()))


def _sources(room: str) -> list[Path]:
    return [*(_PACKAGE / name for name in _modules(room)), *sorted((_PACKAGE / room).rglob("*.py"))]


def _read(sources: list[Path]) -> dict[str, str]:
    return {path.relative_to(_PACKAGE.parent).as_posix(): path.read_text(encoding="utf-8") for path in sources}


def _packed(folder: Path, room: str, ending: str, own: dict[str, str]) -> Path:
    """A package, the modules that it needs and generated files, in one archive that is named by its content."""
    target = _target(folder, room, ending, own)
    if not target.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(target, _content(room, target.stem), sync=False)
    return target


def _target(folder: Path, room: str, ending: str, own: dict[str, str]) -> Path:
    return folder / f"{room}-{_version(room, own)}.{ending}"


def _version(room: str, own: dict[str, str]) -> str:
    """Changes with the sources. Every start of an agent asks for it, so it avoids the slow methods of paths."""
    found = [os.stat(os.path.join(_PACKAGE, name)) for name in _modules(room)]
    for folder, _, names in os.walk(os.path.join(_PACKAGE, room)):
        found += [os.stat(os.path.join(folder, name)) for name in names if name.endswith(".py")]
    stamp = "".join(sorted(f"{state.st_mtime_ns}:{state.st_size};" for state in found)) + repr(own)
    return hashlib.sha256(stamp.encode()).hexdigest()[:16]


@lru_cache(maxsize=2)  # a process that works on many homes packs once for all of them
def _content(room: str, version: str) -> bytes:  # noqa: ARG001 - other sources, another version
    """The sources, and their bytecode for this Python version. Other versions compile the sources."""
    packed, own = BytesIO(), _own(room)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {**_read(_sources(room)), **own}.items():
            archive.writestr(name, text)
            code = compile(text, name, "exec", dont_inherit=True) if name in own else _code(name)
            # Bytecode is not compressed: it is read at every start, and inflating it takes a tenth of that.
            compiled = str(Path(name).with_suffix(".pyc"))
            archive.writestr(compiled, _compiled(text, code), zipfile.ZIP_STORED)
    return packed.getvalue()


def _code(name: str) -> CodeType:
    """The code of a module of Phalanx. This Python has usually compiled it already, to import it."""
    code = SourceFileLoader(name, str(_PACKAGE.parent / name)).get_code(name)
    assert code is not None  # None only for built-in modules
    return _known_as(name, code)


def _known_as(name: str, code: CodeType) -> CodeType:
    """The code with the file name in the archive, for tracebacks."""
    inner = tuple(_known_as(name, one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=name, co_consts=inner)


def _compiled(text: str, code: CodeType) -> bytes:
    """A .pyc file that Python loads without comparing it to its source."""
    unchecked = (0b01).to_bytes(4, "little")
    return MAGIC_NUMBER + unchecked + source_hash(text.encode()) + marshal.dumps(code)
