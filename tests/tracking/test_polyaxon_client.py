"""Scripts written for Polyaxon 0.x, run as they are: by another process that finds our package on its path."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.store.series.run_series import RunSeries
from tests.frameworks_tracking.kept import Kept, clean_environment, outside_run
from tests.test_imports import python_3_8

SOURCES = Path(__file__).resolve().parents[2] / "src"
SHIM = SOURCES / "phalanx" / "tracking" / "polyaxon"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(name="kept")
def kept_fixture(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "home" / "runs" / "abc")


def run_script(text: str, folder: Path, python: str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
    """Warnings are errors there too."""
    environment = clean_environment(PYTHONPATH=f"{SHIM}:{SOURCES}", PHALANX_HOME=str(folder / "home"), **more)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return subprocess.run(
        [python, "-B", "-W", "error", "-c", text],
        env=environment,
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(name="inside")
def inside_fixture(kept: Kept, tmp_path: Path) -> Run:
    """Runs a script as a replica of a run."""
    variables = {
        "POLYAXON_IS_MANAGED": "true",
        "POLYAXON_PARAMS": '{"lr": 0.1, "layers": [1, 2]}',
        "POLYAXON_CLUSTER": '{"master": ["a:1"], "worker": ["b:2"]}',
        "POLYAXON_TASK_INFO": '{"type": "worker", "index": 0}',
        "POLYAXON_EXPERIMENT_INFO": '{"project_name": "vision", "experiment_name": "vision.abc"}',
        "POLYAXON_LOG_LEVEL": "INFO",
        "POLYAXON_RUN_OUTPUTS_PATH": str(kept.run / "outputs"),
        "POLYAXON_RUN_DATA_PATHS": '{"data1": "/data/1"}',
    }

    def run(text: str, **more: str) -> subprocess.CompletedProcess[str]:
        answer = run_script(text, tmp_path, **{**kept.environment(), **variables, **more})
        assert answer.returncode == 0, answer.stderr
        return answer

    return run


QUICK_START = """
from polyaxon_client.tracking import Experiment, get_data_paths, get_log_level, get_outputs_path

experiment = Experiment()
experiment.set_name("mnist")
experiment.set_description("the first one")
experiment.log_framework("tensorflow")
experiment.log_params(activation="relu", shape=(3, 4), nested={"a": 1})
experiment.log_params(dropout=0.5)
experiment.log_tags(["a", "b"])
experiment.log_tags("c, d")
for epoch in range(3):
    experiment.log_metrics(loss=1.0 / (epoch + 1), accuracy=epoch)
"""


def test_a_script_of_the_guides_is_kept(inside: Run, kept: Kept) -> None:
    assert inside(QUICK_START).stderr == ""
    assert kept.series() == {
        "loss": [(None, 1.0), (None, 0.5), (None, 1 / 3)],
        "accuracy": [(None, 0.0), (None, 1.0), (None, 2.0)],
    }
    assert kept.params() == {"activation": "relu", "shape": [3, 4], "nested.a": 1, "dropout": 0.5}
    assert [tag for event in kept.events("tags") for tag in event["add"]] == ["a", "b", "c", "d"]
    described = [
        {key: value for key, value in event.items() if key not in ("at", "kind")} for event in kept.events("describe")
    ]
    assert described == [{"name": "mnist"}, {"description": "the first one"}, {"framework": "tensorflow"}]


def test_the_same_script_works_in_python_3_8(kept: Kept, tmp_path: Path) -> None:
    interpreter = python_3_8()
    if interpreter is None:
        pytest.skip("there is no Python 3.8 on this machine")
    more = {**kept.environment(), "POLYAXON_IS_MANAGED": "1"}
    answer = run_script(QUICK_START + EVERY_CALL, tmp_path, interpreter, **more)
    assert answer.returncode == 0, answer.stderr
    assert "Traceback" not in answer.stderr
    assert len(kept.series()["loss"]) == 3
    assert kept.series()["of_group"] == [(None, 1.0)]


def test_a_step_among_the_metrics_is_their_step(inside: Run, kept: Kept) -> None:
    inside("""
from polyaxon_client.tracking import Experiment
experiment = Experiment()
experiment.log_metrics(step=7, loss=1)
experiment.log_metrics(step=8.0, loss=2)
experiment.log_metrics(step=0.5, loss=3)
experiment.log_metrics(step=9)
experiment.log_metrics(step=None, loss=4)
""")
    found = kept.series()
    assert found["loss"] == [(7, 1.0), (8, 2.0), (None, 3.0), (None, 4.0)]
    assert found["step"] == [(None, 0.5), (None, 9.0)]


def test_the_environment_is_reported_by_functions(inside: Run, kept: Kept) -> None:
    answer = inside("""
