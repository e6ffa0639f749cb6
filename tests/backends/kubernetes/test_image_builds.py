"""Images that are built in the cluster: nothing that people write becomes an instruction."""

from __future__ import annotations

import json
import os
import re
import subprocess
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import backends, plan, spec
from phalanx.backends import agent_zip
from phalanx.backends.kubernetes.engine.staged_objects import SKELETON
from phalanx.backends.kubernetes.render import image_builds, native_jobs
from phalanx.backends.kubernetes.target import Cluster, ClusterTarget, Settings
from phalanx.errors import CallError
from phalanx.plan.model import Plan
from phalanx.spec.model import Build, KubernetesOptions
from phalanx.submission.snapshots import pack
from tests.backends.kubernetes.schemas import validate

REGISTRY = Settings(registry="registry.example:5000/team")
SOME = Build(image="python:3.12", build_steps=("pip install x",), env_vars=(("A", "b"),))


def planned(build: Build | None, run_id: str = "run1", project: str = "default", **kubernetes: Any) -> Plan:
    file = "version: 1\nkind: experiment\nenvironment: {resources: {gpu: {limits: 2}}}\nrun: {cmd: python train.py}\n"
    made = plan.make(spec.load([("x.yml", file.encode())]), run_id, project)
    return replace(made, build=build, kubernetes=KubernetesOptions(**kubernetes))


def target(version: tuple[int, int] = (1, 34), **settings: Any) -> ClusterTarget:
    return ClusterTarget(REGISTRY._replace(**settings), Cluster(version=version))


def job(made: Plan, at: ClusterTarget) -> dict[str, Any]:
    return image_builds.build_objects(made, at)[1]


def main_of(found: dict[str, Any]) -> dict[str, Any]:
    [main] = found["spec"]["template"]["spec"]["containers"]
    return dict(main)


# Whether ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "registry", "wanted"),
    [
        (None, "r/x", False),
        (Build(image="x"), "r/x", False),
        (Build(image="x", build_steps=("y",)), None, False),
        (Build(image="x", build_steps=("y",)), "r/x", True),
        (Build(build_steps=("y",)), "r/x", True),
        (Build(dockerfile="Dockerfile"), "r/x", True),
        (Build(ref="earlier"), "r/x", False),
    ],
)
def test_an_image_is_built_where_one_is_asked_for_and_can_be_kept(
    build: Build | None, registry: str | None, wanted: bool
) -> None:
    assert image_builds.is_wanted(planned(build), Settings(registry=registry)) is wanted


def test_a_dockerfile_without_a_registry_says_what_to_do() -> None:
    with pytest.raises(CallError, match=r"`registry: .*kubernetes\.yml.*build: \{image") as raised:
        image_builds.is_wanted(planned(Build(dockerfile="docker/Dockerfile")), Settings())
    assert "docker/Dockerfile" in str(raised.value)


def test_the_pods_of_the_run_have_the_image_that_is_built() -> None:
    for build in (SOME, Build(dockerfile="D")):
        made = planned(build)
        found = native_jobs.objects(made, target())
        tag = image_builds.tag_of(made, REGISTRY)
        builds = [obj for obj in found if obj["metadata"]["labels"].get("phalanx.dev/stage") == "build"]
        assert [obj["kind"] for obj in builds] == ["ConfigMap", "Job"]
        assert f"name={tag}," in " ".join(main_of(builds[1])["args"])
        assert main_of(found[-1])["image"] == tag
        assert json.loads(found[0]["data"]["place.json"])["steps"] == [], "they are in the image"


@pytest.mark.parametrize(
    ("code", "claim", "carried"),
    [(None, None, True), ("image", None, True), (None, "home", False), ("image", "home", False)],
)
def test_code_that_only_the_build_needs_goes_along_too(code: str | None, claim: str | None, carried: bool) -> None:
    at = target(home_claim=claim)
    objects = native_jobs.objects(planned(SOME, code=code), at)
    assert image_builds.carries_code(objects) is carried
    assert image_builds.carries_code(objects[:1]) is (carried and code is None)


# What it is called --------------------------------------------------------------------------------------------------


def image_of(made: Plan, code: bytes | None = b"code") -> str:
    """The image in the pods of a run, which is also the one that is built."""
    found = native_jobs.objects(made, target())
    found = found if code is None else image_builds.shared(found, code)
    image = str(main_of(found[-1])["image"])
    [build] = [one for one in found if one["metadata"]["name"].endswith("-build") and one["kind"] == "Job"]
    assert f"name={image}," in " ".join(main_of(build)["args"]) or f"--destination={image}" in main_of(build)["args"]
    return image


