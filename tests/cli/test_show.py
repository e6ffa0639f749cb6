from __future__ import annotations

from typing import Any

import pytest

from tests.cli.homes import THREE, Place, place_fixture, wait_for  # noqa: F401 - found by its name

UNEVEN = """
import os, time
from phalanx import tracking
for step in range(50 if os.environ["RANK"] == "2" else 100):
    tracking.log({"loss": 1.0}, step=step)
while not os.path.exists(os.path.join(os.environ["PHALANX_OUTPUTS"], "go")):
    time.sleep(0.02)
"""


def test_it_shows_what_became_of_every_replica(place: Place) -> None:
    run_id = place.ran('[ "$RANK" != 1 ] || exit 3; sleep 20', framework="pytorch", environment=THREE, name="f.yml")
    answer = place.call("show", run_id)
    assert answer.code == 0
    assert "failed: worker-0: exit code 3" in answer.out
    rows = {line.split()[0]: line for line in answer.out.splitlines() if line.startswith(("master-", "worker-"))}
    assert "exit code 3" in rows["worker-0"]
    assert "stopped" in rows["master-0"]
    assert "stopped" in rows["worker-1"]


@pytest.mark.slow
def test_json_has_replicas_statuses_and_the_folder(place: Place) -> None:
    run_id = place.ran("exit 5", "--name", "mine", params={"lr": 0.1})
    data = place.call("show", "mine", "--json").data
    assert (data["ok"], data["id"], data["params"]) == (False, run_id, {"lr": 0.1})
    (replica,) = data["replicas"]
    assert (replica["name"], replica["cause"], replica["code"]) == ("master-0", "error", 5)
    assert data["statuses"][-1]["reason"] == "master-0: exit code 5"
    assert data["folder"] == str(place.home / "runs" / run_id)


@pytest.mark.slow
def test_it_names_the_straggler_while_the_run_goes_on(place: Place) -> None:
    (place.folder / "train.py").write_text(UNEVEN)
    run_id = place.queued("python train.py", framework="pytorch", environment=THREE)

    def shown() -> Any:
        data = place.call("show", run_id, "--json").data
        seen = [(row["status"], row["step"]) for row in data["replicas"]]
        return data if seen == [("running", 99), ("running", 99), ("running", 49)] else None

    data = wait_for(shown)
    assert (data["front"], data["straggler"]) == (99, "worker-1")
    assert [(row["behind"], row["lag"]) for row in data["replicas"]] == [(0, 0), (0, 0), (50, 3)]
    assert "straggler  worker-1 is 50 steps behind the leading replica (step 99)" in place.call("show", run_id).out
    (place.home / "runs" / run_id / "outputs" / "go").touch()
    data = wait_for(
        lambda: (data_now := place.call("show", run_id, "--json").data)["status"] == "succeeded" and data_now
    )
    assert (data["straggler"], data["replicas"][2]["lag"]) == (None, 3)
    assert "  straggler  " not in place.call("show", run_id).out


def test_ids_can_be_shortened_and_names_serve_too(place: Place) -> None:
    place.remember("abcd2", name="lenet")
    place.remember("xyz34")
    for word in ("abcd2", "abc", "a", "lenet"):
        assert place.quick("show", word, "--json").data["id"] == "abcd2"


def test_what_can_be_several_runs_names_them_all(place: Place) -> None:
    place.remember("abcd2", name="twice")
    place.remember("abce3", name="twice")
    answer = place.quick("show", "abc")
    assert answer.code == 2
    assert "abcd2" in answer.err
    assert "abce3" in answer.err
    assert place.call("show", "abcd", "--json").data["id"] == "abcd2"


@pytest.mark.parametrize("verb", ["show", "metrics", "statuses"])
def test_of_several_runs_with_a_name_the_newest_is_taken_and_said(place: Place, verb: str) -> None:
    for run_id in ("abcd2", "abce3"):
        place.remember(run_id, name="twice")
    place.remember("twice4")
    answer = place.quick(verb, "twice")
    assert answer.code == 0
    assert "2 runs are named twice: using the newest, abce3" in answer.err


def test_an_unknown_run_is_a_clear_error(place: Place) -> None:
    answer = place.call("show", "nobody")
    assert answer.code == 2
    assert "there is no run `nobody`" in answer.err
    assert place.call("show", "nobody", "--json").data["ok"] is False
