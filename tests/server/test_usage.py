from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.server.routes.usage import over_time
from phalanx.spool import Writer
from tests.server.site import Site
from tests.server.started import start, until

MORE = "environment:\n  resources:\n    cpu: {requests: 0.5, limits: 2}\n    memory: {requests: 256, limits: 512}\n"


@pytest.fixture(scope="module")
def run(site: Site) -> Any:
    return measured(site)


def measured(site: Site) -> Any:
    """A run that asks for much more memory than it uses, on a machine of any speed: the advice changes its file."""
    busy = "import time; t = time.time(); [None for _ in iter(lambda: time.time() < t + 1.2, False)]"
    found = start(site, f"python3 -c '{busy}'", MORE)
    return until(site, found["id"], "succeeded")


def test_what_was_asked_for_stands_beside_what_was_used(site: Site, run: Any) -> None:
    answer = site.get(f"/api/v1/runs/{run['id']}/use")
    (role,) = answer["roles"]
    assert (role["role"], role["names"], role["count"]) == ("master", "master-0", 1)
    cpu, memory = role["resources"]
    assert (cpu["resource"], cpu["unit"], cpu["requested"], cpu["limit"]) == ("cpu", "cores", 0.5, 2)
    assert (memory["resource"], memory["unit"], memory["requested"], memory["limit"]) == ("memory", "MiB", 256, 512)
    assert 0.01 < cpu["mean"] < 2
    assert memory["peak"] > 1
    assert any("too short" in sentence for sentence in answer["sentences"])


def test_the_advice_has_the_shape_of_advise_json(site: Site, run: Any) -> None:
    answer = site.get(f"/api/v1/runs/{run['id']}/use")["advice"]
    assert set(answer) == {"caveats", "roles", "time_s", "idle_hours", "environment"}
    (role,) = answer["roles"]
    assert (role["role"], role["indices"], role["cores"]["asked"]) == ("master", [0], 0.5)
    assert answer["environment"]["resources"]["memory"]["limits"] == 512


def test_a_file_that_cannot_be_changed_is_a_caveat(site: Site) -> None:
    run_id = measured(site)["id"]
    (site.folder(run_id) / "spec.yml").unlink()
    answer = site.get(f"/api/v1/runs/{run_id}/use")["advice"]
    assert answer["environment"] is None
    assert "has no spec.yml" in answer["caveats"][-1]


def test_use_over_time_has_columns_of_equal_length(site: Site, run: Any) -> None:
    answer = site.get(f"/api/v1/runs/{run['id']}/use/master-0", buckets=50)
    assert 0 < len(answer["times"]) <= 50
    assert len(answer["times"]) == len(answer["cpu"]) == len(answer["memory_mib"])
    assert answer["times"] == sorted(answer["times"])
    assert max(answer["cpu"]) > 0.01
    assert answer["gpus"] == []


def test_a_replica_that_is_not_there_used_nothing(site: Site, run: Any) -> None:
    nothing: dict[str, list[Any]] = {"times": [], "cpu": [], "memory_mib": [], "gpus": []}
    assert site.get(f"/api/v1/runs/{run['id']}/use/worker-9") == nothing
    for name in ("nonsense", "..%2f..", "a" * 300):
        assert site.ask("GET", f"/api/v1/runs/{run['id']}/use/{name}").status_code == 404
    assert site.ask("GET", f"/api/v1/runs/{run['id']}/use/master-0?buckets=0").status_code == 400


def test_of_a_tracked_run_no_one_measured_anything(site: Site) -> None:
    run_id = site.post("/api/v1/runs", {}, 201)["id"]
    answer = site.ask("GET", f"/api/v1/runs/{run_id}/use")
    assert answer.status_code == 404
    assert "not measured" in answer.json()["error"]["message"]
    site.post(f"/api/v1/runs/{run_id}/finish", {})


def noted(folder: Path, looks: int) -> None:
    """What an agent writes of a process that uses two cores and two GPUs."""
    writer = Writer(folder / "spool")
    writer.append_json({"at": 1000.0, "start": True})
    for number in range(1, looks + 1):
        of_all = {"memory_mib": 100.0 * number, "total_mib": 1e4}
        gpus = [{"index": index, "percent": 50.0 + index, **of_all} for index in (0, 1)]
        use = {"cpu_s": 2.0 * number, "memory_mib": 10.0 * number, "threads": 3}
        writer.append_json({"at": 1000.0 + number, "use": use, "gpus": gpus})
        writer.append_json({"at": 1000.0 + number, "log": 5})
    writer.close()
    (folder / "end.json").write_text(
        json.dumps({"started_at": 1000.0, "ended_at": 1000.0 + looks, "cause": "finished"})
    )


def test_many_looks_are_put_into_few_buckets(tmp_path: Path) -> None:
    noted(tmp_path, 1000)
    answer = over_time(tmp_path, "master-0", 10)
    assert len(answer["times"]) == 10
    assert answer["cpu"] == pytest.approx([2.0] * 10)
    assert answer["memory_mib"] == sorted(answer["memory_mib"])
    assert answer["memory_mib"][-1] == 10_000.0
    assert [gpu["name"] for gpu in answer["gpus"]] == ["0", "1"]
    assert answer["gpus"][1]["util"] == pytest.approx([51.0] * 10)
    assert answer["gpus"][0]["memory_mib"][-1] == 100_000.0


def test_few_looks_fill_few_buckets(tmp_path: Path) -> None:
    noted(tmp_path, 3)
    answer = over_time(tmp_path, "master-0", 300)
    assert len(answer["times"]) == len(answer["cpu"]) == 3
    assert all(1000 < at < 1003.1 for at in answer["times"])


def test_a_spool_of_nonsense_is_no_fault(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "spool")
    use = {"at": 5.0, "use": {"cpu_s": "x"}}
    notes: list[Any] = [[], 5, {"at": "x", "use": 3}, use, {"at": 6.0, "start": 1, "gpus": 7}]
    for note in notes:
        writer.append_json(note)
    writer.close()
    (tmp_path / "end.json").write_text("[]")
    assert over_time(tmp_path, "master-0", 10)["times"] == []
