"""The backend: renders a plan as manifests, for the engine or as one file for `kubectl apply` without Phalanx."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from phalanx import run_paths
from phalanx.backends import agent_zip
from phalanx.backends.contract import NO_OPTIONS, Backend, Connections, Diagnosis, Engine, Job, Requirement
from phalanx.backends.kubernetes.render import image_builds, native_jobs, payload
from phalanx.backends.kubernetes.target import RUN, ClusterTarget, Settings
from phalanx.errors import PhalanxError, SystemFault
from phalanx.plan.document import document, document_text
from phalanx.plan.model import Plan

SKELETON, PLAN, WHOLE, CLUSTER = "manifests.json", run_paths.PLAN, "manifests.yaml", run_paths.CLUSTER
BY_OPERATORS = ("kubeflow", "mpi")  # values of `backend:` in a file that select an operator
REMEMBERED = ("kubeconfig", "context", "namespace")  # the cluster of a run, even if the current context changes later


_PLAIN = re.compile(r"[A-Za-z_/][\w./@+=-]*\Z", re.ASCII)  # every YAML reader takes it for text
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
_LINES = re.compile(r"[ -~\n]*[!-~]\n*\Z")
_ONE_LINE = re.compile(r"[ -~]*\Z")


class KubernetesJobs(Backend):
    """Native Jobs. Backends for other kinds of jobs override the objects and the engine."""

    name = "kubernetes"
    shares_files = False
    options = (*REMEMBERED, "assume")
    needs_operators = False

    def target(
        self,
        home: Path,
        plan: Plan | None = None,  # noqa: ARG002
        *,
        options: Mapping[str, str | None] = NO_OPTIONS,
        ask: bool = False,
    ) -> ClusterTarget:
        from phalanx.backends.kubernetes.cluster import assumed_offer
        from phalanx.backends.kubernetes.cluster.settings import find

        settings = _with(find(home), options)
        if assumed := options.get("assume"):
            return ClusterTarget(settings, assumed_offer.assumed(assumed))
        if not ask:
            return ClusterTarget(settings, assumed_offer.OFFLINE)
        from phalanx.backends.kubernetes.cluster.api import ApiFault, ApiUnreachable, connect
        from phalanx.backends.kubernetes.cluster.discovery import discover

        api = connect(settings)
        try:
            offered = discover(api)
        except (ApiFault, ApiUnreachable) as fault:
            raise SystemFault(f"{api.server} cannot be discovered: {fault}", transient=fault.transient) from None
        return ClusterTarget(
            settings._replace(
                kubeconfig=settings.kubeconfig or _single(os.environ.get("KUBECONFIG", "")),
                context=api.context,
                namespace=api.namespace,
            ),
            offered,
        )

    def target_of_run(self, home: Path, run_folder: Path) -> ClusterTarget:
        """Does not ask the cluster again: the objects have already been rendered."""
        from phalanx.backends.kubernetes.cluster import assumed_offer
        from phalanx.backends.kubernetes.cluster.settings import find

        try:
            remembered = json.loads((run_folder / CLUSTER).read_bytes())
        except (OSError, ValueError):
            remembered = {}
        return ClusterTarget(_with(find(home), remembered), assumed_offer.OFFLINE)

    def render(self, plan: Plan, target: ClusterTarget | None = None) -> Job:
        resolved = target or ClusterTarget()
        plan = image_builds.adapted(plan, resolved.settings)
        cluster = {name: getattr(resolved.settings, name) for name in REMEMBERED}
        objects = self.objects(plan, resolved)
        files = {
            SKELETON: "[\n" + ",\n".join(map(json.dumps, objects)) + "\n]\n",
            PLAN: document_text(document(plan)),
            CLUSTER: json.dumps(cluster) + "\n",
        }
        return Job(
            files,
            start=_start(resolved),
            carries_agent=True,
            takes_code=image_builds.carries_code(objects),
            completed=lambda code: self._completed(plan, resolved, code),
        )

    def objects(self, plan: Plan, target: ClusterTarget) -> list[dict[str, Any]]:
        """Raises CallError for a plan that cannot run here."""
        return native_jobs.objects(plan, target)

    def engine(self, target: ClusterTarget | None, connections: Connections) -> Engine | None:
        from phalanx.backends.kubernetes.engine.engine import KubernetesEngine

        return KubernetesEngine(target or ClusterTarget(), connections, self.name)

    def backend_for(self, backend: str) -> str:
        return "kubeflow" if backend in BY_OPERATORS else self.name

    def diagnose(
        self,
        home: Path,
        environment: Mapping[str, str],  # noqa: ARG002 - credentials are those of this process
        options: Mapping[str, str | None],
    ) -> Diagnosis:
        from phalanx.backends.kubernetes.cluster import diagnosis
        from phalanx.backends.kubernetes.cluster.settings import find

        return diagnosis.diagnose(_with(find(home), options), needs_operators=self.needs_operators)

    def requirements(self, home: Path) -> Iterable[Requirement]:
        fix = "set $KUBECONFIG, or name a file with --kubeconfig"
        yield Requirement("kubeconfig", _config_files(home), fix, "runs on Kubernetes and Kubeflow")

    def _completed(self, plan: Plan, target: ClusterTarget, code: bytes | None) -> Job:
        """Self-contained: no server serves code or receives reports."""
        target = target._replace(settings=target.settings._replace(server=None, home_claim=None))
        objects = self.objects(plan, target)
        owner, *others = objects if code is None else image_builds.shared(objects, code)
        owner["data"][payload.PLACE] = payload.without_courier(owner["data"][payload.PLACE])
        carried = payload.agent_maps(plan, *agent_zip.carried())
        if code is not None and image_builds.carries_code([owner, *others]):
            carried += payload.code_maps(plan, code)
        found = [owner, *carried, *others]
        if target.settings.namespace is not None:
            for each in found:
                each["metadata"]["namespace"] = target.settings.namespace
        large = [_called(each) for each in found if len(json.dumps(each)) > payload.LARGEST_APPLIED]
        words = _words(found, large)
        return Job({WHOLE: _yaml(found, words)}, start=_start(target, is_large=bool(large)), shown=WHOLE)


def _with(settings: Settings, options: Mapping[str, Any]) -> Settings:
    from phalanx.backends.kubernetes.cluster.settings import with_options

    said = {name: str(options[name]) for name in REMEMBERED if options.get(name) is not None}
    if "kubeconfig" in said:
        said["kubeconfig"] = str(Path(said["kubeconfig"]).expanduser().absolute())  # the working directory may change
    return with_options(settings, **said)


def _config_files(home: Path) -> str | None:
    """The files that a run would read."""
    from phalanx.backends.kubernetes.cluster.credentials import config_files
    from phalanx.backends.kubernetes.cluster.settings import find

    try:
        return ", ".join(config_files(find(home))) or "the service account of this pod"
    except PhalanxError:
        return None


def _single(listed: str) -> str | None:
    """The kubeconfig if the variable names a single one: another process that manages the run may have another
    variable."""
    paths = [path for path in listed.split(os.pathsep) if path]
    return str(Path(paths[0]).expanduser().absolute()) if len(paths) == 1 else None


def _words(objects: Sequence[Mapping[str, Any]], large: Sequence[str]) -> list[str]:
    """Notes for the user who applies the file."""
    kinds = ",".join(dict.fromkeys(str(each["kind"]).lower() for each in objects))
    words = [f"All of it is removed by: kubectl delete {kinds} -l {RUN}={objects[0]['metadata']['labels'][RUN]}"]
    empty = [name for each in objects for name, value in each.get("stringData", {}).items() if not value]
    if empty:
        words.append(f"Secrets are left empty here; fill in before it is applied: {', '.join(empty)}")
    if large:
        words.append(f"For `kubectl apply --server-side`: too large without are {', '.join(large)}")
    return words


def _called(each: Mapping[str, Any]) -> str:
    return f"{each['kind']} {each['metadata']['name']}"


def _start(target: ClusterTarget, *, is_large: bool = False) -> str:
    """The command for users. Server-side apply stores no copy in the objects, which may lack room for it."""
    settings = target.settings
    said = [f"--kubeconfig {quote(settings.kubeconfig)}"] if settings.kubeconfig is not None else []
    said += [f"--context {quote(settings.context)}"] if settings.context is not None else []
    line = " ".join(["kubectl", *said, "apply", *(["--server-side"] if is_large else []), "-f"])
    return line.replace("{", "{{").replace("}", "}}") + f" {{folder}}/{WHOLE}"


def _yaml(objects: Sequence[Mapping[str, Any]], words: Sequence[str]) -> str:
    """Readable documents that every YAML parser reads the same way."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    def written(dumper: Any, text: str) -> Any:
        if _PLAIN.match(text) and text.lower() not in _WORDS:
            style = None
        elif "\n" in text and _LINES.match(text):
            style = "|"
        else:
            style = "'" if _ONE_LINE.match(text) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, written)
    comments = "".join(f"# {line}\n" for line in words)
    dumped = yaml.dump_all(
        objects, Dumper=Dumper, explicit_start=True, sort_keys=False, allow_unicode=True, width=1 << 20
    )
    return comments + str(dumped)


BACKEND = KubernetesJobs()