def test_the_same_build_of_the_same_code_is_the_same_image() -> None:
    first = image_of(planned(SOME, "run1"))
    assert first == image_of(planned(SOME, "run2"))
    assert re.fullmatch(r"registry\.example:5000/team/default:[0-9a-f]{32}", first)
    others = [
        image_of(planned(SOME), b"other"),
        image_of(planned(SOME), None),
        image_of(planned(SOME, "run2"), None),
        *(
            image_of(planned(SOME._replace(**change)))
            for change in (
                {"image": "python:3.11"},
                {"build_steps": ("pip install y",)},
                {"build_steps": ("pip install x", "")},
                {"env_vars": (("A", "c"),)},
                {"lang_env": "C"},
                {"context": "sub"},
                {"backend": "kaniko"},
            )
        ),
    ]
    assert len({first, *others}) == len(others) + 1
    anew = [image_of(planned(SOME._replace(nocache=True), run_id)) for run_id in ("a", "b")]
    assert len({first, *anew}) == 3, "what is built again is not what is there"


@pytest.mark.parametrize(
    ("project", "repository"),
    [("vision", "vision"), ("Vision", "vision-"), ("a b/c", "a-b-c-"), ("Ж", ""), ("..", ""), ("x" * 300, "x" * 119)],
)
def test_every_project_has_a_repository_of_its_own(project: str, repository: str) -> None:
    found = image_builds.tag_of(planned(SOME, project=project), REGISTRY).rpartition(":")[0].rpartition("/")[2]
    assert found.startswith(repository)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found)
    assert len(found) <= 128
    assert found == repository or re.search(r"[0-9a-f]{8}\Z", found)


@pytest.mark.parametrize("registry", ["", "r x", "r,push=false/x", "r/X", "https://r/x", "-r", "r/../x", "r\n/x"])
def test_what_is_no_registry_is_refused(registry: str) -> None:
    with pytest.raises(CallError, match=r"kubernetes\.yml"):
        image_builds.tag_of(planned(SOME), Settings(registry=registry))


# The Dockerfile -----------------------------------------------------------------------------------------------------


def test_an_image_and_steps_make_the_dockerfile_that_polyaxon_made() -> None:
    build = SOME._replace(lang_env="C.UTF-8", env_vars=(("A", 'b "c" $D \\'), ("API_TOKEN", "s3cret")))
    assert image_builds.dockerfile(planned(build), REGISTRY).splitlines() == [
        "FROM python:3.12",
        'ENV LC_ALL="C.UTF-8"',
        'ENV LANG="C.UTF-8"',
        'ENV LANGUAGE="C.UTF-8"',
        r'ENV A="b \"c\" \$D \\"',
        "WORKDIR /code",
        'COPY ["*requirements*.txt", "*conda_env*.y*ml", "*setup.sh", "./"]',
        'RUN ["/bin/sh", "-c", "pip install x"]',
        'COPY [".", "./"]',
    ]


def test_where_copying_nothing_is_a_fault_all_is_copied_first() -> None:
    lines = image_builds.dockerfile(planned(SOME), REGISTRY, is_first_alone=False).splitlines()
    assert lines.index('COPY [".", "./"]') < lines.index('RUN ["/bin/sh", "-c", "pip install x"]')
    assert not any("*" in line for line in lines)


TEXTS = st.text(max_size=60) | st.sampled_from(
    [
        "\nRUN evil",
        "x\r\nFROM evil",
        "\\\nRUN evil",
        "<<EOF\nx\nEOF",
        '"]\nRUN ["evil"]',
        "# syntax=evil",
        "$(x) ${y}",
        "\\",
    ]
)


