"""What the small API server keeps: objects with their versions, what happened to them, and the rules of both."""

from __future__ import annotations

import base64
import copy
import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

Document = dict[str, Any]
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_RULE = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
DATA_LIMIT = 1 << 20
FIELDS = {  # that can be selected by, besides name and namespace
    "Pod": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    "Event": (
        *(f"involvedObject.{key}" for key in ("kind", "name", "namespace", "uid", "apiVersion", "fieldPath")),
        *("reason", "type", "source", "reportingComponent"),
    ),
    "Job": ("status.successful",),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "Secret": ("type",),
}
KEPT_EVENTS = 5000


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Resource(NamedTuple):
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def full(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def details(self, name: str = "", *, kind: str = "", **more: Any) -> Document:
        named = {"name": name, "group": self.group, "kind": kind or self.plural, **more}
        return {key: value for key, value in named.items() if value}


def _kubeflow(version: str, *kinds: str) -> tuple[Resource, ...]:
    return tuple(Resource("kubeflow.org", version, f"{kind.lower()}s", kind) for kind in kinds)


TRAINER = "trainer.kubeflow.org"
RESOURCES: dict[str, tuple[Resource, ...]] = {
    "kubernetes": (
        *(
            Resource("", "v1", f"{kind.lower()}s", kind)
            for kind in ("Pod", "Service", "ConfigMap", "Secret", "Event", "ResourceQuota", "LimitRange")
        ),
        Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource("", "v1", "nodes", "Node", False),
        Resource("", "v1", "namespaces", "Namespace", False),
        Resource("batch", "v1", "jobs", "Job"),
        Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
    ),
    "training-operator": _kubeflow("v1", "TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob"),
    "training-operator-1.8": _kubeflow("v1", "TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "MXJob", "MPIJob"),
    "mpi": _kubeflow("v2beta1", "MPIJob"),
    "trainer": (
        Resource(TRAINER, "v1alpha1", "trainjobs", "TrainJob"),
        Resource(TRAINER, "v1alpha1", "trainingruntimes", "TrainingRuntime"),
        Resource(TRAINER, "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", False),
        Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    ),
    "kueue": (
        Resource("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue"),
        Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload"),
    ),
    "volcano": (Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"),),
    "scheduler-plugins": (Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),),
}


class Failure(Exception):
    """An answer other than success, as the API server words it."""

    def __init__(self, code: int, reason: str, message: str, details: Document | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> Document:
        body: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body |= {"message": self.message, "reason": self.reason}
        return {**body, **({"details": self.details} if self.details else {}), "code": self.code}


def success(resource: Resource, document: Document) -> Document:
    meta = document["metadata"]
    details = resource.details(meta["name"], uid=meta["uid"])
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def not_found(resource: Resource, name: str) -> Failure:
    return Failure(404, "NotFound", f'{resource.full} "{name}" not found', resource.details(name))


def conflict(resource: Resource, name: str, why: str) -> Failure:
    message = f'Operation cannot be fulfilled on {resource.full} "{name}": {why}'
    return Failure(409, "Conflict", message, resource.details(name))


def invalid(resource: Resource, name: str, field: str, message: str, reason: str = "FieldValueInvalid") -> Failure:
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    causes = [{"reason": reason, "message": message, "field": field}]
    details = resource.details(name, kind=resource.kind, causes=causes)
    return Failure(422, "Invalid", f'{kind} "{name}" is invalid: {field}: {message}', details)


def no_such_path() -> Failure:
    """Said in plain text: nobody is there who would know what a Status is."""
    return Failure(404, "", "404 page not found")


def resource_of(resources: Sequence[Resource], steps: Sequence[str]) -> tuple[Resource, str, str, str]:
    """(resource, namespace, name, part) that a path names."""
    if steps[:1] == ["api"]:
        group, version, rest = "", steps[1], list(steps[2:])
    elif steps[:1] == ["apis"] and len(steps) > 3:
        group, version, rest = steps[1], steps[2], list(steps[3:])
    else:
        raise no_such_path()
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    for one in resources:
        if (one.group, one.version, one.plural) == (group, version, rest[0]):
            name, part = [*rest[1:], "", ""][:2]
            return one, namespace, name, part
    if any((one.group, one.version) == (group, version) for one in resources):
        raise Failure(404, "NotFound", "the server could not find the requested resource", {})
    raise no_such_path()


class Happening(NamedTuple):
    """A change of one object: as it was (None: it is new) and as it is (None: it is gone)."""

    version: int
    resource: Resource
    was: Document | None
    now: Document | None


class Objects:
    """Everything there is. `changed` guards it, and is notified of every change."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self.resources = list(resources)
        self.changed = threading.Condition(threading.RLock())
        self.version = 1
        self.oldest = 1  # watches may go on from here
        self.happened: list[Happening] = []
        self._kept: dict[tuple[str, str, str, str], Document] = {}  # by group, plural, namespace and name

    # reading

    def find(self, kind: str, name: str, namespace: str) -> Document | None:
        with self.changed:
            for resource in self._of_kind(kind):
                found = self._kept.get(_key(resource, namespace, name))
                if found is not None:
                    return copy.deepcopy(found)
        return None

    def all_of(self, kind: str, namespace: str) -> list[Document]:
        with self.changed:
            return [one for resource in self._of_kind(kind)[:1] for one in self._all(resource, namespace)]

    def get(self, resource: Resource, namespace: str, name: str) -> Document:
        with self.changed:
            found = self._kept.get(_key(resource, namespace, name))
            if found is None:
                raise not_found(resource, name)
            return {**copy.deepcopy(found), "apiVersion": resource.api_version}

    def page(self, resource: Resource, namespace: str, query: Mapping[str, str]) -> Document:
        check_fields(resource, query)
        with self.changed:
            found = [one for one in self._all(resource, namespace) if selects(query, one)]
            version, begin = self.version, ""
            if query.get("continue"):
                try:
                    token = json.loads(base64.b64decode(query["continue"]))
                except ValueError:
                    raise Failure(400, "BadRequest", "invalid continue token") from None
                version, begin = token["rv"], token["start"]
                if version < self.oldest:
                    raise Failure(410, "Expired", "The provided continue parameter is too old to display a consistent "
                                  "list result. You can start a new list without the continue parameter.")  # fmt: skip
            found = [one for one in found if _place(one) > begin]
            meta: Document = {"resourceVersion": str(version)}
            limit = int(query.get("limit", 0))
            if limit and len(found) > limit:
                token = {"rv": version, "start": _place(found[limit - 1])}
                meta["continue"] = base64.b64encode(json.dumps(token).encode()).decode()
                if not query.get("labelSelector") and not query.get("fieldSelector"):
                    meta["remainingItemCount"] = len(found) - limit
                found = found[:limit]
        items = [{key: one[key] for key in one if key not in ("kind", "apiVersion")} for one in found]
        kept = found if resource.group and "." in resource.group else items  # custom resources keep their kind
        return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta, "items": kept}

    def discovery(self, steps: Sequence[str]) -> Document:
        """/api, /apis, /api/v1, /apis/GROUP and /apis/GROUP/VERSION."""
        if steps == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        groups: dict[str, list[str]] = {}
        for one in self.resources:
            if one.group and one.version not in groups.setdefault(one.group, []):
                groups[one.group].append(one.version)
        described = {
            group: {
                "name": group,
                "versions": [{"groupVersion": f"{group}/{one}", "version": one} for one in versions],
                "preferredVersion": {"groupVersion": f"{group}/{versions[0]}", "version": versions[0]},
            }
            for group, versions in groups.items()
        }
        if steps == ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(described.values())}
        if steps[0] == "apis" and len(steps) == 2 and steps[1] in described:
            return {"kind": "APIGroup", "apiVersion": "v1", **described[steps[1]]}
        group, version = ("", steps[1]) if steps[0] == "api" else (steps[1], [*steps, ""][2])
        served = [one for one in self.resources if (one.group, one.version) == (group, version)]
        if not served:
            raise no_such_path()
        verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        rows = [
            {"name": one.plural, "singularName": "", "namespaced": one.namespaced, "kind": one.kind, "verbs": verbs}
            for one in served
        ]
        where = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": where, "resources": rows}

    # writing

    def put(self, document: Mapping[str, Any]) -> Document:
        made = copy.deepcopy(dict(document))
        with self.changed:
            resource = next(
                (one for one in self._of_kind(made["kind"]) if one.api_version == made.get("apiVersion")),
                self._of_kind(made["kind"])[0],
            )
            namespace = made["metadata"].get("namespace", "default") if resource.namespaced else ""
            was = self._kept.get(_key(resource, namespace, made["metadata"]["name"]))
            if resource.kind == "Pod":
                made.setdefault("status", {"phase": "Pending"})
            self._finish(resource, namespace, made, was)
            return self._store(resource, made, was)

    def create(self, resource: Resource, namespace: str, body: Any, *, dry: bool = False) -> Document:
        if not isinstance(body, dict):
            raise Failure(400, "BadRequest", "the object provided is unrecognized: it is no JSON object")
        if body.get("kind") != resource.kind or body.get("apiVersion") != resource.api_version:
            named = f'{body.get("kind")} in version "{body.get("apiVersion", "").split("/")[-1]}"'
            raise Failure(400, "BadRequest", f"{named} cannot be handled as a {resource.kind}")
        made = copy.deepcopy(body)
        meta = made.setdefault("metadata", {})
        if resource.namespaced and meta.get("namespace", namespace) != namespace:
            why = "the namespace of the provided object does not match the namespace sent on the request"
            raise Failure(400, "BadRequest", why)
        name = meta.get("name") or ""
        with self.changed:
            if resource.namespaced and ("", "namespaces", "", namespace) not in self._kept:
                raise Failure(404, "NotFound", f'namespaces "{namespace}" not found',
                              {"name": namespace, "kind": "namespaces"})  # fmt: skip
            check(resource, name, made)
            if _key(resource, namespace, name) in self._kept:
                message = f'{resource.full} "{name}" already exists'
                raise Failure(409, "AlreadyExists", message, resource.details(name))
            for key in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation"):
                meta.pop(key, None)
            self._finish(resource, namespace, made, None)
            if resource.kind in ("Pod", "Job"):
                made["status"] = {"phase": "Pending"} if resource.kind == "Pod" else {}
            return made if dry else self._store(resource, made, None)

    def replace(
        self, resource: Resource, namespace: str, name: str, part: str, body: Any, *, dry: bool = False
    ) -> Document:
        made = copy.deepcopy(body)
        with self.changed:
            was = self.get(resource, namespace, name)
            version = made.get("metadata", {}).get("resourceVersion")
            if version not in (None, "", was["metadata"]["resourceVersion"]):
                why = "the object has been modified; please apply your changes to the latest version and try again"
                raise conflict(resource, name, why)
            return self._change(resource, namespace, was, made, part, dry=dry)

    def patch(  # noqa: PLR0917 - what a request says
        self, resource: Resource, namespace: str, name: str, part: str, kind: str, body: Any, *, dry: bool = False
    ) -> Document:
        with self.changed:
            was = self.get(resource, namespace, name)
            if kind == "application/json-patch+json":
                made = json_patched(was, body)
            elif kind in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
                if kind.startswith("application/strategic") and "." in resource.group:
                    raise Failure(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
                made = merged(was, body)
            else:
                raise Failure(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
            version = made["metadata"].get("resourceVersion")
            if version != was["metadata"]["resourceVersion"]:
                why = "the object has been modified; please apply your changes to the latest version and try again"
                raise conflict(resource, name, why)
            return self._change(resource, namespace, was, made, part, dry=dry)

    def _change(
        self, resource: Resource, namespace: str, was: Document, made: Document, part: str, *, dry: bool
    ) -> Document:
        name = was["metadata"]["name"]
        if part == "status":
            made = {**was, "status": made.get("status", {})}
        elif "status" in was:
            made["status"] = was["status"]
        check(resource, name, made)
        if resource.kind == "Job" and made["spec"].get("template") != was["spec"].get("template"):
            raise invalid(resource, name, "spec.template", "Invalid value: field is immutable")
        self._finish(resource, namespace, made, was)
        return made if dry else self._store(resource, made, was)

    def mark_deleted(
        self, resource: Resource, namespace: str, name: str, options: Mapping[str, Any], grace: int
    ) -> Document:
        """It is to go, and stays until someone has ended it."""
        with self.changed:
            was = self.get(resource, namespace, name)
            _check_preconditions(resource, was, options)
            if was["metadata"].get("deletionTimestamp"):
                return was
            made = copy.deepcopy(was)
            made["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": grace}
            return self._store(resource, made, was)

    def delete(
        self, resource: Resource, namespace: str, name: str, options: Mapping[str, Any], *, graceful: bool = False
    ) -> Document:
        with self.changed:
            was = self.get(resource, namespace, name)
            _check_preconditions(resource, was, options)
            is_shown = resource.kind == "Pod" or options.get("propagationPolicy") == "Foreground"
            if is_shown or was["metadata"].get("finalizers"):
                was = self.mark_deleted(resource, namespace, name, options, 0)
            if was["metadata"].get("finalizers"):
                return was
            del self._kept[_key(resource, namespace, name)]
            self._note(resource, was, None)
            if options.get("propagationPolicy") != "Orphan":
                self._delete_owned_by(was["metadata"]["uid"], graceful=graceful)
            return was if is_shown else success(resource, was)

    def _delete_owned_by(self, uid: str, *, graceful: bool) -> None:
        """What the garbage collector does, without its delay."""
        for (group, plural, namespace, name), one in list(self._kept.items()):
            if not any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", ())):
                continue
            if (group, plural, namespace, name) not in self._kept:
                continue  # gone with another of them
            resource = next(each for each in self.resources if (each.group, each.plural) == (group, plural))
            is_at_work = one.get("spec", {}).get("nodeName") and one.get("status", {}).get("phase") == "Running"
            if resource.kind == "Pod" and graceful and is_at_work:
                self.mark_deleted(resource, namespace, name, {}, 30)
            else:
                self.delete(resource, namespace, name, {}, graceful=graceful)

    def forget(self) -> None:
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.happened.clear()
            self.changed.notify_all()

    # inside

    def _of_kind(self, kind: str) -> list[Resource]:
        found = [one for one in self.resources if one.kind == kind]
        assert found, f"no {kind} is served here"
        return found

    def _all(self, resource: Resource, namespace: str) -> list[Document]:
        """In the order of their names."""
        found = [
            {**copy.deepcopy(one), "apiVersion": resource.api_version}
            for (group, plural, space, _), one in self._kept.items()
            if (group, plural) == (resource.group, resource.plural) and namespace in ("", space)
        ]
        return sorted(found, key=_place)

    def _finish(self, resource: Resource, namespace: str, made: Document, was: Document | None) -> None:
        """What the server itself writes into an object."""
        made |= {"apiVersion": resource.api_version, "kind": resource.kind}
        meta, old = made["metadata"], (was or {}).get("metadata", {})
        if resource.namespaced:
            meta["namespace"] = namespace
        meta["uid"] = old.get("uid") or str(uuid.uuid4())
        meta["creationTimestamp"] = old.get("creationTimestamp") or now()
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            if key in old:
                meta.setdefault(key, old[key])
        if resource.kind == "Secret":
            made.setdefault("type", "Opaque")
        for port in made.get("spec", {}).get("ports") or () if resource.kind == "Service" else ():
            port.setdefault("protocol", "TCP")
        if resource.kind == "Secret" and "stringData" in made:
            plain = {key: base64.b64encode(value.encode()).decode() for key, value in made.pop("stringData").items()}
            made["data"] = {**made.get("data", {}), **plain}
        if "spec" in made:
            is_same = was is not None and was.get("spec") == made["spec"]
            meta["generation"] = old.get("generation", 0) + (not is_same)

    def _store(self, resource: Resource, made: Document, was: Document | None) -> Document:
        meta = made["metadata"]
        self._kept[_key(resource, meta.get("namespace", ""), meta["name"])] = made
        self._note(resource, was, made)
        return copy.deepcopy(made)

    def _note(self, resource: Resource, was: Document | None, made: Document | None) -> None:
        self.version += 1
        current = made if made is not None else was
        assert current is not None
        current["metadata"]["resourceVersion"] = str(self.version)
        self.happened.append(Happening(self.version, resource, copy.deepcopy(was), copy.deepcopy(made)))
        if len(self.happened) > KEPT_EVENTS:
            self.oldest = self.happened[len(self.happened) // 2].version
            del self.happened[: len(self.happened) // 2]
        self.changed.notify_all()


class Watch:
    """One client's view of what happens."""

    def __init__(self, objects: Objects, resource: Resource, namespace: str, query: Mapping[str, str]) -> None:
        self.objects, self.resource, self.namespace, self.query = objects, resource, namespace, query
        self.is_over = False
        said = query.get("resourceVersion", "")
        if said and not said.isdigit():
            raise Failure(500, "", f'resourceVersion: Invalid value: "{said}"')
        check_fields(resource, query)
        self.seen = int(said) if said not in ("", "0") else -1  # -1: all there is comes first

    def has_news(self) -> bool:
        happened = self.objects.happened
        return self.seen < self.objects.oldest or bool(happened and happened[-1].version > self.seen)

    def news(self) -> Iterator[Document]:
        with self.objects.changed:
            return iter(list(self._news()))

    def _news(self) -> Iterator[Document]:
        objects = self.objects
        if self.seen == -1:
            self.seen = objects.version
            for one in objects.page(self.resource, self.namespace, {**self.query, "limit": "0"})["items"]:
                yield {"type": "ADDED", "object": self._typed(one)}
            return
        if self.seen < objects.oldest:
            self.is_over = True
            message = f"too old resource version: {self.seen} ({objects.version})"
            yield {"type": "ERROR", "object": Failure(410, "Expired", message).status()}
            return
        for one in objects.happened:
            if one.version <= self.seen or one.resource[:3:2] != self.resource[:3:2]:
                continue
            was, is_now = self._mine(one.was), self._mine(one.now)
            if is_now:
                assert one.now is not None
                yield {"type": "MODIFIED" if was else "ADDED", "object": self._typed(one.now)}
            elif was:
                assert one.was is not None
                last = one.now if one.now is not None else one.was
                yield {"type": "DELETED", "object": self._typed(last)}
        self.seen = objects.version

    def _mine(self, one: Document | None) -> bool:
        if one is None or (self.namespace and one["metadata"].get("namespace") != self.namespace):
            return False
        return selects(self.query, one)

    def _typed(self, one: Document) -> Document:
        return {**one, "kind": self.resource.kind, "apiVersion": self.resource.api_version}

    def bookmark(self) -> Document:
        shown = {"metadata": {"resourceVersion": str(max(self.seen, 0)), "creationTimestamp": None}}
        return {"type": "BOOKMARK", "object": self._typed(shown)}


def check_fields(resource: Resource, query: Mapping[str, str]) -> None:
    """Refuses fields that cannot be selected by."""
    known = ("metadata.name", "metadata.namespace", *FIELDS.get(resource.kind, ()))
    for one in filter(None, query.get("fieldSelector", "").split(",")):
        path = re.split(r"!=|==|=", one, maxsplit=1)[0]
        if path not in known:
            raise Failure(400, "BadRequest", f"field label not supported: {path}")


def selects(query: Mapping[str, str], document: Document) -> bool:
    """Whether an object is among those that `labelSelector` and `fieldSelector` ask for."""
    labels = document["metadata"].get("labels") or {}
    asked = re.split(r",(?![^(]*\))", query.get("labelSelector", ""))
    if not all(_label_fits(one.strip(), labels) for one in asked if one.strip()):
        return False
    for one in filter(None, query.get("fieldSelector", "").split(",")):
        path, operator, wanted = re.split(r"(!=|==|=)", one, maxsplit=1)
        value: Any = document
        for step in path.split("."):
            value = value.get(step, "") if isinstance(value, dict) else ""
        if (str(value) == wanted) == (operator == "!="):
            return False
    return True


def _label_fits(one: str, labels: Mapping[str, str]) -> bool:
    if found := re.fullmatch(r"(\S+) (in|notin) \((.*)\)", one):
        among = labels.get(found[1]) in [value.strip() for value in found[3].split(",")]
        return among == (found[2] == "in")
    if one.startswith("!"):
        return one[1:] not in labels
    if "!=" in one:
        key, value = one.split("!=", 1)
        return labels.get(key) != value
    if "=" in one:
        key, value = re.split("==?", one, maxsplit=1)
        return labels.get(key) == value
    return one in labels


def check(resource: Resource, name: str, made: Document) -> None:
    """Refuses what a real server would, of what this project could get wrong."""
    if not name:
        raise invalid(
            resource, name, "metadata.name", "Required value: name or generateName is required", "FieldValueRequired"
        )
    pattern_fits = NAME.fullmatch(name) and (resource.kind != "Service" or (len(name) <= 63 and "." not in name))
    if not pattern_fits or len(name) > 253:
        raise invalid(resource, name, "metadata.name", f'Invalid value: "{name}": {NAME_RULE}')
    for key, value in (made["metadata"].get("labels") or {}).items():
        if not LABEL.fullmatch(value) or len(value) > 63:
            raise invalid(
                resource, name, "metadata.labels", f'Invalid value: "{value}": a valid label must be short ({key})'
            )
    _check_owners(resource, name, made)
    if resource.kind in ("ConfigMap", "Secret"):
        held = {**(made.get("data") or {}), **(made.get("binaryData") or {})}
        if (
            sum(len(value) for value in (made.get("data") or {}).values())
            + sum(len(value) * 3 // 4 for value in (made.get("binaryData") or {}).values())
            > DATA_LIMIT
        ):
            raise invalid(resource, name, "[]", "Too long: must have at most 1048576 bytes", "FieldValueTooLong")
        for key in held:
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
                raise invalid(resource, name, f"data[{key}]", f'Invalid value: "{key}": not a valid config key')
    if resource.kind == "Job":
        pod = made.get("spec", {}).get("template", {}).get("spec")
        if not pod or not pod.get("containers"):
            where = "spec.template.spec.containers"
            raise invalid(resource, name, where, "Required value", "FieldValueRequired")
        if pod.get("restartPolicy") not in ("Never", "OnFailure"):
            where, said = "spec.template.spec.restartPolicy", 'supported values: "OnFailure", "Never"'
            raise invalid(resource, name, where, f"Required value: {said}", "FieldValueRequired")


def _check_owners(resource: Resource, name: str, made: Document) -> None:
    if any(not owner.get("uid") for owner in made["metadata"].get("ownerReferences") or ()):
        raise invalid(resource, name, "metadata.ownerReferences.uid", 'Invalid value: "": uid must not be empty')


def merged(base: Any, patch: Any) -> Any:
    """A JSON merge patch; the strategic one differs only in lists, which no caller of ours patches."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def json_patched(base: Document, steps: Sequence[Mapping[str, Any]]) -> Document:
    made = copy.deepcopy(base)
    for step in steps:
        *way, last = [one.replace("~1", "/").replace("~0", "~") for one in step["path"].split("/")[1:]]
        at: Any = made
        for one in way:
            at = at[int(one)] if isinstance(at, list) else at[one]
        if step["op"] == "remove":
            del at[int(last) if isinstance(at, list) else last]
        elif step["op"] == "test":
            if at.get(last) != step["value"]:
                raise Failure(422, "Invalid", "the server rejected our request due to an error in our request")
        elif isinstance(at, list):
            at.insert(len(at) if last == "-" else int(last), step["value"])
        else:
            at[last] = step["value"]
    return made


def _check_preconditions(resource: Resource, was: Document, options: Mapping[str, Any]) -> None:
    wanted = (options.get("preconditions") or {}).get("uid")
    if wanted is not None and wanted != was["metadata"]["uid"]:
        said = f"the UID in the precondition ({wanted}) does not match the UID in record ({was['metadata']['uid']})"
        raise conflict(resource, was["metadata"]["name"], said)


def _key(resource: Resource, namespace: str, name: str) -> tuple[str, str, str, str]:
    return resource.group, resource.plural, namespace if resource.namespaced else "", name


def _place(document: Document) -> str:
    return f"{document['metadata'].get('namespace', '')}/{document['metadata']['name']}"