import json, os
from polyaxon_client import settings
from polyaxon_client.tracking import *
experiment = Experiment()
config = Experiment.get_tf_config()
assert json.loads(os.environ["TF_CONFIG"]) == config
assert Experiment.get_tf_config(envvar=None) == config
print(json.dumps([
    settings.IS_MANAGED, settings.IN_CLUSTER, Experiment.get_params(), Experiment.get_declarations(),
    Experiment.get_cluster_def(), experiment.get_task_info(), experiment.get_experiment_info()["project_name"],
    get_outputs_path() == experiment.get_outputs_path() == experiment.outputs_store.path, get_log_level(),
    get_data_paths(), experiment.get_data_paths(), get_outputs_refs_paths(), experiment.experiment_id,
    experiment.project_name, config,
]))
""")
    params = {"lr": 0.1, "layers": [1, 2]}
    cluster = {"master": ["a:1"], "worker": ["b:2"]}
    task = {"type": "worker", "index": 0}
    config = {"cluster": cluster, "task": task, "model_dir": str(kept.run / "outputs"), "environment": "cloud"}
    assert json.loads(answer.stdout) == [
        *(True, True, params, params, cluster, task, "vision", True, "INFO"),
        *({"data1": "/data/1"}, {"data1": "/data/1"}, None, "abc", "vision", config),
    ]


def test_files_that_are_logged_are_copied_and_found_again(inside: Run, kept: Kept) -> None:
    inside("""
import os
from polyaxon_client.tracking import Experiment
experiment = Experiment()
os.makedirs("plots/deep")
for name in ("model.h5", "plots/a.png", "plots/deep/b.png"):
    with open(name, "w") as stream:
        stream.write(name)
experiment.log_artifact("model.h5")
experiment.log_outputs("plots")
os.rename("model.h5", "again.h5")
experiment.log_output("again.h5")
experiment.outputs_store.upload_file("again.h5")
experiment.outputs_store.upload_dir("plots")
experiment.outputs_store.download_file("model.h5", "back.h5")
experiment.outputs_store.download_dir("plots", "back")
assert open("back.h5").read() == "model.h5" and open("back/deep/b.png").read() == "plots/deep/b.png"
assert experiment.outputs_store.ls()["files"] == [("again.h5", 8), ("model.h5", 8)], experiment.outputs_store.ls()
assert experiment.outputs_store.ls()["dirs"] == ["plots"]
""")
    assert (kept.run / "artifacts" / "model.h5").read_text() == "model.h5"
    assert (kept.run / "artifacts" / "plots" / "deep" / "b.png").is_file()
    assert {event["path"] for event in kept.events("artifact")} >= {"artifacts/model.h5", "artifacts/again.h5"}
    assert list((kept.run / "outputs").iterdir()) == []


def test_data_is_reported_by_the_digest_of_its_text(inside: Run, kept: Kept) -> None:
    inside("""
from polyaxon_client.tracking import Experiment
experiment = Experiment()
experiment.log_data_ref(data=[1, 2], data_name="train")
experiment.log_data_ref("/data/cifar")
""")
    first, second = kept.events("dataset")
    assert (first["name"], first["digest"]) == ("train", hashlib.md5(b"[1, 2]").hexdigest()[:12])
    assert (second["name"], second["uri"]) == ("data", "/data/cifar")


def test_a_status_inside_a_run_is_reported_and_ends_nothing(inside: Run, kept: Kept) -> None:
    inside("""
from polyaxon_client.tracking import Experiment
experiment = Experiment()
experiment.log_status("warning", message="slow")
experiment.log_succeeded()
experiment.log_failed("too late: the first end counts")
experiment.log_metrics(loss=1)
""")
    assert [event["text"] for event in kept.events("text")] == ["warning: slow", "succeeded"]
    assert kept.series() == {"loss": [(None, 1.0)]}
    assert kept.events("finish") == []
    assert not (kept.folder / "end.json").exists()


def test_reset_forgets_what_was_reported_before(inside: Run, kept: Kept) -> None:
    inside("""
