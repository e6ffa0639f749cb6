"""Optional packages: which extra of Phalanx installs them, and what needs them.

EXTRAS is the only table of them: `phalanx doctor` prints it, and `needed` raises all errors about missing packages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from phalanx.errors import MissingExtra


class Extra(NamedTuple):
    """One extra of pyproject.toml. `package`: name of the distribution and of its module; `use`: what needs it."""

    name: str
    package: str
    use: str

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install 'phalanx[{self.name}]'"

    def version(self) -> str | None:
        """The installed version; None if not installed."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(self.package)
        except PackageNotFoundError:
            return None


_TABLE = (
    Extra("series", "pyarrow", "compacting points to Parquet, reading compacted points, `export --format parquet`"),
    Extra("kubernetes", "kubernetes", "runs on Kubernetes and Kubeflow"),
    Extra("postgres", "psycopg", "a database in PostgreSQL (PHALANX_DATABASE=postgresql://…)"),
    Extra("s3", "s3fs", "outputs on s3://"),
    Extra("gcs", "gcsfs", "outputs on gs://"),
    Extra("azure", "adlfs", "outputs on az:// and abfs://"),
    Extra("search", "optuna", "the searches `bo`, `tpe` and `cmaes` of a group"),
    Extra("regex", "google-re2", "regular expressions in `logs --grep` and in the log search of a server"),
    Extra("oidc", "joserfc", "`phalanx serve --sign-on` with OpenID Connect"),
    Extra("reports", "markdown-it-py", "`phalanx report export`"),
    Extra("mcp", "mcp", "`phalanx mcp`: assistants read runs with the Model Context Protocol"),
    Extra("functions", "cloudpickle", "`phalanx.submit` with lambdas, closures and functions of a script or notebook"),
    Extra("pandas", "pandas", "`.pandas()` and `.numpy()` of `phalanx.open()`"),
)
EXTRAS = {extra.name: extra for extra in _TABLE}


@contextmanager
def needed(name: str, purpose: str) -> Iterator[None]:
    """Context for the imports of an extra's packages. Raises MissingExtra, which names the extra, if they fail."""
    try:
        yield
    except ImportError as fault:
        raise missing(name, purpose, fault) from None


def missing(name: str, purpose: str, fault: Exception) -> MissingExtra:
    """The error for a failed import."""
    from phalanx.errors import MissingExtra

    extra = EXTRAS[name]
    package = (getattr(fault, "name", None) or extra.package).partition(".")[0]
    reason = str(fault).partition("\n")[0]
    why = f"which cannot be imported ({reason})" if is_installed(package) else "which is not installed"
    return MissingExtra(f"{purpose} needs the package `{package}`, {why}: {extra.install}")


def is_installed(module: str) -> bool:
    """Whether a module is installed. Does not import it, which may take a second."""
    from importlib.util import find_spec

    return find_spec(module) is not None
