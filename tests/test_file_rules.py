"""Names of a run's files, renames of drafts and locks are each in one module, checked in the sources themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from phalanx import run_paths
from tests.source_trees import modules_with, tree_of

NAMES = {value for name, value in vars(run_paths).items() if name.isupper() and not name.startswith("_")}
WORDS_OF_PLANS = {"hosts.sh"}  # also the name of a placeholder
# Files of others, and folders that are not a run's, which have one of these names
OTHER_FILES = {
    "phalanx.agent.virtualenv": {"log"},  # of a build
    "phalanx.formats.mlflow_files": {"artifacts", "models"},  # of MLflow
    "phalanx.registry.registry": {"models"},  # of the home
    "phalanx.server.routes.snapshots": {"code"},  # of an upload
    "phalanx.submission.virtualenvs": {"log", "venv.tar"},  # of a build
}
# Renames that do not end the writing of one file
OTHER_RENAMES = {
    "phalanx.agent.collection",  # in a folder that is open: no link may lead elsewhere
    "phalanx.agent.supervisor",  # the space of an end is reserved when the replica starts
    "phalanx.agent.working_folder",  # a mark, whose name says when its run has ended
    "phalanx.artifacts.objects",  # hard links
    "phalanx.backends.kubernetes.engine.replica_ends",  # an end that was held back
    "phalanx.cli.commands.quickstart",  # a folder
    "phalanx.exchange.exporter",  # a folder
    "phalanx.exchange.importer",  # a folder that is removed
    "phalanx.exchange.phalanx_runs",  # a folder
    "phalanx.home.home",  # a folder
    "phalanx.ingest.trackers",  # two files, of which the second tells that both are there
    "phalanx.registry.registry",  # a folder
    "phalanx.server.auth.audit",  # older files of a log
    "phalanx.server.http.bodies",  # outside of the event loop
    "phalanx.server.http.chunks",  # a draft that several requests write
    "phalanx.server.routes.snapshots",  # a folder
    "phalanx.submission.trials",  # a folder
    "phalanx.store.series.compaction",  # two files, of which the second tells that both are there
    "phalanx.submission.removal",  # a folder that is removed
    "phalanx.tracking.external_folder",  # a folder
}


_ANY = "|".join(map(re.escape, sorted(NAMES)))
_DOTTED = "|".join(re.escape(name) for name in sorted(NAMES) if "." in name)
# What a module that spells one contains at least: a quoted name with a suffix, or any name where it is joined to a path
_SPELLED = rf"""["'](?:{_DOTTED})["']|(?:/\s*|(?:join|joinpath|with_name)\((?s:.{{0,300}}?))["'](?:{_ANY})["']"""


def attempt_literals(source: ast.AST) -> Iterator[str]:
    """Texts, docstrings apart, that spell the name of an attempt."""
    docstrings = {id(node.value) for node in ast.walk(source) if isinstance(node, ast.Expr)}
    for node in ast.walk(source):
        if isinstance(node, ast.Constant) and "attempt-" in str(node.value) and id(node) not in docstrings:
            yield str(node.value)


def file_literals(source: ast.AST) -> Iterator[str]:
    """Names of a run's files that are spelled: any that has a suffix, and others where they are joined to a path."""
    for node in ast.walk(source):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield from _texts([node.right])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("join", "joinpath", "with_name"):
                yield from _texts(node.args)
        elif isinstance(node, ast.Constant) and "." in str(node.value):
            yield from (text for text in _texts([node]) if text not in WORDS_OF_PLANS)


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    return (str(node.value) for node in nodes if isinstance(node, ast.Constant) and node.value in NAMES)


def renames(source: ast.AST) -> Iterator[str]:
    """Uses of `os.replace` and `os.rename`, and calls of methods that look like those of a path."""
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.rename", "os.renames", "os.replace"):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".rename", ".replace")):
            yield from [ast.unparse(node)] if len(node.args) == 1 and not node.keywords else ()


def locks(source: ast.AST) -> Iterator[str]:
    for node in ast.walk(source):
        named = isinstance(node, ast.Attribute) and node.attr in ("flock", "lockf", "F_SETLK", "F_OFD_SETLK")
        if named or (isinstance(node, ast.ImportFrom) and node.module == "fcntl"):
            yield ast.unparse(node)


@pytest.mark.parametrize(
    ("find", "code"),
    [
        (attempt_literals, 'folder / f"attempt-{attempt}"'),
        (attempt_literals, 're.compile(r"attempt-(\\d+)")'),
        (attempt_literals, 'folder.glob("replicas/*/attempt-*")'),
        (file_literals, 'run_folder / "replicas" / name'),
        (file_literals, 'os.path.join(folder, "log")'),
        (file_literals, 'if name == "end.json": pass'),
        (file_literals, 'path.with_name("history")'),
        (renames, "os.replace(draft, path)"),
        (renames, "run_in_threadpool(os.rename, draft, path)"),
        (renames, "draft.replace(self.path)"),
        (renames, "(folder / name).rename(path)"),
        (locks, "fcntl.flock(descriptor, fcntl.LOCK_EX)"),
        (locks, "from fcntl import flock"),
    ],
)
def test_what_belongs_elsewhere_is_found(find: Callable[[ast.AST], Iterator[str]], code: str) -> None:
    assert list(find(ast.parse(code)))


def test_other_code_is_not_found() -> None:
    source = ast.parse("""
def f():
    "The folder `attempt-1` has a `log`."
    text.replace("a", "b"), moment.replace(tzinfo=UTC), run._replace(attempt=1), frame.rename(columns={})
    return {"log": 1, "replicas": 2}, fcntl.ioctl(descriptor, 1), ", ".join(names), path("hosts.sh")
""")
    assert [list(find(source)) for find in (attempt_literals, file_literals, renames, locks)] == [[], [], [], []]


def test_names_of_attempts_are_spelled_in_one_module() -> None:
    found = {module: list(attempt_literals(tree_of(module))) for module in modules_with("attempt-")}
    assert [module for module, texts in found.items() if texts] == ["phalanx.run_paths"]


def test_names_of_a_run_s_files_are_spelled_in_one_module() -> None:
    candidates = set(modules_with(_SPELLED)) - {"phalanx.run_paths"}
    found = {module: set(file_literals(tree_of(module))) for module in candidates}
    assert {module: texts for module, texts in found.items() if texts} == OTHER_FILES


def test_drafts_replace_files_in_one_module() -> None:
    found = {module for module in modules_with(r"\.(replace|renames?)\b") if any(renames(tree_of(module)))}
    assert found == {"phalanx.atomic_files", *OTHER_RENAMES}


def test_files_are_locked_in_one_module() -> None:
    candidates = modules_with("fcntl|flock|lockf|SETLK")
    assert [module for module in candidates if any(locks(tree_of(module)))] == ["phalanx.locks"]