from polyaxon_client.tracking import Experiment
experiment = Experiment()
experiment.log_params(a=1)
experiment.log_params(reset=True, b=2)
experiment.log_tags("x")
experiment.log_tags(["y"], reset=True)
""")
    assert kept.params() == {"b": 2}
    assert [{key: event.get(key) for key in ("add", "set")} for event in kept.events("tags")] == [
        {"add": ["x"], "set": None},
        {"add": None, "set": []},
        {"add": ["y"], "set": None},
    ]


EVERY_CALL = """
from polyaxon_client.tracking import BuildJob, Experiment, Group, Job
for made in (Experiment(), Job(), BuildJob()):
    for method, args in [
        ("log_params", {}), ("log_tags", {"tags": "a"}), ("log_status", {"status": "running"}), ("log_run_env", {}),
        ("log_code_ref", {}), ("log_backend", {"backend": "other"}), ("log_build", {"build_id": 3}),
        ("log_data_ref", {"data": 1}), ("send_logs", {"log_line": "hello"}), ("get_entity_data", {}),
        ("set_name", {"name": "n"}), ("start", {}), ("end", {"status": "stopped"}), ("succeeded", {}), ("stop", {}),
        ("failed", {"message": "m", "traceback": "t"}), ("log_stopped", {}), ("log_artifact", {"file_path": "no"}),
        ("log_artifacts", {"dir_path": "no"}), ("log_output", {"filename": "no"}), ("log_outputs", {"dirname": "no"}),
        ("create", {"name": "x", "tags": ["t"], "description": "d", "content": "version: 1"}),
    ]:
        getattr(made, method)(**args)
Experiment().log_framework("pytorch")
Experiment().create("n", "tensorflow", "other", ["t"], "d", None, 4, "/nowhere", config="c")
BuildJob().log_dockerfile("FROM x")
Job().get_job_info(), Job().get_outputs_path(), Job().get_data_paths(), Job().get_log_level()
Group().create("g").create_experiment("e").log_metrics(of_group=1)
assert Experiment().is_notebook_job is False and Experiment().get_notebook_job_info() is None
"""


def test_every_documented_call_is_there(inside: Run, kept: Kept) -> None:
    said = inside(EVERY_CALL).stderr
    assert {line.split(":")[0] for line in said.splitlines()} <= {"phalanx"}  # files that are not there, and no more
    assert "No such file" in said
    assert kept.series() == {"of_group": [(None, 1.0)]}
    labels = {key: value for event in kept.events("labels") for key, value in event["values"].items()}
    assert labels.items() >= {"backend": "other", "build": "4", "group": "g"}.items()
    assert [event["text"] for event in kept.events("text") if event["name"] == "dockerfile"] == ["FROM x"]


def test_metrics_that_are_none_do_not_hurt(inside: Run, kept: Kept) -> None:
    answer = inside("""
from polyaxon_client.tracking import Experiment
class Awkward:
    def __str__(self): raise RuntimeError("no text")
experiment = Experiment()
experiment.log_metrics(bad="many", none=None, awkward=Awkward(), good=1)
experiment.log_params(awkward=Awkward(), good=2)
experiment.log_tags([1, None])
experiment.log_data_ref(Awkward())
experiment.log_metrics(good=3)
print("trained")
""")
    assert answer.stdout == "trained\n"
    assert kept.series()["good"] == [(None, 1.0), (None, 3.0)]
    assert "log_data_ref was skipped: RuntimeError: no text" in answer.stderr


def test_no_op_does_nothing_at_all(inside: Run, kept: Kept) -> None:
    inside(
        """
from polyaxon_client.tracking import Experiment, Group, Job, get_outputs_path, get_data_paths
experiment = Experiment()
assert experiment.create("x") is None and experiment.log_metrics(loss=1) is None
assert experiment.log_params(a=1) is None and experiment.log_artifact("x") is None
assert (get_outputs_path(), get_data_paths(), Experiment.get_params(), Experiment.get_tf_config()) == (None,) * 4
assert Job().log_status("failed") is None and Group().create("g") is None
""",
        POLYAXON_NO_OP="true",
    )
    assert list(kept.folder.iterdir()) == []


def test_offline_records_nothing_and_still_knows_params_and_files(inside: Run, kept: Kept) -> None:
    inside(
        """
from polyaxon_client.tracking import Experiment
experiment = Experiment().create(name="x")
experiment.log_metrics(loss=1)
experiment.log_params(a=1)
experiment.log_failed("m")
assert Experiment.get_params()["lr"] == 0.1
open("kept.txt", "w").close()
experiment.log_artifact("kept.txt")
""",
        POLYAXON_IS_OFFLINE="true",
    )
    assert kept.series() == {}
    assert [event["name"] for event in kept.events("artifact")] == ["kept.txt"]
    assert kept.events("params") == kept.events("text") == kept.events("describe") == []


def test_offline_outside_of_a_run_makes_no_run(tmp_path: Path) -> None:
    text = """
