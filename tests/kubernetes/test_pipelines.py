"""Pipelines whose ops run in pods."""

from __future__ import annotations

from typing import Any

from tests.cli.homes import wait_for
from tests.kubernetes.places import ON, PATIENCE_S, KubernetesPlace
from tests.kubernetes.worlds import IMAGE

SETTINGS = "luck"  # a ConfigMap that pods wait for: what a test tells programs in them
ENDS = {"prepare": "succeeded", "train": "succeeded", "flaky": "succeeded", "broken": "failed", "report": "succeeded"}
FILE, FOLDER = {"name": "data", "type": "path"}, {"name": "parts", "type": "path"}


def template(name: str, command: str, *, is_told: bool = False, **fields: Any) -> dict[str, Any]:
    environment = {"environment": {"config_map_refs": [SETTINGS]}} if is_told else {}
    return {"kind": "job", "name": name, "build": {"image": IMAGE}, "run": {"cmd": command}, **environment, **fields}


def op(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "template": {"name": name}, **fields}


def tell(place: KubernetesPlace, **values: str) -> None:
    """Pods that start from now on have these variables."""
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS}, "data": values}
    place.world.api.delete(place.world.path("configmaps", SETTINGS))
    place.world.api.create(content, place.world.namespace)


def started(place: KubernetesPlace, ops: list[dict[str, Any]], templates: list[dict[str, Any]]) -> str:
    answer = place.call("run", "-f", place.file(None, kind="pipeline", ops=ops, templates=templates), *ON, "-d")
    assert answer.code == 0, answer.err
    return answer.out.strip()


def ops_of(place: KubernetesPlace, run: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in place.see(run)["ops"]}


def states_of(place: KubernetesPlace, run: str) -> dict[str, str]:
    return {name: one["status"] for name, one in ops_of(place, run).items()}


def test_files_and_values_pass_from_op_to_op_and_ops_are_retried_and_run_after_failures(place: KubernetesPlace) -> None:
    """A file, a folder and a number of the first op reach the second, in another pod and without a shared volume."""
    prepare = (
        "cd $PHALANX_OUTPUTS; echo 7 > data.txt; mkdir -p parts/deep; echo 8 > parts/deep/b; "
        """echo '{"rows": 42}' > outputs.json"""
    )
    ops = [
        op("prepare"),
        op("train", params={name: f"{{{{ ops.prepare.outputs.{name} }}}}" for name in ("data", "parts", "rows")}),
        op("flaky", max_retries=1),
        op("broken", max_retries=1),
        op("report", dependencies=["train", "broken"], trigger="all_done"),
    ]
    templates = [
        template("prepare", prepare, outputs=[FILE, FOLDER, {"name": "rows", "type": "int"}]),
        template(
            "train",
            "echo read $(cat {{ data }}) $(cat {{ parts }}/deep/b) {{ rows }}; head -1 meet.py",
            inputs=[FILE, FOLDER, {"name": "rows", "type": "int"}],
        ),
        template("flaky", '[ "$PHALANX_RUN_ID" != "$UNLUCKY" ]', is_told=True),
        template("broken", "exit 3"),
        template("report", "echo reported"),
    ]
    (place.folder / "meet.py").write_text("# of the folder\n")
    run = started(place, ops, templates)
    first: str = wait_for(lambda: ops_of(place, run)["flaky"].get("run_id"), PATIENCE_S)
    tell(place, UNLUCKY=first)
    assert place.until(run, "succeeded", "failed", patience_s=3 * PATIENCE_S) == "failed"
    found = ops_of(place, run)
    assert {name: one["status"] for name, one in found.items()} == ENDS, found
    assert [len(found[name]["runs"]) for name in ("prepare", "flaky", "broken")] == [1, 2, 2]
    assert place.log(found["train"]["run_id"]).splitlines() == ["read 7 8 42", "# of the folder"]
    assert place.log(found["report"]["run_id"]) == "reported\n"
    for one in found.values():
        for own in one["runs"]:
            place.until_nothing_is_left(own if isinstance(own, str) else own["id"])


def test_a_pipeline_that_was_stopped_leaves_no_pod_and_resumes_with_what_it_has(place: KubernetesPlace) -> None:
    ops = [
        op("prepare"),
        op("train", params={"data": "{{ ops.prepare.outputs.data }}"}),
        op("report", dependencies=["train"]),
    ]
    templates = [
        template("prepare", "echo 7 > $PHALANX_OUTPUTS/data.txt", outputs=[FILE]),
        template("train", 'echo read $(cat {{ data }}); [ -n "$GO" ] || exec sleep 600', is_told=True, inputs=[FILE]),
        template("report", "echo reported"),
    ]
    tell(place, GO="")
    run = started(place, ops, templates)
    train: str = wait_for(lambda: ops_of(place, run)["train"].get("run_id"), 2 * PATIENCE_S)
    wait_for(lambda: "read 7" in place.log(train), 2 * PATIENCE_S)
    assert place.kill_schedulers() >= 1, "another one goes on"
    assert place.call("stop", run).code == 0
    assert place.until(run, "stopped", patience_s=2 * PATIENCE_S) == "stopped"
    assert states_of(place, run) == {"prepare": "succeeded", "train": "stopped", "report": "stopped"}
    place.until_nothing_is_left(train)
    tell(place, GO="1")
    assert place.call("resume", run, "-d").code == 0
    wait_for(lambda: set(states_of(place, run).values()) == {"succeeded"}, 3 * PATIENCE_S)
    found = ops_of(place, run)
    assert [len(found[name]["runs"]) for name in found] == [1, 1, 1]
    assert place.log(train, attempt=2) == "read 7\n", "with the file of the op that did not run again"
    assert place.log(found["report"]["run_id"]) == "reported\n"


def test_a_group_in_a_pipeline_reads_a_file_and_its_best_trial_gives_another(place: KubernetesPlace) -> None:
    ops = [
        op("prepare"),
        op("search", params={"data": "{{ ops.prepare.outputs.data }}"}),
        op("use", params={"model": "{{ ops.search.outputs.model }}"}),
    ]
    model = {"name": "model", "type": "path"}
    train = (
        "import os, sys; from phalanx import tracking; tracking.log(loss=float(open(sys.argv[1]).read()) * {{ x }}); "
        'open(os.environ["PHALANX_OUTPUTS"] + "/model.txt", "w").write("{{ x }}")'
    )
    tuning = {"matrix": {"x": {"values": [2, 1]}}, "metric": {"name": "loss", "optimization": "minimize"}}
    search = template("search", f"python3 -c '{train}' {{{{ data }}}}", inputs=[FILE], outputs=[model])
    templates = [
        template("prepare", "echo 7 > $PHALANX_OUTPUTS/data.txt", outputs=[FILE]),
        {**search, "kind": "group", "hptuning": tuning},
        template("use", "echo the best is $(cat {{ model }})", inputs=[model]),
    ]
    run = started(place, ops, templates)
    assert place.until(run, "succeeded", "failed", patience_s=4 * PATIENCE_S) == "succeeded", ops_of(place, run)
    assert place.log(ops_of(place, run)["use"]["run_id"]) == "the best is 1\n"
