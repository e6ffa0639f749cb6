"""Image builds in the cluster, if a registry is configured: a Job that runs first and pushes the image.

User input only appears as a JSON string or a quoted value in the Dockerfile, never as a raw line, and as an argument of
the builder, never in a shell. Builders need more than the *restricted* standard: BuildKit creates a user namespace (no
seccomp or AppArmor profile; not root), Kaniko unpacks the image over its own files (root in its container, nothing
else).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any
from unicodedata import category

from phalanx.backends.kubernetes.observe.attempt_objects import BUILD, STAGE
from phalanx.backends.kubernetes.render import gang_scheduling, names, payload, pods, volumes
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.target import CODE_AT, MEMBERS, ROLE, RUN_AT, ClusterTarget, Settings
from phalanx.errors import CallError
from phalanx.plan import build_recipes, builders
from phalanx.plan.builders import BuildTarget
from phalanx.plan.model import Plan

BUILDKIT, KANIKO = "buildkit", "kaniko"
IMAGES = {BUILDKIT: "moby/buildkit:rootless", KANIKO: "gcr.io/kaniko-project/executor:v1.23.2"}
DOCKERFILE_AT = "/phalanx/build"
CACHE = "phalanx-cache"
RECIPE = "phalanx.dev/build"  # annotation: the digest of the build without the code, and that in the image's name
SECONDS = 7200  # timeout of a build
KEPT_S = 86_400
UNASKED = "asked for without `is_wanted`"
MOST_CPUS, MOST_MIB = 2.0, 4096.0  # requests of a build; it may use more
LONGEST_REPOSITORY = 128
_USERS_STATE = "/home/user/.local/share/buildkit"
_CREDENTIALS = {BUILDKIT: "/home/user/.docker", KANIKO: "/kaniko/.docker"}
_REGISTRY = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::\d{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*\Z")


def adapted(made: Plan, settings: Settings) -> Plan:
    """The plan as Kubernetes runs it: the Job before it makes the image of a build, and its own pod only starts in that
    image. Raises CallError."""
    build = made.build
    if made.kind != "build" or build is None:
        return made
    if build.to is None and settings.registry is None:
        raise CallError(
            "a build on Kubernetes pushes an image: name it with `to: REGISTRY/NAME:TAG`, or write "
            "`registry: <registry>/<name>` into kubernetes.yml in the home of Phalanx"
        )
    if builders.target_of(build) not in (BuildTarget.REGISTRY, BuildTarget.VIRTUALENV):
        raise CallError(f"`to: {build.to}`: a build on Kubernetes pushes to a registry: write `to: REGISTRY/NAME:TAG`")
    return replace(made, replicas=tuple(replace(replica, argv=("true",)) for replica in made.replicas))


def is_wanted(made: Plan, settings: Settings) -> bool:
    """Return whether to build an image for a run: for a Dockerfile, and for build steps if there is a registry to push
    to; without one, an init container runs the steps. Raises CallError."""
    build = made.build
    if build is None or build.ref is not None:
        return False
    registry = build.to or settings.registry
    if build.dockerfile is not None and registry is None:
        raise CallError(
            f"`build.dockerfile: {build.dockerfile[:100]}`: building an image needs a registry. Write "
            "`registry: <registry>/<name>` into kubernetes.yml in the home of Phalanx, or name an existing image "
            "(`build: {image: ...}`)"
        )
    return registry is not None and (build.dockerfile is not None or bool(build.build_steps))


def carries_code(objects: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether any of these objects reads the code from the run's ConfigMap: pods, or the build of their
    image."""
    places = (obj.get("data", {}).get(payload.PLACE) for obj in objects if obj.get("kind") == "ConfigMap")
    return any(json.loads(found)["code"]["kind"] == "bundle" for found in places if found)


def tag_of(made: Plan, settings: Settings) -> str:
    """The image of a run. It is unique to the run: `shared` changes it once the code is known. Raises CallError."""
    if made.build is not None and made.build.to is not None:
        return made.build.to if ":" in made.build.to.rpartition("/")[2] else f"{made.build.to}:latest"
    registry = (settings.registry or "").strip("/")
    if not _REGISTRY.match(registry):
        raise CallError(f"`registry: {registry[:100]}` in kubernetes.yml is invalid: write `registry.example/team`")
    return f"{registry}/{_repository(made)}:{_digest(_recipe(made, settings), made.run_id)}"


def shared(objects: Sequence[Mapping[str, Any]], code: bytes) -> list[dict[str, Any]]:
    """The objects of a run with the image that all runs with the same build and the same code have. Unchanged if they
    build none, or the file sets `nocache`."""
    text, digest = json.dumps(objects), sha256(code).hexdigest()
    for one in objects:
        recipe, _, own = one["metadata"].get("annotations", {}).get(RECIPE, "").partition(" ")
        if own:
            text = text.replace(own, _digest(recipe, digest))
    found: list[dict[str, Any]] = json.loads(text)
    return found


