"""Profiles: small YAML files that say what one site has, allows and asks for. Text to Site."""

from __future__ import annotations

import re
from typing import Any

from phalanx.errors import SpecError, SpecErrors
from phalanx.sites.model import (
    GPU_OPTIONS,
    PARTITION_RULES,
    REQUIRED,
    GpuKind,
    NodeKind,
    Partition,
    Qos,
    Site,
    is_slice,
)
from phalanx.spec import quantities
from phalanx.spec.shapes import INVALID, Boolean, Field, ListOf, MapOf, Number, Quantity, RecordShape, TextShape
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node
from phalanx.spec.yaml_reader import decode, read

WHEELHOUSE_JOINT = ":"

_PRINTED = r"[^\x00-\x1f\x7f\x80-\x9f]"
_NAME = r"[A-Za-z0-9_.@+:-]{1,200}\Z"
_WORD = TextShape(pattern=_NAME, what="a name without spaces or quotes", numbers=True)
_WORDS = ListOf(_WORD, lone=True, unique=True)
_SENTENCE = TextShape(pattern=rf"{_PRINTED}{{1,500}}\Z", what="a text of one line")
_VARIABLE = TextShape(pattern=r"[A-Za-z_][A-Za-z0-9_]*\Z", what="the name of an environment variable, without `$`")
_FOLDER = TextShape(
    pattern=r"/[^\x00-\x1f\x7f'\"`\\$:]*\Z", what="the whole path of a folder, without quotes, `$` or `:`"
)
_MODULE = TextShape(pattern=r"[A-Za-z0-9_.+][A-Za-z0-9_.+/-]{0,200}\Z", what="the name of a module", numbers=True)
_DATE = TextShape(pattern=r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", what="a date as 2026-01-31")
_COUNT = Number(low=0, high=10_000_000, whole=True)
_SOME = Number(low=1, high=10_000_000, whole=True)
_TIME = Quantity(quantities.seconds, 'a time (seconds, or "90m", "1d12h")')
_MEMORY = Quantity(quantities.memory_mib, 'an amount of memory (a bare number is MiB; "2Gi", "512Mi")')
_NEED = TextShape(choices=("optional", REQUIRED))


def _made(kind: Any, **names: str) -> Any:
    """Makes a value of the model, in whose fields units stand."""

    def make(**values: Any) -> Any:
        return kind(**{names.get(key, key): value for key, value in values.items()})

    return make


def _node(**values: Any) -> NodeKind:
    values["memory_mib"] = values.pop("memory")
    values["other_gpus"] = tuple(values.pop("other_gpus", {}).items())
    return NodeKind(count=values.pop("count", None), **values)


def _gpu(**values: Any) -> GpuKind:
    is_mig = values.pop("mig", None)
    memory_mib = values.pop("memory", None)
    return GpuKind(**values, memory_mib=memory_mib, is_mig=is_slice(values["name"]) if is_mig is None else is_mig)


def _gpus_are_named(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:  # noqa: ARG001
    others = node.get("other_gpus")
    for name, child in (others.entries or {}).items() if others is not None else ():
        if not re.match(_NAME, name):
            findings.error(child, f"`{name[:60]}` cannot name a type of GPU", at_key=True)


NODES = RecordShape(
    "a kind of nodes",
    {
        "count": Field(_SOME, "How many such nodes there are."),
        "cpus": Field(_SOME, "cores that jobs may use", required=True),
        "memory": Field(_MEMORY, "memory that jobs may use", required=True),
        "gpus": Field(_COUNT, "GPUs of a node."),
        "gpu_type": Field(_WORD, "Their type, as Slurm names it."),
        "other_gpus": Field(MapOf(_COUNT), "Further types in the same node, each with its number."),
        "features": Field(_WORDS, "Features, for constraints."),
        "partitions": Field(_WORDS, "The partitions that they are in."),
    },
    _node,
    _gpus_are_named,
)
PARTITION = RecordShape(
    "a partition",
    {
        "name": Field(_WORD, "the partition's name", required=True),
        "max_time": Field(_TIME, "The longest job."),
        "default": Field(Boolean(), "Jobs go here when they name none."),
        "default_time": Field(_TIME, "The time of a job that asks for none."),
        "min_time": Field(_TIME, "The shortest job, where that is not as everywhere on the site."),
        "max_nodes": Field(_SOME, "The most nodes of a job."),
        "up": Field(Boolean(), "It takes jobs; true unless said."),
        "whole_nodes": Field(Boolean(), "Jobs are given whole nodes."),
        "accounts": Field(_WORDS, "The accounts that alone may use it."),
        "qos": Field(_WORDS, "The qualities of service that alone may use it."),
    },
    _made(
        Partition,
        max_time="max_time_s",
        default="is_default",
        default_time="default_time_s",
        min_time="min_time_s",
        up="is_up",
    ),
)
GPU_TYPE = RecordShape(
    "a type of GPU",
    {
        "name": Field(_WORD, "how jobs name it", required=True),
        "cpus": Field(Number(low=0, above_low=True), "The cores that go with one."),
        "memory": Field(_MEMORY, "The memory that goes with one."),
        "mig": Field(Boolean(), "It is a slice of a GPU. Names such as `a100_1g.5gb` say so themselves."),
        "aliases": Field(_WORDS, "Other names of it."),
    },
    _gpu,
)
QOS = RecordShape(
    "a quality of service",
    {
        "name": Field(_WORD, "its name", required=True),
        "max_time": Field(_TIME, "The longest job."),
        "max_gpus": Field(_COUNT, "The most GPUs of a user, over all jobs."),
        "max_nodes": Field(_COUNT, "The most nodes of a user."),
        "max_cpus": Field(_COUNT, "The most cores of a user."),
    },
    _made(Qos, max_time="max_time_s"),
)
POLICY = RecordShape(
    "policy",
    {
        "time": Field(_NEED, "Whether a job must say how long it takes."),
        "min_time": Field(_TIME, "The shortest job that is taken."),
        "wanted_time": Field(_TIME, "The shortest job that is welcome, but for tests."),
        "max_time": Field(_TIME, "The longest job, in any partition."),
        "time_steps": Field(ListOf(_TIME), "Limits below which a job may run on more nodes."),
        "account": Field(_NEED, "Whether a job must name an account."),
        "accounts": Field(_WORDS, "The accounts that you may use."),
        "partition": Field(TextShape(choices=PARTITION_RULES), "Whether a job may, or must, name a partition."),
        "gpu_type": Field(_NEED, "Whether a job must name the type of its GPUs."),
        "gpu_option": Field(TextShape(choices=GPU_OPTIONS), "How GPUs are asked for; gpus-per-node unless said."),
        "gpu_multiple": Field(_SOME, "A job has one GPU, or a multiple of so many."),
        "one_mig_per_job": Field(Boolean(), "A job may have one slice of a GPU, not several."),
        "whole_nodes": Field(Boolean(), "Jobs are given whole nodes, with all their GPUs."),
        "heterogeneous_jobs": Field(Boolean(), "Jobs may have components that ask for different things."),
        "default_memory": Field(_MEMORY, "The memory for each core of a job that asks for none."),
        "max_jobs": Field(_COUNT, "The most jobs of a user that run."),
        "max_submitted": Field(_COUNT, "The most jobs of a user that run or wait."),
        "submit_interval": Field(_TIME, "At least so long between two submissions."),
    },
    dict,
)
PROFILE = RecordShape(
    "a site's profile",
    {
        "name": Field(_WORD, "what the site is called, as `--site` takes it", required=True),
        "title": Field(_SENTENCE, "The same in words."),
        "date": Field(_DATE, "When these facts were looked at."),
        "source": Field(_SENTENCE, "Where they come from."),
        "nodes": Field(ListOf(NODES), "Kinds of nodes."),
        "partitions": Field(ListOf(PARTITION), "Partitions."),
        "gpu_types": Field(ListOf(GPU_TYPE), "Types of GPUs, and what goes with one."),
        "qos": Field(ListOf(QOS), "Qualities of service."),
        "policy": Field(POLICY, "What the site asks of jobs."),
        "internet": Field(Boolean(), "Whether nodes reach the internet."),
        "scratch": Field(_VARIABLE, "The variable with the folder of a node's own storage."),
        "writable": Field(ListOf(_VARIABLE, lone=True), "Variables with the only folders that nodes may write to."),
        "interface": Field(
            TextShape(pattern=r"[A-Za-z0-9_.:-]{1,32}\Z", what="the name of a network interface"),
            "The network interface that all nodes share.",
        ),
        "wheelhouse": Field(ListOf(_FOLDER, lone=True), "Folders with wheels for this site."),
        "modules": Field(ListOf(_MODULE, lone=True), "Modules to load for a Python, in this order."),
        "notes": Field(ListOf(_SENTENCE, lone=True), "Anything else worth knowing."),
    },
    dict,
)
POLICY_NAMES: dict[str, str] = {
    "min_time": "min_time_s",
    "wanted_time": "wanted_time_s",
    "max_time": "max_time_s",
    "time_steps": "time_steps_s",
    "submit_interval": "submit_interval_s",
    "heterogeneous_jobs": "het_jobs",
    "default_memory": "default_memory_mib",
}
NEEDS: dict[str, str] = {"time": "time_required", "account": "account_required", "gpu_type": "gpu_type_required"}


def load(name: str, data: bytes) -> Site:
    """The site of a profile. Raises SpecErrors with every fault that was found."""
    try:
        root = read(decode(name, data))
    except SpecErrors as fault:
        raise SpecErrors(_about_profiles(error) for error in fault.errors) from None
    findings = Diagnostics()
    values = PROFILE.read(root, findings)
    _partitions_are_known(root, findings)
    if findings.errors or values is INVALID:
        raise SpecErrors(findings.errors)
    return _site(values)


def _about_profiles(error: SpecError) -> SpecError:
    """The reader of files speaks of polyaxonfiles."""
    hint = error.suggestion
    if hint and "phalanx init" in hint:
        hint = "`phalanx site init` writes a profile of this cluster"
    words = error.message.replace("a polyaxonfile", "a profile").replace("polyaxonfile", "profile")
    return SpecError(error.place, error.path, words.replace("`version: 1`", "`name: mycluster`"), hint)


def _partitions_are_known(root: Node, findings: Diagnostics) -> None:
    """Nodes in a partition that nobody described are a slip of the pen."""
    described = [entry.get("name") for entry in root.items("partitions")]
    names = [str(name.value) for name in described if name is not None]
    for number, name in enumerate(names):
        if name in names[:number]:
            findings.error(root.items("partitions")[number], f"the partition `{name}` is listed twice")
    if not names:
        return
    for node in root.items("nodes"):
        listed = node.get("partitions")
        for entry in (listed.elements or [listed]) if listed is not None else ():
            if isinstance(entry.value, str) and entry.value not in names:
                hint = did_you_mean(entry.value, names)
                findings.error(entry, f"there is no partition `{entry.value[:60]}` in `partitions`", hint)


def _site(values: dict[str, Any]) -> Site:
    policy: dict[str, Any] = dict(values.pop("policy", {}))
    own: dict[str, Any] = {known: policy.pop(key) == REQUIRED for key, known in NEEDS.items() if key in policy}
    own |= {POLICY_NAMES.get(key, key): value for key, value in policy.items()}
    if "time_steps_s" in own:
        own["time_steps_s"] = tuple(sorted(own["time_steps_s"]))
    if "gpu_types" in values:
        values["gpus"] = values.pop("gpu_types")
    if "wheelhouse" in values:
        values["wheelhouse"] = WHEELHOUSE_JOINT.join(values["wheelhouse"])
    return Site(**values, **own)
