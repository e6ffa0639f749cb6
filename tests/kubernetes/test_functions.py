"""Functions that are submitted from Python, and run in pods."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.kubernetes.places import PATIENCE_S, KubernetesPlace
from tests.kubernetes.worlds import IMAGE

MODULE = """
import os, time

def where():
    return int(os.environ["PHALANX_RANK"]), os.environ["PHALANX_POD"]

def fail_in(rank):
    if where()[0] == rank:
        raise ValueError("no luck in rank %d" % rank)
    time.sleep(600)

def square(x):
    print("squaring", x)
    return x * x

def told():
    return os.environ["WORD"]
"""
START = f"""
import json, sys
import phalanx, remote
more = dict(on="kubernetes", spec={{"build": {{"image": "{IMAGE}"}}}})
"""


def python(place: KubernetesPlace, code: str, *arguments: str) -> subprocess.Popen[str]:
    (place.folder / "remote.py").write_text(MODULE)
    call = [sys.executable, "-c", START + code, *arguments]
    environment = place.environment(PYTHONPATH=str(place.folder))
    return subprocess.Popen(
        call, cwd=place.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def answer(place: KubernetesPlace, code: str, *arguments: str) -> Any:
    with python(place, code, *arguments) as process:
        said, _ = process.communicate(timeout=8 * PATIENCE_S)
    assert process.returncode == 0
    return json.loads(said.splitlines()[-1])


@pytest.mark.smoke
def test_results_of_all_ranks_come_back_and_the_exception_of_one_with_its_traceback(place: KubernetesPlace) -> None:
    found = answer(
        place,
        """
places = phalanx.submit(remote.where, workers=3, **more)
failed = phalanx.submit(remote.fail_in, 2, workers=3, **more)
try:
    failed.result(200)
except ValueError as fault:
    cause = fault.__cause__
    said = [str(fault), cause.replica, cause.rank, cause.host, str(cause)]
print(json.dumps([places.id, places.results(200), said]))
""",
    )
    run, ranks, (fault, replica, rank, host, text) = found
    assert [rank for rank, _ in ranks] == [0, 1, 2]
    assert len({pod for _, pod in ranks}) == 3, "each in a pod of its own"
    assert (fault, replica, rank) == ("no luck in rank 2", "worker-1", 2)
    assert host
    assert "in fail_in\n" in text
    place.until_nothing_is_left(run)


def test_a_batch_is_a_group_of_pods_and_prints_to_their_logs(place: KubernetesPlace) -> None:
    code = """
batch = phalanx.map(remote.square, [(x,) for x in range(5)], concurrency=3, **more)
print(json.dumps([batch.results(300), [run.stdout() for run in batch]]))
"""
    results, said = answer(place, code)
    assert results == [0, 1, 4, 9, 16]
    assert said == [f"squaring {x}\n" for x in range(5)]


def test_after_kill_9_of_the_caller_the_result_is_found(place: KubernetesPlace) -> None:
    """The pod waits for a ConfigMap, which is there only after the caller is gone."""
    code = """
more["spec"]["environment"] = {"config_map_refs": ["later"]}
print(phalanx.submit(remote.told, **more).id, flush=True)
sys.stdin.read()
"""
    with python(place, code) as process:
        assert process.stdout is not None
        run = process.stdout.readline().strip()
        wait_for(lambda: place.pods(run), 2 * PATIENCE_S)
        process.send_signal(signal.SIGKILL)
    later = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}, "data": {"WORD": "came"}}
    place.world.api.create(later, place.world.namespace)
    assert answer(place, "print(json.dumps(phalanx.attach(sys.argv[1]).result(200)))", run) == "came"
