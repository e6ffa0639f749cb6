from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from phalanx.logs import cursors
from phalanx.logs.lines import cut, plain_text
from phalanx.logs.replica_logs import LogSource
from phalanx.logs.time_index import TimeNotes, times_of
from phalanx.logs.windows import MergedLogReader
from phalanx.store import Store
from tests.server.logs import START, note, remember, write_log, write_plan
from tests.server.site import Site


def lines(site: Site, run_id: str, **params: Any) -> Any:
    return site.get(f"/api/v1/runs/{run_id}/lines", **params)


def texts(answer: Any) -> list[str]:
    return [line["text"] for line in answer["lines"]]


def all_forward(site: Site, run_id: str, **params: Any) -> list[str]:
    """Every line, from the beginning, page by page."""
    answer = lines(site, run_id, **params)
    while not answer["at_start"]:
        answer = lines(site, run_id, before=answer["first"], **params)
    found, cursor = texts(answer), answer["last"]
    while True:
        answer = lines(site, run_id, after=cursor, **params)
        found += texts(answer)
        cursor = answer["last"]
        if answer["at_end"]:
            return found


def all_backward(site: Site, run_id: str, **params: Any) -> list[str]:
    answer = lines(site, run_id, **params)
    found = texts(answer)
    while not answer["at_start"]:
        answer = lines(site, run_id, before=answer["first"], **params)
        found = texts(answer) + found
    return found


def test_lines_of_all_replicas_stand_in_the_order_of_time(site: Site) -> None:
    folder = remember(site, "order1", ["master-0", "worker-0", "worker-1"])
    for rank, name in enumerate(["master-0", "worker-0", "worker-1"]):
        write_log(folder, name, [(step + rank / 10, f"rank {rank} step {step}") for step in range(20)])
    answer = lines(site, "order1", limit=5)
    assert texts(answer) == ["rank 1 step 18", "rank 2 step 18", "rank 0 step 19", "rank 1 step 19", "rank 2 step 19"]
    assert [line["at"] - START for line in answer["lines"]] == pytest.approx([18.1, 18.2, 19.0, 19.1, 19.2], abs=0.01)
    assert answer["lines"][0]["replica"] == "worker-0"
    assert answer["lines"][0]["rank"] == 1
    assert (answer["at_start"], answer["at_end"]) == (False, True)
    before = lines(site, "order1", before=answer["first"], limit=2)
    assert texts(before) == ["rank 2 step 17", "rank 0 step 18"]
    assert texts(lines(site, "order1", after=before["last"], limit=1)) == ["rank 1 step 18"]
    assert texts(lines(site, "order1", replica="worker-1", limit=2)) == ["rank 2 step 18", "rank 2 step 19"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [3, 100])
@pytest.mark.parametrize("fold", [0, 1])
def test_pages_miss_and_repeat_nothing_even_with_wrong_clocks(site: Site, limit: int, fold: int) -> None:
    run_id = f"clocks-{limit}-{fold}"
    names = [f"worker-{n}" for n in range(3)]
    folder = remember(site, run_id, names)
    written = []
    for number, name in enumerate(names):
        said = [f"{name} says {step}" for step in range(40)]
        written += said
        times = [step * 0.1 + 100 * number for step in range(40)]
        times[20:] = [at - 50 for at in times[20:]]  # somebody sets the clock back
        write_log(folder, name, zip(times, said, strict=True))
    for found in (
        all_backward(site, run_id, limit=limit, fold=fold),
        all_forward(site, run_id, limit=limit, fold=fold),
    ):
        assert sorted(found) == sorted(written)
        for name in names:
            own = [text for text in found if text.startswith(name)]
            assert own == [f"{name} says {step}" for step in range(40)]


