"""The series of a run, against a plain computation of what they should be."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import fsum, inf, isfinite, isnan, nan
from pathlib import Path
from typing import NamedTuple

import pytest

from phalanx.errors import CallError
from phalanx.spool import MOMENT, NAMES, NO_STEP, POINTS, VALUE, PointWriter, Writer, frame, name_payload
from phalanx.store.series.compaction import compact
from phalanx.store.series.run_series import Bucket, RunSeries, Series, Summary

START = 1_700_000_000.0


class Logged(NamedTuple):
    """One point, as it was logged."""

    metric: str
    replica: str
    attempt: int
    file: str
    step: int | None
    time: float
    value: float


class Kept(NamedTuple):
    step: int
    time: float
    value: float
    attempt: int


def write_run(run: Path, points: Iterable[Logged]) -> None:
    """Each point appended to its file."""
    data: dict[Path, list[bytes]] = {}
    numbers: dict[Path, dict[str, int]] = {}
    for point in points:
        path = run / "replicas" / point.replica / f"attempt-{point.attempt}" / f"{point.file}.points"
        known = numbers.setdefault(path, {})
        records = data.setdefault(path, [])
        if point.metric not in known:
            known[point.metric] = len(known)
            records.append(frame(NAMES, name_payload(known[point.metric], point.metric)))
        step = NO_STEP if point.step is None else point.step
        moment = MOMENT.pack(step, point.time)
        records.append(frame(POINTS, moment + VALUE.pack(known[point.metric], point.value)))
    for path, records in data.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as stream:
            stream.write(b"".join(records))


def line(values: Sequence[float], *, metric: str = "loss", replica: str = "master-0", attempt: int = 1,
         first: int = 0, file: str = "client-1") -> list[Logged]:  # fmt: skip
    return [
        Logged(metric, replica, attempt, file, first + place, START + attempt * 1000 + first + place, value)
        for place, value in enumerate(values)
    ]


def plainly(points: Sequence[Logged], metric: str, replica: str) -> tuple[list[Kept], list[Kept]]:
    """What survives of a series, and what is overwritten, by the definition."""
    own = [point for point in points if (point.metric, point.replica) == (metric, replica)]
    attempts: list[list[Kept]] = []
    for attempt in sorted({point.attempt for point in own}):
        held: list[Kept] = []
        seen = set()
        for point in in_time([point for point in own if point.attempt == attempt]):
            time = round(point.time * 1e6) / 1e6
            key = (point.step, time, repr(point.value))
            if point.step is not None and key in seen:
                continue
            seen.add(key)
            before = held or (attempts[-1] if attempts else [])
            step = max((one.step for one in before), default=-1) + 1 if point.step is None else point.step
            held.append(Kept(step, time, point.value, attempt))
        attempts.append(held)
    survived, lost = [], []
    for number, held in enumerate(attempts):
        end = min((point.step for later in attempts[number + 1 :] for point in later), default=2**63)
        survived += [point for point in held if point.step < end]
        lost += [point for point in held if point.step >= end]
    return survived, lost


def in_time(points: Sequence[Logged]) -> list[Logged]:
    """The points of several files in the order of time, each file's in its own order."""
    files: dict[str, list[Logged]] = {}
    for point in points:
        files.setdefault(point.file, []).append(point)
    ordered = sorted(files.values(), key=lambda file: (file[0].time, file[0].file))
    keyed = [
        (moment, number, place, point)
        for number, file in enumerate(ordered)
        for place, (moment, point) in enumerate(zip(accumulate((one.time for one in file), max), file, strict=True))
    ]
    return [point for _, _, _, point in sorted(keyed, key=lambda one: one[:3])]


def kept(series: Iterable[Series]) -> list[Kept]:
    return [
        Kept(*point) for one in series for point in zip(one.steps, one.times, one.values, one.attempts, strict=True)
    ]


def same(found: Sequence[Kept], expected: Sequence[Kept]) -> bool:
    """Equal; NaN like NaN."""
    return len(found) == len(expected) and all(
        one.step == other.step
        and one.attempt == other.attempt
        and one.time == other.time
        and (one.value == other.value or (isnan(one.value) and isnan(other.value)))
        for one, other in zip(found, expected, strict=True)
    )


