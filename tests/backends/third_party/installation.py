"""The package of a third party, as pip leaves it: a module, and metadata with an entry point."""

from __future__ import annotations

from pathlib import Path

MODULE = Path(__file__).with_name("shell_backend.py")


def install(folder: Path, *, module: str | None = None, name: str = "shell") -> Path:
    """A folder for sys.path. `module`: another text than that of the example."""
    folder.mkdir(parents=True, exist_ok=True)
    package = f"phalanx_{name}"
    (folder / f"{package}.py").write_text(MODULE.read_text() if module is None else module)
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[phalanx.backends]\n{name} = {package}:BACKEND\n")
    return folder
