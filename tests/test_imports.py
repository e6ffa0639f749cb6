"""Who may import whom, read from the sources themselves."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.source_trees import FILES, PACKAGE, SOURCES, modules_with, tree_of

EVERYTHING = "*"

FILES_OF_RUNS = ("atomic_files", "locks", "run_paths")
# What each package may import of ours. The package itself (`phalanx.__version__`) is open to all.
ALLOWED: dict[str, set[str]] = {
    "ends": {"run_paths"},
    "deferred_patterns": set(),
    "errors": set(),
    "extras": {"errors"},
    "atomic_files": set(),
    "launched_ranks": set(),
    "locks": set(),
    "run_paths": set(),
    "frames": {"run_paths"},
    "naming": set(),
    "path_patterns": set(),
    "placeholders": set(),
    "spool": set(),
    "strict_json": set(),
    "stored_plan": {"naming", "placeholders", "run_paths"},
    "uploads": set(),
    "working_files": {"atomic_files", "run_paths"},
    "agent": {
        *FILES_OF_RUNS,
        *("ends", "frames", "naming", "path_patterns", "placeholders", "spool", "stored_plan", "uploads"),
        *("launched_ranks", "working_files"),
    },
    "tracking": {*FILES_OF_RUNS, "ends", "launched_ranks", "naming", "spool", "placeholders", "uploads"},
    "spec": {"tune", "deferred_patterns", "errors", "path_patterns"},
    "plan": {"spec", "deferred_patterns", "errors", "naming", "placeholders"},
    "sites": {"plan", "spec", "errors", "naming"},
    "tune": set(),
    "store": {*FILES_OF_RUNS, "deferred_patterns", "spool", "stored_plan", "errors", "extras", "naming"},
    "logs": {*FILES_OF_RUNS, "ends", "spool", "stored_plan", "errors", "extras", "naming"},
    "formats": {*FILES_OF_RUNS, "naming", "spool", "errors"},
    "home": {*FILES_OF_RUNS, "agent", "tracking", "store", "naming", "spool", "ends", "stored_plan", "errors"},
    "backends": {
        *FILES_OF_RUNS,
        *("plan", "sites", "home", "agent", "tracking"),
        *("ends", "frames", "naming", "placeholders", "stored_plan", "errors", "extras"),
    },
    "insight": {
        *FILES_OF_RUNS,
        *("plan", "home", "store", "spool", "stored_plan", "ends", "naming", "working_files", "errors"),
    },
    "artifacts": {*FILES_OF_RUNS, "home", "store", "plan", "errors", "extras"},
    "registry": {
        *FILES_OF_RUNS,
        *("artifacts", "home", "store", "tracking", "spool", "path_patterns", "stored_plan", "errors"),
    },
    "reports": {"home", "store", "naming", "errors", "extras"},
    "ingest": {
        *FILES_OF_RUNS,
        *("formats", "registry", "artifacts", "insight", "home", "store"),
        *("tracking", "spool", "stored_plan", "ends", "naming", "path_patterns", "working_files", "errors", "extras"),
    },
    "boards": {*FILES_OF_RUNS, *("formats", "store", "insight", "agent", "path_patterns", "errors")},
    "exchange": {
        *FILES_OF_RUNS,
        *("ingest", "formats", "home", "store", "tracking", "spool", "stored_plan", "strict_json", "errors", "extras"),
    },
    "settings": {"spec", "errors"},
    "notifications": {
        *FILES_OF_RUNS,
        *("settings", "spec", "home", "store", "naming", "spool", "errors"),
    },
    "retention": {
        *FILES_OF_RUNS,
        *("settings", "spec", "ingest", "artifacts", "home", "store", "path_patterns", "errors"),
    },
    "scheduler": {
        *FILES_OF_RUNS,
        *("notifications", "retention"),
        *("submission", "spec", "tune", "backends", "ingest", "registry", "artifacts", "insight", "home", "store"),
        *("agent", "tracking", "ends", "naming", "stored_plan", "errors"),
    },
    "submission": {
        *FILES_OF_RUNS,
        "notifications",
        *("backends", "sites", "plan", "spec", "tune", "artifacts", "registry", "ingest", "home", "store"),
        *("insight", "agent", "tracking", "naming", "placeholders", "stored_plan", "errors", "extras"),
    },
    "client": {
        *FILES_OF_RUNS,
        "spec",
        "extras",
        "submission",
        "scheduler",
        "artifacts",
        "registry",
        "reports",
        "home",
        "logs",
        "store",
        "tracking",
        "errors",
    },
    "launch": {
        *FILES_OF_RUNS,
        *(
            "client",
            "scheduler",
            "submission",
            "backends",
            "insight",
            "artifacts",
            "logs",
            "plan",
            "spec",
            "home",
            "store",
        ),
        *("home", "store", "tracking", "stored_plan", "errors", "extras"),
    },
    "submitit": {"launch", "submission", "store", "stored_plan", "errors"},
    "server": {EVERYTHING},
    "cli": {EVERYTHING},
}
NEVER = {"server": {"cli", "client", "exchange", "formats", "launch", "submitit"}}
# Standard library only, Python 3.8+.
PORTABLE = (
    *FILES_OF_RUNS,
    *("ends", "naming", "path_patterns", "placeholders", "spool", "stored_plan", "frames", "uploads"),
    *("launched_ranks", "working_files", "agent", "tracking", "tune"),
)
# Inside a package: each group may import those before it, not those after.
LAYERS = {
    "server": (
        ("http",),
        ("auth",),
        ("schemas",),
        ("mlflow.errors", "mlflow.experiment_table"),
        ("context",),
        ("policy", "live", "ops", "mlflow", "routes"),
        ("app",),
        ("processes.worker", "processes.pool"),
        ("daemon",),
    ),
    "cli": (("render",), ("workspace",), ("commands",)),
    "backends.kubernetes": (
        ("target",),
        ("observe",),
        ("render",),
        ("cluster",),
        ("engine",),
        ("backend",),
        ("operators",),
    ),
}
WIDEST_PACKAGE = 24
# One module for each verb, and for each group of routes: its name is that of the verb or of the routes.
WIDE = {"phalanx.cli.commands", "phalanx.server.routes"}
# Nouns and adjectives of the domain that end like a verb
WORDS_OF_THE_DOMAIN = {
    *("naming", "sizing", "pending", "lightning", "tracking", "r0002_tracking"),
    *("gang_scheduling", "chart_encoding", "early_stopping", "pytorch_lightning"),
}
NAMES_OF_OTHERS = ("phalanx.tracking.polyaxon.", "phalanx.submitit.")  # Polyaxon's and submitit's
LONGEST_FILE = 600
LONGEST_CLASS = 320


def room_of(module: str) -> str:
    """The sub-package or top-level module that a module belongs to; empty for the package itself."""
    return [*module.split("."), ""][1]


def imported(source: ast.AST, module: str, *, is_package: bool, known: Container[str]) -> Iterator[str]:
    """Every module that a source imports, wherever in it the import stands."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                steps = module.split(".")
                steps = steps[: len(steps) - node.level + (1 if is_package else 0)]
                base = ".".join([*steps, base]) if base else ".".join(steps)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in known else base


