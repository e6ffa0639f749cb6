from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
import yaml

from phalanx import spec
from phalanx.backends.local.capacity import this_machine
from tests.cli.homes import Place, ended, place_fixture, wait_for  # noqa: F401 - found by its name

PYTHON = sys.executable
CORES = int(this_machine()[0].cpus)
two_cores = pytest.mark.skipif(CORES < 2, reason="there is one core here, and so nothing to choose")

# As fast as it has cores, however busy the machine is with others.
TRACKED = """
import os, time
from phalanx import tracking
for step in range(10_000):
    time.sleep(0.05 / len(os.sched_getaffinity(0)))
    tracking.log(loss=1.0, samples=float(len(os.sched_getaffinity(0))), step=step)
"""
FINISHES = "import os, time; time.sleep(1.2 / len(os.sched_getaffinity(0)))"
HOG = "import time\nfrom phalanx import tracking\nx = bytearray(150 << 20)\n" + (
    "for step in range(10_000):\n    time.sleep(0.05)\n    tracking.log(loss=1.0, step=step)"
)


def script(place: Place, text: str, **fields: Any) -> str:
    (place.folder / "program.py").write_text(text)
    return place.file(f"{PYTHON} program.py", **fields)


@two_cores
@pytest.mark.slow
def test_the_smallest_that_is_fast_is_recommended_from_real_runs(place: Place) -> None:
    environment = {"timeout": "12h", "max_restarts": 3, "resources": {"cpu": {"requests": 2, "limits": 2}}}
    file = script(place, TRACKED, name="it.yml", environment=environment, tags=["mine"])
    answer = place.call("size", "-f", file, "--try", "cpu=1,2", "--for", "2s", "--project", "vision", "--apply")
    assert answer.code == 0, answer.err
    assert "2 trials of 2 s, one after another: about 8.0 s" in answer.err
    assert "trial 1 of 2: cpu=1" in answer.err
    assert "measured by the steps of `loss` per second in the second half of each trial" in answer.out
    assert "cpu=2 is the fastest, and no smaller one is within 90 % of it" in answer.out
    block = answer.out[answer.out.index("environment:") : answer.out.index("\nwritten to")]
    assert yaml.safe_load(block)["environment"] == environment
    assert answer.out.rstrip().endswith("written to sizing.advised.yml")
    copy = spec.load([("copy", (place.folder / "sizing.advised.yml").read_bytes())])
    assert (copy.command, copy.environment.timeout_s) == (f"{PYTHON} program.py", 12 * 3600)

    runs = place.call("ps", "--json").data["runs"]
    assert [run["status"] for run in runs] == ["stopped", "stopped"]  # ended by its time is no failure
    for run in runs:
        assert (run["project"], run["tags"]) == ("vision", ["mine", "sizing"])
        assert run["reason"] == "the time of the trial is over"


def sized(place: Place, *arguments: str, code: int = 0) -> Any:
    answer = place.call("size", *arguments, "--json")
    assert answer.code == code, answer.out + answer.err
    assert answer.err == ""
    return answer.data


@two_cores
@pytest.mark.slow
def test_a_larger_one_that_is_hardly_faster_is_not_worth_it(place: Place) -> None:
    file = script(place, TRACKED)
    found = sized(place, "-f", file, "--try", "cpu=1,2", "--for", "2s", "--within", "0.3", "--metric", "samples")
    assert (found["measure"], found["metric"]) == ("metric", "samples")
    assert [trial["speed"] for trial in found["trials"]] == [1.0, 2.0]
    assert found["recommended"]["choice"] == {"cpu": 1}
    assert found["recommended"]["of_best"] == 0.5
    assert found["recommended"]["larger"] == {"choice": {"cpu": 2}, "of_best": 1.0}
    assert "the next larger, cpu=2, brings 100 % more" in found["remarks"]
    assert found["environment"] == {"resources": {"cpu": {"requests": 1}}}
    assert all(trial["kept_to_its_cores"] for trial in found["trials"])


@two_cores
@pytest.mark.slow
def test_a_program_that_tracks_nothing_is_measured_by_how_long_it_takes(place: Place) -> None:
    found = sized(place, "-f", script(place, FINISHES), "--try", "cpu=1,2", "--for", "30s")
    assert found["measure"] == "duration"
    assert [trial["reason"] for trial in found["trials"]] == ["finished", "finished"]
    assert found["trials"][0]["speed"] < 1 / 1.2 < found["trials"][1]["speed"]


@pytest.mark.slow
def test_lines_of_log_are_a_weak_measure_and_silence_is_none(place: Place) -> None:
    talks = place.file("while :; do echo x; sleep 0.1; done")
    found = sized(place, "-f", talks, "--try", "memory=64Mi", "--for", "2s")
    assert found["measure"] == "lines"
    assert 1 < found["trials"][0]["speed"] < 20
    assert any("which is unreliable" in remark for remark in found["remarks"])
    silent = place.file("sleep 60")
    found = sized(place, "-f", silent, "--try", "memory=64Mi", "--for", "1s", code=1)
    assert found["recommended"] is None
    assert any("no recommendation" in remark for remark in found["remarks"])


@pytest.mark.slow
def test_a_trial_that_is_killed_for_its_memory_had_too_little(place: Place) -> None:
    found = sized(place, "-f", script(place, HOG), "--try", "memory=64Mi,1Gi", "--for", "3s")
    assert [trial["state"] for trial in found["trials"]] == ["memory", "measured"]
    assert found["recommended"]["choice"] == {"memory": 1024}
    assert found["environment"]["resources"]["memory"] == {"requests": "1Gi", "limits": "1Gi"}


