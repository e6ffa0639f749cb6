from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from phalanx.server.chart_cache import RUN_BYTES, ChartTextCache, SeriesCache
from phalanx.server.chart_encoding import column
from phalanx.store.series.compaction import compact
from tests.server.logs import START, remember, write_points
from tests.server.site import Site

NAMES = [f"worker-{n}" for n in range(4)]


def chart(site: Site, run_id: str, **params: Any) -> Any:
    return site.get(f"/api/v1/runs/{run_id}/chart", **params)["charts"]


def test_many_metrics_come_in_one_answer_as_columns(site: Site) -> None:
    folder = remember(site, "columns1", NAMES)
    for number, name in enumerate(NAMES):
        write_points(folder, name, "loss", [number + step / 10 for step in range(10)])
    write_points(folder, "worker-0", "lr", [0.5])
    loss, lr, none = chart(site, "columns1", name=["loss", "lr", "nothing"])
    assert (loss["name"], loss["mode"], loss["of"]) == ("loss", "ranks", 4)
    assert [(line["replica"], line["rank"]) for line in loss["lines"]] == [(name, n) for n, name in enumerate(NAMES)]
    line = loss["lines"][1]
    assert line["steps"] == list(range(10))
    assert line["times"] == [START + 1000 + step for step in range(10)]
    for part in ("low", "high", "mean", "last"):
        assert line[part] == pytest.approx([1 + step / 10 for step in range(10)])
    assert loss["overwritten"] == []
    assert loss["attempts"] == [{"attempt": 1, "first_step": 0}]
    assert (lr["of"], lr["lines"][0]["last"]) == (1, [0.5])
    assert (none["of"], none["lines"], none["attempts"]) == (0, [], [])


def test_lines_are_chosen_by_name_or_by_number(site: Site) -> None:
    folder = remember(site, "chosen1", NAMES)
    for name in NAMES:
        write_points(folder, name, "loss", [1.0])
    (some,) = chart(site, "chosen1", name="loss", most=2)
    assert [line["replica"] for line in some["lines"]] == NAMES[:2]
    assert some["of"] == 4
    (named,) = chart(site, "chosen1", name="loss", replica=["worker-3", "worker-1"])
    assert [line["replica"] for line in named["lines"]] == ["worker-1", "worker-3"]


def test_buckets_keep_the_extremes_and_a_zoom_shows_the_points(site: Site) -> None:
    folder = remember(site, "zoom1")
    write_points(folder, "master-0", "loss", [100.0 if step == 777 else step % 7 for step in range(2000)])
    ((line,),) = [one["lines"] for one in chart(site, "zoom1", name="loss", buckets=50)]
    assert len(line["steps"]) == 50
    assert max(line["high"]) == 100.0
    assert min(line["low"]) == 0.0
    ((near,),) = [one["lines"] for one in chart(site, "zoom1", name="loss", buckets=50, first=770, last=780)]
    assert near["steps"] == list(range(770, 781))
    assert near["last"][7] == 100.0


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_mean_over_all_replicas_has_a_band_and_zooms(site: Site, is_compacted: bool) -> None:
    run_id = f"mean-{is_compacted}".lower()
    folder = remember(site, run_id, NAMES)
    for number, name in enumerate(NAMES):
        write_points(folder, name, "loss", [number + step for step in range(100)])
    if is_compacted:
        compact(folder, 1)
    (found,) = chart(site, run_id, name="loss", mode="mean")
    (line,) = found["lines"]
    assert (line["replica"], line["rank"], found["of"]) == (None, None, 4)
    assert line["steps"] == list(range(100))
    assert line["low"] == [float(step) for step in range(100)]
    assert line["high"] == [3.0 + step for step in range(100)]
    assert line["mean"] == line["last"] == [1.5 + step for step in range(100)]
    (near,) = chart(site, run_id, name="loss", mode="mean", first=10, last=12)
    assert near["lines"][0]["steps"] == [10, 11, 12]
    (few,) = chart(site, run_id, name="loss", mode="mean", buckets=10)
    assert len(few["lines"][0]["steps"]) == 10
    assert few["lines"][0]["low"][0] == 0.0
    assert few["lines"][0]["high"][-1] == 102.0