class Source(NamedTuple):
    imports: frozenset[str]
    lines: int
    classes: list[tuple[str, int]]  # each with the number of its lines


@cache
def source_of(module: str) -> Source:
    """What the tests below ask of a file, which is parsed once for all of them."""
    file, tree = FILES[module], tree_of(module)
    classes = [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    found = imported(tree, module, is_package=file.name == "__init__.py", known=FILES.keys())
    return Source(frozenset(found), len(file.read_text(encoding="utf-8").splitlines()), classes)


def imports_of(module: str) -> frozenset[str]:
    return source_of(module).imports


def ours(modules: Iterable[str]) -> set[str]:
    return {module for module in modules if module == PACKAGE or module.startswith(f"{PACKAGE}.")}


def faults(module: str, imports: Iterable[str]) -> list[str]:
    """What a module imports against the rule."""
    room = room_of(module)
    if room and room not in ALLOWED:
        return [f"the room `{room}` is not in the table of who may import whom: add it to ALLOWED in this file"]
    found = []
    for other in sorted(ours(imports)):
        wanted = room_of(other)
        if wanted in ("", room):
            continue
        allowed = ALLOWED[room] if room else {"client", "launch", "errors"}
        if wanted in NEVER.get(room, ()) or not ({wanted, EVERYTHING} & allowed):
            found.append(f"{module} imports {other}, but `{room or PACKAGE}` may not import `{wanted}`")
    return found


def test_the_sources_are_found() -> None:
    assert {"phalanx", "phalanx.errors", "phalanx.spec.loader", "phalanx.plan.frameworks.jax"} <= set(FILES)


def test_imports_are_seen_inside_functions_and_under_type_checking() -> None:
    source = """
import phalanx.errors
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from phalanx.plan import Plan, replica_variables
def late():
    from phalanx import spec
    from . import near
    from ..store import records
    class Inner:
        def deeper(self):
            import phalanx.cli.commands.plan
"""
    known = ["phalanx.plan.replica_variables", "phalanx.spec", "phalanx.server.near"]
    found = set(imported(ast.parse(source), "phalanx.server.routes", is_package=False, known=known))
    assert found == {
        "phalanx.errors",
        "typing",
        "phalanx.plan",
        "phalanx.plan.replica_variables",
        "phalanx.spec",
        "phalanx.server.near",
        "phalanx.store",
        "phalanx.cli.commands.plan",
    }


def test_relative_imports_of_a_package_start_at_the_package() -> None:
    source = ast.parse("from .model import Plan\nfrom . import planner")
    found = imported(source, "phalanx.plan", is_package=True, known=FILES)
    assert set(found) == {"phalanx.plan.model", "phalanx.plan.planner"}


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("phalanx.spec.loader", "phalanx.plan"),
        ("phalanx.plan.planner", "phalanx.backends.local.backend"),
        ("phalanx.backends.local.backend", "phalanx.spec.model"),
        ("phalanx.backends.local.backend", "phalanx.store"),
        ("phalanx.placeholders", "phalanx.errors"),
        ("phalanx.agent.main", "phalanx.plan.model"),
        ("phalanx.insight.autopsy", "phalanx.scheduler"),
        ("phalanx.server.app", "phalanx.cli.render.output"),
        ("phalanx", "phalanx.spec"),
    ],
)
def test_the_rule_refuses_what_the_design_forbids(module: str, other: str) -> None:
    assert len(faults(module, [other])) == 1


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("phalanx.cli.commands.plan", "phalanx.backends"),
        ("phalanx.server.app", "phalanx.store.sql"),
        ("phalanx.plan.planner", "phalanx.plan.model"),
        ("phalanx.agent.main", "phalanx.spool"),
        ("phalanx.cli", "phalanx"),
    ],
)
def test_the_rule_allows_what_the_design_allows(module: str, other: str) -> None:
    assert faults(module, [other]) == []