@pytest.mark.slow
def test_a_program_that_fails_is_said_to_fail(place: Place) -> None:
    answer = place.call("size", "-f", place.file("echo oh; exit 3"), "--try", "memory=64Mi", "--for", "3s")
    assert answer.code == 1
    assert "failed: " in answer.err
    assert "no recommendation: no trial ran long enough to be measured" in answer.out


@pytest.mark.slow
def test_without_a_gpu_there_is_none_to_be_seen(place: Place) -> None:
    folder = place.folder.parent / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text("#!/bin/sh\necho '0, 0, 3, 40960'\n")
    (folder / "nvidia-smi").chmod(0o755)
    says = "import os, time\nprint(repr(os.environ['CUDA_VISIBLE_DEVICES'])); time.sleep(0.5)"
    answer = place.call(
        "size", "-f", script(place, says), "--try", "gpu=0,1", "--for", "9s", "--within", "0.5", "--json",
        PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="0",
    )  # fmt: skip
    assert answer.code == 0
    logs = [(place.attempt(trial["run"]) / "log").read_text().strip() for trial in answer.data["trials"]]
    assert logs == ["''", "'0'"]
    assert answer.data["recommended"]["choice"] == {"gpu": 0}
    assert answer.data["recommended"]["larger"]["choice"] == {"gpu": 1}


@pytest.mark.slow
def test_workers_are_tried_as_well(place: Place) -> None:
    environment = {"resources": {"cpu": {"requests": 0.1}}, "replicas": {"n_workers": 3, "default_worker": {
        "resources": {"cpu": {"requests": 0.1}}}, "worker": [{"index": 2, "max_restarts": 1}]}}  # fmt: skip
    file = script(place, TRACKED, framework="plain", environment=environment)
    found = sized(place, "-f", file, "--try", "workers=1,2", "--for", "2s", "--within", "0.4")
    assert [trial["asked"]["cpus"] for trial in found["trials"]] == pytest.approx([0.2, 0.3])
    assert found["recommended"]["choice"] == {"workers": 1}
    assert found["environment"]["replicas"]["n_workers"] == 1
    assert "worker" not in found["environment"]["replicas"]
    assert any("a step with more workers may be more work" in remark for remark in found["remarks"])


@pytest.mark.slow
def test_ctrl_c_ends_the_trial_and_says_what_is_known(place: Place) -> None:
    file = place.file("touch ready; while :; do echo x; sleep 0.1; done")
    process = place.start("size", "-f", file, "--try", "memory=64Mi,128Mi", "--for", "60s", "--json")
    wait_for((place.folder / "ready").exists)
    process.send_signal(signal.SIGINT)
    answer = ended(process)
    assert answer.code == 130
    assert answer.data["interrupted"] is True
    assert [trial["state"] for trial in answer.data["trials"]] == ["interrupted"]
    assert answer.data["not_run"] == [{"memory": 128}]
    assert [run["status"] for run in place.call("ps", "--json").data["runs"]] == ["stopped"]


def test_all_faults_of_a_call_are_reported_at_once(place: Place) -> None:
    file = place.file("true")
    answer = place.quick(
        "size", "-f", str(place.folder / file), "--try", "cpu=1,x,0", "--try", "gpo=1", "--try", "memory",
        "--try", "gpu=0.5", "--for", "never",
    )  # fmt: skip
    assert answer.code == 2
    for words in ("'x'", "'0'", "did you mean `gpu`?", "'memory'", "'0.5'", "--for 'never'"):
        assert words in answer.err
    assert place.quick("size", "-f", str(place.folder / file)).code == 2
    assert not (place.home / "runs").exists() or not place.run_ids()


@pytest.mark.parametrize(
    ("tries", "fields", "words"),
    [
        (["cpu=" + ",".join(f"{n / 100}" for n in range(1, 40))], {}, "39 trials exceed the limit of 32"),
        (["cpu=1", "cpu=2"], {}, "--try cpu is given twice"),
        (["cpu=1"], {"kind": "notebook"}, "this file is a notebook"),
        (["cpu=100000"], {}, "nothing to try: cpu=100000: more than this machine has: 100000 CPUs"),
        (["gpu=1000"], {}, "1000 GPUs of"),
    ],
)
def test_what_cannot_be_tried_is_refused(place: Place, tries: list[str], fields: dict[str, Any], words: str) -> None:
    file = str(place.folder / place.file(None if "kind" in fields else "true", **fields))
    answer = place.quick("size", "-f", file, *(word for one in tries for word in ("--try", one)))
    assert answer.code == 2
    assert words in answer.err


def test_what_the_file_does_not_bear_is_reported_before_anything_runs(place: Place) -> None:
    file = str(place.folder / place.file("true"))
    answer = place.quick("size", "-f", file, "--try", "workers=1,2")
    assert answer.code == 1
    assert "framework" in answer.err
    answer = place.quick("size", "-f", file, "--try", "cpu=1", "--role", "worker")
    assert answer.code == 2
    assert "the run has no worker" in answer.err
    (place.folder / "taken.yml").write_text("mine")
    answer = place.quick("size", "-f", file, "--try", "cpu=1", "-o", str(place.folder / "taken.yml"), "--force")
    assert "was not written by `phalanx advise`" in answer.err


@pytest.mark.slow
def test_what_this_machine_has_not_is_left_out(place: Place) -> None:
    found = sized(place, "-f", place.file("echo x"), "--try", "gpu=0,1000", "--for", "5s")
    assert found["left_out"][0]["choice"] == {"gpu": 1000}
    assert "1000 GPUs of" in found["left_out"][0]["why"]
    assert [trial["choice"] for trial in found["trials"]] == [{"gpu": 0}]