@given(steps=st.lists(TEXTS, max_size=4), value=TEXTS, name=TEXTS, image=TEXTS, locale=TEXTS)
def test_no_text_becomes_an_instruction(steps: list[str], value: str, name: str, image: str, locale: str) -> None:
    build = Build(image=image or None, build_steps=tuple(steps), env_vars=((name, value),), lang_env=locale)
    try:
        lines = image_builds.dockerfile(planned(build), REGISTRY).split("\n")
    except CallError:
        return
    kinds = [line.partition(" ")[0] for line in lines]
    n_env = kinds.count("ENV")
    assert kinds == ["FROM", *["ENV"] * n_env, "WORKDIR", "COPY", *["RUN"] * len(steps), "COPY", ""]
    assert n_env <= 4
    runs = [json.loads(line.partition(" ")[2]) for line in lines if line.startswith("RUN ")]
    assert runs == [["/bin/sh", "-c", step] for step in steps]
    for line in lines:
        assert not line.endswith("\\"), "the next line would go on with it"
        assert "<<" not in line or line.startswith("ENV ")
        if line.startswith("ENV "):
            quoted = re.fullmatch(r'ENV (\w+)="((?:[^"\\$]|\\["\\$])*)"', line, re.DOTALL)
            assert quoted is not None, "what ends the quotes or is expanded has a backslash before it, and nothing else"
            assignment = quoted[1] + "=" + re.sub(r"\\(.)", lambda one: one[1], quoted[2])
            assert assignment in (f"{name}={value}", *(f"{one}={locale}" for one in ("LC_ALL", "LANG", "LANGUAGE")))


@pytest.mark.parametrize(
    "build",
    [
        Build(image="python 3.12", build_steps=("x",)),
        Build(image="x\nRUN y"),
        Build(image="x", env_vars=(("A B", "c"),)),
        Build(image="x", env_vars=(("A", "two\nlines"),)),
        Build(image="x", build_steps=("x" * 70_000,)),
    ],
)
def test_what_cannot_be_written_is_reported(build: Build) -> None:
    with pytest.raises(CallError, match="build"):
        image_builds.dockerfile(planned(build), REGISTRY)


# The Job ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [(1, 25), (1, 29), (1, 30), (1, 34), (1, 37)])
@pytest.mark.parametrize("builder", ["buildkit", "kaniko"])
@pytest.mark.parametrize("build", [SOME, Build(dockerfile="docker/Dockerfile", context="sub")])
@pytest.mark.parametrize(
    "more",
    [{}, {"registry_secret": "pushing", "server": "http://phalanx"}, {"home_claim": "home"}, {"code": "image"}],
)
def test_what_builds_is_what_kubernetes_takes(
    build: Build, builder: str, version: tuple[int, int], more: dict[str, Any]
) -> None:
    settings = {name: value for name, value in more.items() if name != "code"}
    made = planned(build, **{name: value for name, value in more.items() if name == "code"})
    for obj in image_builds.build_objects(made, target(version, builder=builder, **settings)):
        validate(obj, f"{version[0]}.{version[1]}")
        assert obj["metadata"]["labels"]["phalanx.dev/stage"] == "build"
        assert obj["metadata"]["labels"]["phalanx.dev/run"] == "run1"
        assert "phalanx.dev/role" not in obj["metadata"]["labels"]


def test_buildkit_builds_from_the_code_and_pushes() -> None:
    found = job(planned(Build(dockerfile="docker/my file", context="sub/dir")), target(registry_secret="pushing"))
    main = main_of(found)
    assert main["command"] == ["buildctl-daemonless.sh"]
    args = main["args"]
    tag = image_builds.tag_of(planned(Build(dockerfile="docker/my file", context="sub/dir")), REGISTRY)
    assert args[args.index("--output") + 1] == f"type=image,name={tag},push=true"
    assert "context=/phalanx/code/sub/dir" in args
    assert "dockerfile=/phalanx/code/docker" in args
    assert "filename=my file" in args
    spec_of = found["spec"]["template"]["spec"]
    [secret] = [volume["secret"] for volume in spec_of["volumes"] if "secret" in volume]
    assert secret == {"secretName": "pushing", "items": [{"key": ".dockerconfigjson", "path": "config.json"}]}
    mounted = {mount["name"]: mount["mountPath"] for mount in main["volumeMounts"]}
    variables = {one["name"]: one["value"] for one in main["env"]}
    assert mounted["registry"] == variables["DOCKER_CONFIG"]
    assert {mount["name"] for mount in main["volumeMounts"]} <= {volume["name"] for volume in spec_of["volumes"]}


