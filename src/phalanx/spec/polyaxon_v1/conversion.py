"""A composed file of Polyaxon 1.x or 2.x in the modern form."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.spec.model import EMPTY, Kind
from phalanx.spec.polyaxon_v1.builds import build_file, build_section
from phalanx.spec.polyaxon_v1.command_lines import CommandLine
from phalanx.spec.polyaxon_v1.composition import Composer
from phalanx.spec.polyaxon_v1.containers import ReplicaReader, ReplicaType
from phalanx.spec.polyaxon_v1.contexts import TemplateContext
from phalanx.spec.polyaxon_v1.init_steps import Prepared, file_steps, prepared
from phalanx.spec.polyaxon_v1.replicas import Gang, gang_of
from phalanx.spec.polyaxon_v1.searches import SearchReader
from phalanx.spec.polyaxon_v1.sections import ROLES, RUN_KEYS, TERMINATION, known_keys
from phalanx.spec.polyaxon_v1.variables import Declared, GivenParams, declared, params
from phalanx.spec.rewrites import Map
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.templates import is_template, names_in
from phalanx.spec.tree import Diagnostics, Node

_UNUSED = {  # sections of Polyaxon's server
    "presets": "name preset files with -f",
    "queue": "the backend has the queues: `environment.kubernetes.queue`, `environment.slurm.partition`",
    "namespace": "use `--namespace`",
    "cache": "each run runs",
    "isApproved": "a run starts when it is submitted",
    "cost": "usage is measured",
    "hooks": "wait for the run with `phalanx run --after RUN`",
    "events": "wait for the run with `phalanx run --after RUN`",
    "mount": "the folder of the call is the code",
    "actions": "they belong to Polyaxon's server",
    "contexts": "they belong to Polyaxon's server",
    "profile": "they belong to Polyaxon's server",
}
_CONTEXTS = ("globals", "params", "inputs", "outputs", "connections", "init", "dag", "ops", "matrix")
_OF_DAG = ("dependencies", "trigger", "conditions", "skipOnUpstreamSkip", "schedule")
_QUIET_PLUGINS = frozenset(
    ("auth", "collectArtifacts", "collectLogs", "collectResources", "syncStatuses", "autoResume", "shm", "logLevel")
)


class OperationConverter:
    """Converts one composed component or operation."""

    def __init__(
        self, composed: Node, composer: Composer, findings: Diagnostics, dag: Mapping[str, Node] = EMPTY
    ) -> None:
        assert composed.entries is not None
        self.root, self.sections, self.composer, self.findings = composed, composed.entries, composer, findings
        self.dag = dag
        self.run_kind = self._run_kind()
        allowed = (*RUN_KEYS.get(self.run_kind, ()), "kind")
        run = self.sections.get("run")
        is_known = run is not None and self.run_kind in RUN_KEYS
        self.run = known_keys(run, allowed, f"run of kind {self.run_kind}", findings) if run and is_known else {}

    def _run_kind(self) -> str:
        run = self.sections.get("run")
        if run is None or run.entries is None:
            if run is not None and run.value is not None:
                self.findings.error(run, "`run` must be a map", "write `run: {kind: job, container: {...}}`")
            return "job"
        kind = run.get("kind")
        if kind is None:
            return "job"
        if str(kind.value) not in RUN_KEYS:
            known = ", ".join(RUN_KEYS)
            if str(kind.value) in (
                *ROLES,
                "ray",
                "rayjob",
                "raycluster",
                "dask",
                "spark",
                "flink",
                "notifier",
                "tuner",
            ):
                message = f"runs of kind `{kind.value}` have no counterpart here"
                self.findings.error(kind, message, f"there are {known}")
            else:
                hint = did_you_mean(str(kind.value), RUN_KEYS) or f"use one of {known}"
                self.findings.error(kind, f"unknown kind `{str(kind.value)[:60]}` of a run", hint)
        return str(kind.value)

    def tree(self) -> Node:
        """The file in the modern form."""
        self._note_unused()
        hub = self.sections.get("hubRef")
        kind, body = self._body(hub)
        header: Map = {"version": self._header("version", 1), "kind": self._header("kind", str(kind))}
        for key in ("name", "description", "tags"):
            if key in self.sections:
                header[key] = self.sections[key]
        return self.root.like({**header, **body})

    def _header(self, key: str, value: int | str) -> Node:
        return (self.sections.get(key) or self.root).like(value)

    def _note_unused(self) -> None:
        for key, why in _UNUSED.items():
            if key in self.sections:
                self.findings.note(self.sections[key], f"`{key}` is not used: {why}")
        template = self.sections.get("template")
        enabled = template.get("enabled") if template is not None else None
        if template is not None and (enabled is None or enabled.value is not False):
            self.findings.note(template, "this file is a template: edit it before use")

    def _joined(self) -> Map:
        """The params that joins would set: their absence is reported with the joins."""
        joins = self.sections.get("joins")
        if joins is not None and joins.value and self._service_kind() is Kind.TENSORBOARD:
            self.findings.note(joins, "`joins` is not used: name the runs: `phalanx tensorboard RUN RUN`")
            return {}
        if joins is not None and joins.value:
            hint = "pass the values with -P, or read them with `phalanx.open()`"
            self.findings.error(joins, "`joins` queries runs of Polyaxon's server", hint, at_key=True)
        found: Map = {}
        for entry in joins.elements or () if joins is not None else ():
            section = entry.get("params")
            for name, node in (section.entries or {}).items() if section is not None else ():
                found[name] = node.like("")
                found[name].poisoned = True
        return found

    # Kinds

    def _body(self, hub: Node | None) -> tuple[Kind, Map]:
        inputs = declared(self.sections.get("inputs"), self.findings)
        outputs = declared(self.sections.get("outputs"), self.findings, are_inputs=False)
        steps = prepared(self.run.get("init"), self.findings)
        context = TemplateContext({**inputs.arguments, **outputs.arguments}, steps.folders, self.dag)
        values = params(self.sections.get("params"), context, self.findings)
        values.values.update(self._joined())
        context = context._replace(names=self._names(inputs, outputs, values))
        if hub is not None:
            found = build_file(hub, steps, values, self.findings)
            if found is not None:
                return found
        body = self._variables(inputs, outputs, values)
        search = self._search(body)
        kind = Kind.GROUP if search else Kind.EXPERIMENT
        if self.run_kind == "service":
            return self._service(body, inputs, context, steps, values)
        for key in _OF_DAG:
            if key in self.sections and self.root.parent is None:
                self.findings.note(self.sections[key], f"`{key}` is not used: it belongs to the operations of a dag")
        gang = gang_of(self.run_kind, self.run, self._reader(context, inputs, values, steps), self.findings)
        if gang is not None:
            self._run_sections(body, gang, steps, context)
        return kind, body

    def _names(self, inputs: Declared, outputs: Declared, values: GivenParams) -> frozenset[str]:
        """The names that templates can use."""
        matrix = self.sections.get("matrix")
        searched = matrix.get("params") if matrix is not None else None
        points = matrix.get("values") if matrix is not None else None
        of_points = {
            key for point in (points.elements or () if points is not None else ()) for key in point.entries or ()
        }
        of_matrix = {*(searched.entries or () if searched is not None else ()), *of_points}
        return frozenset({*inputs.names, *outputs.names, *values.values, *values.only_context, *of_matrix, *_CONTEXTS})

    def _reader(self, context: TemplateContext, inputs: Declared, values: GivenParams, steps: Prepared) -> _Replicas:
        variables = {**inputs.variables, **values.variables}
        return _Replicas(ReplicaReader(context, inputs, self.findings), variables, self, context, steps)

    def _variables(self, inputs: Declared, outputs: Declared, values: GivenParams) -> Map:
        body: Map = {}
        given = values.values
        self._accept_undeclared(given, {*inputs.names, *outputs.names, *values.only_context}, inputs)
        extra = [*values.only_context, *(name for name in given if name not in inputs.names)]
        extra = [name for name in dict.fromkeys(extra) if name not in inputs.names]
        nodes = (
            [*inputs.nodes, *(self.root.like({"name": self.root.like(name)}) for name in extra)] if inputs.nodes else []
        )
        nodes += self._outputs_in_templates(outputs, {*inputs.names, *given})
        if nodes:
            body["inputs"] = (self.sections.get("inputs") or self.root).like(list(nodes))
        if outputs.nodes:
            body["outputs"] = self.sections["outputs"].like(list(outputs.nodes))
        if given:
            body["params"] = (self.sections.get("params") or self.root).like(dict(given))
        return body

    def _outputs_in_templates(self, outputs: Declared, given: set[str]) -> list[Node]:
        """Outputs that templates use before the run has set them: inputs that may be missing."""
        run = self.sections.get("run")
        texts = [node.value for node in run.scalars() if isinstance(node.value, str)] if run is not None else []
        used = {name for text in texts if is_template(text) for name in names_in(text)}
        named = [name for name in sorted(outputs.names - given) if name in used]
        return [self.root.like({"name": self.root.like(name), "is_optional": self.root.like(True)}) for name in named]

    def _accept_undeclared(self, given: Map, known: set[str], inputs: Declared) -> None:
        """Note params that no input declares, as 2.18 reads them; a name like that of an input is an error."""
        strict = self.sections.get("strictParams")
        for name, node in given.items():
            if not inputs.nodes or name in known or node.poisoned:
                continue
            hint = did_you_mean(name, inputs.names)
            if hint is None and (strict is None or strict.value is not True):
                self.findings.note(node, f"`{name[:60]}` is no declared input: only templates see it")
            else:
                self.findings.error(node, f"unknown input `{name[:60]}`", hint or "declare it in `inputs`")
                node.poisoned = True

    def _search(self, body: Map) -> bool:
        matrix = self.sections.get("matrix")
        if matrix is None:
            return False
        reader = SearchReader(matrix, self.findings)
        tuning = reader.hptuning()
        if tuning is not None:
            body["hptuning"] = tuning
        points = reader.points() if reader.kind == "mapping" else {}
        if points:
            section = body.get("params") or matrix.like({})
            body["params"] = section.like({**(section.entries or {}), **points})
        return tuning is not None

    # Sections of a run

    def _run_sections(self, body: Map, gang: Gang, steps: Prepared, context: TemplateContext) -> None:
        run = self.sections.get("run") or self.root
        environment: Map = dict(gang.settings)
        kubernetes: Map = {**dict(steps.kubernetes), **gang.kubernetes}
        self._termination(environment, kubernetes)
        if kubernetes:
            environment["kubernetes"] = run.like(dict(kubernetes))
        if gang.framework is not None:
            body["framework"] = run.like(gang.framework)
        if gang.replicas:
            environment["replicas"] = run.like(dict(gang.replicas))
        if environment:
            body["environment"] = run.like(dict(environment))
        build = build_section(self.sections.get("build"), gang.image, context, self.findings)
        if build is not None:
            body["build"] = build
        self._plugins(body)
        if gang.command is not None:
            body["run"] = _run_of(gang.command, gang.place or run)
        elif "isPreset" in self.sections or "run" not in self.sections:
            self.findings.note(
                self.root, "nothing to run: lay this file over a component: -f component.yml -f this.yml"
            )
        else:
            self.findings.note(run, "no `command`: the entrypoint of the image is not known here; write `command`")

    def _termination(self, environment: Map, kubernetes: Map) -> None:
        node = self.sections.get("termination")
        entries = known_keys(node, TERMINATION, "termination", self.findings) if node is not None else {}
        names = (
            ("maxRetries", environment, "max_restarts"),
            ("timeout", environment, "timeout"),
            ("ttl", kubernetes, "ttl"),
        )
        for key, holder, ours in names:
            if key in entries:
                holder[ours] = entries.pop(key)
        for key, child in entries.items():
            self.findings.note(child, f"`{key}` of `termination` is not used")

    def _plugins(self, body: Map) -> None:
        node = self.sections.get("plugins")
        for key, child in (node.entries or {}).items() if node is not None else ():
            if key == "logLevel" and isinstance(child.value, str):
                body["logging"] = child.like({"level": child.like(child.value.upper())})
            elif key not in _QUIET_PLUGINS:
                self.findings.note(child, f"the plugin `{key[:60]}` is not used")

    # Services

    def _service_kind(self) -> Kind:
        words = " ".join(str(item.value) for item in _texts(self.run.get("container")))
        if self.run_kind != "service":
            return Kind.JOB
        return Kind.TENSORBOARD if "tensorboard" in words else Kind.NOTEBOOK if "jupyter" in words else Kind.JOB

    def _service(
        self, body: Map, inputs: Declared, context: TemplateContext, steps: Prepared, values: GivenParams
    ) -> tuple[Kind, Map]:
        run = self.sections["run"]
        kind = self._service_kind()
        ports = (
            tuple(str(item.value) for item in self.run["ports"].elements or ()) if "ports" in self.run else ("8080",)
        )
        served = context._replace(ports=ports)
        gang = gang_of("job", self.run, self._reader(served, inputs, values, steps), self.findings)
        if gang is not None:
            self._run_sections(body, gang, steps, context)
        if kind is Kind.JOB:
            self.findings.note(run, "`kind: service` read as a job that runs until it is stopped; no address is opened")
            return kind, body
        verb = "phalanx tensorboard RUN" if kind is Kind.TENSORBOARD else "phalanx run"
        self.findings.note(run, f"read as `kind: {kind}`, whose command is ours: see `{verb}`")
        _set_defaults(body, body.pop("params", None))
        for key in ("run", "framework", "hptuning"):
            body.pop(key, None)
        return kind, body


def _set_defaults(body: Map, params: Node | None) -> None:
    """Write params as defaults of the inputs, for kinds without `params`. Other required inputs are left out: the
    command that would use them is ours."""
    kept = []
    for node in body["inputs"].elements or () if "inputs" in body else ():
        name = node.get("name")
        value = params.get(str(name.value)) if params is not None and name is not None else None
        if value is not None and node.entries is not None:
            node.entries["default"] = value
            node.entries["is_optional"] = value.like(True)
        if node.get("is_optional") is not None:
            kept.append(node)
    if "inputs" in body:
        body["inputs"] = body["inputs"].like(list(kept))


def _texts(container: Node | None) -> list[Node]:
    found = [container.get(key) for key in ("command", "args")] if container is not None else []
    return [scalar for node in found if node is not None for scalar in node.scalars()]


def _run_of(command: CommandLine, place: Node) -> Node:
    key = "script" if command.is_script else "cmd"
    return place.like({key: place.like(command.text + ("\n" if command.is_script else ""))})


class _Replicas:
    """Reads replica types with the steps of `init` before their commands."""

    def __init__(
        self,
        reader: ReplicaReader,
        variables: Mapping[str, str],
        conversion: OperationConverter,
        context: TemplateContext,
        steps: Prepared,
    ) -> None:
        self.reader, self.variables, self.conversion = reader, variables, conversion
        self.context, self.prepared = context, steps

    def __call__(self, section: Map, origin: Node) -> ReplicaType:
        findings = self.conversion.findings
        own = (
            prepared(section.get("init"), findings)
            if section.get("init") is not self.conversion.run.get("init")
            else None
        )
        found = own or self.prepared
        context = self.context._replace(folders=(*self.context.folders, *found.folders))
        reader = ReplicaReader(context, self.reader.inputs, findings)
        replica = reader.read(section, origin, self.variables, file_steps(found.files, context, findings))
        return replica._replace(kubernetes={**dict(found.kubernetes), **replica.kubernetes})
