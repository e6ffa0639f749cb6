"""Rewrites older polyaxonfile dialects into the modern form, before any other processing.

Polyaxon changed its format from release to release without reading the old one: `settings` became `hptuning`,
`run.image` became `build.image`, `environment.tensorflow` became `framework` and `environment.replicas`. Each
file is rewritten separately, before several are merged, so that layers in different dialects can be combined. Every
change that matters to the user is reported as a note.
"""

from __future__ import annotations

import re

from phalanx.spec.environment_dialects import FRAMEWORK_SECTIONS, FRAMEWORK_SPELLINGS, EnvironmentRewriter
from phalanx.spec.rewrites import TreeRewriter
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node

_SEARCHES = ("grid_search", "random_search", "hyperband", "bo")

_QUOTED_TEMPLATE = re.compile(r"""(['"])\{\{\s*([^{}]+?)\s*\}\}\1""")
_BARE_TEMPLATE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


def modernise(root: Node, findings: Diagnostics, *, has_framework: bool = False) -> Node:
    """The same file in the modern form. Changes the given node in place.

    `has_framework`: an earlier layer set a framework, so this layer need not.
    """
    top = root.entries
    assert top is not None
    _FileRewriter(top, findings, has_framework=has_framework).rewrite()
    return root


class _FileRewriter(TreeRewriter):
    """Rewrites the sections of a file into the modern form, one kind of change at a time."""

    def __init__(self, top: dict[str, Node], findings: Diagnostics, *, has_framework: bool) -> None:
        super().__init__(top, findings)
        self.has_framework = has_framework

    def rewrite(self) -> None:
        self._library_sections()
        self._settings()
        self._rename(self.top, "declarations", "params")
        self._rename(self.top, "exec", "run")
        self._drop(self.top, "project", "is chosen with `--project NAME`")
        self._run_section()
        self._build_section()
        EnvironmentRewriter(self.top, self.findings, has_framework=self.has_framework).rewrite()
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
        if "matrix" not in entries and "matrix" not in self.top and "hptuning" not in self.top:
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
        is_random = method is not None and str(method.value).casefold() == "random"
        if method is not None and is_random and count is None:
            tuning = self._section(self.top, "hptuning", settings)
            tuning.setdefault("random_search", method.like({}))
            self._note(method, "`search_method: random` read as `hptuning.random_search`")
        if count is not None:
            search = "random_search" if is_random else "grid_search"
            tuning = self._section(self.top, "hptuning", settings)
            self._move(
                {"n_experiments": count},
                "n_experiments",
                self._section(tuning, search, count),
                "n_experiments",
                f"hptuning.{search}.n_experiments",
            )
        for key, node in entries.items():
            known = ("logging", "environment", "matrix", "concurrency", "n_experiments", "early_stopping", *_SEARCHES)
            self.findings.error(node, f"unknown key `{key[:60]}` in settings", did_you_mean(key, known), at_key=True)

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
        operator = command.get("if")
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
        if "ref" in build.entries and ("image" in build.entries or "dockerfile" in build.entries):
            self._rename(
                build.entries, "ref", "commit"
            )  # the meaning in 0.4.0; later releases name an earlier build with it
        for key in (
            "version",
            "kind",
            "logging",
            "name",
            "description",
            "tags",
            "environment",
            "params",
            "inputs",
            "outputs",
        ):
            self._drop(build.entries, key, "has no effect inside `build`")

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
