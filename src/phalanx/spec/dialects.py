"""Older ways to write a polyaxonfile, turned into the modern one before anything else looks at it.

Polyaxon changed its format from release to release without reading the old one: `settings` became `hptuning`,
`run.image` became `build.image`, `environment.tensorflow` became `framework` and `environment.replicas`. Each
file is rewritten here by itself, before several are merged, so that layers of different age go together. Every
change that the user would want to know of is a note.
"""

from __future__ import annotations

import re

from phalanx.spec.model import RESOURCE_NAMES
from phalanx.spec.tree import Findings, Node

FRAMEWORK_SECTIONS = ("tensorflow", "mxnet", "horovod", "pytorch", "pytroch")
FRAMEWORK_SPELLINGS = {"pytroch": "pytorch", "tf": "tensorflow", "torch": "pytorch"}
_FRAMEWORKS_WITHOUT_PS = ("horovod", "pytorch")
_ROLES = ("worker", "ps")
_SEARCHES = ("grid_search", "random_search", "hyperband", "bo")
_TENSORFLOW_SETTINGS = "held TensorFlow's own settings, which the training code sets now"

_QUOTED_TEMPLATE = re.compile(r"""(['"])\{\{\s*([^{}]+?)\s*\}\}\1""")
_BARE_TEMPLATE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")

Map = dict[str, Node]


def modernise(root: Node, findings: Findings, *, has_framework: bool = False) -> Node:
    """The same file in the modern form. The node given is changed.

    `has_framework`: an earlier layer named one, so this layer need not.
    """
    top = root.entries
    assert top is not None
    _Rewriter(top, findings, has_framework=has_framework).rewrite()
    return root


