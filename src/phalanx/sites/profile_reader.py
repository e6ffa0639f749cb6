"""Reads site profiles: small YAML files with the nodes, limits and policy of one site. Text to Site."""

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
_SENTENCE = TextShape(pattern=rf"{_PRINTED}{{1,500}}\Z", what="one line of text")
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
    """A factory for a value of the model, whose field names include units."""

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
            findings.error(child, f"`{name[:60]}` is not a valid GPU type", at_key=True)


NODES = RecordShape(
    "a kind of nodes",
    {
        "count": Field(_SOME, "Number of such nodes."),
        "cpus": Field(_SOME, "number of cores available to jobs", required=True),
        "memory": Field(_MEMORY, "memory available to jobs", required=True),
        "gpus": Field(_COUNT, "Number of GPUs per node."),
        "gpu_type": Field(_WORD, "The GPU type, as Slurm names it."),
        "other_gpus": Field(MapOf(_COUNT), "Further GPU types in the same node, each with its number."),
        "features": Field(_WORDS, "Features, for constraints."),
        "partitions": Field(_WORDS, "The partitions of these nodes."),
    },
    _node,
    _gpus_are_named,
)
PARTITION = RecordShape(
    "a partition",
    {
        "name": Field(_WORD, "the partition's name", required=True),
        "max_time": Field(_TIME, "The longest job."),
        "default": Field(Boolean(), "The default partition for jobs that set none."),
        "default_time": Field(_TIME, "The time limit of a job that sets none."),
        "min_time": Field(_TIME, "The shortest job, if different from the rest of the site."),
        "max_nodes": Field(_SOME, "Maximum number of nodes per job."),
        "up": Field(Boolean(), "Whether it accepts jobs. Default: true."),
        "whole_nodes": Field(Boolean(), "Jobs get whole nodes."),
        "accounts": Field(_WORDS, "The only accounts that may use it."),
        "qos": Field(_WORDS, "The only qualities of service that may use it."),
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
        "cpus": Field(Number(low=0, above_low=True), "Number of cores per GPU."),
        "memory": Field(_MEMORY, "Memory per GPU."),
        "mig": Field(Boolean(), "It is a GPU slice. Implied by names such as `a100_1g.5gb`."),
        "aliases": Field(_WORDS, "Other names."),
    },
    _gpu,
)
QOS = RecordShape(
    "a quality of service",
    {
        "name": Field(_WORD, "its name", required=True),
        "max_time": Field(_TIME, "The longest job."),
        "max_gpus": Field(_COUNT, "Maximum number of GPUs per user, over all jobs."),
        "max_nodes": Field(_COUNT, "Maximum number of nodes per user."),
        "max_cpus": Field(_COUNT, "Maximum number of cores per user."),
    },
    _made(Qos, max_time="max_time_s"),
)
POLICY = RecordShape(
    "policy",
    {
        "time": Field(_NEED, "Whether a job must set a time limit."),
        "min_time": Field(_TIME, "The shortest job allowed."),
        "wanted_time": Field(_TIME, "The shortest job preferred, except tests."),
        "max_time": Field(_TIME, "The longest job, in any partition."),
        "time_steps": Field(ListOf(_TIME), "Time limits below which a job can run on more nodes."),
        "account": Field(_NEED, "Whether a job must set an account."),
        "accounts": Field(_WORDS, "The accounts that you may use."),
        "partition": Field(TextShape(choices=PARTITION_RULES), "Whether a job may or must set a partition."),
        "gpu_type": Field(_NEED, "Whether a job must set the GPU type."),
        "gpu_option": Field(TextShape(choices=GPU_OPTIONS), "The option that requests GPUs. Default: gpus-per-node."),
        "gpu_multiple": Field(_SOME, "A job must have one GPU or a multiple of this number."),
        "one_mig_per_job": Field(Boolean(), "A job may have only one GPU slice."),
        "whole_nodes": Field(Boolean(), "Jobs get whole nodes with all their GPUs."),
        "heterogeneous_jobs": Field(Boolean(), "Whether heterogeneous jobs are allowed."),
        "default_memory": Field(_MEMORY, "Memory per core of a job that requests none."),
        "max_jobs": Field(_COUNT, "Maximum number of running jobs per user."),
        "max_submitted": Field(_COUNT, "Maximum number of running and pending jobs per user."),
        "submit_interval": Field(_TIME, "Minimum time between two submissions."),
    },
    dict,
)
PROFILE = RecordShape(
    "a site's profile",
    {
        "name": Field(_WORD, "the name of the site, as passed to `--site`", required=True),
        "title": Field(_SENTENCE, "A title for people."),
        "date": Field(_DATE, "When these facts were collected."),
        "source": Field(_SENTENCE, "Source of the facts."),
        "nodes": Field(ListOf(NODES), "Kinds of nodes."),
        "partitions": Field(ListOf(PARTITION), "Partitions."),
        "gpu_types": Field(ListOf(GPU_TYPE), "GPU types, with their share of cores and memory."),
        "qos": Field(ListOf(QOS), "Qualities of service."),
        "policy": Field(POLICY, "Rules of the site for jobs."),
        "internet": Field(Boolean(), "Whether nodes have internet access."),
        "node_ssh": Field(Boolean(), "Whether users can log in to the nodes of their jobs with ssh. Default: true."),
        "scratch": Field(_VARIABLE, "The variable that holds the path of node-local storage."),
        "writable": Field(
            ListOf(_VARIABLE, lone=True), "Variables that hold the only folders that nodes can write to."
        ),
        "interface": Field(
            TextShape(pattern=r"[A-Za-z0-9_.:-]{1,32}\Z", what="the name of a network interface"),
            "The network interface common to all nodes.",
        ),
        "wheelhouse": Field(ListOf(_FOLDER, lone=True), "Folders of wheels for this site."),
        "modules": Field(ListOf(_MODULE, lone=True), "Modules to load to get Python, in this order."),
        "notes": Field(ListOf(_SENTENCE, lone=True), "Further notes."),
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
    """The site of a profile. Raises SpecErrors with every error found."""
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
    """Reword an error of the polyaxonfile reader for a profile."""
    hint = error.suggestion
    if hint and "phalanx init" in hint:
        hint = "`phalanx site init` writes a profile of this cluster"
    words = error.message.replace("a polyaxonfile", "a profile").replace("polyaxonfile", "profile")
    return SpecError(error.place, error.path, words.replace("`version: 1`", "`name: mycluster`"), hint)


def _partitions_are_known(root: Node, findings: Diagnostics) -> None:
    """Report nodes in an unknown partition: probably a typo."""
    described = [entry.get("name") for entry in root.items("partitions")]
    names = [str(name.value) for name in described if name is not None]
    for number, name in enumerate(names):
        if name in names[:number]:
            findings.error(root.items("partitions")[number], f"the partition `{name}` is duplicated")
    if not names:
        return
    for node in root.items("nodes"):
        listed = node.get("partitions")
        for entry in (listed.elements or [listed]) if listed is not None else ():
            if isinstance(entry.value, str) and entry.value not in names:
                hint = did_you_mean(entry.value, names)
                findings.error(entry, f"`partitions` has no partition `{entry.value[:60]}`", hint)


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