def check_buckets(buckets: Sequence[Bucket], points: Sequence[Kept], most: int) -> None:
    """The buckets hold all points in their order, and say of them what is true."""
    assert len(buckets) <= most
    assert sum(bucket.count for bucket in buckets) == len(points)
    if len(points) <= most:
        assert len(buckets) == len(points)
    place = 0
    for bucket in buckets:
        held = points[place : place + bucket.count]
        place += bucket.count
        finite = [point.value for point in held if isfinite(point.value)]
        assert held
        assert (bucket.first_step, bucket.last_step) == (held[0].step, held[-1].step)
        assert (bucket.first_time, bucket.last_time) == (held[0].time, held[-1].time)
        assert (bucket.min, bucket.max) == (min(finite, default=None), max(finite, default=None))
        assert bucket.odd == len(held) - len(finite)
        assert bucket.last == held[-1].value or isnan(held[-1].value)
        assert (bucket.mean is None) == (not finite)
        if bucket.mean is not None:
            assert abs(bucket.mean - fsum(finite) / len(finite)) < 1e-9 * max(map(abs, finite)) + 1e-12


def random_run(chance: random.Random, longest: int = 700) -> list[Logged]:
    """Attempts that overlap, forked writers, gaps, steps that go back, are missing, or come twice; odd values."""
    points = []
    clock = START
    for attempt in range(1, chance.randrange(2, 5)):
        first = chance.randrange(0, 300)
        for replica in ("master-0", "worker-0", "worker-10"):
            for metric in ("loss", "accuracy", "väl/µ"):
                if chance.random() < 0.15:
                    continue
                files = ["client-1", "client-2"] if chance.random() < 0.3 else ["client-1"]
                counted = chance.random() < 0.3
                for file in files:
                    step, time = first, clock + chance.random() * 50
                    for _ in range(chance.randrange(1, longest)):
                        step += chance.choice((1, 1, 1, 1, 0, 5, -3))
                        time += chance.choice((0.25, 0.25, 0.0, -0.125))
                        given = None if counted and chance.random() < 0.5 else step
                        value = chance.choice((nan, inf, -inf)) if chance.random() < 0.02 else chance.gauss(0, 1)
                        points.append(Logged(metric, replica, attempt, file, given, time, value))
                        if chance.random() < 0.02:  # sent again
                            points.append(
                                chance.choice(points[-9:])._replace(metric=metric, replica=replica, file=file)
                            )
        clock += 1000
    return points


def check_all(run: RunSeries, points: Sequence[Logged]) -> None:
    """Everything that a run's series answer."""
    assert run.names() == sorted({point.metric for point in points})
    summaries = run.summaries()
    for metric in run.names():
        lines = {name: plainly(points, metric, name) for name in ("master-0", "worker-0", "worker-10")}
        lines = {name: both for name, both in lines.items() if both[0]}
        assert run.replicas(metric) == list(lines)
        for replica, (survived, lost) in lines.items():
            assert same(kept(run.series(metric, replica)), survived)
            assert same(kept(run.overwritten(metric, replica)), lost)
            inside = [point for point in survived if 120 <= point.step <= 260]
            for count in (1, 7, 100, 5000):
                check_buckets(run.buckets(metric, count, replica)[replica], survived, count)
                check_buckets(run.buckets(metric, count, replica, 120, 260)[replica], inside, count)
        assert same_summary(summaries[metric], next(iter(lines.values()))[0])
        for step in (-10, 0, 150, 260, 10_000):
            found = run.at(metric, step)
            expected = at_plainly({name: survived for name, (survived, _) in lines.items()}, step)
            assert list(found) == list(expected)
            assert same([Kept(*point) for point in found.values()], list(expected.values()))


def same_summary(found: Summary, points: Sequence[Kept]) -> bool:
    finite = [point.value for point in points if isfinite(point.value)]
    last = last_of(points)
    assert found.last == last.value or (isnan(found.last) and isnan(last.value))
    return (found.min, found.max, found.count, found.step, found.at) == (
        min(finite, default=None), max(finite, default=None), len(points), last.step, last.time,
    )  # fmt: skip


def at_plainly(lines: Mapping[str, Sequence[Kept]], step: int) -> dict[str, Kept]:
    found = {}
    for replica, points in lines.items():
        before = [point for point in points if point.step <= step]
        if before:
            found[replica] = last_of(before)
    return found