def test_the_code_is_brought_by_an_init_step_that_is_restricted() -> None:
    for builder in ("buildkit", "kaniko"):
        found = job(planned(SOME), target(builder=builder))["spec"]["template"]["spec"]
        [prepare] = found["initContainers"]
        assert prepare["command"][-1] == "prepare"
        assert prepare["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert prepare["securityContext"]["allowPrivilegeEscalation"] is False
        assert found["automountServiceAccountToken"] is False
        assert found["securityContext"]["runAsNonRoot"] is True
        assert "nvidia.com/gpu" not in json.dumps(found), "a build needs no GPU"


def test_code_from_git_is_of_the_revision_that_the_build_names() -> None:
    made = planned(SOME._replace(commit="abc123"), repository="https://git.example/x")
    found = job(made, target())["spec"]["template"]["spec"]
    [fetch] = found["initContainers"]
    assert fetch["command"][-3:] == ["https://git.example/x", "abc123", "/phalanx/code/source"]
    args = main_of(job(made, target()))["args"]
    assert "context=/phalanx/code/source" in args


def test_the_builder_reads_a_place_of_its_own_that_repeats_no_steps() -> None:
    reads, found = image_builds.build_objects(planned(SOME, code="image"), target(server="http://phalanx.example"))
    place_json = json.loads(reads["data"]["place.json"])
    assert place_json["steps"] == []
    assert place_json["code"]["kind"] == "bundle", "the pods have it in the image, and the image has it from the bundle"
    [volume] = [volume for volume in found["spec"]["template"]["spec"]["volumes"] if volume["name"] == "job"]
    assert volume["configMap"]["name"] == reads["metadata"]["name"] == found["metadata"]["name"]
    assert reads["data"]["Dockerfile"].startswith("FROM python:3.12\n")


def test_the_init_step_really_brings_the_code(tmp_path: Path) -> None:
    reads, found = image_builds.build_objects(planned(SOME, code="image"), target())
    for name in ("job", "agent", "bundle", "code"):
        (tmp_path / name).mkdir()
    place_json = json.loads(reads["data"]["place.json"])
    place_json["code"]["path"] = str(tmp_path / "code")  # a pod has its own root
    files = {**reads["data"], "place.json": json.dumps(place_json)}
    for name, text in files.items():
        (tmp_path / "job" / name).write_text(text)
    (tmp_path / "job" / "plan.json.gz").write_bytes(b64decode(reads["binaryData"]["plan.json.gz"]))
    agent, _ = agent_zip.carried()
    (tmp_path / "agent" / "agent.pyz").write_bytes(agent)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text("print(1)")
    with (tmp_path / "bundle" / "code.tar.gz").open("wb") as stream:
        pack(tmp_path / "source", stream)
    [prepare] = found["spec"]["template"]["spec"]["initContainers"]
    variables = {one["name"]: one.get("value", "1") for one in prepare["env"]}
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "job" / "start.sh"), *prepare["command"][2:]],
        env={"PATH": os.environ["PATH"], **variables, "PHALANX_POD_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "code" / "train.py").read_text() == "print(1)"


def test_a_builder_has_what_it_needs_and_no_more() -> None:
    buildkit, kaniko = (main_of(job(planned(SOME), target(builder=name))) for name in ("buildkit", "kaniko"))
    assert buildkit["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Unconfined"},
    }
    assert kaniko["securityContext"] == {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}
    older = job(planned(SOME), target((1, 29)))["spec"]["template"]
    assert "appArmorProfile" not in main_of({"spec": {"template": older}})["securityContext"]
    assert older["metadata"]["annotations"]["container.apparmor.security.beta.kubernetes.io/build"] == "unconfined"
    for main in (buildkit, kaniko):
        assert "privileged" not in json.dumps(main)
        assert "envFrom" not in main, "the token of the run is for its own"


@pytest.mark.parametrize("builder", ["buildkit", "kaniko"])
def test_a_build_asks_for_some_of_what_its_run_does_and_is_not_held_to_it(builder: str) -> None:
    file = (
        "version: 1\nkind: experiment\nrun: {cmd: python train.py}\n"
        "environment: {resources: {cpu: {requests: 0.5, limits: 8}, memory: {limits: 64Gi}, gpu: {limits: 2}}}\n"
    )
    made = replace(plan.make(spec.load([("x.yml", file.encode())]), "run1"), build=SOME)
    found = job(made, target(builder=builder))["spec"]["template"]["spec"]
    boxes = [*found["initContainers"], *found["containers"]]
    assert [box["name"] for box in boxes] == ["prepare", "build"]
    for box in boxes:
        assert box["resources"] == {"requests": {"cpu": "500m", "memory": "4096Mi"}}
    assert "resources" not in main_of(job(planned(SOME), target(builder=builder)))


