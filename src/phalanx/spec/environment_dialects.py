"""Rewrites older forms of `environment`: three dialects of replicas, and renamed keys."""

from __future__ import annotations

from phalanx.spec.model import RESOURCE_NAMES
from phalanx.spec.rewrites import Map, TreeRewriter
from phalanx.spec.tree import Diagnostics, Node

FRAMEWORK_SECTIONS = ("tensorflow", "mxnet", "horovod", "pytorch", "pytroch")
FRAMEWORK_SPELLINGS = {"pytroch": "pytorch", "tf": "tensorflow", "torch": "pytorch"}
_FRAMEWORKS_WITHOUT_PS = ("horovod", "pytorch")
_ROLES = ("worker", "ps")
_INDEXED = (("resources", "resources"), ("node_selectors", "node_selector"))
_TENSORFLOW_SETTINGS = "held TensorFlow settings, which the training code now sets itself"


def complete_lists(layer: Node, earlier: Node) -> None:
    """Add to a layer with `worker_resources` the `worker_node_selectors` of earlier layers, and the reverse: both
    become one list, `worker`, and a list replaces that of an earlier layer as a whole."""
    mine, before = layer.get("environment"), earlier.get("environment")
    if mine is None or before is None:
        return
    for steps in ((), ("replicas",), ("distribution",), *((name,) for name in FRAMEWORK_SECTIONS)):
        section = mine.get(steps[0]) if steps else mine
        old = before.get(steps[0]) if steps else before
        if section is None or section.entries is None or old is None:
            continue
        for role in _ROLES:
            keys = [f"{role}_{suffix}" for suffix, _ in _INDEXED]
            if role in section.entries or not any(key in section.entries for key in keys):
                continue
            for key in keys:
                found = old.get(key)
                if found is not None and key not in section.entries:
                    section.entries[key] = found.copy(found.parent, found.key, found.key_mark)


class EnvironmentRewriter(TreeRewriter):
    """Rewrites `environment` into the modern form. `has_framework`: any layer sets one."""

    def __init__(self, top: Map, findings: Diagnostics, *, has_framework: bool) -> None:
        super().__init__(top, findings)
        self.has_framework = has_framework

    def rewrite(self) -> None:
        node = self.top.get("environment")
        if node is None or node.entries is None:
            return
        env = node.entries
        self._rename(env, "master_resources", "resources")
        self._distribution(node, env)
        self.rewrite_settings(node)
        if "backend" in env:
            self._move(env, "backend", self.top, "backend", "backend")
        self._drop(env, "cluster_uuid", "is set by the run")
        outputs = node.get("outputs")
        if outputs is not None and outputs.entries is not None:
            for key in [key for key in outputs.entries if key not in ("jobs", "experiments")]:
                self._drop(outputs.entries, key, "names neither `jobs` nor `experiments`")

    def rewrite_settings(self, node: Node) -> None:
        """Rewrite the part of an environment that has nothing to do with replicas."""
        if node.entries is not None:
            self._settings_of_replica(node)
            self._stores(node.entries)

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
            self.findings.error(persistence, "`persistence` must be a map of `data` and `outputs`")
        if "outputs_persistence" in env:
            env["outputs_persistence"] = self._listed(env["outputs_persistence"])
            self._rename(env, "outputs_persistence", "artifact_refs")

    @staticmethod
    def _listed(node: Node) -> Node:
        return node if node.elements is not None else node.like([node])

    def _distribution(self, node: Node, env: Map) -> None:
        """Rewrite the three dialects of replicas, and a fourth that lasted one day, as `framework` and `replicas`."""
        if "framework" in env:
            self._move(env, "framework", self.top, "framework", "framework")
        if "distribution" in env:
            self._rename(env, "distribution", "replicas")
        named = [key for key in FRAMEWORK_SECTIONS if key in env]
        if len(named) > 1:
            said = " and ".join(f"`{key}`" for key in named)
            self.findings.error(env[named[1]], f"a run has one framework; {said} are both set", at_key=True)
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
                section, f"`framework: {framework.value}` conflicts with `environment.{key}`", at_key=True
            )
        if "replicas" in env:
            self.findings.error(
                section,
                f"`environment.{key}` and `environment.replicas` define the replicas twice",
                "keep `replicas`",
                at_key=True,
            )
            return
        self._note(section, f"`environment.{key}` read as `framework: {name}` and `environment.replicas`")
        env["replicas"] = section
        n_ps = section.get("n_ps")
        if section.entries is not None and name in _FRAMEWORKS_WITHOUT_PS and n_ps is not None and n_ps.value != 0:
            self._drop(section.entries, "n_ps", f"has no effect with {name}, which has no parameter servers")

    def _loose_replicas(self, node: Node, env: Map) -> None:
        """Rewrite counts and overrides directly in `environment`: the form of the first, TensorFlow-only releases, and
        of an error in Polyaxon's guide."""
        for key in _TENSORFLOW_KEYS:
            self._drop(env, key, _TENSORFLOW_SETTINGS)
        keys = [key for key in _LOOSE if key in env]
        if not keys:
            return
        first_release = any(key in ("n_workers", "n_ps") for key in keys)
        if first_release and "framework" not in self.top and not self.has_framework:
            self.top["framework"] = Node("tensorflow", env[keys[0]].mark, node, keys[0], env[keys[0]].key_mark)
            self._note(env[keys[0]], "read as `framework: tensorflow`, the only framework when this form was in use")
        replicas = self._section(env, "replicas", node)
        for key in keys:
            self._move(env, key, replicas, key, f"environment.replicas.{key}")

    def _replicas(self, node: Node, replicas: Map) -> None:
        for key in _TENSORFLOW_KEYS:
            self._drop(replicas, key, _TENSORFLOW_SETTINGS)
        for role in _ROLES:
            for suffix, attribute in _INDEXED:
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
            self.findings.error(old, f"`{old.key}` must be a list of entries with an `index`", at_key=True)
            return
        self._note(old, f"`{old.key}` read as `{role}[].{attribute}`")
        if role not in replicas or replicas[role].value is None:
            replicas[role] = old.like([])
        target = replicas[role].elements
        if target is None:
            return
        listed = {str(_index_of(item)): item for item in reversed(target) if item.entries is not None}
        for entry in old.elements:
            if entry.entries is None:
                target.append(entry)  # the schema reports what is wrong with it
                continue
            content = {key: child for key, child in entry.entries.items() if key != "index"}
            index = entry.entries.get("index")
            own = listed.get(str(index.value)) if index is not None else None
            if own is None:
                own = entry.like({} if index is None else {"index": index})
                target.append(own)
                listed.setdefault(str(_index_of(own)), own)
            own_map = own.entries
            assert own_map is not None
            if attribute in own_map:
                self.findings.error(entry, f"{role} {index.value if index else ''} has `{attribute}` twice")
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


_TENSORFLOW_KEYS = (
    "run_config",
    *(f"{role}_config{s}" for role in ("master", "worker", "ps", "default_worker", "default_ps") for s in ("", "s")),
)
_LOOSE = (
    "n_workers",
    "n_ps",
    "delay_workers_by_global_step",
    *(
        f"{prefix}{role}{suffix}"
        for role in _ROLES
        for prefix in ("", "default_")
        for suffix in ("", "_resources", "_node_selectors")
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