def test_replicas_that_log_at_other_steps_share_a_mean_as_well(site: Site) -> None:
    folder = remember(site, "uneven1", NAMES[:2])
    write_points(folder, "worker-0", "loss", [1.0] * 1000)
    write_points(folder, "worker-1", "loss", [3.0] * 700, first=300)
    (found,) = chart(site, "uneven1", name="loss", mode="mean", buckets=10)
    (line,) = found["lines"]
    assert len(line["steps"]) == 10
    assert (line["mean"][0], line["mean"][-1]) == (1.0, 2.0)
    assert (line["low"][-1], line["high"][-1]) == (1.0, 3.0)


def test_what_a_later_attempt_logged_again_comes_apart(site: Site) -> None:
    folder = remember(site, "again1", attempt=2)
    write_points(folder, "master-0", "loss", [9.0] * 10, attempt=1)
    write_points(folder, "master-0", "loss", [1.0] * 10, attempt=2, first=6)
    (found,) = chart(site, "again1", name="loss", overwritten=1)
    assert found["lines"][0]["steps"] == list(range(16))
    assert found["lines"][0]["last"] == [9.0] * 6 + [1.0] * 10
    (lost,) = found["overwritten"]
    assert (lost["replica"], lost["attempt"], lost["steps"]) == ("master-0", 1, [6, 7, 8, 9])
    assert lost["last"] == [9.0] * 4
    assert found["attempts"] == [{"attempt": 1, "first_step": 0}, {"attempt": 2, "first_step": 6}]
    assert chart(site, "again1", name="loss")[0]["overwritten"] == []
    assert chart(site, "again1", name="loss", overwritten=1, last=3)[0]["overwritten"] == []


def test_values_that_are_not_finite_are_texts_and_counted(site: Site) -> None:
    folder = remember(site, "odd1")
    write_points(folder, "master-0", "loss", [1.0, math.nan, math.inf, -math.inf])
    ((line,),) = [one["lines"] for one in chart(site, "odd1", name="loss")]
    assert line["last"] == [1.0, "NaN", "Infinity", "-Infinity"]
    assert line["mean"] == [1.0, None, None, None]
    assert line["odd"] == [0, 1, 1, 1]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_bucket_remembers_a_nan_that_it_hides(site: Site, is_compacted: bool) -> None:
    run_id = f"hidden-nan-{is_compacted}".lower()
    folder = remember(site, run_id, NAMES[:2])
    for name in NAMES[:2]:
        values = [math.nan if name == "worker-1" and step == 1234 else 1.0 for step in range(5000)]
        write_points(folder, name, "loss", values)
    if is_compacted:
        compact(folder, 1)
    for mode in ("ranks", "mean"):
        (found,) = chart(site, run_id, name="loss", mode=mode, buckets=10)
        marked = found["lines"][-1]
        assert sum(marked["odd"]) == 1
        assert marked["odd"].index(1) == 2
        assert [value for value in marked["mean"] if value != 1.0] == []
    assert "odd" not in chart(site, run_id, name="loss", replica="worker-0")[0]["lines"][0]


