from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx import plan, spec
from phalanx.spool import Writer
from tests.cli.homes import Place, ended, place_fixture, wait_for  # noqa: F401 - found by its name

PYTHON = sys.executable
BUSY = "import time; end = time.time() + {s}; x = bytearray({mib} << 20)\nwhile time.time() < end: pass"


def script(place: Place, name: str, text: str) -> str:
    (place.folder / name).write_text(text)
    return f"{PYTHON} {name}"


def advised(place: Place, *arguments: str) -> Any:
    answer = place.quick("advise", *arguments, "--json")
    assert answer.code == 0, answer.out + answer.err
    return answer.data["runs"][0]


def resources(**amounts: Any) -> dict[str, Any]:
    return {"resources": {name: {"requests": amount} for name, amount in amounts.items()}}


@pytest.mark.slow
def test_it_says_what_was_asked_for_and_used_and_prints_what_would_do(place: Place) -> None:
    command = script(place, "busy.py", BUSY.format(s=1.5, mib=100))
    run = place.ran(command, name="busy.yml", environment={**resources(cpu=2, memory="1Gi"), "timeout": "2h"})
    found = advised(place, run)
    (role,) = found["roles"]
    assert (role["role"], role["indices"]) == ("master", [0])
    assert role["cores"]["asked"] == 2
    assert 0.1 < role["cores"]["used"] < 1.3
    assert role["cores"]["advised"] == 1
    assert 100 < role["memory_mib"]["used"] < 250
    assert role["memory_mib"]["used"] * 1.2 <= role["memory_mib"]["advised"] <= 320
    assert found["environment"]["timeout"] == "2m"
    assert found["idle_hours"]["core"] > 0
    answer = place.quick("advise", run)
    assert answer.code == 0
    assert "too short for advice" in answer.out
    assert "idle" in answer.out.lower()
    block = yaml.safe_load(answer.out[answer.out.index("environment:") :])
    assert block["environment"] == found["environment"]


