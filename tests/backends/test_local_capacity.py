from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.local.capacity import NOTHING, Capacity, allocate, excess, requested_by, this_machine
from phalanx.stored_plan import StoredPlan, decode_plan


def replica(role: str = "worker", index: int = 0, **resources: Any) -> dict[str, Any]:
    return {"role": role, "index": index, "rank": 0, "resources": resources}


def plan(*replicas: dict[str, Any]) -> StoredPlan:
    return decode_plan({"replicas": [{**one, "index": index} for index, one in enumerate(replicas)]})


def test_shares_add_up() -> None:
    assert Capacity(1.0, 512.0, 0) + Capacity(0.5, 0.0, 2) == Capacity(1.5, 512.0, 2)
    assert NOTHING + Capacity(1.0, 2.0, 3) == Capacity(1.0, 2.0, 3)


@pytest.mark.parametrize("share", [Capacity(2.1, 0, 0), Capacity(0, 1025, 0), Capacity(0, 0, 2)])
def test_a_share_fits_only_when_all_of_it_does(share: Capacity) -> None:
    room = Capacity(2.0, 1024.0, 1)
    assert room.fits_in(room)
    assert not share.fits_in(room)


def test_ten_tenths_fit_in_one() -> None:
    total = NOTHING
    for _ in range(10):
        total += Capacity(0.1, 0.0, 0)
    assert total.fits_in(Capacity(1.0, 0.0, 0))


def test_all_replicas_ask_together() -> None:
    asked = requested_by(
        plan(
            replica(cpu={"requests": 2, "limits": 4}, memory={"requests": 1024}, gpu={"requests": 1}),
            replica(cpu={"requests": 0.5}, memory={"requests": None, "limits": 256}, gpu=None),
        )
    )
    assert asked == Capacity(2.5, 1280.0, 1)


def test_who_names_only_a_limit_asks_for_that() -> None:
    assert requested_by(plan(replica(cpu={"requests": None, "limits": 3}))) == Capacity(3.0, 0.0, 0)


def test_who_says_nothing_takes_one_cpu() -> None:
    assert requested_by(plan(replica(), replica(cpu=None))) == Capacity(2.0, 0.0, 0)


def test_who_asks_for_no_cpu_takes_none() -> None:
    assert requested_by(plan(replica(cpu={"requests": 0}))) == NOTHING


def test_excess_names_what_is_beyond_and_nothing_else() -> None:
    room = Capacity(4.0, 8192.0, 1)
    assert excess(room, room) is None
    assert excess(Capacity(8.0, 100.0, 0), room) == "8 CPUs of 4"
    assert excess(Capacity(1.0, 16384.0, 2), room) == "16.0 GiB of memory of 8.0, 2 GPUs of 1"


def test_this_machine_has_something() -> None:
    room, gpus = this_machine()
    assert room.cpus >= 1
    assert room.memory_mib > 100
    assert room.gpus == len(gpus)


@pytest.mark.parametrize(
    ("visible", "names"),
    [("0,1", ("0", "1")), ("", ()), ("-1", ()), ("GPU-1a, 3", ("GPU-1a", "3"))],
)
def test_gpus_that_were_given_to_us_are_all_there_is(
    monkeypatch: pytest.MonkeyPatch, visible: str, names: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    room, gpus = this_machine()
    assert (gpus, room.gpus) == (names, len(names))


def test_nvidia_smi_says_of_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, script, gpus in (("works", r"printf '0\n1\n'", ("0", "1")), ("fails", "exit 9", ())):
        fake = tmp_path / name / "nvidia-smi"
        fake.parent.mkdir()
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
        assert this_machine()[1] == gpus


def test_gpus_are_handed_out_once_each() -> None:
    given = allocate(("0", "1", "2", "3"), {"1"}, plan(replica(gpu={"requests": 2}), replica(gpu={"requests": 1})))
    assert given == {"worker-0": ["0", "2"], "worker-1": ["3"]}


def test_who_asks_for_no_gpu_gets_none() -> None:
    assert allocate(("0",), set(), plan(replica())) == {"worker-0": []}


def test_where_there_are_no_gpus_nothing_is_said_of_them() -> None:
    assert allocate((), set(), plan(replica(gpu={"requests": 1}))) == {}


def test_when_there_are_too_few_they_are_shared_but_none_is_named_twice_to_one_replica() -> None:
    given = allocate(("0", "1"), set(), plan(*[replica(gpu={"requests": 3})] * 2))
    assert given == {"worker-0": ["0", "1"], "worker-1": ["0", "1"]}
