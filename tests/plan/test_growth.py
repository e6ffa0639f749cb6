"""The cost of a plan grows with the number of its replicas, and not with their square. Counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from phalanx import backends, plan, spec
from phalanx.errors import CallError
from phalanx.plan import Plan
from phalanx.plan.document import PlanView, document, document_text
from phalanx.stored_plan import parse_plan
from tests.plan.samples import distributed

FRAMEWORKS = ("tensorflow", "mxnet", "pytorch", "horovod", "jax", "xgboost", "deepspeed", "plain", "mpi")
SMALL = 30
TOLERANCE = 1.25  # for longer numbers, and dictionaries that grow


def run_of(framework: str, replicas: int) -> spec.Spec:
    backend = "backend: kubeflow\n" if framework == "mpi" else ""
    text = f"version: 1\nkind: experiment\nframework: {framework}\n{backend}"
    text += f"environment: {{replicas: {{n_workers: {replicas}, n_ps: {1 if framework == 'mxnet' else 0}}}}}\n"
    return spec.load([("file", f"{text}run: {{cmd: python train.py}}\n".encode())])


def counted(work: Callable[[], Any]) -> tuple[int, Any]:
    """The number of calls that the work makes, and its result."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return calls, result


def rendered(framework: str, replicas: int, backend: str) -> dict[str, int]:
    """What a job of so many replicas costs."""
    loaded = run_of(framework, replicas)
    there = backends.find(backend)
    calls, files = counted(lambda: there.render(plan.make(loaded, "r-1")).files)
    return {"calls": calls, "bytes": sum(map(len, files.values())), "largest": max(map(len, files.values()))}


REFUSED = {("kubernetes", "mpi"), ("kubeflow", "mxnet"), ("kubeflow", "plain")}


@pytest.mark.parametrize("backend", ["local", "slurm", "kubernetes", "kubeflow"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_cost_of_a_job_grows_linearly_with_its_replicas(framework: str, backend: str) -> None:
    if (backend, framework) in REFUSED:
        with pytest.raises(CallError):
            rendered(framework, SMALL, backend)
        return
    rendered(framework, SMALL, backend)  # imports, caches
    one, two, four = (rendered(framework, SMALL * times, backend) for times in (1, 2, 4))
    for what in one:
        first, second = two[what] - one[what], four[what] - two[what]
        assert second <= 2 * first * TOLERANCE + 64, (what, one, two, four)


def test_a_plan_of_many_replicas_is_written_and_read_with_few_bytes_for_each() -> None:
    sizes = {}
    for count in (100, 1100):
        made = distributed("tensorflow", n_workers=count)
        text = document_text(document(made))
        sizes[count] = len(text)
        assert [replica.name for replica in parse_plan(text.encode()).replicas] == [one.name for one in made.replicas]
    assert (sizes[1100] - sizes[100]) / 1000 < 120


def test_the_view_for_people_does_not_repeat_all_addresses_in_every_replica() -> None:
    small, large = (len(str(PlanView(distributed("tensorflow", n_workers=n)).as_json())) for n in (300, 600))
    assert large < 2.2 * small


def reference(made: Plan) -> list[tuple[str, dict[str, Any]]]:
    return [(replica.name, dict(replica.environment)) for replica in made.replicas]


def test_a_framework_that_wires_each_member_by_itself_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from phalanx.plan.frameworks import Framework, Wiring, plain

    alone = Framework(lambda _: Wiring(own=lambda member: {"MY_SQUARE": str(member.rank**2)}))
    monkeypatch.setattr(plain, "FRAMEWORK", alone)
    made = distributed("plain", n_workers=3)
    found = parse_plan(document_text(document(made)).encode())
    assert [replica.environment["MY_SQUARE"] for replica in found.replicas] == ["0", "1", "4", "9"]
    assert [(replica.name, dict(replica.environment)) for replica in found.replicas] == reference(made)