def test_the_same_line_of_many_replicas_is_reported_once(site: Site) -> None:
    names = [f"worker-{n}" for n in range(30)]
    folder = remember(site, "folded1", names)
    for number, name in enumerate(names):
        write_log(folder, name, [(step + number / 100, f"epoch {step}") for step in range(50)])
    answer = lines(site, "folded1", fold=1, limit=10)
    assert texts(answer) == [f"epoch {step}" for step in range(40, 50)]
    assert all(len(line["replicas"]) == 30 for line in answer["lines"])
    assert answer["lines"][0]["replicas"][:2] == ["worker-0", "worker-1"]
    earlier = lines(site, "folded1", fold=1, limit=10, before=answer["first"])
    assert texts(earlier) == [f"epoch {step}" for step in range(30, 40)]
    assert all(len(line["replicas"]) == 30 for line in earlier["lines"])
    assert all_forward(site, "folded1", fold=1, limit=7) == [f"epoch {step}" for step in range(50)]
    assert len(texts(lines(site, "folded1", limit=2000))) == 1500


def test_following_gives_each_line_once_and_an_unfinished_one_apart(site: Site) -> None:
    run_id = site.post("/api/v1/runs", {"name": "live"}, 201)["id"]
    folder = site.folder(run_id)
    write_log(folder, "master-0", [(0, "one"), (1, b"10%\r50%")])
    answer = lines(site, run_id)
    assert texts(answer) == ["one"]
    assert answer["unfinished"] == [{"replica": "master-0", "rank": 0, "text": "50%"}]
    write_log(folder, "master-0", [(2, b"\r100%\ntwo\n")])
    answer = lines(site, run_id, after=answer["last"])
    assert texts(answer) == ["100%", "two"]
    assert answer["unfinished"] == []
    assert texts(lines(site, run_id, after=answer["last"])) == []
    site.post(f"/api/v1/runs/{run_id}/finish", {"status": "succeeded"})
    write_log(folder, "master-0", [(3, b"no newline")])
    assert texts(lines(site, run_id, after=answer["last"])) == ["no newline"]


