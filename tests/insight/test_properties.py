"""What holds for any advice, whatever the file and whatever was used."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from phalanx import plan, spec
from phalanx.ends import Cause
from phalanx.insight.advice import ReplicaKey, advise
from phalanx.insight.resource_edits import changed
from phalanx.insight.usage import GpuUsage, ReplicaUsage
from phalanx.spec.yaml_writer import to_yaml
from phalanx.stored_plan import PlannedReplica, ResourceAmount
from tests.examples import examples
from tests.insight.samples import file, planned, seen

AMOUNTS = st.one_of(
    st.integers(0, 64).map(lambda low: {"requests": low, "limits": low}),
    st.integers(0, 64).map(lambda low: {"requests": low, "limits": low + 7}),
    st.integers(0, 64).map(lambda low: {"requests": low}),
    st.integers(0, 64).map(lambda high: {"limits": high}),
)
RESOURCES = st.fixed_dictionaries({}, optional=dict.fromkeys(("cpu", "memory", "gpu", "tpu"), AMOUNTS))
SETTINGS = st.fixed_dictionaries({}, optional={"resources": RESOURCES, "env_vars": st.just([["A", "1"]])})
CAUSES = st.sampled_from(Cause)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    environment: dict[str, Any] = draw(SETTINGS)
    if draw(st.booleans()):
        environment["timeout"] = draw(st.sampled_from(["90s", "1h", "3d"]))
    if not draw(st.booleans()):
        return file(environment)
    framework = draw(st.sampled_from(["pytorch", "tensorflow", "mxnet", "plain"]))
    replicas: dict[str, Any] = {"processes": 1} if framework == "pytorch" else {}
    counted = {"worker": "n_workers", **({} if framework == "pytorch" else {"ps": "n_ps"})}
    for key, name in counted.items():
        replicas[name] = count = draw(st.integers(1, 4))
        if draw(st.booleans()):
            replicas[f"default_{key}"] = draw(SETTINGS)
        listed = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count))
        replicas[key] = [{"index": index, **draw(SETTINGS)} for index in listed]
    return file({**environment, "replicas": replicas}, framework=framework)


@st.composite
def uses(draw: st.DrawFn) -> ReplicaUsage:
    seconds = draw(st.floats(0.1, 1e6))
    p95 = draw(st.floats(0, 128))
    memory = draw(st.one_of(st.none(), st.floats(0.1, 1e6)))
    gpus = draw(st.integers(1, 8))
    active = draw(st.integers(0, gpus))
    mean = draw(st.floats(0, 100)) if active else 0.0
    gpu = GpuUsage(gpus, active, mean, max(mean, 1.0), draw(st.floats(0, 8e4)), 8e4, draw(st.integers(1, 50)))
    return ReplicaUsage(
        seconds=seconds,
        held_s=seconds * 2,
        cpu_s=p95 * seconds,
        cores_mean=p95 / 2,
        cores_p95=p95,
        memory_mib=memory,
        memory_mean_mib=memory or 0.0,
        gpu=draw(st.sampled_from([None, gpu])),
        causes=draw(st.sampled_from([(), (draw(CAUSES),)])),
        message="so",
        attempts=2,
        looks=10,
    )


def asked(document: dict[str, Any]) -> dict[ReplicaKey, PlannedReplica]:
    return {(one.role, one.number): one for one in planned(document).replicas if not one.local}


def covers(amount: ResourceAmount, used: float) -> bool:
    """Every bound that is named is enough."""
    return all(bound is None or bound >= used for bound in amount)


def devices(amount: ResourceAmount) -> float:
    named = [bound for bound in amount if bound is not None]
    return float(min(named, default=0))


@examples(100)
@given(st.data())
def test_advice_gives_a_file_that_loads_and_asks_for_no_less_than_was_used(data: st.DataObject) -> None:
    document = data.draw(files())
    members = list(asked(document))
    known = {member: data.draw(uses()) for member in members if data.draw(st.integers(0, 9))}
    status = data.draw(st.sampled_from(["succeeded", "failed", "stopped", "running"]))
    is_batch = data.draw(st.booleans())
    advice = advise(seen(document, known, status=status, is_batch=is_batch))
    result = changed(document, planned(document).roles, advice.changes, advice.timeout)

    loaded = spec.load([("advised", to_yaml(result).encode())], inspect=plan.inspect)
    assert plan.make(loaded, "run")
    before, after = asked(document), asked(result)
    assert after.keys() == before.keys()
    touched = {(change.role, index): change for change in advice.changes for index in change.indices}
    for attempt_folder, now in after.items():
        if attempt_folder not in touched:
            assert now.resources == before[attempt_folder].resources  # nobody else is moved, whoever shares its default
        used = known.get(attempt_folder)
        if used is None:
            continue
        for name, amount in (("cpu", round(used.cores_p95, 1)), ("memory", used.memory_mib or 0.0)):
            if now.amount(name) != before[attempt_folder].amount(name):
                assert covers(now.amount(name), amount)
        if now.amount("gpu") != before[attempt_folder].amount("gpu") and used.gpu is not None:
            assert devices(now.amount("gpu")) >= used.gpu.active
    longest = max((use.seconds for use in known.values()), default=0.0)
    if advice.timeout is not None:
        assert loaded.environment.timeout_s is not None
        assert loaded.environment.timeout_s >= longest
    rest = {key: value for key, value in result.items() if key != "environment"}
    assert rest == {key: value for key, value in document.items() if key != "environment"}


@examples(100)
@given(files(), uses())
def test_nothing_is_lowered_for_a_run_that_failed(document: dict[str, Any], used: ReplicaUsage) -> None:
    failed = used._replace(causes=(Cause.ERROR,))
    before = asked(document)
    advice = advise(seen(document, dict.fromkeys(before, failed), status="failed"))
    result = asked(changed(document, planned(document).roles, advice.changes, advice.timeout))
    for attempt_folder, replica in result.items():
        for name, amount in before[attempt_folder].resources.items():
            for value, now in zip(amount, replica.amount(name), strict=True):
                assert value is None or (now is not None and now >= value)