def test_a_room_that_the_table_does_not_know_is_asked_to_be_added() -> None:
    (said,) = faults("phalanx.novelty.things", ["json"])
    assert "`novelty`" in said
    assert "add it to ALLOWED" in said


def test_every_module_imports_only_what_its_room_may() -> None:
    assert [fault for module in FILES for fault in faults(module, imports_of(module))] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: {other for other in ours(imports_of(module)) if other in FILES} for module in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"an import cycle: {' <- '.join(circle.args[1])}")


def layer_faults(package: str, layers: tuple[tuple[str, ...], ...]) -> list[str]:
    """Imports inside a package that go from a lower layer to a higher one."""
    height = {f"{PACKAGE}.{package}.{name}": level for level, names in enumerate(layers) for name in names}

    def level_of(module: str) -> int | None:
        names = [name for name in height if f"{module}.".startswith(f"{name}.")]
        return height[max(names, key=len)] if names else None

    found = []
    for module in FILES:
        mine = level_of(module)
        for other in imports_of(module) if mine is not None else ():
            theirs = level_of(other)
            if theirs is not None and mine is not None and theirs > mine:
                found.append(f"{module} imports {other}, which is in a higher layer")
    return found


@pytest.mark.parametrize("package", LAYERS)
def test_layers_inside_a_package_are_imported_in_one_direction(package: str) -> None:
    assert layer_faults(package, LAYERS[package]) == []


def test_packages_stay_narrow() -> None:
    widths = Counter(str(file.parent.relative_to(SOURCES)).replace("/", ".") for file in FILES.values())
    assert {package: width for package, width in widths.items() if width > WIDEST_PACKAGE and package not in WIDE} == {}