@pytest.mark.parametrize("steps", [60, 6000])
def test_a_mean_says_where_it_lacks_ranks_and_which(site: Site, steps: int) -> None:
    """Exact for few steps, and on a grid for many."""
    folder = remember(site, f"lag{steps}", NAMES)
    for number, name in enumerate(NAMES):
        write_points(folder, name, "loss", [float(number)] * (steps * 9 // 10 if number == 2 else steps))
    (found,) = chart(site, f"lag{steps}", name="loss", mode="mean", buckets=100)
    (line,) = found["lines"]
    last = steps * 9 // 10 - 1
    assert (found["of"], line["of"]) == (4, 4)
    assert {ranks for step, ranks in zip(line["steps"], line["ranks"], strict=True) if step <= last} == {4}
    assert {ranks for step, ranks in zip(line["steps"], line["ranks"], strict=True) if step > last} == {3}
    whole = [mean for mean, ranks in zip(line["mean"], line["ranks"], strict=True) if ranks == 4]
    assert set(whole) == {1.5}, "a complete step is the mean of all ranks"
    assert found["behind"] == {"count": 1, "replicas": [{"replica": "worker-2", "rank": 2, "step": last}]}
    ((lines,),) = [
        one["runs"] for one in site.get("/api/v1/charts", run=f"lag{steps}", name="loss", mode="mean")["charts"]
    ]
    assert (lines["of"], min(lines["ranks"])) == (4, 3)


def test_a_rank_whose_value_is_not_finite_is_not_in_the_mean(site: Site) -> None:
    folder = remember(site, "nan-rank", NAMES)
    for number, name in enumerate(NAMES):
        write_points(
            folder, name, "loss", [math.nan if number == 3 and step > 1 else float(number) for step in range(4)]
        )
    (line,) = chart(site, "nan-rank", name="loss", mode="mean")[0]["lines"]
    assert (line["mean"], line["ranks"], line["odd"]) == ([1.5, 1.5, 1.0, 1.0], [4, 4, 3, 3], [0, 0, 1, 1])


def test_a_mean_of_ranks_that_keep_up_says_nothing_about_them(site: Site) -> None:
    folder = remember(site, "even1", NAMES)
    for name in NAMES:
        every = 10 if name == "worker-3" else 1
        write_points(folder, name, "loss", [1.0] * (3000 // every), every=every)
    (found,) = chart(site, "even1", name="loss", mode="mean", buckets=50)
    assert "ranks" not in found["lines"][0], "who logs every tenth step is not behind for nine of ten"
    assert found["behind"] == {"count": 0, "replicas": []}


def test_an_answer_stays_small_however_much_is_asked_for(site: Site) -> None:
    folder = remember(site, "bounded1", [f"worker-{n}" for n in range(20)])
    for number in range(20):
        write_points(folder, f"worker-{number}", "loss", range(1000))
    answer = site.ask("GET", "/api/v1/runs/bounded1/chart", params={"name": "loss", "buckets": 5000, "most": 64})
    (found,) = answer.json()["charts"]
    assert sum(len(line["steps"]) for line in found["lines"]) == 20 * 1000
    names = [f"metric-{n}" for n in range(51)]
    assert site.ask("GET", "/api/v1/runs/bounded1/chart", params={"name": names}).status_code == 400
    assert site.ask("GET", "/api/v1/runs/bounded1/chart").status_code == 400
    assert site.ask("GET", "/api/v1/runs/bounded1/chart?name=loss&mode=median").status_code == 400


def test_what_did_not_change_is_not_sent_again(site: Site) -> None:
    folder = remember(site, "etag1")
    write_points(folder, "master-0", "loss", [1.0, 2.0])
    path = "/api/v1/runs/etag1/chart?name=loss"
    first = site.ask("GET", path)
    assert first.headers["cache-control"] == "private, no-cache"
    again = site.ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = site.ask("GET", f"{path}&mode=mean", headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


def test_what_a_live_run_logs_is_seen_at_once(site: Site) -> None:
    run_id = site.post("/api/v1/runs", {"name": "live"}, 201)["id"]
    folder = site.folder(run_id)
    write_points(folder, "master-0", "loss", [1.0])
    path = f"/api/v1/runs/{run_id}/chart?name=loss"
    first = site.ask("GET", path)
    write_points(folder, "master-0", "loss", [2.0], first=1)
    second = site.ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
    assert second.json()["charts"][0]["lines"][0]["last"] == [1.0, 2.0]
    write_points(folder, "master-0", "other", [3.0])
    assert chart(site, run_id, name=["loss", "other"])[1]["of"] == 1


def test_runs_are_compared_by_their_first_replica_or_the_mean(site: Site) -> None:
    for number in range(3):
        folder = remember(site, f"compare-{number}", NAMES[:2])
        for rank, name in enumerate(NAMES[:2]):
            write_points(folder, name, "loss", [10.0 * number + rank])
    write_points(site.folder("compare-2"), "worker-0", "only", [5.0])
    ids = ["compare-0", "compare-1", "nobody", "compare-2", "compare-0"]
    found = site.get("/api/v1/charts", run=ids, name=["loss", "only", "nothing"])["charts"]
    assert [one["name"] for one in found] == ["loss", "only", "nothing"]
    assert [(line["run"], line["replica"], line["last"]) for line in found[0]["runs"]] == [
        ("compare-0", "worker-0", [0.0]),
        ("compare-1", "worker-0", [10.0]),
        ("compare-2", "worker-0", [20.0]),
    ]
    assert [line["run"] for line in found[1]["runs"]] == ["compare-2"]
    assert found[2]["runs"] == []
    (mean,) = site.get("/api/v1/charts", run=ids, name="loss", mode="mean")["charts"]
    assert [line["mean"] for line in mean["runs"]] == [[0.5], [10.5], [20.5]]
    assert mean["runs"][0]["high"] == [1.0]
    first = site.ask("GET", "/api/v1/charts?run=compare-0&name=loss")
    again = site.ask("GET", "/api/v1/charts?run=compare-0&name=loss", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


def test_runs_of_projects_that_one_may_not_see_are_left_out(site: Site) -> None:
    for name in ("open", "closed"):
        folder = remember(site, f"project-{name}", project=name)
        write_points(folder, "master-0", "loss", [1.0])
    token = site.context.tokens.create("guest", "viewer", projects=["open"])
    asked = "/api/v1/charts?run=project-open&run=project-closed&name=loss"
    found = site.ask("GET", asked, token).json()["charts"][0]["runs"]
    assert [line["run"] for line in found] == ["project-open"]
    assert site.ask("GET", "/api/v1/runs/project-closed/chart?name=loss", token).status_code == 404


# kept ----------------------------------------------------------------------------------------------------------------


def test_as_many_runs_are_kept_as_fit(tmp_path: Path) -> None:
    charts = SeriesCache(most_bytes=10 * (RUN_BYTES + 30_000))
    for number in range(40):
        folder = tmp_path / f"run-{number}"
        write_points(folder, "master-0", "loss", range(1000 if number % 2 else 10))
        with charts.stamped(folder) as found:
            assert found.series.names() == ["loss"]
    assert 9 <= len(charts) <= 20
    small = SeriesCache()
    for number in range(40):
        with small.of(tmp_path / f"run-{number}"):
            pass
    assert len(small) == 40


def test_a_stamp_changes_with_what_is_logged_and_only_then(tmp_path: Path) -> None:
    charts = SeriesCache()
    write_points(tmp_path, "master-0", "loss", [1.0])
    stamps = []
    for _ in range(2):
        with charts.stamped(tmp_path) as found:
            stamps.append(found.stamp)
    write_points(tmp_path, "master-0", "loss", [2.0], first=1)
    with charts.stamped(tmp_path, patience_s=60) as found:
        stamps.append(found.stamp)
    with charts.stamped(tmp_path) as found:
        stamps.append(found.stamp)
    assert stamps[0] == stamps[1] == stamps[2] != stamps[3]
    with SeriesCache().stamped(tmp_path) as found:  # of another server
        assert found.stamp == stamps[3]


def test_texts_are_made_once_and_forgotten_by_size() -> None:
    texts = ChartTextCache(most_bytes=25)
    made: list[int] = []

    def make(number: int) -> str:
        def text() -> str:
            made.append(number)
            return "x" * 10

        return texts.get((number,), text)

    for number in (1, 2, 1, 3, 1, 2):
        make(number)
    assert made == [1, 2, 3, 2]


def test_columns_are_json_for_any_content() -> None:
    assert column([]) == "[]"
    assert column([1, 2.5, 1e-12, -3e300]) == "[1,2.5,1e-12,-3e+300]"
    assert column([1.0, None, math.nan, math.inf, -math.inf]) == '[1,null,"NaN","Infinity","-Infinity"]'
    assert column([1e308, 1e308]) == "[1e+308,1e+308]"
    assert column([1_700_000_000.1234], "%.3f") == "[1700000000.123]"


def test_metrics_say_whose_summary_is_shown(site: Site) -> None:
    folder = remember(site, "owner1", NAMES)
    for name in NAMES:
        write_points(folder, name, "loss", [1.0])
    write_points(folder, "worker-2", "score", [0.5])
    brief = site.get("/api/v1/runs/owner1/metrics", brief=1)["metrics"]
    assert brief == [
        {"name": "loss", "replica": "worker-0", "rank": 0, "replica_count": 4},
        {"name": "score", "replica": "worker-2", "rank": 2, "replica_count": 1},
    ]
    loss, _ = site.get("/api/v1/runs/owner1/metrics")["metrics"]
    assert (loss["replica"], loss["replicas"], loss["last"]) == ("worker-0", NAMES, 1.0)
