"""The manifests of a server in a cluster: taken by Kubernetes as they are, restricted, and allowed what is needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from phalanx.backends.kubernetes.cluster import discovery
from phalanx.backends.kubernetes.cluster.settings import find
from phalanx.backends.kubernetes.target import Settings
from phalanx.cli.commands.serve import command as serve_command
from phalanx.spec.cluster_fields import KUBERNETES
from tests.backends.kubernetes.schemas import validate
from tests.cli.running import COMMAND

ROOT = Path(__file__).resolve().parent.parent / "deploy" / "kubernetes"
FOLDERS = sorted(file.parent for file in ROOT.rglob("kustomization.yaml"))
MANIFESTS = sorted(file for file in ROOT.rglob("*.yaml") if file.name != "kustomization.yaml")
VERSIONS = ("1.25", "1.30", "1.34", "1.37")


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in MANIFESTS:
        manifest = read(file)
        if manifest["kind"] in ("Deployment", "StatefulSet") and file.name != "server.yaml":
            yield named(file), manifest["spec"]["template"]


def test_every_folder_is_found() -> None:
    assert [named(folder) for folder in FOLDERS] == ["base", "components/network-policy", "components/postgres"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", MANIFESTS, ids=named)
def test_kubernetes_takes_every_manifest(file: Path, version: str) -> None:
    manifest = read(file)
    if file.name == "server.yaml":  # a patch: the Deployment that it is laid over has the rest
        manifest = patched(read(ROOT / "base" / "deployment.yaml"), manifest)
    validate(manifest, version)
    assert "namespace" not in manifest["metadata"], "that is for whoever uses it to say"


def patched(base: Any, patch: Any) -> Any:
    """As kustomize lays a patch over a Deployment: lists of named things are merged by name."""
    if isinstance(patch, dict) and isinstance(base, dict):
        return {**base, **{key: patched(base.get(key), value) for key, value in patch.items()}}
    if isinstance(patch, list) and isinstance(base, list):
        left = {item["name"]: item for item in patch}
        return [patched(item, left.pop(item["name"], {})) for item in base] + list(left.values())
    return patch


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_every_file_is_listed_once(folder: Path) -> None:
    kustomization = read(folder / "kustomization.yaml")
    patches = [patch["path"] for patch in kustomization.get("patches", ())]
    listed = [*kustomization["resources"], *patches]
    assert sorted(listed) == sorted(file.name for file in folder.glob("*.yaml") if file.name != "kustomization.yaml")
    wanted = "Kustomization" if folder.name == "base" else "Component"
    assert kustomization["kind"] == wanted
    if kustomization.get("labels"):
        assert "includeSelectors" not in str(kustomization["labels"]), "selectors cannot be changed later"


def rules(manifest: Any) -> set[discovery.Need]:
    return {
        discovery.Need(verb, group, resource)
        for rule in manifest["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_role_allows_what_is_needed_and_nothing_else() -> None:
    manifest = read(ROOT / "base" / "role.yaml")
    assert manifest["kind"] == "Role", "nothing of the cluster itself"
    granted = rules(manifest)
    needed = set(discovery.NEEDED)
    assert sorted(map(str, needed - granted)) == [], "missing"
    assert sorted(map(str, granted - needed)) == [], "too much"
    assert len(granted) == sum(
        len(rule["apiGroups"]) * len(rule["resources"]) * len(rule["verbs"]) for rule in manifest["rules"]
    ), "said twice"
    assert not any("*" in word for rule in granted for word in rule)
    assert not {rule.resource for rule in granted} & {"pods/exec", "pods/attach", "serviceaccounts/token"}


def test_the_binding_is_between_what_there_is() -> None:
    binding = read(ROOT / "base" / "rolebinding.yaml")
    assert binding["roleRef"]["name"] == read(ROOT / "base" / "role.yaml")["metadata"]["name"]
    account = read(ROOT / "base" / "serviceaccount.yaml")["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert read(ROOT / "base" / "deployment.yaml")["spec"]["template"]["spec"]["serviceAccountName"] == account


@pytest.mark.parametrize(("name", "template"), list(pods()), ids=[name for name, _ in pods()])
def test_every_pod_satisfies_the_restricted_standard(name: str, template: dict[str, Any]) -> None:
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(spec)
    for container in spec["containers"]:
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        assert {mount["name"] for mount in container["volumeMounts"]} >= {"tmp"}, f"{name} has to write somewhere"
    assert all({"emptyDir", "configMap", "persistentVolumeClaim"} & set(volume) for volume in spec["volumes"])
    assert spec["automountServiceAccountToken"] is (name == "base/deployment.yaml")


def test_the_server_is_called_with_options_that_it_has() -> None:
    deployment = read(ROOT / "base" / "deployment.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    verb, *options = container["args"]
    known = {name for parameter in serve_command.params for name in parameter.opts}
    assert verb == "serve"
    assert {option.partition("=")[0] for option in options} <= known
    variables = {variable["name"] for variable in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(options))) <= variables
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert container[probe]["timeoutSeconds"] > 1, "a second is short for a machine that is busy"


def test_the_server_answers_for_the_name_in_its_settings_for_pods(tmp_path: Path) -> None:
    settings = read(ROOT / "base" / "settings.yaml")
    deployment = read(ROOT / "base" / "deployment.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "settings"]
    [name] = settings["data"]
    assert variables["PHALANX_KUBERNETES"] == f"{mount['mountPath']}/{name}"
    (tmp_path / name).write_text(settings["data"][name])
    server = find(tmp_path, {}).server
    assert server is not None
    service = read(ROOT / "base" / "service.yaml")
    assert server == f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert f"--allow-host={service['metadata']['name']}" in container["args"]


@pytest.mark.slow
def test_the_server_starts_as_the_deployment_says_and_answers_to_its_names(tmp_path: Path) -> None:
    [container] = read(ROOT / "base" / "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    settings = tmp_path / "kubernetes.yml"
    settings.write_text(read(ROOT / "base" / "settings.yaml")["data"]["kubernetes.yml"])
    arguments = [argument.replace("$(NAMESPACE)", "research") for argument in container["args"]]
    local = {"--host=0.0.0.0": "--host=127.0.0.1", "--port=8000": "--port=0"}  # others use this machine, too
    environment = {**os.environ, "PHALANX_HOME": str(tmp_path / "home"), "PHALANX_KUBERNETES": str(settings)}
    process = subprocess.Popen(
        [COMMAND, *(local.get(argument, argument) for argument in arguments), "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        service = ("phalanx", "phalanx.research", "phalanx.research.svc", "phalanx.research.svc.cluster.local")
        kubelets = ("10.1.2.3", "[fd00::1]")  # ask for the address of the pod
        answers = {
            host: httpx.get(f"{url}/healthz", headers={"Host": f"{host}:8000"}, trust_env=False).status_code
            for host in (*service, *kubelets, "phalanx.elsewhere.svc")
        }
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert answers == {**dict.fromkeys((*service, *kubelets), 200), "phalanx.elsewhere.svc": 421}


def test_services_find_their_pods_and_no_pod_of_a_run() -> None:
    templates = dict(pods())
    for service, pod in (
        ("base/service.yaml", "base/deployment.yaml"),
        ("components/postgres/service.yaml", "components/postgres/statefulset.yaml"),
    ):
        selector = read(ROOT / service)["spec"]["selector"]
        assert selector.items() <= templates[pod]["metadata"]["labels"].items()
        assert any(key.startswith("phalanx.dev/") for key in selector), "which nobody can give to a pod of a run"
        assert (
            read(ROOT / pod)["spec"]["selector"]["matchLabels"].items() <= templates[pod]["metadata"]["labels"].items()
        )


def test_the_database_is_found_where_it_is() -> None:
    service = read(ROOT / "components" / "postgres" / "service.yaml")["metadata"]["name"]
    stateful = read(ROOT / "components" / "postgres" / "statefulset.yaml")
    assert stateful["spec"]["serviceName"] == service
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    made = {variable["name"]: variable for variable in container["env"]}
    [server] = read(ROOT / "components" / "postgres" / "server.yaml")["spec"]["template"]["spec"]["containers"]
    used = {variable["name"]: variable for variable in server["env"]}
    user, database = made["POSTGRES_USER"]["value"], made["POSTGRES_DB"]["value"]
    assert used["PHALANX_DATABASE"]["value"] == f"postgresql://{user}@{service}/{database}"
    assert used["PGPASSWORD"]["valueFrom"] == made["POSTGRES_PASSWORD"]["valueFrom"]


def test_no_secret_is_written_here() -> None:
    for file in (*MANIFESTS, *ROOT.rglob("kustomization.yaml")):
        assert "kind: Secret" not in file.read_text()
        assert not re.search(r"(?i)password: \S|://[^/\s:]+:[^@\s]+@", file.read_text()), file


def test_the_image_has_what_the_server_needs_here() -> None:
    text = (ROOT.parent / "Containerfile").read_text()
    assert "[kubernetes,postgres,series]" in text
    user = re.search(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    assert user is not None
    spec = read(ROOT / "base" / "deployment.yaml")["spec"]["template"]["spec"]
    context = spec["securityContext"]
    assert [str(context[key]) for key in ("runAsUser", "runAsGroup")] == [user[1], user[2]]
    assert context["fsGroup"] == context["runAsGroup"]


# docs/clusters/kubernetes.md ------------------------------------------------------------------------------------------


def test_the_page_shows_settings_that_are_read_and_names_every_one(tmp_path: Path) -> None:
    page = (ROOT.parent.parent / "docs" / "clusters" / "kubernetes.md").read_text()
    (shown,) = re.findall(r"<!-- tested: settings -->\n```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "kubernetes.yml").write_text(shown)
    found = find(tmp_path, {})
    assert found.namespace == "research"
    assert found.stores["imagenet"].is_read_only
    part = page[page.index("## Settings\n") : page.index("## Inspect a cluster")]
    for name in Settings._fields:
        assert re.search(rf"^{name}:|`{name}`", part, re.MULTILINE), name


def test_the_page_names_every_field_that_a_file_may_say() -> None:
    page = (ROOT.parent.parent / "docs" / "clusters" / "kubernetes.md").read_text()
    words = set(re.findall(r"[a-z_]+", page))
    assert set(KUBERNETES.fields) - {"restart_policy", "scheduler"} <= words