def last_of(points: Sequence[Kept]) -> Kept:
    """The largest step; among several the latest, and among those the one that was logged last."""
    return max(enumerate(points), key=lambda one: (one[1].step, one[1].time, one[0]))[1]


@pytest.mark.parametrize("seed", range(4))
def test_a_run_reads_as_the_definition_says(tmp_path: Path, seed: int) -> None:
    points = random_run(random.Random(seed))
    write_run(tmp_path, points)
    check_all(RunSeries(tmp_path), points)


def test_a_folder_without_points_has_no_series(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        run = RunSeries(folder)
        assert (run.names(), run.replicas("loss"), run.series("loss"), run.summaries()) == ([], [], [], {})
        assert (run.buckets("loss", 10), run.over_ranks("loss"), run.at("loss", 1)) == ({}, [], {})
        assert run.overwritten("loss", "master-0") == []


def test_what_is_not_an_attempt_is_not_read(tmp_path: Path) -> None:
    write_run(tmp_path, line([1.0]))
    (tmp_path / "replicas" / "file").touch()
    (tmp_path / "replicas" / "master-0" / "attempt-x").mkdir()
    (tmp_path / "replicas" / "master-0" / "attempt-1" / "client-1.points.tmp").write_bytes(b"x")
    (tmp_path / "replicas" / "master-0" / "attempt-1" / "empty.points").touch()
    assert RunSeries(tmp_path).names() == ["loss"]


class TestReplicas:
    def test_the_master_comes_first_and_then_by_rank(self, tmp_path: Path) -> None:
        ranks = {"worker-10": 1, "worker-2": 2, "ps-0": 4, "master-0": 9, "evaluator-0": None, "worker-3": 3}
        for name in ranks:
            write_run(tmp_path, line([1.0], replica=name))
        self.plan(tmp_path, ranks)
        run = RunSeries(tmp_path)
        assert run.replicas("loss") == ["master-0", "worker-10", "worker-2", "worker-3", "ps-0", "evaluator-0"]
        assert [series.rank for series in run.series("loss")] == [9, 1, 2, 3, 4, None]

    def test_a_writer_knows_its_rank_better_than_the_plan(self, tmp_path: Path) -> None:
        write_run(tmp_path, [*line([1.0], replica="worker-0"), *line([1.0], replica="worker-1")])
        self.plan(tmp_path, {"worker-0": 5, "worker-1": 6})
        events = Writer(tmp_path / "replicas/worker-0/attempt-1/client-1.events")
        for event in (["no", "event"], {"kind": "params"}, {"kind": "open", "rank": None}, {"kind": "open", "rank": 7}):
            events.append_json(event)
        events.append(1, b"no JSON")
        events.close()
        assert [(one.replica, one.rank) for one in RunSeries(tmp_path).series("loss")] == [
            ("worker-1", 6),
            ("worker-0", 7),
        ]

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"replicas": 3}', '{"replicas": [3, {"role": "worker"}]}'])
    def test_without_a_plan_no_one_knows_the_rank(self, tmp_path: Path, text: str) -> None:
        for name in ("worker-10", "worker-9"):
            write_run(tmp_path, line([1.0], replica=name))
        (tmp_path / "plan.json").write_text(text)
        assert [(one.replica, one.rank) for one in RunSeries(tmp_path).series("loss")] == [
            ("worker-9", None),
            ("worker-10", None),
        ]

    def plan(self, run: Path, ranks: Mapping[str, int | None]) -> None:
        replicas = [
            {"role": name.rpartition("-")[0], "index": int(name.rpartition("-")[2]), "rank": rank}
            for name, rank in ranks.items()
            if rank is not None
        ]
        (run / "plan.json").write_text(json.dumps({"replicas": replicas}))

    def test_ranks_that_writers_said_are_kept(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        write_run(tmp_path, line([1.0], replica="worker-5"))
        events = Writer(tmp_path / "replicas/worker-5/attempt-1/client-1.events")
        events.append_json({"at": START, "kind": "open", "rank": 42})
        events.close()
        compact(tmp_path, 1)
        shutil.rmtree(tmp_path / "replicas")
        assert [series.rank for series in RunSeries(tmp_path).series("loss")] == [42]

    def test_many_ranks(self, tmp_path: Path) -> None:
        for rank in range(64):
            write_run(tmp_path, line([float(rank)] * 40, replica=f"worker-{rank}"))
        plan = {"replicas": [{"role": "worker", "index": rank, "rank": rank} for rank in range(64)]}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        for _ in range(2):
            run = RunSeries(tmp_path)
            assert run.replicas("loss") == [f"worker-{rank}" for rank in range(64)]
            assert [series.values[0] for series in run.series("loss")] == [float(rank) for rank in range(64)]
            assert {spread[5:] for spread in run.over_ranks("loss")} == {(0.0, 63.0, 31.5, 0, 64)}
            compact(tmp_path, 1)

    def test_the_summary_is_that_of_the_first_rank(self, tmp_path: Path) -> None:
        write_run(tmp_path, [*line([3.0], replica="worker-1"), *line([2.0, 1.0], replica="worker-0")])
        write_run(tmp_path, line([5.0], replica="worker-1", metric="only there"))
        assert RunSeries(tmp_path).summaries() == {
            "loss": Summary(1.0, 1.0, 2.0, 2, 1, START + 1001),
            "only there": Summary(5.0, 5.0, 5.0, 1, 0, START + 1000),
        }


class TestAttempts:
    def test_what_is_logged_again_is_overwritten_and_kept(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0] * 10))
        write_run(tmp_path, line([2.0] * 3, attempt=2, first=6))
        write_run(tmp_path, line([3.0] * 2, attempt=3, first=8))
        run = RunSeries(tmp_path)
        (series,) = run.series("loss")
        assert list(series.steps) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        assert list(series.values) == [1.0] * 6 + [2.0] * 2 + [3.0] * 2
        assert list(series.attempts) == [1] * 6 + [2] * 2 + [3] * 2
        lost = run.overwritten("loss", "master-0")
        assert [(list(one.steps), list(one.attempts)) for one in lost] == [([6, 7, 8, 9], [1] * 4), ([8], [2])]
        assert run.summaries()["loss"] == Summary(3.0, 1.0, 3.0, 10, 9, START + 3009)

    def test_only_the_same_series_is_overwritten(self, tmp_path: Path) -> None:
        write_run(tmp_path, [*line([1.0] * 5), *line([1.0] * 5, replica="worker-0"), *line([1.0] * 5, metric="lr")])
        write_run(tmp_path, line([2.0], attempt=2))
        run = RunSeries(tmp_path)
        assert [len(one.steps) for one in run.series("loss")] == [1, 5]
        assert [len(one.steps) for one in run.series("lr")] == [5]
        assert run.overwritten("loss", "worker-0") == []

    def test_steps_that_go_back_within_an_attempt_are_kept(self, tmp_path: Path) -> None:
        steps = [0, 1, 2, 1, 2, 3]
        write_run(
            tmp_path, [Logged("loss", "master-0", 1, "a", step, START + at, 0.5) for at, step in enumerate(steps)]
        )
        assert list(RunSeries(tmp_path).series("loss")[0].steps) == steps

    def test_steps_that_were_not_given_count_on_over_attempts(self, tmp_path: Path) -> None:
        def logged(attempt: int, steps: Sequence[int | None]) -> list[Logged]:
            at = START + attempt * 100
            return [Logged("loss", "master-0", attempt, "a", step, at + place, 1.0) for place, step in enumerate(steps)]

        write_run(tmp_path, [*logged(1, [None, None, 7, None]), *logged(2, [None]), *logged(4, [None, None])])
        (series,) = RunSeries(tmp_path).series("loss")
        assert list(series.steps) == [0, 1, 7, 8, 9, 10, 11]
        assert list(series.attempts) == [1, 1, 1, 1, 2, 4, 4]

    def test_steps_count_no_further_than_a_number_goes(self, tmp_path: Path) -> None:
        steps = [2**63 - 1, None, None]
        write_run(
            tmp_path, [Logged("loss", "master-0", 1, "a", step, START + at, 0.5) for at, step in enumerate(steps)]
        )
        assert list(RunSeries(tmp_path).series("loss")[0].steps) == [2**63 - 1] * 3

    def test_very_many_attempts_are_no_trouble(self, tmp_path: Path) -> None:
        points = [Logged("loss", "master-0", attempt, "a", None, START + attempt, 1.0) for attempt in range(1, 601)]
        write_run(tmp_path, points)
        assert list(RunSeries(tmp_path).series("loss")[0].steps) == list(range(600))