from polyaxon_client.tracking import Experiment
experiment = Experiment("p").create(base_outputs_path="out")
experiment.log_metrics(loss=1)
assert isinstance(experiment.experiment_id, int)
open("a.txt", "w").close()
experiment.log_artifact("a.txt")
"""
    answer = run_script(text, tmp_path, POLYAXON_IS_OFFLINE="1", USER="ann")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert not (tmp_path / "home").exists()
    (copied,) = (tmp_path / "work" / "out" / "ann" / "p").glob("*/a.txt")
    assert copied.is_file()


def test_outside_of_a_run_the_getters_say_the_documented_words(tmp_path: Path) -> None:
    text = """
from polyaxon_client.exceptions import PolyaxonClientException
from polyaxon_client.tracking import *
getters = [get_outputs_path, get_data_paths, get_log_level, get_outputs_refs_paths, Experiment.get_params,
    Experiment.get_declarations, Experiment.get_tf_config, Experiment.get_cluster_def, Experiment.get_task_info,
    Experiment.get_experiment_info, Experiment.get_data_paths, Job.get_job_info, Experiment("p").get_outputs_path]
for getter in getters:
    try:
        getter()
    except PolyaxonClientException as fault:
        assert str(fault) == fault.message == "This experiment/job is not managed by Polyaxon.", getter
    else:
        raise SystemExit(getter)
"""
    answer = run_script(text, tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_outside_of_a_run_a_project_must_be_named(tmp_path: Path) -> None:
    answer = run_script("from polyaxon_client.tracking import Experiment; Experiment()", tmp_path)
    assert answer.stderr.endswith("PolyaxonClientException: Please provide a valid project.\n")
    assert not (tmp_path / "home").exists()


def test_outside_of_a_run_create_makes_one(tmp_path: Path) -> None:
    text = """
from polyaxon_client.tracking import Experiment
experiment = Experiment(project="ann/vision")
experiment.log_metrics(lost=1)
experiment.create(name="first", tags=["t"], framework="pytorch", description="by hand", base_outputs_path="base")
experiment.log_metrics(loss=1)
with open("weights", "w") as stream:
    stream.write("w")
experiment.log_artifact("weights")
assert experiment.get_outputs_path() == experiment.run.outputs
"""
    answer = run_script(text, tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "a Experiment records nothing before its `create()`\n")
    kept = outside_run(tmp_path / "home")
    assert kept.series() == {"loss": [(None, 1.0)]}
    about = json.loads((kept.run / "run.json").read_text())
    assert (about["name"], about["project"], about["description"]) == ("first", "vision", "by hand")
    assert json.loads((kept.folder / "end.json").read_text())["cause"] == "finished"
    assert (tmp_path / "work" / "base" / "ann" / "vision" / kept.run.name / "weights").read_text() == "w"
    assert (kept.run / "artifacts" / "weights").is_file()


@pytest.mark.parametrize(
    ("ending", "cause", "message"),
    [
        ("raise ValueError('loss is nan')", "error", "ValueError: loss is nan"),
        ("experiment.log_failed('gave up', 'line 3')", "error", "gave up\nline 3"),
        ("experiment.log_stopped()", "stopped", "stopped"),
        ("experiment.succeeded()", "finished", "finished"),
    ],
)
def test_outside_of_a_run_its_end_is_reported(tmp_path: Path, ending: str, cause: str, message: str) -> None:
    start = "from polyaxon_client.tracking import Experiment\nexperiment = Experiment('p').create()\n"
    run_script(start + ending, tmp_path)
    end = json.loads((outside_run(tmp_path / "home").folder / "end.json").read_text())
    assert (end["cause"], end["message"]) == (cause, message)


def test_a_group_of_a_script_makes_one_run_after_another(tmp_path: Path) -> None:
    text = """
from polyaxon_client.tracking import Group
group = Group(project="p").create(name="sweep", tags="s")
for number in range(3):
    experiment = group.create_experiment(name=f"e{number}", tags=["own"])
    experiment.log_metrics(number=number)
