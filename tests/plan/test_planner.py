"""Spec to Plan: ranks, settings, variables and totals, whatever the framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

from phalanx import plan, spec
from phalanx.errors import SpecError, SpecErrors
from phalanx.placeholders import fill
from phalanx.plan import framework_checks
from phalanx.plan.document import document
from phalanx.spec import Amount, Resources
from phalanx.stored_plan import decode_plan
from tests.plan.samples import (
    EXAMPLE,
    FILE,
    RUN_ID,
    answer,
    argv,
    distributed,
    environment,
    messages,
    planned,
    replica,
)

CPU_S = 3.0  # well below a second on an ordinary machine
FRAMEWORKS = ("tensorflow", "mxnet", "pytorch", "horovod", "jax", "plain", "mpi")


def fault_of(text: str) -> SpecError:
    with pytest.raises(SpecErrors) as raised:
        planned(text)
    (error,) = raised.value.errors
    return error


# ranks and roles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ranks_count_from_0_without_gaps(framework: str) -> None:
    made = distributed(framework, n_workers=3)
    assert [found.rank for found in made.replicas] == list(range(len(made.replicas)))
    assert len({found.name for found in made.replicas}) == len(made.replicas)


@pytest.mark.parametrize("framework", ["tensorflow", "mxnet", "pytorch", "horovod", "jax", "plain"])
def test_the_master_is_rank_0(framework: str) -> None:
    made = distributed(framework, n_workers=3)
    assert made.replicas[0].name == "master-0"
    assert dict(made.roles)["master"] == 1


def test_workers_come_before_parameter_servers() -> None:
    made = distributed("tensorflow", n_workers=2, n_ps=2)
    assert [found.name for found in made.replicas] == ["master-0", "worker-0", "worker-1", "ps-0", "ps-1"]
    assert dict(made.roles) == {"master": 1, "worker": 2, "ps": 2}
    assert made.members == {"master": ["master-0"], "worker": ["worker-0", "worker-1"], "ps": ["ps-0", "ps-1"]}


def test_mxnet_calls_its_parameter_servers_servers() -> None:
    assert dict(distributed("mxnet", n_workers=2, n_ps=1).roles) == {"master": 1, "worker": 2, "server": 1}


def test_mpi_has_no_master() -> None:
    made = distributed("mpi", n_workers=3)
    assert dict(made.roles) == {"worker": 3}
    names = ["worker-0", "worker-1", "worker-2", "launcher-0"]
    assert [(found.name, found.rank) for found in made.replicas] == list(zip(names, range(4), strict=True))


def test_the_mpi_backend_makes_any_framework_a_gang_without_a_master() -> None:
    made = distributed("tensorflow", n_workers=2, top="backend: mpi\n")
    assert dict(made.roles) == {"worker": 2}
    assert (made.framework, made.backend) == ("tensorflow", "mpi")


@pytest.mark.parametrize("replicas", ["{}", "{n_workers: 0, n_ps: 0}"])
def test_replicas_without_any_number_are_one_master(replicas: str) -> None:
    made = planned(f"""
        version: 1
        kind: experiment
        environment: {{replicas: {replicas}}}
        run: {{cmd: ls}}
    """)
    assert dict(made.roles) == {"master": 1}
    assert not made.is_distributed


def test_roles_can_be_asked_for_without_a_plan() -> None:
    loaded = spec.load([(FILE, EXAMPLE.format(framework="mxnet").encode())])
    assert plan.roles_of(loaded) == {"master": 1, "worker": 7, "server": 3}


def test_the_same_spec_gives_the_same_plan() -> None:
    loaded = spec.load([(FILE, EXAMPLE.format(framework="tensorflow").encode())])
    assert plan.make(loaded, RUN_ID) == plan.make(loaded, RUN_ID)
    assert plan.make(loaded, RUN_ID) != plan.make(loaded, "r-2")


# settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["tensorflow", "mxnet"])
def test_a_worker_listed_without_a_gpu_has_none(framework: str) -> None:
    made = planned(EXAMPLE.format(framework=framework))
    assert replica(made, "worker-1").resources.gpu == Amount(1, 1)
    assert replica(made, "worker-2").resources == Resources(cpu=Amount(1, 2), memory=Amount(256, 1024))
    assert replica(made, "worker-3").resources.gpu == Amount(1, 1)


def test_totals_of_the_example_are_those_of_the_reference() -> None:
    made = planned(EXAMPLE.format(framework="tensorflow"))
    assert made.totals == Resources(cpu=Amount(11, 19), memory=Amount(3072, 9216), gpu=Amount(7, 7))


def test_an_override_replaces_one_attribute_and_leaves_the_others() -> None:
    made = planned("""
        version: 1
        kind: experiment
        framework: pytorch
        environment:
          replicas:
            n_workers: 2
            default_worker:
              resources: {cpu: {requests: 2}, gpu: {limits: 1}}
              node_selector: {disk: ssd, zone: a}
              labels: {team: vision}
              tolerations: [{key: gpu}]
            worker:
              - {index: 1, node_selector: {disk: hdd}, resources: {memory: {limits: 64}}}
        run: {cmd: ls}
    """)
    first, second = replica(made, "worker-0").settings, replica(made, "worker-1").settings
    assert (first.node_selector, second.node_selector) == ({"disk": "ssd", "zone": "a"}, {"disk": "hdd"})
    assert second.resources == Resources(memory=Amount(None, 64))
    assert second.labels == first.labels == {"team": "vision"}
    assert second.tolerations == first.tolerations == ({"key": "gpu"},)


def test_without_a_default_only_listed_replicas_get_settings() -> None:
    made = planned("""
        version: 1
        kind: experiment
        framework: pytorch
        environment:
          resources: {cpu: {requests: 4}}
          replicas:
            n_workers: 3
            worker: [{index: 1, resources: {cpu: {requests: 2}}}]
        run: {cmd: ls}
    """)
    assert [found.resources.cpu for found in made.replicas] == [Amount(4), None, Amount(2), None]
    assert made.totals == Resources(cpu=Amount(6))


def test_settings_of_the_run_reach_every_replica_and_those_of_the_master_do_not() -> None:
    made = planned("""
        version: 1
        kind: experiment
        framework: tensorflow
        environment:
          service_account: trainer
          image_pull_secrets: [registry]
          secret_refs: [s3]
          config_map_refs: [shared]
          data_refs: [images]
          artifact_refs: [results]
          max_restarts: 2
          node_selector: {zone: a}
          labels: {only: master}
          annotations: {only: master}
          tolerations: [{key: master}]
          affinity: {nodeAffinity: {}}
          replicas:
            n_workers: 1
            n_ps: 1
            default_ps: {secret_refs: [other]}
        run: {cmd: ls}
    """)
    worker, server = replica(made, "worker-0").settings, replica(made, "ps-0").settings
    assert (worker.service_account, worker.image_pull_secrets) == ("trainer", ("registry",))
    assert (worker.config_map_refs, worker.data_refs, worker.artifact_refs) == (("shared",), ("images",), ("results",))
    assert (worker.secret_refs, server.secret_refs) == (("s3",), ("other",))
    assert worker.max_restarts == made.max_restarts == 2
    for own in ("node_selector", "labels", "annotations", "tolerations", "affinity", "resources"):
        assert getattr(worker, own) is None
    assert replica(made, "master-0").settings.labels == {"only": "master"}


def test_resources_of_a_master_that_mpi_does_not_have_are_noted() -> None:
    made = distributed("mpi", more="resources: {cpu: {requests: 1}}\n")
    assert made.totals == Resources()
    assert any("no master" in message for message in messages(made))


# variables --------------------------------------------------------------------------------------------------------

VARIABLES = """
    version: 1
    kind: experiment
    framework: pytorch
    build:
      image: "busybox:1"
      env_vars: [[OF_BUILD, build], [OF_ENVIRONMENT, build], [OF_WORKER, build], [OF_INDEX, build], [RANK, build]]
    environment:
      env_vars: {OF_ENVIRONMENT: environment, OF_WORKER: environment, OF_INDEX: environment, RANK: "99"}
      replicas:
        n_workers: 2
        default_worker:
          env_vars: {OF_WORKER: worker, OF_INDEX: worker, OF_DEFAULT: worker, WORLD_SIZE: "99"}
        worker:
          - {index: 1, env_vars: {OF_INDEX: index}}
    run: {cmd: ls}