def test_of_equal_steps_the_last_is_the_one(tmp_path: Path) -> None:
    """Whatever leaf it stands in."""
    write_run(tmp_path, [Logged("loss", "master-0", 1, "a", 5, START + at, float(at)) for at in range(1000)])
    run = RunSeries(tmp_path)
    assert run.at("loss", 5)["master-0"].value == run.at("loss", 7)["master-0"].value == 999.0


class TestFiles:
    def test_forked_children_are_put_in_the_order_of_time(self, tmp_path: Path) -> None:
        points = [
            Logged("loss", "master-0", 1, f"client-{place % 3}", None, START + place, float(place))
            for place in range(30)
        ]
        write_run(tmp_path, points)
        (series,) = RunSeries(tmp_path).series("loss")
        assert list(series.values) == [float(place) for place in range(30)]
        assert list(series.steps) == list(range(30))

    def test_equal_times_keep_the_order_of_the_files(self, tmp_path: Path) -> None:
        write_run(
            tmp_path, [Logged("loss", "master-0", 1, file, 0, START, value) for file, value in (("b", 2.0), ("a", 1.0))]
        )
        assert list(RunSeries(tmp_path).series("loss")[0].values) == [1.0, 2.0]


class TestLive:
    def test_it_reads_on(self, tmp_path: Path) -> None:
        chance = random.Random(8)
        run = RunSeries(tmp_path)
        points: list[Logged] = []
        for number in range(12):
            more = [
                Logged("loss", "master-0", 1, chance.choice(("a", "b")) if number > 6 else "a",
                       None if number > 3 and chance.random() < 0.5 else len(points) + place,
                       START + number * 100 + place / 10, chance.random())
                for place in range(chance.randrange(1, 400))
            ]  # fmt: skip
            write_more(tmp_path, more)
            points += more
            assert run.poll()
            survived, _ = plainly(points, "loss", "master-0")
            assert same(kept(run.series("loss")), survived)
            check_buckets(run.buckets("loss", 50)["master-0"], survived, 50)
            check_buckets(run.buckets("loss", 2)["master-0"], survived, 2)
            assert same_summary(run.summaries()["loss"], survived)
            assert not run.poll()

    def test_answers_change_at_a_poll_only(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0, 2.0]))
        run = RunSeries(tmp_path)
        before = run.buckets("loss", 10)
        write_more(tmp_path, line([3.0], first=2))
        write_more(tmp_path, line([3.0], replica="worker-0"))
        assert run.buckets("loss", 10) == before
        run.poll()
        assert {name: len(buckets) for name, buckets in run.buckets("loss", 10).items()} == {
            "master-0": 3,
            "worker-0": 1,
        }

    def test_an_answer_is_the_askers_own(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0, 2.0]))
        run = RunSeries(tmp_path)
        run.buckets("loss", 10)["master-0"].clear()
        assert len(run.buckets("loss", 10)["master-0"]) == 2
        run.series("loss")[0].values[0] = 77.0
        assert run.at("loss", 0)["master-0"].value == 1.0


