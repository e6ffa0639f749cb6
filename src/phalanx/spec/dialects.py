"""Rewrites older polyaxonfile dialects into the modern form, before any other processing.

Polyaxon changed its format from release to release without reading the old one: `settings` became `hptuning`,
`run.image` became `build.image`, `environment.tensorflow` became `framework` and `environment.replicas`. Each
file is rewritten separately, before several are merged, so that layers in different dialects can be combined. Where the
meaning of an old form depends on other sections, those of all layers count: see `WholeFile`. Every change that matters
to the user is reported as a note.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from phalanx.deferred_patterns import deferred_pattern
from phalanx.spec.environment_dialects import (
    FRAMEWORK_SECTIONS,
    FRAMEWORK_SPELLINGS,
    EnvironmentRewriter,
    complete_lists,
)
from phalanx.spec.matrix import Matrix
from phalanx.spec.model import Kind
from phalanx.spec.rewrites import Map, TreeRewriter
from phalanx.spec.shapes import INVALID
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node, merge

_SEARCHES = ("grid_search", "random_search", "hyperband", "bo")

_QUOTED_TEMPLATE = deferred_pattern(r"""(['"])\{\{\s*([^{}]+?)\s*\}\}\1""")
_BARE_TEMPLATE = deferred_pattern(r"\{\{\s*([^{}]+?)\s*\}\}")


def modernise(layers: Sequence[Node], findings: Diagnostics) -> Node:
    """One tree in the modern form: every layer rewritten, later ones merged over earlier ones. Changes the layers."""
    whole = layers[0]
    for layer in layers[1:]:
        complete_lists(layer, whole)
        whole = merge(whole, layer)
    facts = WholeFile.of(whole)
    for layer in layers:
        assert layer.entries is not None
        _FileRewriter(layer.entries, findings, facts).rewrite()
        facts = facts._replace(has_framework=facts.has_framework or layer.get("framework") is not None)
    root = layers[0]
    for layer in layers[1:]:
        root = merge(root, layer)
    root.mark = layers[0].mark  # errors about the whole file point at the first one
    return root


class WholeFile(NamedTuple):
    """What all layers say together, merged as they were written. It decides what an old form in one of them means."""

    kind: str
    has_framework: bool
    has_image: bool
    has_tuning: bool
    matrix: Node | None
    search: str  # the section for a number of experiments that was written without one
    has_count: bool
    command: Node | None

    @classmethod
    def of(cls, root: Node) -> WholeFile:
        settings, tuning = root.get("settings"), root.get("hptuning")
        build, run = root.get("build"), root.get("run") or root.get("exec")
        kind = root.get("kind")
        matrices = (section.get("matrix") for section in (settings, tuning, root) if section is not None)
        matrix = next((found for found in matrices if found is not None), None)
        return cls(
            kind=str(kind.value).casefold() if kind is not None else "",
            has_framework=_names_framework(root),
            has_image=any(
                section.get(key) is not None for section in (build, run) if section for key in ("image", "dockerfile")
            ),
            has_tuning=tuning is not None or matrix is not None,
            matrix=matrix,
            search=_search_of(settings, tuning),
            has_count=settings is not None and settings.get("n_experiments") is not None,
            command=run.get("cmd") if run is not None else None,
        )


def _names_framework(root: Node) -> bool:
    environment = root.get("environment")
    named = () if environment is None else ("framework", *FRAMEWORK_SECTIONS)
    return root.get("framework") is not None or any(key in (environment.entries or ()) for key in named if environment)


def _search_of(settings: Node | None, tuning: Node | None) -> str:
    method = settings.get("search_method") if settings is not None else None
    if method is not None:
        return "random_search" if str(method.value).casefold() == "random" else "grid_search"
    sections = [section for section in (settings, tuning) if section is not None]
    is_random = any(section.get("random_search") is not None for section in sections)
    return "random_search" if is_random else "grid_search"


class _FileRewriter(TreeRewriter):
    """Rewrites the sections of a file into the modern form, one kind of change at a time."""

    def __init__(self, top: Map, findings: Diagnostics, whole: WholeFile) -> None:
        super().__init__(top, findings)
        self.whole = whole

    def rewrite(self) -> None:
        self._library_sections()
        self._settings()
        self._rename(self.top, "declarations", "params")
        self._rename(self.top, "exec", "run")
        self._drop(self.top, "project", "is chosen with `--project NAME`")
        self._run_section()
        self._build_section()
        if self.whole.kind == Kind.BUILD:
            self._flatten_build()
        EnvironmentRewriter(self.top, self.findings, has_framework=self.whole.has_framework).rewrite()
        self._tuning()
        self._logging()
        self._tags()
        self._framework_name()
        self._backend_name()

    def _library_sections(self) -> None:
        found = [self.top.pop(key) for key in ("model", "train", "eval") if key in self.top]
        for node in found:
            self._note(
                node,
                f"`{node.key}` is not used: Polyaxon's TensorFlow library ended with release 0.4; "
                "write a training script and start it with `run: {cmd: ...}`",
            )

    def _settings(self) -> None:
        settings = self.top.pop("settings", None)
        if settings is not None and settings.entries is not None:
            self._spread_settings(settings, dict(settings.entries))
        elif settings is not None and settings.value is not None:
            self.top["settings"] = settings  # unknown to the schema, which reports it
        if "matrix" in self.top:
            matrix = self.top["matrix"]
            tuning = self._section(self.top, "hptuning", matrix)
            self._move(self.top, "matrix", tuning, "matrix", "hptuning.matrix")

    def _spread_settings(self, settings: Node, entries: dict[str, Node]) -> None:
        for key in ("logging", "environment"):
            self._move(entries, key, self.top, key, key)
        self._drop(entries, "run_type", "is set by `backend`")
        self._drop(entries, "export_strategies", "belonged to Polyaxon's TensorFlow library")
        if not self.whole.has_tuning:
            for key in ("concurrent_experiments", "concurrency", "search_method", "n_experiments"):
                self._drop(entries, key, "has no effect without a matrix")
        method = entries.pop("search_method", None)
        count = entries.pop("n_experiments", None)
        for old, new in (
            ("concurrent_experiments", "concurrency"),
            *((name, name) for name in ("concurrency", "matrix", "seed", "early_stopping", *_SEARCHES)),
        ):
            if old in entries:
                tuning = self._section(self.top, "hptuning", settings)
                self._move(entries, old, tuning, new, f"hptuning.{new}")
        search = self.whole.search
        if method is not None and search == "random_search" and not self.whole.has_count:
            tuning = self._section(self.top, "hptuning", settings)
            tuning.setdefault("random_search", method.like({}))
            self._note(method, "`search_method: random` read as `hptuning.random_search`")
        if count is not None:
            tuning = self._section(self.top, "hptuning", settings)
            target = self._section(tuning, search, count)
            if isinstance(count.value, float) and 0 < count.value < 1:
                target["n_experiments"] = self._share(count, f"hptuning.{search}.n_experiments")
            else:
                holder = {"n_experiments": count}
                self._move(holder, "n_experiments", target, "n_experiments", f"hptuning.{search}.n_experiments")
        for key, node in entries.items():
            known = ("logging", "environment", "matrix", "concurrency", "n_experiments", "early_stopping", *_SEARCHES)
            self.findings.error(node, f"unknown key `{key[:60]}` in settings", did_you_mean(key, known), at_key=True)

    def _share(self, count: Node, shown: str) -> Node:
        """The number of experiments of `n_experiments: 0.3`, a share of the matrix."""
        assert isinstance(count.value, float)
        quiet = Diagnostics()
        matrix = Matrix().read(self.whole.matrix, quiet) if self.whole.matrix is not None else INVALID
        if matrix is INVALID:  # it is reported
            return self._invalid(count)
        if any(dimension.values is None for dimension in matrix):
            message = "a share of the experiments requires a matrix of listed values"
            self.findings.error(count, message, "write the number of experiments, such as `n_experiments: 10`")
            return self._invalid(count)
        space = math.prod(len(dimension.values) for dimension in matrix)
        number = max(1, int(round(count.value * space, 6)))
        self._note(count, f"`{count.path}: {count.value:g}` read as `{shown}: {number}`, a share of {space}")
        return count.like(number)

    @staticmethod
    def _invalid(node: Node) -> Node:
        result = node.like(node.value)
        result.poisoned = True
        return result

    def _run_section(self) -> None:
        run = self.top.get("run")
        if run is None or run.entries is None:
            return
        for old, new in (
            ("image", "image"),
            ("dockerfile", "dockerfile"),
            ("build_steps", "build_steps"),
            ("steps", "build_steps"),
            ("install", "build_steps"),
            ("env_vars", "env_vars"),
            ("envs", "env_vars"),
        ):
            if old in run.entries:
                build = self._section(self.top, "build", run)
                self._move(run.entries, old, build, new, f"build.{new}")
        self._drop(run.entries, "git", "was replaced by `build.commit` and `build.branch`")
        if not run.entries:
            del self.top["run"]
            return
        command = run.entries.get("cmd")
        if command is not None and "if" in (command.entries or {}):
            run.entries["cmd"] = self._if_operator(command)

    def _if_operator(self, command: Node) -> Node:
        """Rewrite `{if: {cond, do, else_do}}` of Polyaxon's library as a template. The condition is an expression with
        templates inside, quoted or not: `'DNA' == '{{ model }}'` is `'DNA' == (model)|string`.
        """
        whole = self.whole.command
        operator = (whole.get("if") if whole is not None else None) or command.get("if")  # may span several layers
        parts = {key: operator.get(key) for key in ("cond", "do", "else_do")} if operator is not None else {}
        texts = {key: node.value for key, node in parts.items() if node is not None and isinstance(node.value, str)}
        if "cond" not in texts or "do" not in texts:
            self.findings.error(command, "the `if` operator needs `cond` and `do`, both text")
            command.poisoned = True
            return command
        condition = _QUOTED_TEMPLATE.sub(r"(\2)|string", str(texts["cond"]))
        condition = _BARE_TEMPLATE.sub(r"(\1)", condition)
        otherwise = f"{{% else %}}{texts['else_do']}" if "else_do" in texts else ""
        self._note(command, "the `if` operator read as a template")
        return command.like(f"{{% if {condition} %}}{texts['do']}{otherwise}{{% endif %}}")

    def _build_section(self) -> None:
        build = self.top.get("build")
        if build is None or build.entries is None:
            return
        for old in ("install", "steps"):
            self._rename(build.entries, old, "build_steps")
        self._drop(build.entries, "git", "was replaced by `commit` and `branch`")
        if self.whole.has_image:  # the meaning of `ref` in 0.4.0; later releases name an earlier build with it
            self._rename(build.entries, "ref", "commit")
        for key in ("version", "kind", "logging", "name", "description", "tags", "params", "inputs", "outputs"):
            self._drop(build.entries, key, "has no effect inside `build`")
        environment = build.get("environment")
        if environment is not None:
            EnvironmentRewriter(self.top, self.findings, has_framework=True).rewrite_settings(environment)

    def _flatten_build(self) -> None:
        """Move the keys of a section `build` to the top: the form of a build up to 0.4.1."""
        section = self.top.get("build")
        if section is None or section.entries is None:
            return
        del self.top["build"]
        self._note(section, "`build` read as the top of the file")
        for key, node in section.entries.items():
            if key in self.top:
                message = f"`{key[:60]}` is both in `build` and at the top of the file"
                self.findings.error(node, message, "keep one", at_key=True)
            self.top.setdefault(key, node)

    def _logging(self) -> None:
        logging = self.top.get("logging")
        if logging is None or logging.entries is None:
            return
        self._drop(logging.entries, "path", "is set by the run's folder")
        for key in ("run_config", "delay_workers_by_global_step"):
            self._drop(logging.entries, key, "has no effect inside `logging`")
        level = logging.entries.get("level")
        if level is not None and isinstance(level.value, str):
            spelling = {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(level.value.upper())
            if spelling:
                self._note(level, f"`{level.value}` read as `{spelling}`")
                logging.entries["level"] = level.like(spelling)

    def _tags(self) -> None:
        tags = self.top.get("tags")
        if tags is not None and isinstance(tags.value, str) and "," in tags.value:
            self._note(tags, f"`{tags.value}` read as a list")
            tags.value = [tags.like(word.strip()) for word in tags.value.split(",") if word.strip()]

    def _framework_name(self) -> None:
        node = self.top.get("framework")
        if node is None or not isinstance(node.value, str):
            return
        name = node.value.strip()
        spelling = FRAMEWORK_SPELLINGS.get(name.casefold())
        if spelling is None and name.casefold() in FRAMEWORK_SECTIONS:
            spelling = name.casefold()
        if spelling and spelling != node.value:
            self._note(node, f"`{node.value}` read as `{spelling}`")
            self.top["framework"] = node.like(spelling)

    def _backend_name(self) -> None:
        node = self.top.get("backend")
        if node is not None and node.value == "external":
            self._note(node, "`external` read as `other`")
            self.top["backend"] = node.like("other")

    def _tuning(self) -> None:
        tuning = self.top.get("hptuning")
        if tuning is None or tuning.entries is None:
            return
        self._drop(tuning.entries, "logging", "has no effect inside `hptuning`")
        for entry in tuning.items("early_stopping"):
            if entry.entries is not None and "higher" in entry.entries:
                higher = entry.entries.pop("higher")
                entry.entries.setdefault("optimization", higher.like("maximize" if higher.value else "minimize"))
                self._note(higher, f"`higher: {str(higher.value).lower()}` read as `optimization`")
