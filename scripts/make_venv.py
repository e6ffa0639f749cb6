"""Create the virtual environment of `make setup`: with uv if it is on the PATH, else with venv and pip.

Both use the package sources of pip's configuration: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, PIP_NO_INDEX,
PIP_TRUSTED_HOST and PIP_CERT, or the same in pip.conf. uv does not read them, so they are passed to it, unless it has
its own variables (UV_INDEX_URL and so on). --wheelhouse DIR takes all packages, also those for builds, only from that
folder, without network.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

OWN_SETTINGS = (
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_OFFLINE",
)
YES = ("1", "true", "yes", "on")


class Sources(NamedTuple):
    """The package sources in pip's configuration."""

    index_url: str = ""
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    certificates: str = ""

    def for_pip(self) -> dict[str, str]:
        """As environment variables, which also apply where pip builds a package."""
        return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": " ".join(self.find_links)} if self.no_index else {}

    def for_uv(self) -> tuple[list[str], dict[str, str]]:
        """As options and variables of uv."""
        options = ["--no-index"] if self.no_index else []
        if self.index_url and not self.no_index:
            options += ["--index-url", self.index_url]
        if self.extra_indexes and not self.no_index:
            # pip takes the best version of all indexes; uv by default that of the first index with the package
            options += [word for url in self.extra_indexes for word in ("--extra-index-url", url)]
            options += ["--index-strategy", "unsafe-best-match"]
        options += [word for link in self.find_links for word in ("--find-links", link)]
        variables = {"UV_INSECURE_HOST": " ".join(self.trusted_hosts)} if self.trusted_hosts else {}
        return options, variables | ({"SSL_CERT_FILE": self.certificates} if self.certificates else {})


def sources_of(configured: Mapping[str, str]) -> Sources:
    """`configured`: values by the names of pip's options."""

    def words(name: str) -> tuple[str, ...]:
        return tuple(configured.get(name, "").split())

    return Sources(
        index_url=configured.get("index-url", "").strip(),
        extra_indexes=words("extra-index-url"),
        find_links=words("find-links"),
        no_index=configured.get("no-index", "").strip().lower() in YES,
        trusted_hosts=words("trusted-host"),
        certificates=configured.get("cert", "").strip(),
    )


def configured_in(listing: str, environment: Mapping[str, str]) -> dict[str, str]:
    """pip's options from `pip config list` and the environment, by name. The section of a command overrides `global`,
    and a variable overrides both."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for line in listing.splitlines():
        key, mark, value = line.partition("=")
        section, _, name = key.partition(".")
        if mark and section in found:
            try:
                found[section][name] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                continue
    variables = {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith("PIP_") and value
    }
    return {**found["global"], **found["install"], **variables}


def configured() -> dict[str, str]:
    """The configuration of this machine. A Python without pip has only variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return configured_in(done.stdout if done.returncode == 0 else "", os.environ)


def make_with_uv(uv: str, folder: Path, wanted: str, sources: Sources) -> None:
    options, variables = ([], {}) if is_configured(os.environ) and not sources.no_index else sources.for_uv()
    environment = {**variables, **os.environ}
    python = str(folder / "bin" / "python")
    fresh = "--clear" if is_of_another_python(folder) else "--allow-existing"
    call([uv, "venv", "--quiet", fresh, "--python", sys.executable, str(folder)], environment)
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *options]
    call([*install, "--editable", wanted], environment)


def make_with_pip(folder: Path, wanted: str, sources: Sources) -> None:
    environment = {**os.environ, **sources.for_pip()}
    fresh = ["--clear"] if is_of_another_python(folder) else []
    call([sys.executable, "-m", "venv", *fresh, str(folder)], environment)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call([*install, "--editable", wanted], environment)


def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether uv has configured package sources."""
    return any(environment.get(name) for name in OWN_SETTINGS)


def is_of_another_python(folder: Path) -> bool:
    """Whether there is an environment that this Python cannot reuse."""
    python = folder / "bin" / "python"
    if not python.is_symlink() and not python.exists():
        return False
    try:
        asked = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    except OSError:
        return True  # its Python is gone
    return answer.split() != [str(number) for number in sys.version_info[:2]]


def call(command: list[str], environment: Mapping[str, str]) -> None:
    """Exit if the command fails: it has printed the reason."""
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode:
        sys.exit(f"make_venv: `{' '.join(command[:4])} …` failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the environment")
    parser.add_argument("wanted", help="package to install as editable, such as .[dev]")
    parser.add_argument("--wheelhouse", type=Path, metavar="DIR", help="folder with all required wheels")
    asked = parser.parse_args()
    if asked.wheelhouse is not None:
        if not asked.wheelhouse.is_dir():
            sys.exit(f"make_venv: no folder {asked.wheelhouse}: create one with `make wheelhouse WHEELHOUSE=DIR`")
        sources = Sources(find_links=(str(asked.wheelhouse.absolute()),), no_index=True)
    else:
        sources = sources_of(configured())
    uv = shutil.which("uv")
    if uv is not None:
        make_with_uv(uv, asked.folder, asked.wanted, sources)
    else:
        make_with_pip(asked.folder, asked.wanted, sources)


if __name__ == "__main__":
    main()
