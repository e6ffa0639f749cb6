"""Slurm: what is rendered. What happens when it is submitted is tried on a real cluster, in tests/slurm."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import plan, spec
from phalanx.backends import find
from phalanx.backends.contract import Job
from phalanx.errors import CallError, SpecErrors
from phalanx.sites.model import NodeKind, Partition, Site
from tests.backends.golden import assert_as_agreed
from tests.backends.test_local import HOSTILE
from tests.examples import examples

SITE = Site(
    name="site",
    nodes=(NodeKind(count=8, cpus=64, memory_mib=256_000, gpus=4, gpu_type="h100", partitions=("gpu",)),),
    partitions=(Partition("gpu", is_default=True),),
    scratch="LOCAL_SCRATCH",
    interface="ib0",
)


def small(cpus: int, memory: int, gpus: int = 0) -> dict[str, Any]:
    asked: dict[str, Any] = {"cpu": {"requests": cpus}, "memory": {"requests": memory}}
    return {"resources": asked | ({"gpu": {"requests": gpus}} if gpus else {})}


def distributed(framework: str, command: str = "python train.py", **environment: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "kind": "experiment",
        "framework": framework,
        "environment": environment,
        "run": {"cmd": command},
    }


CASES: dict[str, dict[str, Any]] = {
    "slurm-one": {
        "version": 1,
        "kind": "job",
        "name": "report",
        "environment": {"timeout": "90m", "slurm": {"account": "def-ana", "directives": {"mail-type": "END"}}},
        "run": {"cmd": "make report"},
    },
    "slurm-alike": distributed(
        "pytorch", timeout="1d12h", replicas={"n_workers": 3, "default_worker": small(4, 8000)}, **small(4, 8000)
    ),
    "slurm-tensorflow": distributed(
        "tensorflow",
        **small(1, 500),
        replicas={
            "n_workers": 3,
            "n_ps": 1,
            "default_worker": small(2, 2000, gpus=1),
            "default_ps": small(1, 500),
            "worker": [{"index": 1, **small(8, 2000)}],
        },
        slurm={"gpu_type": "h100", "partition": "gpu"},
        python={"modules": ["python/3.11", "cuda"], "requirements": ["tensorflow"], "no_index": True},
    ),
    "slurm-segments": distributed(
        "pytorch", timeout="5d", slurm={"segment": "24h", "checkpoint": "10m"}, replicas={"n_workers": 1}
    ),
    "slurm-mpi": distributed("mpi", "./solve", replicas={"n_workers": 4, "default_worker": small(2, 1000)}),
    "slurm-mpirun": distributed("mpi", "./solve", replicas={"n_workers": 2}, slurm={"mpi": "mpirun"}),
}


def rendered(file: dict[str, Any], site: Site | None = None, run_id: str = "r-1") -> Job:
    return find("slurm").render(plan.make(spec.load_document("polyaxonfile.yml", file), run_id), site)


def directives(job: Job) -> list[dict[str, str]]:
    """The options of each component."""
    parts: list[dict[str, str]] = [{}]
    for line in job.files["run.sh"].splitlines():
        if line == "#SBATCH hetjob":
            parts.append({})
        elif line.startswith("#SBATCH --"):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            parts[-1][name] = value
    return parts


@pytest.mark.parametrize("case", CASES)
def test_a_rendered_job_is_as_it_was_agreed(case: str) -> None:
    assert_as_agreed(rendered(CASES[case], SITE if case == "slurm-tensorflow" else None), case)


@pytest.mark.parametrize("case", CASES)
def test_rendered_scripts_are_accepted_by_bash(case: str) -> None:
    script = rendered(CASES[case]).files["run.sh"]
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_script_has_its_options_before_its_first_command() -> None:
    """Slurm reads no further."""
    for case in CASES.values():
        lines = rendered(case).files["run.sh"].splitlines()
        command = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
        assert not [line for line in lines[command:] if line.startswith("#SBATCH")]


def test_replicas_that_ask_for_the_same_are_one_job() -> None:
    (options,) = directives(rendered(CASES["slurm-alike"]))
    assert options["ntasks"] == "4"
    assert options["cpus-per-task"] == "4"
    assert options["mem-per-cpu"] == "2000M"
    assert options["time"] == "1-12:00"


def test_replicas_that_differ_are_components_each_once_in_one_order() -> None:
    job = rendered(CASES["slurm-tensorflow"])
    parts = directives(job)
    assert [(part["ntasks"], part["cpus-per-task"], part.get("gpus-per-node")) for part in parts] == [
        ("2", "1", None),
        ("2", "2", "h100:1"),
        ("1", "8", None),
    ]
    assert json.loads(job.files["plan.json"])["order"] == ["master-0", "ps-0", "worker-0", "worker-2", "worker-1"]
    assert {part["partition"] for part in parts} == {"gpu"}


def test_a_homogeneous_layout_gives_each_what_the_largest_asks_for() -> None:
    file = json.loads(json.dumps(CASES["slurm-tensorflow"]))
    file["environment"]["slurm"]["layout"] = "homogeneous"
    (options,) = directives(rendered(file))
    assert (options["ntasks"], options["cpus-per-task"], options["mem-per-cpu"]) == ("5", "8", "250M")
    assert options["gpus-per-node"] == "h100:1"


def test_as_many_replicas_share_a_node_as_fit() -> None:
    file = distributed("pytorch", **small(4, 8000, 1), replicas={"n_workers": 5, "default_worker": small(4, 8000, 1)})
    (alone,) = directives(rendered(file))
    assert (alone["nodes"], alone["ntasks-per-node"], alone["gpus-per-node"]) == ("6", "1", "1")
    (packed,) = directives(rendered(file, SITE))
    assert (packed["nodes"], packed["ntasks-per-node"], packed["gpus-per-node"]) == ("2", "4", "4")
    (by_gres,) = directives(rendered(file, SITE._replace(gpu_option="gres")))
    assert by_gres["gres"] == "gpu:4"
    file["environment"]["slurm"] = {"replicas_per_node": 3}
    (component,) = directives(rendered(file, SITE))
    assert (component["nodes"], component["ntasks-per-node"], component["gpus-per-node"]) == ("2", "3", "3")


def test_the_processes_of_a_replica_stay_on_its_node() -> None:
    replicas = {"n_workers": 1, "processes": 2, "default_worker": small(4, 1000)}
    job = rendered(distributed("pytorch", **small(4, 1000), replicas=replicas))
    (options,) = directives(job)
    assert (options["nodes"], options["ntasks"], options["ntasks-per-node"], options["cpus-per-task"]) == (
        "2", "4", "2", "2",
    )  # fmt: skip
    assert options["mem-per-cpu"] == "250M"
    order = json.loads(job.files["plan.json"])["order"]
    assert order == ["master-0", "master-0.1", "worker-0", "worker-0.1"]


def test_srun_starts_the_ranks_of_mpi_unless_mpirun_shall() -> None:
    by_srun, by_mpirun = rendered(CASES["slurm-mpi"]), rendered(CASES["slurm-mpirun"])
    assert "step pmix --join" in by_srun.files["run.sh"]
    names = [replica["role"] for replica in json.loads(by_srun.files["plan.json"])["replicas"]]
    assert set(names) == {"worker"}
    assert '"${agent[@]}" --stay' in by_mpirun.files["run.sh"]
    assert json.loads(by_mpirun.files["plan.json"])["replicas"][-1]["role"] == "launcher"


def test_a_launcher_cannot_reach_into_the_components_of_a_job() -> None:
    replicas = {"n_workers": 2, "worker": [{"index": 0, **small(4, 100)}]}
    file = distributed("mpi", "mpirun ./solve", replicas=replicas)
    with pytest.raises(CallError, match=r"layout: homogeneous"):
        rendered(file)
    file["environment"]["slurm"] = {"layout": "homogeneous"}
    assert len(directives(rendered(file))) == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_user_writes_adds_an_option_or_a_command(text: str) -> None:
    """What the shell sees does not depend on names, params, variables, paths or the command at all."""
    file = distributed("pytorch", f"run {text}", env_vars=[["A", text]], replicas={"n_workers": 1})
    file |= {"params": {"p": text}, "tags": [text], "description": text}
    harmless = distributed("pytorch", "run", env_vars=[["A", "x"]], replicas={"n_workers": 1})
    assert rendered(file).files["run.sh"] == rendered(harmless).files["run.sh"]


@pytest.mark.slow
@given(name=st.text(max_size=40), run_id=st.text(min_size=1, max_size=40))
@examples(60)
def test_names_are_harmless_words_in_the_script(name: str, run_id: str) -> None:
    made = plan.make(spec.load_document("p.yml", CASES["slurm-one"]), run_id)
    from dataclasses import replace

    script = find("slurm").render(replace(made, name=name)).files["run.sh"]
    for line in script.splitlines():
        if line.startswith(("#SBATCH --job-name=", "#SBATCH --comment=")):
            assert re.fullmatch(r"#SBATCH --[a-z-]+=(phalanx:)?[A-Za-z0-9_.-]+", line)
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_modules_are_found_where_a_first_file_does_not_define_them(tmp_path: Path) -> None:
    """A removed package leaves a file in /etc/profile.d; some end with an error after they defined the command."""
    script = rendered(distributed("pytorch", python={"modules": ["tool/1.0"]})).files["run.sh"]
    begin = script.index("if ! type module")
    part = script[begin : script.index("python=\n", begin)]
    for name, text in (("lmod", "true"), ("tcl", "module() { echo module $*; }; false")):
        (tmp_path / name / "init").mkdir(parents=True)
        (tmp_path / name / "init" / "bash").write_text(text)
    done = subprocess.run(
        ["bash"],
        input=f"fail() {{ echo failed: $*; exit 1; }}\n{part}",
        env={"PATH": "/usr/bin:/bin", "LMOD_PKG": str(tmp_path / "lmod"), "MODULESHOME": str(tmp_path / "tcl")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "module load tool/1.0\n"


BAD = "a b,a'b,a\"b,$(touch pwned),a`b`,a;b,a#b,a\\b,é\u2028"


@pytest.mark.parametrize("field", ["account", "partition", "qos", "constraint", "reservation", "gpu_type", "mpi"])
@pytest.mark.parametrize("value", [*BAD.split(","), "a\n#SBATCH --uid=0", "a\rb", "", "a\0b"])
def test_words_of_the_scheduler_are_words(field: str, value: str) -> None:
    with pytest.raises(SpecErrors):
        rendered(distributed("pytorch", slurm={field: value}))


@pytest.mark.parametrize(
    ("directives_", "said"),
    [
        ({"array": "1-3"}, "a run is one job"),
        ({"wrap": "true"}, "run: {cmd"),
        ({"--mail-type": "END"}, "not `--mail-type`"),
        ({"mail-type=END\n#SBATCH --x": "1"}, "is not a long option"),
        ({"mail-user": "a b"}, "without spaces"),
        ({"comment": "x"}, "uses it to find its jobs"),
        ({"signal": "USR1@60"}, "`environment.slurm.checkpoint: 5m`"),
        ({"cpus-per-task": 4}, "`environment.resources: {cpu: "),
        ({"ntasks": 2}, "`environment.replicas`"),
        ({"nodes": 2}, "`environment.slurm.replicas_per_node`"),
        ({"ntasks-per-node": 2}, "`environment.slurm.replicas_per_node`"),
        ({"clusters": "other"}, "login node of that cluster"),
        ({"mail-type": ["END", "a b"]}, "without spaces"),
        ({"mail-type": {"END": 1}}, "expected a list"),
    ],
)
def test_the_escape_hatch_cannot_break_what_the_job_depends_on(directives_: dict[str, str], said: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        rendered(distributed("pytorch", slurm={"directives": directives_}))
    assert said in str([(fault.message, fault.suggestion) for fault in caught.value.errors])


def test_a_directive_replaces_what_the_file_would_say_otherwise() -> None:
    file = distributed("pytorch", timeout="1h", slurm={"directives": {"time": "30", "exclusive": ""}})
    (options,) = directives(rendered(file))
    assert options["time"] == "30"
    assert "#SBATCH --exclusive\n" in rendered(file).files["run.sh"]


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ({"mail-type": ["END", "FAIL"]}, "--mail-type=END,FAIL"),
        ({"exclusive": True}, "--exclusive"),
        ({"exclusive": "true"}, "--exclusive"),
        ({"exclusive": "user"}, "--exclusive=user"),
        ({"requeue": True}, "--requeue"),
        ({"requeue": False}, "--no-requeue"),
        ({"no-requeue": ""}, "--no-requeue"),
        ({"kill-on-invalid-dep": True}, "--kill-on-invalid-dep=yes"),
        ({"dependency": "afterok:1?afterok:2"}, "--dependency=afterok:1?afterok:2"),
        ({"dependency": ["afterok:1", "afterany:2"]}, "--dependency=afterok:1,afterany:2"),
        ({"nice": 7}, "--nice=7"),
    ],
)
def test_options_of_sbatch_can_be_flags_and_lists(written: dict[str, Any], line: str) -> None:
    script = rendered(distributed("pytorch", max_restarts=1, slurm={"directives": written})).files["run.sh"]
    assert f"#SBATCH {line}\n" in script
    wanted = 0 if "no-requeue" in line else 1
    assert script.count("#SBATCH --requeue\n") == wanted


def test_an_option_that_is_switched_off_is_left_out() -> None:
    assert (
        "exclusive" not in rendered(distributed("pytorch", slurm={"directives": {"exclusive": False}})).files["run.sh"]
    )


@pytest.mark.parametrize("off", [{"requeue": False}, {"no-requeue": True}])
def test_segments_need_jobs_that_are_requeued(off: dict[str, bool]) -> None:
    with pytest.raises(SpecErrors) as caught:
        rendered(distributed("pytorch", slurm={"segment": "10m", "directives": off}))
    assert "must be requeued" in str(caught.value)


@pytest.mark.parametrize(
    ("slurm", "said"),
    [({"segment": "30s"}, "too short"), ({"segment": "10m", "checkpoint": "10m"}, "before the segment begins")],
)
def test_segments_leave_time_to_compute(slurm: dict[str, str], said: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        rendered(distributed("pytorch", slurm=slurm))
    assert said in str([fault.message for fault in caught.value.errors])


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ({"venv": "~/env", "conda": "~/c"}, "exclude each other"),
        ({"venv": "~/env", "requirements": ["torch"]}, "nothing can be installed into an existing"),
        ({"modules": ["python; touch pwned"]}, "a module name"),
        ({"requirements": ["--index-url=http://x"]}, "a package as pip takes it"),
        ({"venv": "a'b"}, "without quotes"),
    ],
)
def test_a_python_is_one(python: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        rendered(distributed("pytorch", python=python))
    assert said in str([fault.message for fault in caught.value.errors])


def test_the_agent_travels_along(tmp_path: Path) -> None:
    from phalanx.cli.commands.plan import write_job

    write_job(rendered(CASES["slurm-one"]), tmp_path / "job")
    found = sorted(path.relative_to(tmp_path / "job").as_posix() for path in (tmp_path / "job").rglob("*.*"))
    assert found == ["job/agent.pyz", "job/tracking.zip", "plan.json", "run.sh"]
    usage = subprocess.run(
        ["python3", "-I", "-S", str(tmp_path / "job/job/agent.pyz")], capture_output=True, text=True, check=False
    )
    assert usage.returncode == 2
    assert "PLAN FACTS" in usage.stderr