class _Rewriter:
    """Moves and renames inside one file's tree, noting each step."""

    def __init__(self, top: Map, findings: Findings, *, has_framework: bool) -> None:
        self.top = top
        self.findings = findings
        self.has_framework = has_framework

    def rewrite(self) -> None:
        self._library_sections()
        self._settings()
        self._rename(self.top, "declarations", "params")
        self._rename(self.top, "exec", "run")
        self._drop(self.top, "project", "is chosen with `--project NAME`")
        self._run_section()
        self._build_section()
        self._environment()
        self._tuning()
        self._logging()
        self._tags()
        self._framework_name()

    # moving things -------------------------------------------------------------------------------------------

    def _note(self, node: Node, message: str) -> None:
        self.findings.note(node, message)

    def _rename(self, holder: Map, old: str, new: str, prefix: str = "") -> None:
        """Read `old` as `new`; both at once is a fault, because nobody could say which one counts."""
        if old not in holder:
            return
        node = holder[old]
        if new in holder:
            self.findings.error(
                node,
                f"`{old}` is the old name of `{new}`, which is there too",
                f"keep only `{new}`",
                at_key=True,
            )
        else:
            self._note(node, f"`{prefix}{old}` read as `{prefix}{new}`")
            # the order of keys is kept: it is what the user sees in `convert`
            entries = [(new if key == old else key, child) for key, child in holder.items()]
            holder.clear()
            holder.update(entries)
            return
        del holder[old]

    def _drop(self, holder: Map, key: str, why: str) -> None:
        if key in holder:
            self._note(holder.pop(key), f"`{key}` is not used: it {why}")

    def _section(self, holder: Map, key: str, origin: Node) -> Map:
        """The map under a key, made when it is missing (standing where its content came from)."""
        node = holder.get(key)
        if node is None or node.value is None:
            node = Node({}, origin.mark, None, key, origin.key_mark)
            holder[key] = node
        if node.entries is None:
            return {}  # not a map: the schema will say so
        return node.entries

    def _move(self, source: Map, key: str, target: Map, new: str, shown: str) -> None:
        if key not in source:
            return
        node = source.pop(key)
        if new in target:
            self.findings.error(
                node, f"`{key}` means `{shown}`, which is there too", f"keep only `{shown}`", at_key=True
            )
            return
        target[new] = node
        self._note(node, f"`{node.path}` read as `{shown}`")

    # sections ------------------------------------------------------------------------------------------------

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
            self.top["settings"] = settings  # unknown to the schema, which will say so
        if "matrix" in self.top:
            matrix = self.top["matrix"]
            tuning = self._section(self.top, "hptuning", matrix)
            self._move(self.top, "matrix", tuning, "matrix", "hptuning.matrix")

    def _spread_settings(self, settings: Node, entries: Map) -> None:
        for key in ("logging", "environment"):
            self._move(entries, key, self.top, key, key)
        self._drop(entries, "run_type", "is said by the backend now")
        method = entries.pop("search_method", None)
        count = entries.pop("n_experiments", None)
        for old, new in (
            ("concurrent_experiments", "concurrency"),
            *((name, name) for name in ("concurrency", "matrix", "seed", "early_stopping", *_SEARCHES)),
        ):
            if old in entries:
                tuning = self._section(self.top, "hptuning", settings)
                self._move(entries, old, tuning, new, f"hptuning.{new}")
        if count is not None:
            is_random = method is not None and str(method.value).casefold() == "random"
            search = "random_search" if is_random else "grid_search"
            tuning = self._section(self.top, "hptuning", settings)
            self._move(
                {"n_experiments": count},
                "n_experiments",
                self._section(tuning, search, count),
                "n_experiments",
                f"hptuning.{search}.n_experiments",
            )
        if entries:
            self.top["settings"] = settings.like(entries)  # what is left is unknown to the schema, which will say so

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
        ):
            if old in run.entries:
                build = self._section(self.top, "build", run)
                self._move(run.entries, old, build, new, f"build.{new}")
        self._drop(run.entries, "git", "is said by `build.commit` and `build.branch` now")
        command = run.entries.get("cmd")
        if command is not None and "if" in (command.entries or {}):
            run.entries["cmd"] = self._if_operator(command)

    def _if_operator(self, command: Node) -> Node:
        """`{if: {cond, do, else_do}}`, of Polyaxon's library, as a template. Its condition is an expression with
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
        self._rename(build.entries, "install", "build_steps")
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
            self._drop(build.entries, key, "means nothing inside `build`")
        kind = self.top.get("kind")
        if kind is not None and kind.value == "build":
            del self.top["build"]
            for key in list(build.entries):
                self._move(build.entries, key, self.top, key, key)

    def _logging(self) -> None:
        logging = self.top.get("logging")
        if logging is None or logging.entries is None:
            return
        self._drop(logging.entries, "path", "is decided by the run's own folder")
        for key in ("run_config", "delay_workers_by_global_step"):
            self._drop(logging.entries, key, "means nothing inside `logging`")
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

    def _tuning(self) -> None:
        tuning = self.top.get("hptuning")
        if tuning is None or tuning.entries is None:
            return
        self._drop(tuning.entries, "logging", "means nothing inside `hptuning`")
        for entry in tuning.items("early_stopping"):
            if entry.entries is not None and "higher" in entry.entries:
                higher = entry.entries.pop("higher")
                entry.entries.setdefault("optimization", higher.like("maximize" if higher.value else "minimize"))
                self._note(higher, f"`higher: {str(higher.value).lower()}` read as `optimization`")

    # environment ---------------------------------------------------------------------------------------------

    def _environment(self) -> None:
        node = self.top.get("environment")
        if node is None or node.entries is None:
            return
        env = node.entries
        self._distribution(node, env)
        self._settings_of_replica(node)
        self._stores(env)
        if "backend" in env:
            self._move(env, "backend", self.top, "backend", "backend")
        self._drop(env, "cluster_uuid", "is decided by the run")
        self._drop(env, "run_config", _TENSORFLOW_SETTINGS)
        outputs = node.get("outputs")
        if outputs is not None and outputs.entries is not None:
            for key in [key for key in outputs.entries if key not in ("jobs", "experiments")]:
                self._drop(outputs.entries, key, "names neither `jobs` nor `experiments`")

    def _stores(self, env: Map) -> None:
        self._rename(env, "data_persistence", "data_refs")
        persistence = env.pop("persistence", None)
        if persistence is not None and persistence.entries is not None:
            entries = dict(persistence.entries)
            self._move(entries, "data", env, "data_refs", "data_refs")
            if "outputs" in entries:
                self._move(
                    {"outputs": self._listed(entries.pop("outputs"))},
                    "outputs",
                    env,
                    "artifact_refs",
                    "artifact_refs",
                )
            for rest in entries.values():
                self.findings.error(rest, f"unknown key `{rest.key}` in persistence", at_key=True)
        elif persistence is not None and persistence.value is not None:
            self.findings.error(persistence, "`persistence` is a map of `data` and `outputs`")
        if "outputs_persistence" in env:
            env["outputs_persistence"] = self._listed(env["outputs_persistence"])
            self._rename(env, "outputs_persistence", "artifact_refs")

    @staticmethod
    def _listed(node: Node) -> Node:
        return node if node.elements is not None else node.like([node])

    def _distribution(self, node: Node, env: Map) -> None:
        """The three dialects of replicas, and the one that lived for a day, as `framework` and `replicas`."""
        if "framework" in env:
            self._move(env, "framework", self.top, "framework", "framework")
        if "distribution" in env:
            self._rename(env, "distribution", "replicas")
        named = [key for key in FRAMEWORK_SECTIONS if key in env]
        if len(named) > 1:
            said = " and ".join(f"`{key}`" for key in named)
            self.findings.error(env[named[1]], f"a run has one framework; {said} are both here", at_key=True)
            for key in named[1:]:
                del env[key]
        if named:
            self._framework_section(env, named[0])
        self._loose_replicas(node, env)
        replicas = env.get("replicas")
        if replicas is not None and replicas.entries is not None:
            self._replicas(replicas, replicas.entries)

    def _framework_section(self, env: Map, key: str) -> None:
        section = env.pop(key)
        name = FRAMEWORK_SPELLINGS.get(key, key)
        framework = self.top.get("framework")
        if framework is None or framework.value is None:
            self.top["framework"] = Node(name, section.key_mark or section.mark, section.parent, key, section.key_mark)
        elif isinstance(framework.value, str) and _spelled(framework.value) != name:
            self.findings.error(
                section, f"`framework: {framework.value}` does not go with `environment.{key}`", at_key=True
            )
        if "replicas" in env:
            self.findings.error(
                section,
                f"`environment.{key}` and `environment.replicas` say the same twice",
                "keep `replicas`",
                at_key=True,
            )
            return
        self._note(section, f"`environment.{key}` read as `framework: {name}` and `environment.replicas`")
        env["replicas"] = section if section.value is not None else section.like({})
        n_ps = section.get("n_ps")
        if section.entries is not None and name in _FRAMEWORKS_WITHOUT_PS and n_ps is not None and n_ps.value != 0:
            self._drop(section.entries, "n_ps", f"means nothing to {name}, which has no parameter servers")

    def _loose_replicas(self, node: Node, env: Map) -> None:
        """Counts and overrides directly in `environment`: the first releases, which knew TensorFlow alone, and
        a slip in Polyaxon's own guide."""
        keys = [key for key in _LOOSE if key in env]
        if not keys:
            return
        first_release = any(key in ("n_workers", "n_ps") for key in keys)
        if first_release and "framework" not in self.top and not self.has_framework:
            self.top["framework"] = Node("tensorflow", env[keys[0]].mark, node, keys[0], env[keys[0]].key_mark)
            self._note(env[keys[0]], "read as `framework: tensorflow`, the only one when this form was in use")
        replicas = self._section(env, "replicas", node)
        for key in keys:
            self._move(env, key, replicas, key, f"environment.replicas.{key}")

    def _replicas(self, node: Node, replicas: Map) -> None:
        for key in (
            "run_config",
            *(f"{prefix}{role}_config{s}" for prefix in ("", "default_") for role in _ROLES for s in ("", "s")),
        ):
            self._drop(replicas, key, _TENSORFLOW_SETTINGS)
        for role in _ROLES:
            for suffix, attribute in (("resources", "resources"), ("node_selectors", "node_selector")):
                self._default_attribute(replicas, role, suffix, attribute)
                self._indexed_attribute(replicas, role, suffix, attribute)
            for entry in (node.get(f"default_{role}"), *node.items(role)):
                if entry is not None and entry.entries is not None:
                    self._settings_of_replica(entry)

    def _default_attribute(self, replicas: Map, role: str, suffix: str, attribute: str) -> None:
        old = f"default_{role}_{suffix}"
        if old in replicas:
            default = self._section(replicas, f"default_{role}", replicas[old])
            self._move(replicas, old, default, attribute, f"default_{role}.{attribute}")

    def _indexed_attribute(self, replicas: Map, role: str, suffix: str, attribute: str) -> None:
        """`worker_resources: [{index: 2, cpu: …}]` as `worker: [{index: 2, resources: {cpu: …}}]`."""
        old = replicas.pop(f"{role}_{suffix}", None)
        if old is None or old.value is None:
            return
        if old.elements is None:
            self.findings.error(old, f"`{old.key}` is a list of entries with an `index`", at_key=True)
            return
        self._note(old, f"`{old.key}` read as `{role}[].{attribute}`")
        if role not in replicas or replicas[role].value is None:
            replicas[role] = old.like([])
        target = replicas[role].elements
        if target is None:
            return
        for entry in old.elements:
            if entry.entries is None:
                target.append(entry)  # the schema will say what is wrong with it
                continue
            content = {key: child for key, child in entry.entries.items() if key != "index"}
            index = entry.entries.get("index")
            own = next((item for item in target if index is not None and _index_of(item) == index.value), None)
            if own is None:
                own = entry.like({} if index is None else {"index": index})
                target.append(own)
            own_map = own.entries
            assert own_map is not None
            if attribute in own_map:
                self.findings.error(entry, f"{role} {index.value if index else ''} has its {attribute} twice")
            own_map[attribute] = entry.like(content)

    def _settings_of_replica(self, node: Node) -> None:
        settings = node.entries
        assert settings is not None
        for old, new in _RENAMED_SETTINGS:
            self._rename(settings, old, new)
        for key in ("config", "configs"):
            self._drop(settings, key, _TENSORFLOW_SETTINGS)
        resources = node.get("resources")
        if resources is None or resources.entries is None:
            return
        for name in RESOURCE_NAMES:
            amount = resources.entries.get(name)
            if amount is None or amount.value is None:
                continue
            if amount.entries is not None:
                self._rename(amount.entries, "request", "requests", f"{name}.")
                self._rename(amount.entries, "limit", "limits", f"{name}.")
            elif amount.elements is None:
                self._note(amount, f"`{name}: {amount.value}` read as both `requests` and `limits`")
                resources.entries[name] = amount.like({"requests": amount, "limits": amount})


_LOOSE = (
    "n_workers",
    "n_ps",
    "delay_workers_by_global_step",
    *(
        f"{prefix}{role}{suffix}"
        for role in _ROLES
        for prefix in ("", "default_")
        for suffix in ("", "_resources", "_config", "_configs", "_node_selectors")
    ),
)
_RENAMED_SETTINGS = (
    ("node_selectors", "node_selector"),
    ("configmap_refs", "config_map_refs"),
    ("configmaps", "config_map_refs"),
    ("secrets", "secret_refs"),
    ("max_retries", "max_restarts"),
    ("backoff_limit", "max_restarts"),
)


def _spelled(name: str) -> str:
    return FRAMEWORK_SPELLINGS.get(name.casefold(), name.casefold())


def _index_of(entry: Node) -> object:
    index = entry.get("index")
    return index.value if index is not None else None