def write_more(run: Path, points: Iterable[Logged]) -> None:
    """By a writer that opens the file anew."""
    for point in points:
        path = run / "replicas" / point.replica / f"attempt-{point.attempt}" / f"{point.file}.points"
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = PointWriter(path)
        writer.add(point.step, point.time, {point.metric: point.value})
        writer.close()


class TestBuckets:
    @pytest.mark.parametrize("rows", [1, 2, 255, 256, 257, 1000, 5000])
    def test_they_hold_all_points_at_any_length(self, tmp_path: Path, rows: int) -> None:
        chance = random.Random(rows)
        points = line([chance.gauss(0, 1) for _ in range(rows)])
        write_run(tmp_path, points)
        survived, _ = plainly(points, "loss", "master-0")
        run = RunSeries(tmp_path)
        for count in (1, 2, 3, 10, 19, 20, 39, 255, 256, 1000, 4999, 5000, 10_000):
            buckets = run.buckets("loss", count)["master-0"]
            check_buckets(buckets, survived, count)
            assert len(buckets) >= min(rows, count) / 2
        for count in (0, -5):
            assert len(run.buckets("loss", count)["master-0"]) == 1

    @pytest.mark.slow
    def test_spikes_survive_at_every_zoom(self, tmp_path: Path) -> None:
        check_spikes(tmp_path, lambda: None)

    def test_odd_values_are_counted_and_left_out(self, tmp_path: Path) -> None:
        values = [nan] * 300 + [1.0, inf, 3.0] + [-inf] * 600
        points = line(values)
        write_run(tmp_path, points)
        survived, _ = plainly(points, "loss", "master-0")
        run = RunSeries(tmp_path)
        for count in (1, 2, 4, 20, 903, 2000):
            check_buckets(run.buckets("loss", count)["master-0"], survived, count)
        assert run.buckets("loss", 1)["master-0"][0][5:] == (1.0, 3.0, 2.0, -inf, 901)

    def test_numbers_too_large_to_be_added_have_a_mean(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.7e308] * 700, metric="up"))
        write_run(tmp_path, line([1.7e308] * 300 + [-1.7e308] * 300, metric="both"))
        run = RunSeries(tmp_path)
        for count in (1, 3, 1000):
            for bucket in run.buckets("up", count)["master-0"]:
                assert bucket[5:8] == (1.7e308, 1.7e308, 1.7e308)
                assert bucket.odd == 0
            for bucket in run.buckets("both", count)["master-0"]:
                assert bucket.mean is not None
                assert isfinite(bucket.mean)

    def test_a_range_without_points_is_empty(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0] * 1000))
        run = RunSeries(tmp_path)
        assert run.buckets("loss", 10, first=1000) == {"master-0": []}
        assert run.buckets("loss", 10, first=20, last=10) == {"master-0": []}
        assert run.buckets("loss", 10, replica="worker-0") == {}
        assert sum(bucket.count for bucket in run.buckets("loss", 10, last=99)["master-0"]) == 100


