"""What Slurm would refuse is said before a run is created, and what it did is said in its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.slurm.cluster import Cluster
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import AtOnce, job_of, log, over, replica, submit, submit_with
from tests.slurm.programs import program as the
from tests.slurm.test_environments import write_wheel

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "environment.slurm.reservation": ({"reservation": "nope"}, "Requested reservation is invalid"),
    "environment.slurm.directives.nodelist": ({"directives": {"nodelist": "nope"}}, "Invalid node name specified"),
    "environment.slurm.directives.licenses": ({"directives": {"licenses": "matlab:1"}}, "Invalid license"),
    "environment.slurm.qos": ({"qos": "nope"}, "Invalid qos"),
    "environment.slurm": ({"directives": {"gres": "gpu:v100:2"}}, "Requested node configuration is not available"),
    "environment.slurm.directives": ({"directives": {"frobnicate": True}}, "unrecognized option"),
}


def check(place: SlurmPlace, **environment: Any) -> Any:
    return place.call("check", "-f", place.file("true", environment=environment), "--on", "slurm", "--json")


@pytest.mark.smoke
def test_what_slurm_would_refuse_is_an_error_of_check_and_of_run(place: SlurmPlace) -> None:
    assert "sbatch accepts the job" in place.call("check", "-f", place.file("true"), "--on", "slurm").out
    for path, (slurm, words) in REFUSED.items():
        answer = check(place, slurm=slurm)
        assert answer.code == 1, answer
        (error,) = answer.data["errors"]
        assert error["path"] == path
        assert words in error["message"], error
        refused = place.run("true", "-d", "--on", "slurm", environment={"slurm": slurm})
        assert refused.code == 1
        assert words in refused.err
        assert not refused.out
    assert place.run_ids() == []


def test_heterogeneous_jobs_are_asked_about_as_well(place: SlurmPlace) -> None:
    small = {"resources": {"cpu": {"requests": 2}}}
    fields: dict[str, Any] = {
        "framework": "pytorch",
        "environment": {"replicas": {"n_workers": 1, "default_worker": small}},
    }
    fine = place.call("check", "-f", place.file("true", **fields), "--on", "slurm")
    assert "sbatch accepts the job" in fine.out, fine
    fields["environment"]["slurm"] = {"reservation": "nope"}
    assert place.call("check", "-f", place.file("true", **fields), "--on", "slurm").code == 1


def test_options_of_sbatch_are_taken_as_they_are_rendered(place: SlurmPlace) -> None:
    options = {
        "mail-type": ["END", "FAIL"],
        "exclusive": True,
        "requeue": False,
        "kill-on-invalid-dep": True,
        "dependency": "afterany:1?afterany:2",
    }
    answer = check(place, slurm={"directives": options})
    assert answer.code == 0, answer


def test_nodes_that_are_out_of_service_refuse_nothing(place: SlurmPlace) -> None:
    cluster = place.cluster
    cluster.ask("scontrol", "update", "nodename=node1", "state=drain", "reason=test")
    answer = check(place, slurm={"directives": {"nodelist": "node1"}})
    assert answer.code == 0, answer
    assert "unavailable are node1" in answer.data["advice"][0]["message"]


def test_a_controller_that_is_away_is_a_note(place: SlurmPlace) -> None:
    place.cluster.kill_controller()
    answer = place.call("check", "-f", place.file("true"), "--on", "slurm")
    assert answer.code == 0, answer
    assert "Slurm could not be asked" in answer.out + answer.err


@pytest.fixture(name="causes", scope="module")
def causes_fixture(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[AtOnce]:
    place = SlurmPlace(tmp_path_factory.mktemp("causes"), cluster)
    small = {"resources": {"memory": {"requests": 150}}}
    write_wheel(place.folder / "wheels")
    try:
        runs = {
            "by-variable": submit_with(place, "sleep 300", {"SBATCH_TIMELIMIT": "1"}, environment={"timeout": "10m"}),
            "hog": submit(place, f"{the('hog', 900)}; exit $?", environment=small),
            "threads": submit(place, "echo threads $OMP_NUM_THREADS"),
            "pair": submit(
                place,
                "sleep 300",
                framework="pytorch",
                environment={**small, "replicas": {"n_workers": 1, "default_worker": small}},
            ),
            "prepared": submit(
                place, "true", environment={**small, "python": {"requirements": ["tiny"], "wheelhouse": "wheels"}}
            ),
        }
        wait_for(lambda: "prepares its nodes: " in place.call("show", runs["prepared"]).out, 60)
        wait_for(lambda: "building" in place.call("statuses", runs["prepared"]).out, 60)
        place.until(runs["pair"], "running")
        cluster.ask("scancel", job_of(place, runs["pair"]))
        yield AtOnce(place, dict(zip(runs, over(place, *runs.values()), strict=True)))
    finally:
        place.close()


def test_a_limit_of_a_variable_is_that_of_the_job(causes: AtOnce) -> None:
    reason = causes.runs["by-variable"]["reason"]
    assert reason.startswith("master-0: ended by the time limit of its job, 60 s; increase it"), reason
    assert "SBATCH_TIMELIMIT" in reason


def test_a_command_under_a_shell_that_runs_out_of_memory_says_so(causes: AtOnce) -> None:
    found = causes.runs["hog"]
    assert replica(found, "master-0")["cause"] == "memory", found
    assert "memory" in found["reason"]
    assert "exit code" not in found["reason"]


def test_threads_follow_the_allocation(causes: AtOnce) -> None:
    found = causes.succeeded("threads")
    assert log(causes.place, found["id"]) == "threads 1\n"


def test_no_one_is_blamed_for_a_cancelled_job(causes: AtOnce) -> None:
    found = causes.runs["pair"]
    assert (found["status"], found["reason"]) == ("stopped", "the job was cancelled by root")
    assert all("failed" not in row["reason"] for row in found["replicas"]), found["replicas"]


def test_a_prepared_run_succeeds(causes: AtOnce) -> None:
    causes.succeeded("prepared")
