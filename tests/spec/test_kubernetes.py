"""`environment.kubernetes`: how pods shall be, and what may be laid over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from phalanx.spec import load_document
from phalanx.spec.cluster_fields import KUBERNETES
from phalanx.spec.model import KubernetesOptions, thaw
from phalanx.spec.pod_templates import CONTAINERS, SPEC, TemplatePart
from phalanx.spec.yaml_writer import modern_document
from tests.spec.helpers import EXPERIMENT, errors_of, load_text

WHOLE: dict[str, Any] = {
    "queue": "team-a",
    "gang": "scheduler-plugins",
    "priority_class": "high",
    "scheduler": "volcano",
    "code": "git",
    "repository": "https://git.example/team/project.git",
    "revision": "v1.2",
    "shm": "2Gi",
    "ttl": "24h",
    "peers": "30m",
    "give_up": "5m",
    "node_timeout": "1m",
    "restart_policy": "OnFailure",
    "min_workers": 1,
    "max_workers": 4,
    "runtime": "torch-distributed",
    "pod": {"spec": {"containers": [{"name": "phalanx", "tty": True}]}},
}


def section(**kubernetes: Any) -> str:
    return f"{EXPERIMENT}environment:\n  kubernetes: {json.dumps(kubernetes)}\nrun: {{cmd: x}}\n"


def faults(**kubernetes: Any) -> dict[str, str]:
    """The messages, by what stands below `environment.kubernetes`."""
    return {
        error.path.removeprefix("environment.kubernetes."): f"{error.message} ({error.suggestion})"
        for error in errors_of(section(**kubernetes))
    }


def read(**kubernetes: Any) -> KubernetesOptions:
    return load_text(section(**kubernetes)).environment.kubernetes


def test_every_field_is_read() -> None:
    found = read(**WHOLE)
    assert (found.shm_mib, found.ttl_s, found.peers_s, found.give_up_s) == (2048, 86_400, 1_800, 300)
    assert found.node_timeout_s == 60
    assert found.gang == "scheduler-plugins"
    assert found.max_workers == 4
    assert thaw(found.pod) == WHOLE["pod"]
    assert read(code_claim="c", code_path="a/b").code_path == "a/b"
    named = {*WHOLE, "code_claim", "code_path"}
    assert set(KUBERNETES.fields) == named
    assert {name.removesuffix("_s").removesuffix("_mib") for name in KubernetesOptions._fields} == named


def test_a_file_without_it_says_nothing() -> None:
    assert load_text(f"{EXPERIMENT}run: {{cmd: x}}\n").environment.kubernetes == KubernetesOptions()


def test_it_is_written_as_it_was_read() -> None:
    first = load_text(section(**WHOLE))
    document = modern_document(first)
    assert document["environment"]["kubernetes"] == WHOLE
    assert load_document("again.yml", document).environment == first.environment


@pytest.mark.parametrize(
    ("written", "path", "words"),
    [
        ({"queu": "a"}, "queu", "did you mean `queue`"),
        ({"queue": "Team A"}, "queue", "small letters"),
        ({"gang": "slurm"}, "gang", "one of kueue, volcano"),
        ({"code": "svn"}, "code", "one of auto, bundle, git, volume, image"),
        ({"code": "git"}, "repository", "requires `repository`"),
        ({"code": "volume"}, "code_claim", "requires `code_claim`"),
        ({"code": "image", "repository": "https://x/y"}, "repository", "requires `code: git`"),
        ({"code_claim": "c", "repository": "https://x/y"}, "repository", "exclude each other"),
        ({"repository": "https://me:hunter2@x/y"}, "repository", "a password in the address"),
        ({"repository": "--upload-pack=touch"}, "repository", "the address of a Git repository"),
        ({"repository": "https://x/y", "revision": "--help"}, "revision", "a branch, a tag or a commit"),
        ({"code_claim": "c", "code_path": "../../etc"}, "code_path", "without `..`"),
        ({"code_claim": "c", "code_path": "a/.."}, "code_path", "without `..`"),
        ({"code_claim": "c", "code_path": "a\n"}, "code_path", "without `..`"),
        ({"code_claim": "c\n"}, "code_claim", "small letters"),
        ({"queue": "a" * 254}, "queue", "small letters"),
        ({"shm": "much"}, "shm", "an amount of memory"),
        ({"ttl": "later"}, "ttl", "a time"),
        ({"restart_policy": "Perhaps"}, "restart_policy", "one of Never"),
        ({"min_workers": 3, "max_workers": 2}, "min_workers", "`min_workers` (3) is above `max_workers` (2)"),
        ({"pod": "x"}, "pod", "expected a map"),
        ({"pod": {"apiVersion": "v1", "spec": {}}}, "pod.apiVersion", "unknown field `apiVersion`"),
        ({"pod": {"nodeSelecter": {}}}, "pod.nodeSelecter", "did you mean `nodeSelector`"),
        ({"pod": {"metadata": {"name": "x"}}}, "pod.metadata.name", "unknown field `name` of `metadata`"),
        ({"pod": {"spec": {"containers": {}}}}, "pod.spec.containers", "expected a list, found an empty map"),
        ({"pod": {"containers": ["x"]}}, "pod.containers[0]", "expected a map with the fields of a container"),
        ({"pod": {"containers": [{"tty": True}]}}, "pod.containers[0].name", "needs `name`"),
        ({"pod": {"volumes": [{"name": "a", "nsf": {}}]}}, "pod.volumes[0].nsf", "did you mean `nfs`"),
        (
            {"pod": {"containers": [{"name": "phalanx", "resources": {"limit": {}}}]}},
            "pod.containers[0].resources.limit",
            "did you mean `limits`",
        ),
        (
            {"pod": {"volumes": [{"name": "a", "$patch": "replace"}]}},
            "pod.volumes[0].$patch",
            "replaces the whole list",
        ),
        ({"pod": {"volumes": [{"name": "a", "$patch": "remove"}]}}, "pod.volumes[0].$patch", "one of delete"),
    ],
)
def test_a_fault_is_reported_at_its_place(written: dict[str, Any], path: str, words: str) -> None:
    found = faults(**written)
    assert list(found) == [path]
    assert words in found[path]


def test_all_faults_are_reported_at_once() -> None:
    assert len(faults(queue="A B", ttl="x", pod={"a": 1, "containers": [{"nam": "x", "name": "y"}]})) == 4


def test_null_takes_away_and_is_no_fault() -> None:
    assert thaw(read(pod={"securityContext": None, "tolerations": None}).pod) == {
        "securityContext": None,
        "tolerations": None,
    }


def test_words_of_a_patch_are_known_everywhere() -> None:
    pod = {"volumes": [{"$patch": "replace"}], "securityContext": {"$patch": "replace", "$retainKeys": ["fsGroup"]}}
    assert faults(pod=pod) == {}


def test_a_repository_by_ssh_or_folder_is_one() -> None:
    for address in ("git@git.example:team/project.git", "ssh://git@host/x", "/srv/git/project.git"):
        assert read(repository=address).repository == address


SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / "v1.37.0-local-strict"


@pytest.mark.parametrize(
    ("part", "schema"),
    [
        (SPEC, "podspec"),
        (CONTAINERS, "container"),
        (CONTAINERS.fields["env"], "envvar"),
        (CONTAINERS.fields["ports"], "containerport"),
        (CONTAINERS.fields["volumeMounts"], "volumemount"),
        (CONTAINERS.fields["resources"], "resourcerequirements"),
        (CONTAINERS.fields["securityContext"], "securitycontext"),
        (CONTAINERS.fields["livenessProbe"], "probe"),
        (CONTAINERS.fields["lifecycle"], "lifecycle"),
        (CONTAINERS.fields["envFrom"], "envfromsource"),
        (SPEC.fields["volumes"], "volume"),
        (SPEC.fields["securityContext"], "podsecuritycontext"),
        (SPEC.fields["tolerations"], "toleration"),
        (SPEC.fields["topologySpreadConstraints"], "topologyspreadconstraint"),
        (SPEC.fields["affinity"], "affinity"),
        (SPEC.fields["dnsConfig"], "poddnsconfig"),
        (SPEC.fields["hostAliases"], "hostalias"),
        (SPEC.fields["resourceClaims"], "podresourceclaim"),
        (SPEC.fields["readinessGates"], "podreadinessgate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_fields_are_those_of_kubernetes(part: TemplatePart, schema: str) -> None:
    known = json.loads((SCHEMAS / f"{schema}-v1.json").read_text())["properties"]
    assert set(part.fields) == set(known)