def test_kaniko_is_taken_where_the_file_or_the_home_says_so() -> None:
    for made, at in ((planned(SOME._replace(backend="kaniko")), target()), (planned(SOME), target(builder="kaniko"))):
        main = main_of(job(made, at))
        assert main["args"][0] == "--context=dir:///phalanx/code"
        assert main["args"][1] == "--dockerfile=/phalanx/build/Dockerfile"
        assert main["args"][2].startswith("--destination=registry.example:5000/team/default:")
        assert "--force" in main["args"], "it takes a pod without a service account's token for a machine"
    with pytest.raises(CallError, match="buildkit, kaniko"):
        job(planned(SOME), target(builder="docker"))


def test_nothing_is_remembered_when_the_file_says_so() -> None:
    for builder in ("buildkit", "kaniko"):
        kept, anew = (
            main_of(job(planned(SOME._replace(nocache=nocache)), target(builder=builder)))["args"]
            for nocache in (False, True)
        )
        assert any("phalanx-cache" in word for word in kept)
        assert not any("phalanx-cache" in word for word in anew)


@pytest.mark.parametrize("path", ["/etc", "..", "../x", "a/../../x", "a\nb"])
@pytest.mark.parametrize("key", ["dockerfile", "context"])
def test_nothing_outside_of_the_code_is_built(path: str, key: str) -> None:
    with pytest.raises(CallError, match=rf"build\.{key}"):
        job(planned(Build(dockerfile=path) if key == "dockerfile" else Build(dockerfile="D", context=path)), target())


def test_no_argument_is_expanded_by_the_kubelet() -> None:
    args = main_of(job(planned(Build(dockerfile="$(HOME)/$$x")), target()))["args"]
    assert "dockerfile=/phalanx/code/$$(HOME)" in args
    assert "filename=$$$x" in args


def test_secrets_are_in_no_layer_and_no_manifest() -> None:
    made = planned(SOME._replace(env_vars=(("API_TOKEN", "s3cret"), ("A", "b"))))
    assert "s3cret" not in json.dumps(image_builds.build_objects(made, target()))


# Builds as runs -----------------------------------------------------------------------------------------------------


def built(registry: str | None = None, **fields: Any) -> list[dict[str, Any]]:
    """The objects of a `kind: build` file."""
    content = {"version": 1, "kind": "build", "image": "python:3.12", "build_steps": ["pip install x"], **fields}
    made = plan.make(spec.load([("b.yml", json.dumps(content).encode())]), "run1")
    settings = Settings(registry=registry)
    job = backends.find("kubernetes").render(made, ClusterTarget(settings, Cluster(version=(1, 34))))
    found: list[dict[str, Any]] = json.loads(job.files[SKELETON])
    return found


def test_a_build_pushes_the_image_that_it_names_and_its_pod_only_starts_in_it() -> None:
    objects = built(to="r.example:5000/team/x")
    for one in objects:
        validate(one, "1.34")
    made = next(one for one in objects if one["kind"] == "Job" and one["metadata"]["name"].endswith("build"))
    assert "type=image,name=r.example:5000/team/x:latest,push=true" in main_of(made)["args"]
    run = next(one for one in objects if one["kind"] == "Job" and one is not made)
    assert main_of(run)["image"] == "r.example:5000/team/x:latest"


def test_a_build_needs_a_registry_and_no_file() -> None:
    with pytest.raises(CallError, match="name it with `to: REGISTRY/NAME:TAG`, or write `registry"):
        built()
    with pytest.raises(CallError, match=r"`to: x\.sif`: a build on Kubernetes pushes to a registry"):
        built(to="x.sif")
    assert any("registry.example/team/default:" in json.dumps(one) for one in built("registry.example/team"))


def test_a_build_has_its_own_resources_and_place() -> None:
    own = {"resources": {"cpu": 3, "memory": 9000}, "node_selector": {"for": "builds"}}
    file = {
        "version": 1,
        "kind": "experiment",
        "environment": {"resources": {"cpu": 1, "gpu": 2}, "node_selector": {"for": "training"}},
        "build": {"image": "a", "build_steps": ["x"], "environment": own},
        "run": {"cmd": "true"},
    }
    made = plan.make(spec.load([("x.yml", json.dumps(file).encode())]), "run1")
    pod = job(made, target())["spec"]["template"]["spec"]
    [main] = pod["containers"]
    assert pod["nodeSelector"]["for"] == "builds"
    assert main["resources"] == {
        "requests": {"cpu": "3", "memory": "9000Mi"},
        "limits": {"cpu": "3", "memory": "9000Mi"},
    }