@pytest.mark.slow
def test_a_copy_is_written_and_nothing_else_ever(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    fields: dict[str, Any] = {"tags": ["a"], "params": {"lr": 0.1}, "environment": resources(cpu=2, memory="8Gi")}
    answer = place.run("sleep {{ lr }}", "--json", "--name", "my run", **fields)
    original = (place.folder / "polyaxonfile.yml").read_bytes()
    run = answer.data["id"]
    answer = place.quick("advise", run, "--apply")
    assert answer.out.rstrip().endswith("written to my-run.advised.yml")
    copy = place.folder / "my-run.advised.yml"
    loaded = spec.load([("copy", copy.read_bytes())], inspect=plan.inspect)
    assert loaded.notes == ()
    assert (loaded.tags, dict(loaded.params), loaded.command) == (("a",), {"lr": 0.1}, "sleep 0.1")
    assert loaded.environment.settings.resources is not None
    assert loaded.environment.settings.resources.memory == (64.0, None)
    assert copy.read_text().startswith(f"# Advised by Phalanx, from run {run}\n")

    again = place.quick("advise", run, "--apply")
    assert again.code == 2
    assert "overwrite it with --force" in again.err
    assert place.quick("advise", run, "--apply", "--force").code == 0
    refused = place.quick("advise", run, "-o", "polyaxonfile.yml", "--force")
    assert refused.code == 2
    assert "was not written by `phalanx advise`" in refused.err
    assert (place.folder / "polyaxonfile.yml").read_bytes() == original
    assert place.quick("advise", run, "-o", "nowhere/x.yml").code == 2
    assert advised(place, run, "-o", "other.yml")["written"] == "other.yml"
    ours = {"polyaxonfile.yml", "my-run.advised.yml", "other.yml"}
    assert {path.name for path in place.folder.iterdir()} == ours


@pytest.mark.slow
def test_what_suits_is_left_as_it_is(place: Place) -> None:
    run = place.ran("sleep 0.1", environment=resources(memory=64))
    answer = place.quick("advise", run, "--apply")
    assert answer.code == 0
    assert answer.out.rstrip().endswith("no changes recommended")
    assert advised(place, run)["environment"] is None


@pytest.mark.slow
def test_one_that_was_killed_for_its_memory_is_to_have_more(place: Place) -> None:
    command = script(place, "hog.py", "x = bytearray(200 << 20)\nimport time; time.sleep(20)")
    amounts = {"cpu": {"requests": 2}, "memory": {"requests": 32, "limits": 64}}
    run = place.ran(command, environment={"resources": amounts})
    found = advised(place, run)
    memory = found["environment"]["resources"]["memory"]
    assert memory["requests"] == memory["limits"]
    assert found["roles"][0]["memory_mib"]["advised"] > found["roles"][0]["memory_mib"]["used"] > 64
    assert found["environment"]["resources"]["cpu"] == {"requests": 2}  # nothing less for what failed
    assert "no amount is lowered" in " ".join(found["caveats"])


@pytest.mark.slow
def test_one_that_ran_out_of_time_is_to_have_more(place: Place) -> None:
    run = place.ran("sleep 20", environment={"timeout": 1})
    found = advised(place, run)
    assert found["environment"]["timeout"] == "1m"
    assert "it hit its time limit" in " ".join(found["caveats"])


@pytest.mark.slow
def test_of_one_that_failed_nothing_is_lowered(place: Place) -> None:
    run = place.ran("sleep 0.2; exit 3", environment=resources(cpu=2, memory="8Gi"))
    assert advised(place, run)["environment"] is None
    answer = place.quick("advise", run)
    assert "no amount is lowered" in answer.out
    assert "keep" in answer.out


@pytest.mark.slow
def test_one_that_runs_is_judged_by_what_was_seen_so_far(place: Place) -> None:
    process, run = place.begun(environment=resources(memory="4Gi"))
    wait_for(lambda: advised_live(place, run)["roles"][0]["memory_mib"]["used"])
    found = advised_live(place, run)
    assert found["status"] == "running"
    assert "it is still active" in found["caveats"][0]
    assert found["environment"]["resources"]["memory"] == {"requests": "64Mi"}
    place.call("stop", run)
    ended(process)
    assert "it was stopped after" in advised(place, run)["caveats"][0]


def advised_live(place: Place, run: str) -> Any:
    return place.call("advise", run, "--json").data["runs"][0]


@pytest.mark.slow
def test_replicas_are_judged_by_what_they_asked_for(place: Place) -> None:
    small, large = {"memory": {"requests": 256}}, {"memory": {"requests": 1024}}
    replicas = {
        "n_workers": 3,
        "default_worker": {"resources": small},
        "worker": [{"index": 1, "resources": large, "max_restarts": 0}],
    }
    hog = "x = bytearray(({} << 20) if __import__('os').environ['PHALANX_REPLICA'] == 'worker-1' else 1)"
    command = script(place, "gang.py", hog.format(300) + "\nimport time; time.sleep(0.5)")
    run = place.ran(command, framework="plain", environment={"replicas": replicas})
    found = advised(place, run)
    assert [(role["role"], role["indices"]) for role in found["roles"]] == [
        ("master", [0]),
        ("worker", [0, 2]),
        ("worker", [1]),
    ]
    environment = found["environment"]
    assert environment["resources"] == {"memory": {"requests": "64Mi"}}  # it said nothing
    assert environment["replicas"]["default_worker"] == {"resources": {"memory": {"requests": "64Mi"}}}
    assert environment["replicas"]["worker"] == [
        {"index": 1, "resources": {"memory": {"requests": "384Mi"}}, "max_restarts": 0}
    ]


@pytest.mark.slow
def test_a_gpu_that_did_nothing_is_said_plainly(place: Place) -> None:
    folder = place.folder.parent / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, 0, 3, 40960'\n")
    program.chmod(0o755)
    file = place.file("sleep 0.5", environment=resources(gpu=1, memory=64))
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    run = str(place.call("run", "-f", file, "--json", PATH=path, CUDA_VISIBLE_DEVICES="0").data["id"])
    answer = place.quick("advise", run)
    assert "its GPU was sampled only once, which is too few for advice" in answer.out

    lengthen(place.attempt(run), seconds=120.0)
    found = advised(place, run)
    (role,) = found["roles"]
    assert role["gpus"]["use"]["mean_percent"] == 0.0
    assert role["gpus"]["advised"] == 0
    assert found["caveats"] == []
    assert found["environment"] == {"resources": {"memory": {"requests": 64}}}
    out = place.quick("advise", run).out
    assert "its GPU was idle (0 % busy on average, 0 % at most): CPUs suffice, and others could use it" in out
    assert "2 GPU-minutes" in out

    checked = place.call("check", "-f", file).out
    assert (
        f"environment.resources.gpu: master-0: in its last run, {run}, its GPU was idle (0 % busy on average, 0 % at "
        "most): CPUs suffice, and others could use it (request none)"
    ) in checked
    assert [one["suggestion"] for one in place.call("check", "-f", file, "--json").data["advice"]] == ["request none"]
    without = place.file("sleep 0.5", name="without.yml", environment=resources(memory=64))
    assert "advice" not in place.call("check", "-f", without).out


def lengthen(attempt: Path, seconds: float) -> None:
    """As if it had gone on like that."""
    end = json.loads((attempt / "end.json").read_text())
    writer = Writer(attempt / "spool")
    for second in range(5, int(seconds), 5):
        gpus = [{"index": 0.0, "percent": 0.0, "memory_mib": 3.0, "total_mib": 40960.0}]
        use = {"cpu_s": 0.01, "memory_mib": 4.0, "threads": 1}
        writer.append_json({"at": end["started_at"] + second, "use": use, "gpus": gpus})
    writer.close()
    end["ended_at"] = end["started_at"] + seconds
    (attempt / "end.json").write_text(json.dumps(end))


@pytest.mark.slow
def test_several_runs_are_advised_one_by_one_and_summed_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    one = place.ran("sleep 0.3", "--name", "one", environment=resources(cpu=2))
    two = place.ran("sleep 0.3", "--name", "one", environment=resources(cpu=1, memory="1Gi"))
    answer = place.quick("advise", one, two)
    assert answer.out.count("REPLICAS") == 2
    assert "idle in total:" in answer.out
    assert [run["id"] for run in place.quick("advise", one, two, one, "--json").data["runs"]] == [one, two]
    refused = place.quick("advise", one, two, "-o", "x.yml")
    assert refused.code == 2
    assert "several runs" in refused.err
    refused = place.quick("advise", one, two, "--apply")
    assert refused.code == 2
    assert "have the same name" in refused.err
    assert not list(place.folder.glob("*.advised.yml"))


def test_a_run_that_no_one_measured_gets_no_advice(place: Place) -> None:
    place.remember("outside0000", backend="outside")
    place.remember("nofolder000")
    assert (
        "tracked, not started, by Phalanx: its resource usage was not measured"
        in place.quick("advise", "outside0000").err
    )
    assert "has no readable plan" in place.quick("advise", "nofolder000").err
    assert place.quick("advise", "nothing").code == 2
    assert "name at least one run" in place.quick("advise").err
    assert place.quick("advise", "nofolder000", "--json").data["ok"] is False