group.log_status("running", "half of it")
group.log_succeeded()
assert group.last_status == "succeeded" and experiment.group_id == "sweep"
"""
    answer = run_script(text, tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    runs = [Kept(folder) for folder in (tmp_path / "home" / "runs").iterdir()]
    assert sorted(kept.series()["number"][0][1] for kept in runs) == [0.0, 1.0, 2.0]
    assert {json.loads((kept.run / "run.json").read_text())["group"] for kept in runs} == {"sweep"}
    assert all((kept.folder / "end.json").exists() for kept in runs)


def test_an_unknown_call_names_those_that_are_there(inside: Run) -> None:
    inside("""
import copy, pickle
import polyaxon_client.tracking.contrib.keras as keras
from polyaxon_client.tracking import Experiment
experiment = Experiment()
for thing, name, hint in ((experiment, "log_image", "log_metrics"), (experiment.outputs_store, "delete", "upload_file"),
                          (experiment.client, "pipelines", "experiment_group"), (keras, "Keras", "PolyaxonKeras")):
    try:
        getattr(thing, name)
    except AttributeError as fault:
        assert name in str(fault) and hint in str(fault), fault
    else:
        raise SystemExit(name)
assert not hasattr(experiment, "log_image")
""")


def test_the_client_of_the_server_says_what_to_do_instead(inside: Run) -> None:
    inside("""
from polyaxon_client import PolyaxonClient
from polyaxon_client.client import PolyaxonClient as Same
from polyaxon_client.exceptions import ERRORS_MAPPING, NotFoundError, PolyaxonClientException, PolyaxonHTTPError
client = PolyaxonClient(host="h", token="t", http_port=80, use_https=True)
assert Same is PolyaxonClient and client.host == "h"
client.set_health_check("url")
client.set_host("other")
try:
    client.project.create_experiment("ann", "vision", {})
except PolyaxonClientException as fault:
    assert "PolyaxonClient.project.create_experiment" in str(fault) and "phalanx run" in str(fault)
else:
    raise SystemExit("not raised")
assert ERRORS_MAPPING[404] is NotFoundError and issubclass(NotFoundError, PolyaxonHTTPError)
assert str(NotFoundError("/x", None)) == "404 on /x."
""")


def test_the_helper_of_older_scripts_works(inside: Run, kept: Kept) -> None:
    answer = inside("""
import polyaxon_helper
from polyaxon_helper import (get_cluster_def, get_data_paths, get_declarations, get_experiment_info, get_job_info,
    get_log_level, get_outputs_path, get_outputs_refs_paths, get_params, get_task_info, get_tf_config, send_metrics)
send_metrics(loss=0.5)
send_metrics(loss=0.25)
polyaxon_helper.experiment.log_params(a=1)
print(get_declarations()["lr"], get_task_info()["type"], get_data_paths(), polyaxon_helper.get_outputs_path() is None)
try:
    polyaxon_helper.send_metric
except AttributeError as fault:
    assert "send_metrics" in str(fault)
""")
    assert answer.stdout == "0.1 worker {'data1': '/data/1'} False\n"
    assert kept.series() == {"loss": [(None, 0.5), (None, 0.25)]}
    assert kept.params() == {"a": 1}


def test_the_helper_sends_nothing_outside_of_a_run(tmp_path: Path) -> None:
    text = "import polyaxon_helper\npolyaxon_helper.send_metrics(loss=1)\nassert polyaxon_helper.experiment is None"
    answer = run_script(text, tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert not (tmp_path / "home").exists()


def test_variables_of_others_do_no_harm(inside: Run, kept: Kept) -> None:
    answer = inside(
        """
from polyaxon_client.tracking import Experiment, get_data_paths
assert Experiment.get_params() is None and get_data_paths() is None
Experiment().log_metrics(loss=1)
""",
        POLYAXON_PARAMS="{not json",
        POLYAXON_RUN_DATA_PATHS="",
        POLYAXON_TIMEOUT="soon",
    )
    assert "POLYAXON_PARAMS is not valid JSON" in answer.stderr
    assert kept.series() == {"loss": [(None, 1.0)]}


FILE = """
version: 1
kind: experiment
framework: pytorch
params: {steps: 3}
environment: {replicas: {n_workers: 1}}
run: {cmd: python train.py}
"""
TRAIN = """
from polyaxon_client.tracking import Experiment
from polyaxon_helper import send_metrics
experiment = Experiment()
for step in range(Experiment.get_params()["steps"]):
    experiment.log_metrics(step=step, loss=1 / (step + 1))
