from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from phalanx.errors import CallError
from phalanx.launch.options import RunOptions, document, file_options, read_options, split


def train(lr: float, epochs: int = 1) -> None: ...


def wait(timeout: float = 1.0) -> None: ...


def anything(**named: Any) -> None: ...


def test_options_and_arguments_are_told_apart_by_name() -> None:
    options, own = split(train, [], {"lr": 0.1, "workers": 4, "gpus": 1})
    assert (options.workers, options.gpus, own) == (4, 1, {"lr": 0.1})
    assert split(anything, [], {"lr": 1, "on": "slurm"}) == (RunOptions(on="slurm"), {"lr": 1})


def test_a_name_that_is_an_option_and_a_parameter_is_refused() -> None:
    with pytest.raises(CallError, match=r"an option .* parameter of wait\(\): .*partial\(wait, timeout=…\)"):
        split(wait, [], {"timeout": 3})
    options, own = split(partial(wait, timeout=3), [], {"timeout": "2h"})
    assert (options.timeout, own) == ("2h", {})


@pytest.mark.parametrize(
    ("args", "named", "said"),
    [
        ((), {"lr": 1, "wokers": 2}, r"no parameter `wokers`.*did you mean `workers`\?"),
        ((), {"lr": 1, "epoch": 2}, r"did you mean `epochs`\?"),
        ((), {"lr": 1, "zzz": 2}, r"options of the run are on, workers"),
        ((), {}, r"train\(\) cannot be called like that: missing a required argument: 'lr'"),
        ((1, 2, 3), {}, r"too many positional arguments"),
    ],
)
def test_a_call_that_cannot_work_is_refused_before_anything_runs(args: Any, named: Any, said: str) -> None:
    with pytest.raises(CallError, match=said):
        split(train, args, named)


def test_an_unknown_option_of_an_executor_has_a_suggestion() -> None:
    with pytest.raises(CallError, match=r"did you mean `gpus`\?"):
        read_options({"gpu": 1})


def test_options_become_a_polyaxonfile() -> None:
    options = RunOptions(workers=4, framework="pytorch", gpus=1, memory="4Gi", timeout="2h", env={"A": 1})
    resources = {"memory": {"requests": "4Gi", "limits": "4Gi"}, "gpu": {"requests": 1, "limits": 1}}
    assert document(options, "python x") == {
        "version": 1,
        "kind": "experiment",
        "framework": "pytorch",
        "environment": {
            "resources": resources,
            "timeout": "2h",
            "env_vars": {"A": "1"},
            "replicas": {"n_workers": 3, "default_worker": {"resources": resources}},
        },
        "run": {"cmd": "python x"},
    }


def test_all_workers_of_mpi_are_workers_and_no_framework_is_plain() -> None:
    assert document(RunOptions(workers=4, framework="mpi"), "x")["environment"]["replicas"] == {"n_workers": 4}
    assert document(RunOptions(workers=2), "x")["framework"] == "plain"
    assert "framework" not in document(RunOptions(), "x")


def test_params_of_a_file_may_have_the_name_of_an_option() -> None:
    options, params = file_options({"on": "local", "lr": 0.1}, {"name": "a param"})
    assert (options.on, params) == ("local", {"lr": 0.1, "name": "a param"})
    with pytest.raises(CallError, match="`lr` is given twice"):
        file_options({"lr": 0.1}, {"lr": 0.2})
