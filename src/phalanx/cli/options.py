"""Options shared by several verbs, and the reading of the files that -f names."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from phalanx.cli.render.output import report_errors
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.spec import Spec

MAX_READ = (1 << 20) + 1  # one byte more than the limit of a file, so that the parser can detect an excess
DEFAULT_NAMES = tuple(
    f"{stem}.{ending}"
    for stem in ("polyaxon", "polyaxonci", "polyaxon-ci", "polyaxon.ci", "polyaxonfile")
    for ending in ("yaml", "yml", "json")
)


def file_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "-P",
        "--params",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a param, overriding the file. Repeatable.",
    )(function)
    return click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        metavar="FILE",
        help="The polyaxonfile, or - for standard input. Repeatable; later files override earlier ones. "
        "Default: polyaxonfile.yml, or another usual name, in the current folder.",
        shell_complete=_complete_file,
    )(function)


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that select a Kubernetes cluster, named as in kubectl."""
    for name, metavar, words in (
        ("--namespace", "NAME", "Kubernetes namespace. Default: that of the context."),
        ("--context", "NAME", "Context of the kubeconfig. Default: the current one."),
        ("--kubeconfig", "FILE", "Path of the kubeconfig. Default: $KUBECONFIG, or ~/.kube/config."),
    ):
        function = click.option(name, metavar=metavar, help=words)(function)
    return function


to_option = click.option(
    "--to",
    metavar="TARGET",
    help="What a `kind: build` file makes: NAME.sif (Apptainer), NAME.tar, or REGISTRY/NAME:TAG. "
    "Default: a virtual environment.",
)
assume_option = click.option(
    "--assume",
    metavar="OFFER",
    help="Render for a Kubernetes cluster with these features, such as training-operator=1.8,kueue.",
)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`, passed on as `as_json`; errors of the verb are printed in the same form."""

    @wraps(function)
    def reporting(*arguments: Any, as_json: bool, **options: Any) -> Any:
        with report_errors(as_json=as_json):
            return function(*arguments, as_json=as_json, **options)

    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(reporting)


def replica_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--rank` and `--replica`, passed on as one `replica`; the last one given counts."""
    function = click.option("--replica", metavar="NAME", help="Name of the replica, such as worker-3.")(function)
    return click.option("--rank", "replica", metavar="N", help="Rank of the replica. Default: the first one.")(function)


def seconds_of(option: str, text: str | None) -> float | None:
    """The time that an option gives, in seconds. Raises CallError."""
    from phalanx.spec.quantities import seconds

    found = seconds(text) if text is not None else None
    if text is not None and found is None:
        raise CallError(f'{option} {text!r}: expected seconds, or a duration such as "90m" or "1d12h"')
    return found


def _complete_file(*_: Any) -> list[Any]:
    from click.shell_completion import CompletionItem

    return [CompletionItem("", type="file")]


def with_target(texts: list[tuple[str, bytes]], to: str | None) -> list[tuple[str, bytes]]:
    """The files of a build, and `--to` laid over them."""
    return texts if to is None else [*texts, ("--to", json.dumps({"to": to}).encode())]


def read_files(files: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """The contents of the named files, or of the default file. Raises CallError."""
    names = list(files) or [_default_file()]
    if names.count("-") > 1:
        raise CallError("standard input (-f -) can be read only once")
    texts, faults = [], []
    for name in names:
        try:
            texts.append((name if name != "-" else "standard input", _read(name)))
        except OSError as fault:
            faults.append(f"{name}: {(fault.strerror or str(fault)).lower()}")
        except ValueError:
            faults.append(f"{name!r}: not a valid file name")
    if faults:
        raise CallError("cannot read " + "; ".join(faults))
    return texts


def _read(name: str) -> bytes:
    with open_input(name) as stream:
        return stream.read(MAX_READ)


@contextmanager
def open_input(name: str) -> Iterator[IO[bytes]]:
    """A file, or standard input for `-`. Raises OSError, ValueError, CallError."""
    if name != "-":
        with Path(name).open("rb") as stream:
            yield stream
    elif sys.stdin is None:
        raise CallError("standard input (-) is closed")
    else:
        yield sys.stdin.buffer


def _default_file() -> str:
    found = next((name for name in DEFAULT_NAMES if Path(name).is_file()), None)
    if found is None:
        raise CallError(
            "no polyaxonfile in the current folder: name one with -f FILE, or create one with `phalanx init`"
        )
    return found


def load(files: tuple[str, ...], params: tuple[str, ...], to: str | None = None) -> Spec:
    """The spec of the files and params of the command line. Raises SpecErrors with all errors, CallError."""
    from phalanx.launch.file_references import load_files

    return load_files(with_target(read_files(files), to), parse_params(params)).spec


def parse_params(pairs: tuple[str, ...]) -> dict[str, str]:
    """`-P name=value` as a dict. Raises CallError."""
    from phalanx.spec.scalars import is_valid_text

    params: dict[str, str] = {}
    for pair in pairs:
        if not is_valid_text(pair):  # bytes that are not UTF-8 arrive as lone surrogates
            raise CallError(f"-P {pair!r}: not UTF-8; write the value in UTF-8, or put it into the file")
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CallError(f"-P {pair!r}: expected -P NAME=VALUE")
        if name.strip() in params:
            raise CallError(f"-P {name.strip()} is given twice")
        if "\n" in name or "\x00" in pair:
            raise CallError(f"-P {pair!r}: not a valid name")
        params[name.strip()] = value
    return params


def complete_backend(*_: Any) -> list[str]:
    from phalanx.backends import names

    return list(names())


def complete_site(*_: Any) -> list[str]:
    from phalanx.home.home import default_home
    from phalanx.sites.profile_search import added, shipped

    return [*shipped(), *added(default_home())]