def check_spikes(tmp_path: Path, change: Callable[[], object]) -> None:
    """One point in 20,000 is high and one is low: both are seen in whatever is asked for that holds them."""
    chance = random.Random(6)
    values = [chance.gauss(0, 1) for _ in range(20_000)]
    high, low = 12_345, 6_789
    values[high], values[low] = 1000.0, -1000.0
    write_run(tmp_path, line(values))
    change()
    run = RunSeries(tmp_path)
    for count in (1, 3, 10, 77, 100, 500, 3000, 20_000):
        for first, last in ((None, None), (0, 19_999), (6000, 13_000), (6789, 12_345), (None, 12_345), (6789, None)):
            buckets = run.buckets("loss", count, first=first, last=last)["master-0"]
            assert max(bucket.max for bucket in buckets if bucket.max is not None) == 1000.0
            assert min(bucket.min for bucket in buckets if bucket.min is not None) == -1000.0
            (held,) = (bucket for bucket in buckets if bucket.max == 1000.0)
            assert held.first_step <= high <= held.last_step
        (held,) = run.buckets("loss", count, first=high, last=high)["master-0"]
        assert held[:2] == (high, high)
        for bucket in run.buckets("loss", count, first=high + 1, last=high + 300)["master-0"]:
            assert bucket.max is not None
            assert bucket.max < 100