send_metrics(rank=Experiment.get_task_info()["type"] == "worker")
experiment.log_params(activation="relu")
"""


@pytest.mark.slow
def test_a_script_of_polyaxon_runs_unchanged_in_every_replica(tmp_path: Path) -> None:
    (tmp_path / "polyaxonfile.yml").write_text(FILE)
    (tmp_path / "train.py").write_text(TRAIN)
    programs = Path(sys.executable).parent
    environment = clean_environment(PHALANX_HOME=str(tmp_path / "home"), PATH=f"{programs}:{os.environ['PATH']}")
    answer = subprocess.run(
        [str(programs / "phalanx"), "run"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (run,) = (tmp_path / "home" / "runs").iterdir()
    found = RunSeries(run)
    assert [(one.replica, list(one.steps), list(one.values)) for one in found.series("loss")] == [
        ("master-0", [0, 1, 2], [1.0, 0.5, 1 / 3]),
        ("worker-0", [0, 1, 2], [1.0, 0.5, 1 / 3]),
    ]
    assert [list(one.values) for one in found.series("rank")] == [[0.0], [1.0]]
    assert Kept(run).params() == {"activation": "relu"}


FASTAI = """
class TrackerCallback:
    def __init__(self, learn, monitor="val_loss", mode="auto"):
        self.learn, self.monitor = learn, monitor
"""
FASTAI_SCRIPT = """
from types import SimpleNamespace
from polyaxon_client.tracking import Experiment
from polyaxon_client.tracking.contrib.fastai import PolyaxonFastai
from fastai.callbacks import TrackerCallback
learn = SimpleNamespace(recorder=SimpleNamespace(names=["epoch", "loss", "valid_loss", "accuracy"]))
callback = PolyaxonFastai(learn, monitor="accuracy")
assert isinstance(callback, TrackerCallback) and callback.monitor == "accuracy"
callback.on_epoch_end(epoch=0, smooth_loss=0.5, last_metrics=[0.4, 0.9], iteration=3)
"""
TENSORFLOW = """
class LoggingTensorHook:
    def __init__(self, tensors, every_n_iter=None, every_n_secs=None):
        self._tensors = {name: name for name in tensors}
    def _log_tensors(self, values):
        print(sorted(values.items()))
"""
TENSORFLOW_SCRIPT = """
from polyaxon_client.tracking.contrib.logging_tensor_hook import PolyaxonLoggingTensorHook
hook = PolyaxonLoggingTensorHook(["loss"], every_n_iter=10)
hook._log_tensors({"loss": 0.5, "train_loss": 1})
"""


def library(folder: Path, module: str, text: str) -> str:
    """The part of an old library that its callback stands on; the real one needs a Python of its time."""
    file = folder / "libraries" / (module.replace(".", "/") + ".py")
    file.parent.mkdir(parents=True)
    (file.parent / "__init__.py").touch()
    file.write_text(text)
    return f"{SHIM}:{SOURCES}:{folder / 'libraries'}"


@pytest.mark.parametrize(
    ("module", "stand_in", "script"),
    [("fastai.callbacks", FASTAI, FASTAI_SCRIPT), ("tensorflow.train", TENSORFLOW, TENSORFLOW_SCRIPT)],
)
def test_the_callbacks_of_old_libraries_log(
    kept: Kept, tmp_path: Path, module: str, stand_in: str, script: str
) -> None:
    path = library(tmp_path, module, stand_in)
    variables = {**kept.environment(), "POLYAXON_IS_MANAGED": "true"}
    text = f"import sys; sys.path[:0] = {path.split(':')!r}\n{script}"
    answer = run_script(text, tmp_path, **variables)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert kept.series()["loss"] == [(None, 0.5)]
    assert "epoch" not in kept.series()


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        ("keras", "PolyaxonKeras", "Keras is required to use PolyaxonKeras"),
        ("keras", "PolyaxonModelCheckpoint", "Keras is required to use PolyaxonModelCheckpoint"),
        ("fastai", "PolyaxonFastai", "Fastai is required to use PolyaxonFastai"),
        ("logging_tensor_hook", "PolyaxonLoggingTensorHook", "tensorflow is required to use PolyaxonLoggingTensorHook"),
    ],
)
def test_a_callback_without_its_library_is_refused_with_words(
    tmp_path: Path, module: str, name: str, said: str
) -> None:
    hidden = "import sys; sys.modules.update(keras=None, tensorflow=None, fastai=None)\n"
    answer = run_script(f"{hidden}from polyaxon_client.tracking.contrib.{module} import {name}", tmp_path)
    assert answer.stderr.endswith(f"PolyaxonClientException: {said}\n")