def test_modules_are_named_by_nouns() -> None:
    gerunds = {module for module in FILES if re.search(r"[^_.]{3,}ing$", module)}
    assert {module for module in gerunds if module.rpartition(".")[2] not in WORDS_OF_THE_DOMAIN} == set()


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for module in FILES:
        for name, _length in source_of(module).classes:
            if not name.startswith("_") and not module.startswith(NAMES_OF_OTHERS):
                homes.setdefault(name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_files_and_classes_stay_short() -> None:
    sources = {module: source_of(module) for module in FILES}
    assert {module: source.lines for module, source in sources.items() if source.lines > LONGEST_FILE} == {}
    classes = [(f"{module}.{name}", length) for module, source in sources.items() for name, length in source.classes]
    assert [(name, length) for name, length in classes if length > LONGEST_CLASS] == []


# SQL is only in the store, and where files of other tools are read that are databases.
SQL_ROOM = "store"
READS_FOREIGN_DATABASES = {f"phalanx.formats.{name}" for name in ("mlflow_sqlite", "optuna_studies", "sqlite_tables")}
DRIVERS = {"sqlite3", "psycopg"}
_SQL = re.compile(
    r"""\b(SELECT\s.*\sFROM | INSERT\s+INTO | UPDATE\s+\S+\s+SET | DELETE\s+FROM | CREATE\s+(UNIQUE\s+)?(TABLE|INDEX)
        | (ALTER|DROP)\s+TABLE | (ORDER|GROUP)\s+BY | (LEFT|INNER)\s+JOIN | EXISTS\s*\( | (NOT\s+)?IN\s*\(
        | WHERE\s+\S+\s*([=<>]|IN\b|LIKE\b|IS\b) | PRAGMA\s+\w | coalesce\()""",
    re.VERBOSE | re.DOTALL,
)


def sql_texts(source: ast.AST) -> Iterator[str]:
    """Every text in a source that looks like SQL, except docstrings."""
    skipped = {id(part) for node in ast.walk(source) if isinstance(node, ast.JoinedStr) for part in node.values}
    skipped |= {id(node.value) for node in ast.walk(source) if isinstance(node, ast.Expr)}
    for node in ast.walk(source):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            text = node.value
        else:
            continue
        if _SQL.search(text):
            yield text


@pytest.mark.parametrize(
    "code",
    [
        'rows("SELECT id FROM runs")',
        'rows(f"SELECT {columns} FROM {table} WHERE x = ?")',
        "change('''\nUPDATE runs\n    SET status = ?''')",
        'sql = "DELETE FROM tags"',
        "def f(): clause = f'runs.key NOT IN ({rows})'",
        'where = f"WHERE {column} = ?"',
        'by = "ORDER BY created_at"',
    ],
)
def test_sql_is_recognised(code: str) -> None:
    assert len(list(sql_texts(ast.parse(code)))) == 1


def test_other_texts_are_not_taken_for_sql() -> None:
    source = """
def f():
    "SELECT id FROM runs"
    return call("DELETE", f"{where} FROM here"), "select one from the list", "UPDATE the page"
"""
    assert list(sql_texts(ast.parse(source))) == []


def test_sql_is_only_in_the_store() -> None:
    assert set(FILES) >= READS_FOREIGN_DATABASES
    elsewhere = [module for module in FILES if room_of(module) != SQL_ROOM and module not in READS_FOREIGN_DATABASES]
    words = modules_with(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|TABLE|BY|JOIN|EXISTS|IN|WHERE|PRAGMA|coalesce)\b")
    texts = {module: list(sql_texts(tree_of(module))) for module in elsewhere if module in words}
    assert {module: found for module, found in texts.items() if found} == {}
    assert [(module, name) for module in elsewhere for name in imports_of(module) if name in DRIVERS] == []


PORTABLE_MODULES = [module for module in FILES if room_of(module) in PORTABLE]


def test_what_runs_beside_the_training_needs_the_standard_library_alone() -> None:
    known = {*sys.stdlib_module_names, PACKAGE}
    imports = [(module, name) for module in PORTABLE_MODULES for name in imports_of(module)]
    assert [(module, name) for module, name in imports if name.split(".", maxsplit=1)[0] not in known] == []


@pytest.mark.parametrize("module", [PACKAGE, *PORTABLE_MODULES])
def test_what_runs_beside_the_training_is_python_3_8(module: str) -> None:
    ast.parse(FILES[module].read_text(encoding="utf-8"), feature_version=(3, 8))


def python_3_8() -> str | None:
    """An interpreter of that version which really runs."""
    installed = sorted(Path("~/.pyenv/versions").expanduser().glob("3.8*/bin/python"))
    for candidate in (*map(str, installed), shutil.which("python3.8")):
        if candidate is None:
            continue
        asked = [candidate, "-I", "-c", "import sys; print(sys.version_info[:2])"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.stdout.strip() == "(3, 8)":
            return candidate
    return None


USED_IN_3_8 = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
from phalanx.placeholders import Each, decode, encode, fill, host, path, port
value = ("tcp://", host("master-0"), ":", port("master-0"), "/", Each("worker", (host(), "@", path("outputs")), ","))
again = decode(json.loads(json.dumps(encode(value))))
assert again == value, again
answers = {"host": "node-1", "port": "2222", "path": "/out"}
print(fill(again, {"worker": ["worker-0", "worker-1"]}, lambda hole: answers[hole.kind]))
"""


def test_what_runs_beside_the_training_works_in_python_3_8() -> None:
    interpreter = python_3_8()
    if interpreter is None:
        pytest.skip("there is no Python 3.8 on this machine")
    command = [interpreter, "-I", "-B", "-c", USED_IN_3_8, str(SOURCES), *PORTABLE_MODULES]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.stderr, answer.stdout.strip()) == ("", "tcp://node-1:2222/node-1@/out,node-1@/out")
