"""How trials become jobs on Slurm, and what the job of packed trials requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phalanx.backends import find
from phalanx.errors import CallError, SpecErrors
from phalanx.plan import make
from phalanx.plan.framework_checks import load
from phalanx.plan.model import Plan
from phalanx.sites.model import NodeKind, Site
from phalanx.spec import Spec
from phalanx.spec.groups import first_suggestion
from phalanx.submission.allocation import jobs_of_group
from phalanx.submission.earlier_times import EarlierTimes
from phalanx.submission.trial_jobs import TrialJobs, read_trial_jobs
from tests.submission.samples import submission_of

NODE = NodeKind(4, cpus=8, memory_mib=16_000, gpus=4)
SITE = Site("here", nodes=(NODE,))


def group(slurm: dict[str, Any] | None = None, *, concurrency: int = 4, **fields: Any) -> Spec:
    tuning = {"matrix": {"x": {"values": [1, 2]}}, "concurrency": concurrency, **({"slurm": slurm} if slurm else {})}
    content = {"version": 1, "kind": "group", "hptuning": tuning, "run": {"cmd": "true"}, **fields}
    return submission_of(content).spec


def chosen(spec: Spec, site: Site | None = SITE, earlier: EarlierTimes | None = None) -> tuple[TrialJobs, Plan]:
    return jobs_of_group(Path("/home/me/runs"), spec, make(first_suggestion(spec), "abc"), site, {}, earlier)


def test_trials_that_are_known_in_advance_are_tasks_of_arrays() -> None:
    jobs, plan = chosen(group())
    assert (jobs.trials, jobs.ahead, plan.run_id) == ("array", 1000, "abc")
    assert "known in advance; how long a run takes is not known" in jobs.words
    assert read_trial_jobs(jobs.settings) == jobs
    assert chosen(group(), SITE._replace(max_submitted=40))[0].ahead == 40


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"tpe": {"n_experiments": 9, "metric": {"name": "loss", "optimization": "minimize"}}},
            "the runs of tpe follow",
        ),
        ({"n_experiments": 1, "random_search": {"n_experiments": 1}}, "there is only one run"),
    ],
)
def test_other_trials_are_single_jobs(fields: dict[str, Any], reason: str) -> None:
    tuning = {"matrix": {"x": {"uniform": "0:1"}}, **{key: fields[key] for key in fields if key != "n_experiments"}}
    content = {"version": 1, "kind": "group", "hptuning": tuning, "run": {"cmd": "true"}}
    jobs, _ = chosen(submission_of(content).spec)
    assert (jobs.trials, reason in jobs.words) == ("single", True)
    with pytest.raises(CallError, match=rf"{reason}.*write `trials: single`"):
        chosen(submission_of({**content, "hptuning": {**tuning, "slurm": {"trials": "array"}}}).spec)


def test_earlier_runs_say_how_long_a_run_takes() -> None:
    spec = group(environment={"timeout": 7200})
    jobs, _ = chosen(spec, SITE, EarlierTimes(3, 27.0, 3.0))
    assert (jobs.trials, jobs.why) == (
        "packed",
        "runs of 9s on average in 3 earlier runs, 4 at a time, are 27 jobs a minute",
    )
    assert "a run takes 1h on average in an earlier run" in chosen(spec, SITE, EarlierTimes(1, 3600.0, 1.0))[0].why
    assert "a run takes 2h at most" in chosen(spec)[0].why
    forced, _ = chosen(group({"trials": "single"}), SITE, EarlierTimes(3, 27.0, 3.0))
    assert forced.as_json() == {"trials": "single", "why": "the file says so"}


def test_short_trials_are_packed_and_long_ones_are_not() -> None:
    short, _ = chosen(group(environment={"timeout": 20}))
    assert short.is_packed
    assert "are 12 jobs a minute" in short.why
    assert not chosen(group(environment={"timeout": 3600}))[0].is_packed
    wanting = SITE._replace(wanted_time_s=7200.0)
    assert "wants jobs of at least 2h" in chosen(group(environment={"timeout": 3600}), wanting)[0].why


def test_more_trials_than_the_site_takes_jobs_are_packed() -> None:
    jobs, _ = chosen(group(concurrency=30), SITE._replace(max_submitted=25))
    assert (jobs.is_packed, jobs.why) == (True, "here accepts 25 jobs of a user")


def test_the_allocation_is_as_large_as_its_slots_and_as_long_as_the_site_allows() -> None:
    resources = {"cpu": {"requests": 2}, "memory": {"limits": 1000}, "gpu": {"limits": 1}}
    spec = group({"trials": "packed"}, concurrency=8, environment={"resources": resources})
    jobs, plan = chosen(spec, SITE._replace(max_time_s=7200.0))
    assert (jobs.nodes, jobs.slots, jobs.time_s) == (2, 4, 7200.0)
    script = find("slurm").render(plan, SITE).files["run.sh"]
    for line in ("--nodes=2", "--ntasks=2", "--cpus-per-task=8", "--gpus-per-node=4", "--time=0-02:00", "--requeue"):
        assert f"#SBATCH {line}\n" in script


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"environment": {"python": {"image": "a.sif"}}}, "starts in a container"),
        ({"environment": {"resources": {"cpu": {"requests": 9}}}}, "does not fit on one node of the site"),
        (
            {"framework": "mpi", "environment": {"replicas": {"n_workers": 2}}},
            "srun starts the ranks of MPI",
        ),
    ],
)
def test_trials_that_cannot_be_packed_are_refused_with_what_to_write(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(CallError, match=rf"{reason}; write `trials: single`"):
        chosen(group({"trials": "packed"}, **fields))
    jobs, _ = chosen(group(**fields))
    assert (jobs.is_packed, reason in jobs.why) == (False, True)


def test_keys_of_the_job_need_packed_trials() -> None:
    with pytest.raises(SpecErrors, match="`nodes` is that of the job of packed runs"):
        group({"trials": "single", "nodes": 2})
    with pytest.raises(SpecErrors, match="too short"):
        group({"trials": "packed", "time": 60})


def test_the_file_of_the_docs_is_valid() -> None:
    text = (Path(__file__).parents[2] / "docs/run/search.md").read_text()
    part = text.partition("## Many trials in one Slurm job")[2].partition("```yaml\n")[2].partition("```")[0]
    spec, _ = load([("search.yml", part.encode())], {})
    jobs, _ = chosen(spec, None)
    assert (jobs.nodes, jobs.slots, jobs.time_s) == (2, 8, 14_400.0)