def _recipe(made: Plan, settings: Settings) -> str:
    """A digest of everything that an image depends on, except the code."""
    build = made.build
    assert build is not None, UNASKED
    content = (build.image or settings.image, build.dockerfile, build.context, build.build_steps, build.env_vars)
    return sha256(json.dumps([*content, build.lang_env, _builder(made, settings)]).encode()).hexdigest()


def _digest(recipe: str, of: str) -> str:
    return sha256(f"{recipe} {of}".encode()).hexdigest()[:32]


def _repository(made: Plan) -> str:
    """The project's name, as a valid repository name."""
    project = made.shared.get("PHALANX_PROJECT")
    written = project if isinstance(project, str) and project else "default"
    plain = re.sub(r"[^a-z0-9]+", "-", written.lower()).strip("-")
    if plain == written and len(plain) <= LONGEST_REPOSITORY:
        return plain
    digest = sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return "-".join(filter(None, (plain[: LONGEST_REPOSITORY - 9].rstrip("-"), digest)))


def build_objects(made: Plan, target: ClusterTarget) -> list[dict[str, Any]]:
    """The objects that build and push the image of a run: the Job, and before it the ConfigMaps that it reads. Raises
    CallError."""
    settings = target.settings
    builder = _builder(made, settings)
    source = volumes.code(_bare(made), target)
    image = tag_of(made, settings)
    command = _arguments(made, builder, str(source.path), image)
    name = names.object_name(names.base(made), BUILD)
    reads = payload.owner(_bare(made), target, _tables())
    reads["metadata"] = _labelled(payload.metadata(made, name))
    if made.build is not None and made.build.dockerfile is None:
        reads["data"]["Dockerfile"] = dockerfile(made, settings, is_first_alone=builder == BUILDKIT)
    job = _job(made, target, name, builder, command)
    if made.build is not None and not made.build.nocache and made.build.to is None:
        job["metadata"]["annotations"][RECIPE] = f"{_recipe(made, settings)} {image.rpartition(':')[2]}"
    gang_scheduling.admit_alone(made, target, job)
    return [reads, job]


def _builder(made: Plan, settings: Settings) -> str:
    if made.build is not None and made.build.backend == KANIKO:
        return KANIKO
    if settings.builder not in IMAGES:
        raise CallError(f"`builder: {settings.builder[:100]}` in kubernetes.yml is not one of {', '.join(IMAGES)}")
    return settings.builder


def dockerfile(made: Plan, settings: Settings, *, is_first_alone: bool = True) -> str:
    """The Dockerfile of a run with steps. Raises CallError."""
    assert made.build is not None, UNASKED
    first = [build_recipes.copy_line(*build_recipes.COPIED_FIRST)] if is_first_alone else []
    return build_recipes.dockerfile(made.build, made.build.image or settings.image, first)


# The Job ------------------------------------------------------------------------------------------------------------


def _arguments(made: Plan, builder: str, code: str, image: str) -> list[str]:
    build = made.build
    assert build is not None, UNASKED
    context = _below(code, build.context, "build.context")
    written = f"{DOCKERFILE_AT}/Dockerfile"
    if build.dockerfile is not None:
        written = _below(code, build.dockerfile, "build.dockerfile")
    repository = image.rpartition(":")[0]
    if builder == KANIKO:
        cached = [] if build.nocache else ["--cache=true", f"--cache-repo={repository}/{CACHE}"]
        # Kaniko detects a pod by its service account token, and this pod has none.
        return [f"--context=dir://{context}", f"--dockerfile={written}", f"--destination={image}", "--force", *cached]
    folder, _, file = written.rpartition("/")
    return [
        *("build", "--progress=plain", "--frontend", "dockerfile.v0"),
        *("--local", f"context={context}", "--local", f"dockerfile={folder}", "--opt", f"filename={file}"),
        *("--output", f"type=image,name={image},push=true"),
        *(["--no-cache"] if build.nocache else _cache(f"{repository}:{CACHE}")),
    ]


def _cache(at: str) -> Iterator[str]:
    yield from ("--import-cache", f"type=registry,ref={at}")
    yield from ("--export-cache", f"type=registry,ref={at},mode=max,ignore-error=true")


def _below(code: str, path: str | None, key: str) -> str:
    inside = posixpath.normpath(path or ".")
    if inside.startswith(("/", "../")) or inside == ".." or any(category(sign) == "Cc" for sign in inside):
        raise CallError(f"`{key}: {inside[:100]}` is not inside the code: write a path relative to its root")
    return code if inside == "." else f"{code}/{inside}"


def _job(made: Plan, target: ClusterTarget, name: str, builder: str, arguments: list[str]) -> dict[str, Any]:
    template = _template(made, target, builder, name)
    [main] = template["spec"]["containers"]
    main["args"] = [pods.unexpanded(word) for word in arguments]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _labelled(payload.metadata(made, name)),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": SECONDS,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": template,
        },
    }