class TestOverRanks:
    def test_few_steps_are_exact(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0, 2.0, 3.0, nan]))
        write_run(tmp_path, line([3.0, 6.0], replica="worker-0", first=1))
        write_run(tmp_path, line([10.0], replica="worker-1", first=2))
        write_run(tmp_path, line([4.0], replica="worker-1", first=2, file="z"))  # later, at the same step
        for count in (None, 4, 100):
            spreads = RunSeries(tmp_path).over_ranks("loss", count)
            assert [spread.first_step for spread in spreads] == [0, 1, 2, 3]
            assert [spread[5:] for spread in spreads] == [
                (1.0, 1.0, 1.0, 0, 1),
                (2.0, 3.0, 2.5, 0, 2),
                (3.0, 6.0, pytest.approx(13 / 3), 0, 3),
                (None, None, None, 1, 0),
            ]

    @pytest.mark.parametrize("rows", [100, 900, 3000])
    def test_many_steps_are_put_on_a_grid(self, tmp_path: Path, rows: int) -> None:
        """Ranks whose values differ by their rank, one of which logs ten times as often."""
        for rank, every in ((0, 10), (1, 10), (2, 1)):
            points = [
                Logged("loss", f"worker-{rank}", 1, "a", step, START + step, rank + step / rows)
                for step in range(0, rows, every)
            ]
            write_run(tmp_path, points)
        spreads = RunSeries(tmp_path).over_ranks("loss", 10)
        assert len(spreads) == 10
        assert sum(spread.count for spread in spreads) == rows // 10 * 2 + rows
        for number, spread in enumerate(spreads):
            assert spread.ranks == 3
            assert spread.min is not None
            assert spread.max is not None
            assert spread.mean == pytest.approx(1 + (number + 0.5) / 10, abs=0.06)
            assert spread.min == pytest.approx(number / 10, abs=0.04)
            assert spread.max == pytest.approx(2 + (number + 1) / 10, abs=0.04)

    @pytest.mark.parametrize("ranks", [3, pytest.param(40, marks=pytest.mark.slow)])
    def test_no_rank_is_missed_where_buckets_are_as_wide_as_the_grid(self, tmp_path: Path, ranks: int) -> None:
        """Ranks that logged 0 to 6 % of the steps less than the first have buckets of other widths."""
        rows = 2000
        for rank in range(ranks):
            write_run(tmp_path, line([float(rank)] * (rows - 20 * (rank % 7)), replica=f"worker-{rank}"))
        run = RunSeries(tmp_path)
        slowest = rows - 20 * min(6, ranks - 1)
        spreads = run.over_ranks("loss", 100)
        assert {spread.ranks for spread in spreads if spread.last_step < slowest} == {ranks}
        assert {spread.mean for spread in spreads if spread.last_step < slowest} == {(ranks - 1) / 2}
        assert spreads[-1].ranks == len([rank for rank in range(ranks) if rank % 7 == 0])
        assert dict(run.behind("loss")) == {
            f"worker-{rank}": rows - 20 * (rank % 7) - 1 for rank in range(ranks) if rank % 7
        }

    def test_all_points_at_one_step(self, tmp_path: Path) -> None:
        points = [Logged("loss", "worker-0", 1, "a", 5, START + place, float(place)) for place in range(50)]
        write_run(tmp_path, points)
        run = RunSeries(tmp_path)
        assert run.over_ranks("loss")[0][:8] == (5, 5, START + 49, START + 49, 1, 49.0, 49.0, 49.0)
        assert [spread[:6] for spread in run.over_ranks("loss", 3)] == [(5, 5, START, START + 49, 50, 0.0)]


class TestWithoutPyarrow:
    @pytest.fixture
    def missing(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        def hide() -> None:
            for name in ("pyarrow", "pyarrow.parquet", "pyarrow.compute"):
                monkeypatch.setitem(sys.modules, name, None)

        return hide

    def test_points_stay_where_they_are(self, tmp_path: Path, missing: Callable[[], None]) -> None:
        missing()
        points = line([1.0] * 300)
        write_run(tmp_path, points)
        assert compact(tmp_path, 1) is None
        check_all(RunSeries(tmp_path), points)

    def test_leaves_are_enough_for_charts_and_summaries(self, tmp_path: Path, missing: Callable[[], None]) -> None:
        pytest.importorskip("pyarrow")
        points = [*line([float(number) for number in range(5000)]), *line([9.0] * 10, attempt=2, first=4999)]
        write_run(tmp_path, points)
        for attempt in (1, 2):
            compact(tmp_path, attempt)
        missing()
        run = RunSeries(tmp_path)
        assert run.summaries()["loss"].last == 9.0
        buckets = run.buckets("loss", 1000)["master-0"]
        assert 20 <= len(buckets) <= 22
        assert max(bucket.max for bucket in buckets if bucket.max is not None) >= 4998
        zoomed = run.buckets("loss", 10, first=1000, last=2000)["master-0"]
        assert 3 <= len(zoomed) <= 5
        assert run.over_ranks("loss", 5)
        with pytest.raises(CallError, match=r"phalanx\[series\]"):
            run.series("loss")
        with pytest.raises(CallError, match="pyarrow"):
            run.at("loss", 100)
