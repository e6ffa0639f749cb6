"""No text of a user's breaks a name, a label, a variable or a shell line; and what must arrive unchanged does."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx import backends, plan, spec
from phalanx.backends.kubernetes.render import names
from phalanx.backends.kubernetes.target import ClusterTarget
from phalanx.errors import CallError, SpecErrors
from phalanx.stored_plan import parse_plan
from tests.backends.kubernetes.operator_objects import templates_of
from tests.backends.kubernetes.schemas import faults_of
from tests.examples import examples

HOSTILE = (
    "'; rm -rf / #",
    '"$(reboot)"',
    "`id`",
    "${HOME}",
    "$(HOME) $$(HOME) $",
    "line\nbreak",
    "tab\there",
    "- yaml: [1",
    "{{ not }} {% a %} template",
    "\u202egnp.exe",
    "😀" * 40,
    "x" * 10_000,
    "::phalanx {}",
    "null",
    "0123",
    "../../etc/passwd",
    "-n",
    "",
)
TEXT = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), max_size=80),
)
NAME = st.from_regex(r"[A-Za-z0-9_][-A-Za-z0-9_]{0,90}", fullmatch=True)
VARIABLE = st.from_regex(r"[A-Z_][A-Z0-9_]{0,20}", fullmatch=True)
FAST = examples(25)


def raw(text: str) -> str:
    """So that a template leaves it alone."""
    return "{% raw %}" + text + "{% endraw %}"


def objects_of(document: dict[str, Any], backend: str) -> list[dict[str, Any]] | None:
    """None: it was refused, in words."""
    try:
        loaded = spec.load([("p.yml", yaml.safe_dump(document, allow_unicode=True).encode())])
        job = backends.find(backend).render(plan.make(loaded, "run-1", "pro ject/ü"), ClusterTarget())
    except (SpecErrors, CallError):
        return None
    assert job.completed is not None
    printed = [one for one in yaml.load_all(job.completed(None).files["manifests.yaml"], yaml.CSafeLoader) if one]
    skeleton: list[dict[str, Any]] = json.loads(job.files["manifests.json"])
    for owner in (printed[0], skeleton[0]):  # but for who listens
        owner["data"]["place.json"] = json.dumps({**json.loads(owner["data"]["place.json"]), "courier": ""})
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in printed}
    for one in skeleton:
        assert by_name[one["kind"], one["metadata"]["name"]] == one, "YAML reads as what was rendered"
    return skeleton


def document_of(backend: str, **environment: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "kind": "experiment",
        "framework": "pytorch",
        "backend": "kubeflow" if backend == "kubeflow" else "native",
        "environment": {"replicas": {"n_workers": 2}, **environment},
        "run": {"cmd": "python train.py"},
    }


@pytest.mark.parametrize("backend", ["kubernetes", "kubeflow"])
@FAST
@given(
    name=NAME,
    labels=st.dictionaries(st.one_of(NAME, TEXT), TEXT, max_size=3),
    annotations=st.dictionaries(st.one_of(NAME, TEXT), TEXT, max_size=3),
    variables=st.dictionaries(VARIABLE, TEXT, max_size=3),
)
@example(name="a" * 91, labels={"a/b/c": "x"}, annotations={}, variables={"A": "$(HOME) $$(B) $"})
@example(name="_", labels={"team": "ü ü"}, annotations={"x" * 70: "1"}, variables={"PHALANX_RUN_ID": "other"})
@example(
    name="x", labels={"phalanx.dev/run": "other"}, annotations={}, variables={"PATH": "", "MY_TOKEN": "hush\nhush"}
)
@pytest.mark.slow
def test_every_rendering_is_valid_or_refused(
    backend: str, name: str, labels: dict[str, str], annotations: dict[str, str], variables: dict[str, str]
) -> None:
    document = document_of(
        backend,
        labels={key: raw(value) for key, value in labels.items()},
        annotations={key: raw(value) for key, value in annotations.items()},
        env_vars=[[key, raw(value)] for key, value in variables.items()],
    )
    objects = objects_of({**document, "name": name}, backend)
    if objects is None:
        return
    assert faults_of(objects) == []
    templates = [template for one in objects for template in templates_of(one)]
    assert all(template["metadata"]["labels"]["phalanx.dev/run"] == "run-1" for template in templates)


@pytest.mark.parametrize("text", [text for text in HOSTILE if text and "\n" not in text])
@pytest.mark.parametrize("backend", ["kubernetes", "kubeflow"])
def test_values_and_words_arrive_unchanged(backend: str, text: str) -> None:
    document = document_of(backend, env_vars=[["SAID", raw(text)]])
    document["params"] = {"said": text.replace("{{", "{ {").replace("{%", "{ %")}
    objects = objects_of(document, backend)
    assert objects is not None
    plan = parse_plan(gzip.decompress(base64.b64decode(objects[0]["binaryData"]["plan.json.gz"])))
    assert plan.replicas[0].environment["SAID"] == text or plan.environment.get("SAID") == text
    for one in objects:
        for template in templates_of(one):
            for container in template["spec"]["containers"]:
                said = [entry["value"] for entry in container["env"] if entry["name"] == "SAID" and "value" in entry]
                assert all(_as_the_kubelet_reads(value) == text for value in said)
                assert container["command"][:2] == ["/bin/sh", "/phalanx/job/start.sh"]


def _as_the_kubelet_reads(text: str) -> str:
    """It replaces `$(NAME)` of what it knows, and reads `$$` as one `$`: in our texts there is nothing to replace."""
    out, at = "", 0
    while at < len(text):
        if text.startswith("$$", at):
            out, at = out + "$", at + 2
            continue
        assert not text.startswith("$(", at), text
        out, at = out + text[at], at + 1
    return out


@FAST
@given(st.lists(TEXT, min_size=1, max_size=4))
@example(["worker", "1"])
@example(["WORKER", "1"])
@example(["--", ""])
def test_names_are_valid_and_those_of_different_things_differ(parts: list[str]) -> None:
    name = names.object_name("phalanx", *parts)
    assert len(name) <= 57  # a Job adds the index of its pods
    assert (
        faults_of(
            [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"phalanx.dev/run": "r"}}}]
        )
        == []
    )
    other = names.object_name("phalanx", *parts[:-1], f"{parts[-1]}x")
    assert other != name


def test_the_shell_line_of_a_pod_has_no_text_of_a_users() -> None:
    plain, hostile = (
        objects_of({**document_of("kubernetes"), "name": name, "run": {"cmd": command}}, "kubernetes")
        for name, command in (("a", "python a.py"), ("b", "python b.py; rm -rf '$(HOME)' `id`"))
    )
    assert plain is not None
    assert hostile is not None
    assert plain[0]["data"]["start.sh"] == hostile[0]["data"]["start.sh"]