def _template(made: Plan, target: ClusterTarget, builder: str, reads: str) -> dict[str, Any]:
    """A pod like the run's, with the init containers that fetch the code, but with the builder as its container."""
    bare = _bare(made)
    found = pods.template(bare, bare.replicas, target, tables=_tables(), image=target.settings.image)
    _labelled(found["metadata"])
    spec = found["spec"]
    for volume in spec["volumes"]:
        if volume["name"] == "job":
            volume["configMap"]["name"] = reads
    ours = spec["containers"][0]
    carried = [mount for mount in ours["volumeMounts"] if mount["mountPath"] in (CODE_AT, RUN_AT)]
    mounts = [*carried, {"name": "job", "mountPath": DOCKERFILE_AT, "readOnly": True}]
    asked = pods.without_devices(ours, target)
    main: dict[str, Any] = {"name": BUILD, "image": IMAGES[builder], **asked, "env": [], "volumeMounts": mounts}
    if builder == BUILDKIT:
        main["command"] = ["buildctl-daemonless.sh"]
        main["env"] = [{"name": "BUILDKITD_FLAGS", "value": "--oci-worker-no-process-sandbox"}]
        mounts.append({"name": "state", "mountPath": _USERS_STATE})
        spec["volumes"].append({"name": "state", "emptyDir": {}})
    main |= _unrestricted(builder, target)
    if builder == BUILDKIT and target.cluster.version < (1, 30):
        found["metadata"]["annotations"][f"container.apparmor.security.beta.kubernetes.io/{BUILD}"] = "unconfined"
    if target.settings.registry_secret is not None:
        main["env"].append({"name": "DOCKER_CONFIG", "value": _CREDENTIALS[builder]})
        mounts.append({"name": "registry", "mountPath": _CREDENTIALS[builder], "readOnly": True})
        file = {"key": ".dockerconfigjson", "path": "config.json"}
        secret = {"secretName": target.settings.registry_secret, "items": [file]}
        spec["volumes"].append({"name": "registry", "secret": secret})
    spec["containers"] = [main]
    return found


def _unrestricted(builder: str, target: ClusterTarget) -> dict[str, Any]:
    if builder == KANIKO:
        return {"securityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}}
    context: dict[str, Any] = {"runAsUser": pods.USER, "runAsGroup": pods.USER}
    context["seccompProfile"] = {"type": "Unconfined"}
    if target.cluster.version >= (1, 30):
        context["appArmorProfile"] = {"type": "Unconfined"}
    return {"securityContext": context}


def _bare(made: Plan) -> Plan:
    """The parts of a run that its build needs: where its pods may run, and the code, even if the image has it."""
    first = made.replicas[0]
    own = made.build.environment if made.build is not None else None  # of the build itself
    placed = first.settings if own is None else own.settings
    resources = placed.resources or type(first.resources)()
    settings = placed._replace(
        resources=resources._replace(
            cpu=resources.cpu if own is not None else _at_most(resources.cpu, MOST_CPUS),
            memory=resources.memory if own is not None else _at_most(resources.memory, MOST_MIB),
            gpu=None,
            tpu=None,
        ),
        affinity=None if own is None else placed.affinity,
        labels=None,
        annotations=None,
        env_vars=None,
        service_account=None,
        secret_refs=None,
        config_map_refs=None,
        data_refs=None,
        artifact_refs=None,
    )
    replica = replace(first, settings=settings, environment={}, defaults={}, argv=(), local=0)
    kept: Mapping[str, Any] = {name: made.shared[name] for name in ("PHALANX_PROJECT",) if name in made.shared}
    asked = made.kubernetes
    kubernetes = asked._replace(
        code=None if asked.code == "image" else asked.code,
        revision=asked.revision or (made.build and (made.build.commit or made.build.branch)),
        pod={},
        scheduler=None,
    )
    return replace(
        made,
        replicas=(replica,),
        roles={first.role: 1},
        shared=kept,
        kubernetes=kubernetes,
        python=made.python._replace(requirements=()),
        build=None,
        service=None,
    )


def _at_most(amount: Any, most: float) -> Any:
    """Limit the build's request to part of the run's: a quota rejects pods without requests. The build has no limit."""
    wanted = next((each for each in amount or () if each is not None), None)
    return None if wanted is None else amount._replace(requests=min(wanted, most), limits=None)


def _tables() -> AddressTables:
    """A build has no peers."""
    return AddressTables({"*": "127.0.0.1"}, {"*": 0}, {"outputs": f"{RUN_AT}/outputs", "*": CODE_AT})


def _labelled(metadata: dict[str, Any]) -> dict[str, Any]:
    """Labels that tie the object to the run without making it a replica."""
    metadata["labels"].pop(ROLE, None)
    metadata["annotations"].pop(MEMBERS, None)
    metadata["labels"] |= {STAGE: BUILD, "app.kubernetes.io/component": BUILD}
    return metadata