"""


def test_build_variables_give_way_to_the_environments_and_those_to_the_replicas() -> None:
    made = planned(VARIABLES)
    master, default, listed = (environment(made, name) for name in ("master-0", "worker-0", "worker-1"))
    assert master["OF_BUILD"] == default["OF_BUILD"] == listed["OF_BUILD"] == "build"
    assert master["OF_ENVIRONMENT"] == default["OF_ENVIRONMENT"] == listed["OF_ENVIRONMENT"] == "environment"
    assert (master["OF_WORKER"], default["OF_WORKER"]) == ("environment", "worker")
    assert (master["OF_INDEX"], default["OF_INDEX"], listed["OF_INDEX"]) == ("environment", "worker", "index")


def test_the_variables_of_a_listed_replica_replace_those_of_the_default_as_a_whole() -> None:
    listed = environment(planned(VARIABLES), "worker-1")
    assert "OF_DEFAULT" not in listed
    assert listed["OF_WORKER"] == "environment"  # the run's own still reach it


def test_the_wiring_wins_over_every_variable_of_the_user_and_says_so() -> None:
    made = planned(VARIABLES)
    assert [environment(made, found.name)["RANK"] for found in made.replicas] == ["0", "1", "2"]
    assert environment(made, "worker-0")["WORLD_SIZE"] == "3"
    notes = [note for note in made.notes if "set by the wiring" in note.message]
    assert {(note.path, note.message.split("`")[1]) for note in notes} == {
        ("build.env_vars", "RANK"),
        ("environment.env_vars", "RANK"),
        ("environment.env_vars", "WORLD_SIZE"),
    }
    assert all(note.place.file == FILE and note.place.line > 0 for note in notes)


@pytest.mark.parametrize("name", ["DMLC_WORKER_ID", "DMLC_SERVER_ID", "DMLC_ROLE"])
def test_the_wiring_of_a_role_other_than_the_masters_also_says_that_it_wins(name: str) -> None:
    made = distributed("mxnet", n_workers=2, n_ps=1, more=f"env_vars: [[{name}, mine]]\n")
    assert environment(made, "worker-1")[name] != "mine"
    assert any(f"`{name}` is set by the wiring" in message for message in messages(made))


@pytest.mark.parametrize("name", ["PHALANX_RANK", "PHALANX_RUN_ID", "POLYAXON_TASK_INFO", "POLYAXON_CLUSTER"])
def test_the_contract_is_wiring_too(name: str) -> None:
    made = planned(f"""
        version: 1
        kind: job
        environment: {{env_vars: {{{name}: mine}}}}
        run: {{cmd: ls}}
    """)
    assert environment(made, "master-0")[name] != "mine"
    assert any(f"`{name}` is set by the wiring" in message for message in messages(made))


def test_variables_that_the_wiring_does_not_use_are_left_alone_and_not_noted() -> None:
    made = planned("""
        version: 1
        kind: job
        environment: {env_vars: {MASTER_ADDR: mine, RANK: "7"}}
        run: {cmd: ls}
    """)
    assert environment(made, "master-0")["MASTER_ADDR"] == "mine"
    assert messages(made) == []


@pytest.mark.parametrize(
    ("cpu", "threads"),
    [
        ("{requests: 4, limits: 8}", "4"),
        ("{limits: 6}", "6"),
        ("{requests: 2.9}", "2"),
        ("{requests: 0.5, limits: 1}", "1"),
        ('{requests: "250m"}', "1"),
    ],
)
def test_threads_follow_the_share_of_cpus(cpu: str, threads: str) -> None:
    made = distributed("pytorch", more=f"resources: {{cpu: {cpu}}}\n")
    assert replica(made, "master-0").defaults == {"OMP_NUM_THREADS": threads}
    assert replica(made, "worker-0").defaults == {}


@pytest.mark.parametrize("where", ["of the run", "of the workers"])
def test_the_threads_of_the_user_are_never_overridden(where: str) -> None:
    mine = 'env_vars: {OMP_NUM_THREADS: "3"}'
    made = planned(f"""
        version: 1
        kind: experiment
        framework: pytorch
        environment:
          {mine if where == "of the run" else "env_vars: {}"}
          replicas:
            n_workers: 1
            default_worker:
              resources: {{cpu: {{requests: 8}}}}
              {mine if where == "of the workers" else "env_vars: {}"}
        run: {{cmd: ls}}
    """)
    assert replica(made, "worker-0").defaults == {}
    assert environment(made, "worker-0")["OMP_NUM_THREADS"] == "3"


def test_threads_set_by_the_build_are_the_users_too() -> None:
    made = planned("""
        version: 1
        kind: job
        build: {image: "busybox:1", env_vars: [[OMP_NUM_THREADS, 3]]}
        environment: {resources: {cpu: {requests: 8}}}
        run: {cmd: ls}
    """)
    assert replica(made, "master-0").defaults == {}
    assert environment(made, "master-0")["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_replicas_environment_can_be_filled_in_completely(framework: str) -> None:
    made = distributed(framework, n_workers=3)
    for found in made.replicas:
        for value in {**made.shared, **found.environment}.values():
            assert isinstance(fill(value, made.members, answer), str)


# totals -----------------------------------------------------------------------------------------------------------


def test_totals_are_the_sum_of_what_the_replicas_ask_for() -> None:
    made = planned(EXAMPLE.format(framework="mxnet"))
    for name in ("cpu", "memory", "gpu"):
        for bound in ("requests", "limits"):
            asked = [getattr(getattr(found.resources, name), bound, None) or 0 for found in made.replicas]
            assert getattr(getattr(made.totals, name), bound) == sum(asked)


def test_what_no_one_asks_for_has_no_total() -> None:
    assert plan.total([]) == Resources()
    assert plan.total([Resources(), Resources(cpu=Amount(limits=2))]) == Resources(cpu=Amount(None, 2))
    assert plan.total([Resources(gpu=Amount(0, 0))]) == Resources(gpu=Amount(0, 0))


# kinds ------------------------------------------------------------------------------------------------------------


def test_a_job_is_one_replica_that_runs_its_command() -> None:
    made = planned("""
        version: 1
        kind: job
        environment: {resources: {cpu: {requests: 2}}}
        run: {cmd: [make data, make report]}
    """)
    assert (made.kind, made.framework, made.backend, made.launch) == ("job", None, "native", "each")
    assert made.command == "make data && make report"
    assert argv(made, "master-0") == ["bash", "-c", "make data && make report"]
    assert made.totals == Resources(cpu=Amount(2))


@pytest.mark.parametrize(
    ("backend", "server", "page"), [("", "lab", "/lab"), ("backend: notebook", "notebook", "/tree")]
)
def test_a_notebook_starts_jupyter_and_its_agent_decides_where_it_listens(backend: str, server: str, page: str) -> None:
    made = planned(f"""
        version: 1
        kind: notebook
        {backend}
        build: {{image: "jupyter/base-notebook:latest"}}
    """)
    assert made.command == f"jupyter {server}"
    assert argv(made, "master-0") == ["jupyter", server, "--no-browser"]
    assert (made.notebook, decode_plan(document(made)).notebook) == (page, page)


def test_an_idle_notebook_ends_by_jupyters_own_settings() -> None:
    made = planned("""
        version: 1
        kind: notebook
        environment: {idle_timeout: 2h}
    """)
    options = argv(made, "master-0")[3:]
    assert "--ServerApp.shutdown_no_activity_timeout=7200" in options
    assert "--MappingKernelManager.cull_idle_timeout=7200" in options
    assert "--MappingKernelManager.cull_interval=60" in options


def test_a_hold_is_in_the_plan() -> None:
    made = planned("""
        version: 1
        kind: experiment
        environment: {hold: 30m}
        run: {cmd: "true"}
    """)
    assert (made.hold_s, decode_plan(document(made)).hold_s) == (1800.0, 1800.0)


def test_a_tensorboard_reads_the_outputs() -> None:
    made = planned("""
        version: 1
        kind: tensorboard
        build: {image: "tensorflow/tensorflow:2.15.0"}
    """)
    assert made.command == "tensorboard"
    wanted = ["tensorboard", "--logdir=/run/outputs", "--host=master-0.example", "--port=2222"]
    assert argv(made, "master-0") == wanted


def test_a_build_runs_its_steps_one_after_another() -> None:
    made = planned("""
        version: 1
        kind: build
        image: python:3.11
        build_steps: [pip install torch, python -c "import torch"]
        env_vars: [[PIP_NO_CACHE, "1"]]
    """)
    assert argv(made, "master-0")[-2:] == ["pip install torch", 'python -c "import torch"']
    assert environment(made, "master-0")["PIP_NO_CACHE"] == "1"


def test_a_build_without_steps_makes_an_empty_environment() -> None:
    made = planned("version: 1\nkind: build\nimage: python:3.11\n")
    assert made.command == "an empty virtual environment"
    assert argv(made, "master-0")[-1] == "no"
    assert not made.notes


def test_a_file_without_a_command_runs_nothing_and_says_so() -> None:
    made = planned("version: 1\nkind: experiment\n")
    assert made.command is None
    assert made.replicas[0].argv == ()
    assert any("nothing to run" in message for message in messages(made))


def test_time_limit_restarts_name_and_backend_are_carried_along() -> None:
    made = planned("""
        version: 1
        kind: experiment
        name: long-one
        backend: slurm
        environment: {timeout: "1h30m", max_restarts: 3}
        run: {cmd: ls}
    """)
    assert (made.name, made.backend, made.timeout_s, made.max_restarts) == ("long-one", "slurm", 5400, 3)


@pytest.mark.parametrize(
    "text",
    [
        "kind: group\nhptuning: {matrix: {lr: {values: [1]}}}\nrun: {cmd: ls}",
        "kind: pipeline\nops: [{name: a, template: {name: t}}]\ntemplates: [{name: t, kind: job, run: {cmd: ls}}]",
    ],
)
def test_many_runs_have_no_single_plan(text: str) -> None:
    loaded = spec.load([(FILE, f"version: 1\n{text}\n".encode())])
    with pytest.raises(AssertionError, match="one run"):
        plan.make(loaded, RUN_ID)


# faults -----------------------------------------------------------------------------------------------------------


def test_replicas_without_a_framework_are_a_fault_with_a_place_and_the_choices() -> None:
    fault = fault_of("version: 1\nkind: experiment\nenvironment:\n  replicas:\n    n_workers: 2\nrun: {cmd: ls}\n")
    assert fault.path == "environment.replicas"
    assert (fault.place.file, fault.place.line) == (FILE, 5)
    assert "require a framework" in fault.message
    assert fault.suggestion is not None
    assert all(name in fault.suggestion for name in FRAMEWORKS)


def test_an_unknown_framework_is_a_fault_with_the_nearest_name() -> None:
    fault = fault_of(
        "version: 1\nkind: experiment\nframework: tensorflo\nenvironment: {replicas: {n_workers: 2}}\nrun: {cmd: ls}\n"
    )
    assert (fault.path, fault.place.line, fault.place.column) == ("framework", 3, 12)
    assert "`tensorflo` cannot be distributed" in fault.message
    assert fault.suggestion == "did you mean `tensorflow`?"


def test_a_framework_like_no_other_is_a_fault_with_all_the_names() -> None:
    fault = fault_of(
        "version: 1\nkind: experiment\nframework: zzz\nenvironment: {replicas: {n_workers: 2}}\nrun: {cmd: ls}\n"
    )
    assert fault.suggestion is not None
    assert all(name in fault.suggestion for name in FRAMEWORKS)


@pytest.mark.parametrize("framework", ["zzz", "scikit-learn", "__init__", "../mpi", "mpi.wire", ""])
def test_a_framework_is_only_a_label_where_there_is_one_replica(framework: str) -> None:
    made = planned(f"version: 1\nkind: experiment\nframework: '{framework}'\nrun: {{cmd: ls}}\n")
    assert (made.framework, dict(made.roles)) == (framework, {"master": 1})


@pytest.mark.parametrize("framework", ["__init__", "../mpi", "mpi.wire", "", "making"])
def test_names_that_are_no_framework_find_none(framework: str) -> None:
    fault = fault_of(
        f"version: 1\nkind: experiment\nframework: '{framework}'\n"
        "environment: {replicas: {n_workers: 2}}\nrun: {cmd: ls}\n"
    )
    assert "cannot be distributed" in fault.message


@pytest.mark.parametrize("framework", ["pytorch", "horovod", "mpi", "jax"])
def test_parameter_servers_of_a_framework_that_has_none_are_a_fault(framework: str) -> None:
    fault = fault_of(
        f"version: 1\nkind: experiment\nframework: {framework}\n"
        "environment:\n  replicas:\n    n_workers: 2\n    n_ps: 1\nrun: {cmd: ls}\n"
    )
    assert fault.path == "environment.replicas.n_ps"
    assert fault.place.line == 7
    assert fault.message == f"{framework} has no parameter servers"
    assert fault.suggestion is not None
    assert "tensorflow" in fault.suggestion


def test_the_locale_of_a_build_is_the_locale_of_the_run() -> None:
    content = {"version": 1, "kind": "job", "build": {"lang_env": "C.UTF-8"}, "run": {"cmd": "true"}}
    made = plan.make(spec.load_document("test", content), "run")
    assert {name: made.shared[name] for name in ("LC_ALL", "LANG", "LANGUAGE")} == dict.fromkeys(
        ("LC_ALL", "LANG", "LANGUAGE"), "C.UTF-8"
    )


def test_the_variables_of_a_replica_are_a_mapping_that_compares_as_one() -> None:
    text = "version: 1\nkind: experiment\nframework: pytorch\nenvironment: {replicas: {n_workers: 1}}\nrun: {cmd: x}\n"
    loaded = framework_checks.load([("polyaxonfile.yml", text.encode())], {})[0]
    first, second = plan.make(loaded, "a"), plan.make(loaded, "a")
    assert first == second
    environment = first.replicas[1].environment
    assert environment == dict(environment)
    assert environment["PHALANX_REPLICA"] == "worker-0"
    assert len(environment) == len(list(environment))
    assert repr(environment) == repr(dict(environment))


@pytest.mark.slow
def test_a_hundred_thousand_workers_are_planned_quickly() -> None:
    text = (
        "version: 1\nkind: experiment\nframework: NAME\nenvironment: {replicas: {n_workers: 100000}}\nrun: {cmd: x}\n"
    )
    program = (
        "import sys, time; from phalanx.plan import framework_checks, make\n"
        "start = time.process_time()\n"
        "spec = framework_checks.load([('f.yml', sys.stdin.buffer.read())], {})[0]\n"
        "assert len(make(spec, 'a').replicas) == 100001\n"
        "print(time.process_time() - start)\n"
    )
    for name in ("tensorflow", "pytorch"):
        done = subprocess.run(
            [sys.executable, "-c", program], input=text.replace("NAME", name).encode(), capture_output=True, check=True
        )
        assert float(done.stdout) < CPU_S