@pytest.mark.parametrize("length", [10, 5_000, 9_000, 30_000])
def test_following_a_progress_bar_comes_to_an_end(site: Site, length: int) -> None:
    run_id = site.post("/api/v1/runs", {"name": "bar"}, 201)["id"]
    folder = site.folder(run_id)
    write_log(folder, "master-0", [(0, "one"), (1, b"".join(b"\r%d %%" % state for state in range(length // 6)))])
    opened = lines(site, run_id)
    assert opened["at_end"]
    assert opened["unfinished"][0]["text"] == f"{length // 6 - 1} %"
    found: list[str] = []
    answer = lines(site, run_id, after="1~0~0~0~")
    while answer["lines"]:
        found += texts(answer)
        answer = lines(site, run_id, after=answer["last"])
    assert answer["at_end"]
    assert found[0] == "one"
    assert answer["unfinished"][0]["text"] == f"{length // 6 - 1} %"


def test_a_machine_whose_clock_is_behind_is_followed_too(site: Site) -> None:
    run_id = site.post("/api/v1/runs", {"name": "behind"}, 201)["id"]
    folder = site.folder(run_id)
    write_plan(folder, ["master-0", "worker-0"])
    write_log(folder, "master-0", [(100, "ahead")])
    write_log(folder, "worker-0", [(10, "behind")])
    answer = lines(site, run_id)
    assert texts(answer) == ["behind", "ahead"]
    write_log(folder, "worker-0", [(11, "still behind")])
    assert texts(lines(site, run_id, after=answer["last"])) == ["still behind"]


def test_each_attempt_has_its_own_lines_and_a_cursor_stays_in_its_attempt(site: Site) -> None:
    folder = remember(site, "attempts1", attempt=2)
    write_log(folder, "master-0", [(0, "first"), (1, "of one")], attempt=1)
    write_log(folder, "master-0", [(9, "second")], attempt=2)
    assert texts(lines(site, "attempts1")) == ["second"]
    older = lines(site, "attempts1", attempt=1, limit=1)
    assert texts(older) == ["of one"]
    assert texts(lines(site, "attempts1", before=older["first"])) == ["first"]
    assert site.ask("GET", "/api/v1/runs/attempts1/lines?attempt=3").status_code == 404
    logs = site.get("/api/v1/runs/attempts1/logs", attempt=1)
    assert logs == {"attempt": 1, "attempts": 2, "logs": [{"replica": "master-0", "rank": 0, "size": 13}]}


def test_what_a_terminal_would_obey_is_gone_or_visible(site: Site) -> None:
    folder = remember(site, "escapes1")
    written = b"\x1b[31mred\x1b[0m\n\x1b[2J\x00\xff\n10%\r99%\rdone\r\n\tindented\n\xe2\x80\xaereversed\n"
    write_log(folder, "master-0", [(0, written)])
    assert texts(lines(site, "escapes1")) == ["red", "\\x1b[2J\\x00�", "done", "\tindented", "\\u202ereversed"]


def test_a_progress_bar_without_a_newline_is_reported_by_its_states() -> None:
    bar = b"".join(b"\r%3d%%|%s|" % (state, b"#" * 50) for state in range(1000))
    pieces = cut(bar)
    assert b"".join(pieces) == bar
    assert [plain_text(piece.decode()) for piece in pieces][-1].startswith("999%")
    assert all(plain_text(piece.decode()).endswith("|") and len(plain_text(piece.decode())) < 60 for piece in pieces)


def test_a_cursor_of_a_line_leads_to_its_time_in_the_other_logs(site: Site) -> None:
    names = [f"worker-{n}" for n in range(4)]
    folder = remember(site, "around1", names)
    for number, name in enumerate(names):
        write_log(folder, name, [(step + number / 10, f"{name} {step}") for step in range(500)])
    answer = site.get("/api/v1/runs/around1/lines/search", text="WORKER-2 250")
    (hit,) = answer["found"]
    assert (hit["text"], hit["replica"], hit["rank"]) == ("worker-2 250", "worker-2", 2)
    near = texts(lines(site, "around1", around=hit["cursor"], limit=6))
    assert near == ["worker-3 249", "worker-0 250", "worker-1 250", "worker-2 250", "worker-3 250", "worker-0 251"]
    assert texts(lines(site, "around1", after=hit["cursor"], limit=1)) == ["worker-3 250"]
    assert texts(lines(site, "around1", before=hit["cursor"], limit=1)) == ["worker-1 250"]
    elsewhere = lines(site, "around1", replica=["worker-0", "worker-1"], after=hit["cursor"], limit=2)
    assert texts(elsewhere) == ["worker-0 251", "worker-1 251"]


def test_a_search_goes_on_where_it_stopped(site: Site) -> None:
    folder = remember(site, "search1", ["worker-0", "worker-1"])
    for name in ("worker-0", "worker-1"):
        write_log(folder, name, [(step, f"{name} Größe {step}") for step in range(30)])
    found: list[str] = []
    cursor: str | None = None
    while True:
        more = {"after": cursor} if cursor else {}
        answer = site.get("/api/v1/runs/search1/lines/search", text="GRÖßE", limit=7, **more)
        found += [line["text"] for line in answer["found"]]
        cursor = answer["next"]
        if cursor is None:
            break
    assert found == [f"{name} Größe {step}" for name in ("worker-0", "worker-1") for step in range(30)]
    assert site.get("/api/v1/runs/search1/lines/search", text="nowhere")["found"] == []


@pytest.mark.slow
def test_the_end_of_a_very_long_log_comes_at_once(site: Site) -> None:
    """The middle is a hole: zeros, which take no room, in one line of a gigabyte."""
    folder = remember(site, "long1")
    place = write_log(folder, "master-0", [(0, "begin")])
    with (place / "log").open("ab") as log, (place / "spool").open("ab") as spool:
        for number in range(20_000):
            log.write(b"step %07d of a long training, nothing happens\n" % number)
            spool.write(note(1 + number / 10, log.tell()))
        log.truncate(1 << 30)
        log.seek(0, os.SEEK_END)
        log.write(b"\nalmost\nlast\n")
        spool.write(note(50_000, log.tell()))
    begun = time.perf_counter()
    answer = lines(site, "long1", limit=2)
    assert texts(answer) == ["almost", "last"]
    earlier = lines(site, "long1", before=answer["first"], limit=3)
    assert all(text.startswith("\\x00\\x00") for text in texts(earlier))
    assert time.perf_counter() - begun < 30
    searched = site.get("/api/v1/runs/long1/lines/search", text="step 0010000")
    (hit,) = searched["found"]
    assert hit["at"] == pytest.approx(START + 1001, abs=0.3)
    assert searched["next"] is not None
    assert searched["searched_bytes"] <= 64 << 20
    around = lines(site, "long1", around=hit["cursor"], limit=2)
    assert texts(around)[0].startswith("step 0009999")
    assert texts(around)[1].startswith("step 0010000")


@pytest.mark.slow
def test_many_replicas_are_read_a_little_each(site: Site) -> None:
    names = [f"worker-{n}" for n in range(150)]
    folder = remember(site, "many1", names)
    for number, name in enumerate(names):
        place = folder / "replicas" / name / "attempt-1"
        place.mkdir(parents=True)
        text = b"".join(b"rank %d step %d of many\n" % (number, step) for step in range(500))
        (place / "log").write_bytes(text)
        (place / "spool").write_bytes(b"".join(note(step / 10, len(text) * step // 200) for step in range(201)))
    begun = time.perf_counter()
    answer = lines(site, "many1", limit=500)
    assert time.perf_counter() - begun < 30
    assert len(answer["lines"]) == 500
    assert {line["rank"] for line in answer["lines"]} == set(range(150))
    assert len(answer["first"]) < 2000


def test_who_failed_first_is_reported_with_its_traceback(site: Site) -> None:
    folder = remember(site, "error1", ["worker-0", "worker-1"], status="failed")
    write_log(folder, "worker-0", [(0, "loading"), (3, "ERROR: lost worker-1")])
    said = ["loading", "Traceback (most recent call last):", '  File "x.py", line 1', "ValueError: bad batch"]
    write_log(folder, "worker-1", list(enumerate(said)))
    for name, at in (("worker-0", 5.0), ("worker-1", 4.0)):
        end = {"cause": "error", "message": "exit code 1", "ended_at": START + at}
        (folder / "replicas" / name / "attempt-1" / "end.json").write_text(json.dumps(end))
    found = site.get("/api/v1/runs/error1/first-error")
    assert (found["replica"], found["rank"], found["cause"], found["message"]) == (
        "worker-1",
        1,
        "error",
        "exit code 1",
    )
    assert found["later"] == [{"replica": "worker-0", "after_s": 1.0, "message": "exit code 1"}]
    assert [line["text"] for line in found["lines"]] == said
    assert found["error"] == 1


def end_replica(folder: Path, replica: str, at: float, cause: str = "error", **more: Any) -> None:
    end = {"cause": cause, "code": 1, "signal": None, "message": "exit code 1", "ended_at": START + at, **more}
    (folder / "replicas" / replica / "attempt-1" / "end.json").write_text(json.dumps(end))


def test_a_lost_connection_before_an_oom_kill_is_not_the_first_failure(site: Site) -> None:
    folder = remember(site, "error4", ["worker-0", "worker-1", "worker-2"], status="failed")
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "wiring": "pytorch"}))
    lost = ["Traceback (most recent call last):", "RuntimeError: [gloo] Connection reset by peer"]
    write_log(folder, "worker-0", [(1.0, lost[0]), (1.0, lost[1])])
    write_log(folder, "worker-1", [(0.0, "step 7")])
    write_log(folder, "worker-2", [(0.0, "step 7")])
    end_replica(folder, "worker-0", 1.0, last_lines=lost)
    end_replica(folder, "worker-1", 1.4, "memory", code=None, signal=9, message="killed at 32 of 32 GiB")
    end_replica(folder, "worker-2", 0.5, "segment", message="saved, and left for the next segment")
    found = site.get("/api/v1/runs/error4/first-error")
    assert (found["replica"], found["rank"], found["cause"]) == ("worker-1", 1, "memory")
    assert [line["text"] for line in found["lines"]] == ["step 7"]
    assert found["later"] == [{"replica": "worker-0", "after_s": -0.4, "message": "exit code 1"}]


def test_the_failure_that_the_scheduler_recorded_is_the_first(site: Site) -> None:
    folder = remember(site, "error5", ["worker-0", "worker-1"], status="failed")
    for name in ("worker-0", "worker-1"):
        write_log(folder, name, [(0.0, f"{name} at work")])
        end_replica(folder, name, 1.0, "stopped", code=None, message="stopped")
    failure = {"attempt": 1, "replica": "worker-1", "why": "its node failed", "advice": "", "lines": []}
    with Store.open(site.home.path, site.database) as store:
        store.put_fact("error5", "failure", {**failure, "consequences": {}})
    found = site.get("/api/v1/runs/error5/first-error")
    assert (found["replica"], found["message"], found["later"]) == ("worker-1", "its node failed", [])
    assert [line["text"] for line in found["lines"]] == ["worker-1 at work"]


def test_an_end_that_no_agent_wrote_is_no_failure(site: Site) -> None:
    folder = remember(site, "error6", status="failed")
    write_log(folder, "master-0", [(0.0, "at work")])
    end_replica(folder, "master-0", 1.0, last_lines=[7, None])
    assert site.get("/api/v1/runs/error6/first-error")["replica"] is None


def test_the_error_at_the_end_of_a_long_log_is_found_among_harmless_lines(site: Site) -> None:
    folder = remember(site, "error3", ["worker-0", "worker-1"], status="failed")
    write_log(
        folder, "worker-0", [(0, b"step 1 fine\n" * 200_000), (1, "RuntimeError: CUDA out of memory"), (2, "bye")]
    )
    write_log(folder, "worker-1", [(0, b"step 1 fine\n" * 200_000)])
    found = site.get("/api/v1/runs/error3/first-error")
    assert found["replica"] is None  # nobody wrote down how it ended
    assert found["lines"][found["error"]]["text"] == "RuntimeError: CUDA out of memory"
    assert found["lines"][-1]["text"] == "bye"
    end = {"cause": "error", "message": "killed by signal 9", "ended_at": START}
    (folder / "replicas" / "worker-1" / "attempt-1" / "end.json").write_text(json.dumps(end))
    found = site.get("/api/v1/runs/error3/first-error")
    assert (found["replica"], found["error"]) == ("worker-1", None)
    assert [line["text"] for line in found["lines"]] == ["step 1 fine"] * 6


def test_a_run_without_failures_has_no_first_one(site: Site) -> None:
    folder = remember(site, "error2")
    write_log(folder, "master-0", [(0, "fine")])
    (folder / "replicas" / "master-0" / "attempt-1" / "end.json").write_text("[]")
    found = site.get("/api/v1/runs/error2/first-error")
    assert (found["replica"], found["lines"], found["error"]) == (None, [], None)


def test_a_log_that_is_a_link_or_a_pipe_is_not_read(site: Site, tmp_path: Path) -> None:
    folder = remember(site, "linked1", ["worker-0", "worker-1"])
    (tmp_path / "secret").write_text("secret\n")
    for name in ("worker-0", "worker-1"):
        (folder / "replicas" / name / "attempt-1").mkdir(parents=True)
    (folder / "replicas/worker-0/attempt-1/log").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "replicas/worker-1/attempt-1/log")
    assert lines(site, "linked1")["lines"] == []
    assert site.get("/api/v1/runs/linked1/logs")["logs"] == []
    assert site.get("/api/v1/runs/linked1/lines/search", text="secret")["found"] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("before=nonsense", 400),
        ("after=1~2~3~4~x~00000000~!!", 400),
        ("after=1~0~0~0~x~00000000~AAAA", 400),
        ("before=a&after=b", 400),
        ("replica=worker-9", 404),
        ("limit=0", 400),
        ("limit=100000", 400),
        ("attempt=0", 400),
    ],
)
def test_wrong_questions_are_refused_kindly(site: Site, query: str, status: int) -> None:
    if not site.folder("wrong1").exists():
        write_log(remember(site, "wrong1"), "master-0", [(0, "x")])
    answer = site.ask("GET", f"/api/v1/runs/wrong1/lines?{query}")
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]


def test_a_run_that_waits_has_no_lines(site: Site) -> None:
    remember(site, "waits1", attempt=0, finished_at=None)
    answer = lines(site, "waits1")
    assert (answer["lines"], answer["at_start"], answer["at_end"]) == ([], True, True)
    assert texts(lines(site, "waits1", after=answer["last"])) == []


# pure ----------------------------------------------------------------------------------------------------------------


def test_notes_are_found_wherever_they_stand_among_others(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with path.open("wb") as spool:
        for number in range(1, 20_001):
            spool.write(note(number, number * 10))
            if 5_000 < number < 5_010:  # the log was silent for long: the spool has only other things
                spool.write(b'{"at":1.0,"cpu":2}' * 5_000)
    notes = TimeNotes(path)
    for place in (1, 10, 11, 49_999, 50_005, 50_095, 123_456, 199_999, 200_000):
        found = notes.around(place, place)
        covering = -(-place // 10) * 10
        assert found[-1].size == covering
        assert len(found) == (1 if covering == 10 else 2)
    assert [one.size for one in notes.around(200_001, 200_001)] == [200_000]
    before, after = notes.beside(START + 7_000.5)
    assert after is not None
    assert (before.size, after.size) == (70_000, 70_010)
    assert notes.beside(START + 10**6)[1] is None
    assert notes.beside(0.0)[0].size == 0


def test_lines_between_two_notes_are_spread_over_the_look_before(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes(note(10, 0) + note(20, 100) + note(20.1, 300))
    found = times_of([50, 100, 200, 400], TimeNotes(path).around(50, 400), START + 99)
    assert [at - START for at in found] == pytest.approx([19.9, 20.0, 20.05, 99.0], abs=1e-3)


def anything(chance: random.Random) -> bytes:
    """A piece of a log: lines, endless lines, progress bars, and what no text has."""
    pieces = [
        b"same\n",
        b"\n",
        chance.randbytes(chance.randrange(20)),
        ("ä€x" * chance.randrange(20)).encode() + b"\n",
        b"\r" + b"p" * chance.randrange(3000),
        b"z" * chance.choice([100, 8191, 8192, 8193, 20_000]),
    ]
    return chance.choices(pieces, [8, 1, 4, 8, 2, 1])[0]


@pytest.mark.parametrize("seed", range(12))
def test_every_byte_is_reported_once_in_both_directions(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sources = [LogSource(f"worker-{number}", "worker", number) for number in range(chance.choice([1, 3, 10]))]
    sizes = []
    for source in sources:
        data = b"".join(anything(chance) for _ in range(chance.randrange(40)))
        place = write_log(tmp_path, source.name, [])
        (place / "log").write_bytes(data)
        sizes.append(len(data))
        notes = [note(chance.random() * 10, size) for size in range(0, len(data), 1000)]  # clocks that jump about
        (place / "spool").write_bytes(chance.randbytes(5).join(notes))
    merged = MergedLogReader(tmp_path, sources, 1, is_over=True)
    limit, fold = chance.choice([1, 7, 100]), chance.random() < 0.5
    for read, start, goal in ((merged.before, sizes, [0] * len(sizes)), (merged.after, [0] * len(sizes), sizes)):
        places = list(start)
        while places != goal:
            window = read(places, limit, fold=fold)
            assert 0 < len(window.lines) <= limit
            reached = window.first if read == merged.before else window.last
            taken = sum(abs(here - there) for here, there in zip(places, reached, strict=True))
            assert taken > 0
            if not fold:
                assert taken == sum(item.line.end - item.line.first for item in window.lines)
            cursor = cursors.read(cursors.of_offsets(merged, reached, window.lines[0].line).text())
            assert cursors.offsets_in(merged, cursor, after=True) == reached
            places = reached
