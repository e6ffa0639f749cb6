"""The assumed capabilities of a cluster that is not contacted: the default, or the value of `--assume`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from phalanx.backends.kubernetes.target import Cluster
from phalanx.errors import CallError

NEWEST = (1, 34)
KUBEFLOW, TRAINER = "kubeflow.org", "trainer.kubeflow.org"
POD_GROUPS = {"volcano": "scheduling.volcano.sh/v1beta1", "scheduler-plugins": "scheduling.x-k8s.io/v1alpha1"}
JOB = {"Job": ("batch/v1",)}  # available everywhere
_OPERATOR = {  # the versions of the training operator that have each kind
    "TFJob": ((1, 0), None),
    "PyTorchJob": ((1, 0), None),
    "XGBoostJob": ((1, 0), None),
    "MXJob": ((1, 0), (1, 8)),
    "PaddleJob": ((1, 5), None),
    "JAXJob": ((1, 9), None),
}
_MPI = {"v1": f"{KUBEFLOW}/v1", "v2beta1": f"{KUBEFLOW}/v2beta1"}
_ITEMS = ("kubernetes", "training-operator", "mpi", "trainer", "kueue", "volcano", "scheduler-plugins", "none")
_EXAMPLE = "write for example kubernetes=1.30,training-operator=1.8,mpi=v1,kueue"
Kinds = Mapping[str, tuple[str, ...]]


def _operator(version: tuple[int, int]) -> Kinds:
    """The kinds of the training operator, with its own MPIJob until the MPI operator replaced it."""
    kinds = {
        kind: (f"{KUBEFLOW}/v1",)
        for kind, (first, last) in _OPERATOR.items()
        if first <= version and (last is None or version <= last)
    }
    return {**kinds, "MPIJob": (_MPI["v1" if version < (1, 9) else "v2beta1"],)}


OFFLINE = Cluster(NEWEST, MappingProxyType({**JOB, **_operator((1, 9))}))


def assumed(text: str) -> Cluster:
    """Parse `training-operator=1.8,mpi=v1,kubernetes=1.25,kueue`. If operators are named, the cluster has only these;
    `none` means none; without any, it has the usual ones. Raises CallError."""
    said = dict(_items(text))
    if not said:
        raise CallError(f"--assume is empty: {_EXAMPLE}")
    gangs = [name for name in ("kueue", "volcano", "scheduler-plugins") if name in said]
    if len(gangs) > 1:
        raise CallError(f"--assume: {' and '.join(gangs)}: name only one gang scheduler")
    if "none" in said and (named := [name for name in ("training-operator", "mpi", "trainer") if name in said]):
        raise CallError(f"--assume: `none` means no operator, and `{named[0]}` is one")
    version = _version("kubernetes", said["kubernetes"]) if "kubernetes" in said else NEWEST
    kinds = {**JOB, **_operators(said)}
    if gangs and gangs[0] in POD_GROUPS:
        kinds["PodGroup"] = (POD_GROUPS[gangs[0]],)
    queues = tuple(filter(None, said.get("kueue", "").split("+")))
    return Cluster(version, MappingProxyType(kinds), gangs[0] if gangs else None, queues)


def _items(text: str) -> Iterator[tuple[str, str]]:
    seen = set()
    for item in filter(None, (word.strip() for word in text.split(","))):
        name, equals, value = (word.strip() for word in item.partition("="))
        if name not in _ITEMS:
            close = get_close_matches(name, _ITEMS, 1)
            hint = f"do you mean `{close[0]}`?" if close else f"choose from: {', '.join(_ITEMS)}"
            raise CallError(f"--assume: unknown item `{name[:60]}`; {hint}")
        if name in seen:
            raise CallError(f"--assume: `{name}` is given twice")
        if equals and not value:
            raise CallError(f"--assume: `{name}=` needs a value: {_EXAMPLE}")
        if value and name in ("none", *POD_GROUPS):
            raise CallError(f"--assume: `{name}` takes no version: remove `={value[:60]}`")
        if not value and name == "kubernetes":
            raise CallError("--assume: name a version, such as kubernetes=1.30")
        seen.add(name)
        yield name, value


def _operators(said: Mapping[str, str]) -> Kinds:
    makers: dict[str, Callable[[str], Kinds]] = {
        "training-operator": lambda value: _operator(_version("training-operator", value or "1.9")),
        "mpi": lambda value: {"MPIJob": (_mpi(value or "v2beta1"),)},
        "trainer": _trainer,
    }
    if not {*makers, "none"} & said.keys():
        return _operator((1, 9))
    kinds: dict[str, tuple[str, ...]] = {}
    for name, make in makers.items():
        if name in said:
            kinds |= make(said[name])
    return kinds


def _mpi(value: str) -> str:
    if value not in _MPI:
        raise CallError(f"--assume: mpi={value[:60]}: use v1 or v2beta1")
    return _MPI[value]


def _trainer(value: str) -> Kinds:
    if value and not value.removeprefix("v").startswith("2"):
        raise CallError(f"--assume: trainer={value[:60]}: Trainer starts at version 2; use `training-operator` for 1.x")
    return {"TrainJob": (f"{TRAINER}/v1alpha1",)}


def _version(name: str, text: str) -> tuple[int, int]:
    """Parse `1.30` or `v1.30.2`."""
    parts = text.removeprefix("v").split(".")
    if not 2 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() and len(part) < 5 for part in parts):
        raise CallError(
            f"--assume: {name}={text[:60]}: write a version such as {'1.30' if name == 'kubernetes' else '1.8'}"
        )
    found = int(parts[0]), int(parts[1])
    if found[0] != 1:
        more = "; use `trainer` for 2.x" if name == "training-operator" else ""
        raise CallError(f"--assume: {name}={text[:60]}: only versions 1.x exist{more}")
    return found
