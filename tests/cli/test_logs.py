from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from phalanx.logs.first_error import first_error
from phalanx.logs.fold import folded, names_text
from phalanx.logs.lines import ERROR_WORDS, LogLine, cut, split_lines
from phalanx.logs.merge import merged
from phalanx.logs.time_index import TimeNote, times_of
from tests.cli.homes import THREE, Place, ended, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.running import COMMAND, is_silent_about_itself

GANG: dict[str, Any] = {"framework": "pytorch", "environment": THREE}


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# through the user's door ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_line_that_all_say_stands_there_once_with_their_names(place: Place) -> None:
    run_id = place.ran("echo Epoch 1; echo I am $RANK; echo Epoch 2", **GANG)
    answer = place.call("logs", run_id)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines.count("[master-0, worker-0..1 x3] Epoch 1") == 1
    assert lines.count("[master-0, worker-0..1 x3] Epoch 2") == 1
    assert "[worker-1] I am 2" in lines
    assert len(lines) == 5
    assert place.call("logs", run_id, "--no-fold").out.count("Epoch 1") == 3


@pytest.mark.slow
def test_lines_of_many_replicas_stand_in_the_order_of_time(place: Place) -> None:
    run_id = place.ran("sleep $(( (3 - RANK) / 2 )).$(( RANK * 4 % 10 )); echo rank $RANK", **GANG)
    found = rows(place.call("logs", run_id, "--json").out)
    assert [row["at"] for row in found] == sorted(row["at"] for row in found)
    assert [row["line"] for row in found] == ["rank 2", "rank 0", "rank 1"]  # after 0.8, 1.0 and 1.4 seconds
    assert next((row["replica"], row["rank"], row["attempt"]) for row in found) == ("worker-1", 2, 1)


@pytest.mark.slow
def test_replicas_are_chosen_by_name_role_and_rank(place: Place) -> None:
    run_id = place.ran("echo rank $RANK", **GANG)

    def said(*options: str) -> list[str]:
        return sorted(row["line"] for row in rows(place.quick("logs", run_id, "--json", *options).out))

    assert said("--replica", "worker-0") == ["rank 1"]
    assert said("--role", "worker") == ["rank 1", "rank 2"]
    assert said("--rank", "0", "--rank", "2") == ["rank 0", "rank 2"]
    assert said("--role", "worker", "--rank", "2") == ["rank 2"]
    assert said("--replica", "worker", "--replica", "0") == ["rank 0", "rank 1", "rank 2"]
    assert said("--replica", "0-1") == ["rank 0", "rank 1"]
    assert place.call("logs", run_id, "--rank", "1").out == "rank 1\n"  # alone, it needs no name
    assert said("--grep", "RANK [12]$") == ["rank 1", "rank 2"]
    assert said("--grep", "rank", "--replica", "worker-1", "--tail", "1") == ["rank 2"]
    wrong = place.quick("logs", run_id, "--grep", "(")
    assert (wrong.code, wrong.err) == (2, "error: `(` is not a regular expression: missing ): (\n")


@pytest.mark.slow
def test_whom_no_one_knows_is_a_wrong_call(place: Place) -> None:
    run_id = place.ran("echo x", **GANG)
    answer = place.call("logs", run_id, "--replica", "woker-1")
    assert answer.code == 2
    assert "worker-1" in answer.err
    for options in (("--rank", "9"), ("--role", "ps"), ("--attempt", "7"), ("--role", "master", "--rank", "1")):
        assert place.quick("logs", run_id, *options).code == 2
    assert place.quick("logs", run_id, "--errors", "-f").code == 2
    assert place.quick("logs", "nobody").code == 2


@pytest.mark.slow
def test_times_stand_before_the_lines(place: Place) -> None:
    run_id = place.ran("echo x")
    (line,) = place.call("logs", run_id, "--times").out.splitlines()
    day, clock, text = line.split()
    assert (len(day), len(clock), text) == (10, 12, "x")


@pytest.mark.slow
def test_the_tail_is_the_end_of_all_logs_together(place: Place) -> None:
    run_id = place.ran("seq 1 500; sleep 0.5; echo last of $RANK", **GANG)
    assert place.call("logs", run_id, "--tail", "3").out.count("last of") == 3
    assert [row["line"] for row in rows(place.call("logs", run_id, "--rank", "0", "--tail", "2", "--json").out)] == [
        "500",
        "last of 0",
    ]
    assert place.call("logs", run_id, "--tail", "0").out == ""


@pytest.mark.slow
def test_every_attempt_keeps_its_own(place: Place) -> None:
    command = 'echo attempt $PHALANX_ATTEMPT; [ "$PHALANX_ATTEMPT" = 2 ] || exit 4'
    run_id = place.ran(command, environment={"max_restarts": 1})
    answer = place.call("logs", run_id)
    assert answer.out == "attempt 2\n"
    assert "--attempt 1" in answer.err
    assert place.call("logs", run_id, "--attempt", "1").out == "attempt 1\n"


@pytest.mark.slow
def test_nothing_in_a_log_can_command_the_terminal(place: Place) -> None:
    written = rb"printf 'a\033[31mred\033[0m\n\033[2J\000\377\302\233\n10%%\r99%%\rdone\n\tindented'"
    run_id = place.ran(written.decode())
    answer = place.call("logs", run_id)
    assert answer.out.splitlines() == ["ared", "\\x1b[2J\\x00�\\x9b", "done", "        indented"]
    raw = place.call("logs", run_id, "--json").out
    assert raw.isascii()
    assert raw.count("\x1b") == 0
    assert rows(raw)[2]["line"] == "10%\r99%\rdone"


@pytest.mark.slow
def test_an_endless_line_is_reported_in_pieces(place: Place) -> None:
    run_id = place.ran("head -c 100000 /dev/zero | tr '\\0' x; echo end")
    out = place.call("logs", run_id).out
    assert out.replace("\n", "") == "x" * 100_000 + "end"
    assert max(map(len, out.splitlines())) < 10_000
    assert place.call("logs", run_id, "--tail", "1").out.endswith("xend\n")


@pytest.mark.slow
def test_a_long_log_is_never_in_memory_as_a_whole(place: Place) -> None:
    run_id = place.ran("echo first")
    line = b"y" * 999 + b"\n"
    with (place.attempt(run_id) / "log").open("ab") as stream:
        for _ in range(100):
            stream.write(line * 1000)
    # measured by a small process: a child's peak begins with that of whoever forked it
    measure = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
    )
    with (place.folder / "out").open("wb") as out:
        command = [sys.executable, "-c", measure, COMMAND, "logs", run_id]
        done = subprocess.run(command, env=place.environment(), stdout=out, stderr=subprocess.PIPE, check=True)
    assert (place.folder / "out").stat().st_size == 100_000_006
    assert int(done.stderr.split()[-1]) < 90 * 1024  # KiB


@pytest.mark.slow
def test_the_tail_of_a_gigabyte_comes_at_once(place: Place) -> None:
    run_id = place.ran("echo first")
    with (place.attempt(run_id) / "log").open("ab") as stream:
        stream.truncate(1 << 30)  # a hole: zeros that take no room
        stream.seek(0, os.SEEK_END)
        stream.write(b"\nalmost\nlast\n")
    assert place.call("logs", run_id, "--tail", "2").out == "almost\nlast\n"


@pytest.mark.slow
def test_following_goes_on_until_the_run_is_over(place: Place) -> None:
    run_id = place.queued("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over", **GANG)
    process = place.start("logs", "-f", run_id)
    assert process.stdout is not None
    assert process.stdout.readline().endswith("] begun\n")
    (place.folder / "go").touch()
    answer = ended(process)
    assert answer.code == 0
    assert answer.out.count("over") in (1, 2, 3)
    assert place.status(run_id) == "succeeded"


@pytest.mark.slow
def test_following_schedules_when_no_one_else_does(place: Place) -> None:
    process, run_id = place.begun(then="while [ ! -e go ]; do sleep 0.05; done; echo over")
    process.kill()
    ended(process)
    follower = place.start("logs", "--follow", "--json", run_id)
    (place.folder / "go").touch()
    answer = ended(follower)
    assert [row["line"] for row in rows(answer.out)] == ["over"]
    assert place.status(run_id) == "succeeded"


@pytest.mark.slow
def test_following_goes_on_to_the_next_attempt(place: Place) -> None:
    command = (
        "echo attempt $PHALANX_ATTEMPT; while [ ! -e followed ]; do sleep 0.05; done; "
        '[ "$PHALANX_ATTEMPT" = 2 ] || exit 4'
    )
    run_id = place.queued(command, environment={"max_restarts": 1})
    following = place.start("logs", "-f", run_id)
    assert following.stdout is not None
    assert following.stdout.readline() == "attempt 1\n"
    (place.folder / "followed").touch()
    answer = ended(following)
    assert answer.out == "attempt 2\n"


@pytest.mark.slow
def test_ctrl_c_leaves_the_follower_and_not_the_run(place: Place) -> None:
    run_id = place.queued("echo begun; sleep 60")
    process = place.start("logs", "-f", run_id)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.killpg(process.pid, signal.SIGINT)
    answer = ended(process)
    assert answer.code == 130
    assert is_silent_about_itself(answer)
    assert place.status(run_id) == "running"


def test_a_run_that_waits_has_no_log_yet(place: Place) -> None:
    place.remember("aaaa2", status="created", reason="submitted", attempt=0, finished_at=None)
    answer = place.call("logs", "aaaa2")
    assert answer.out == ""


CRASH = """
import os, sys, time
print("loading")
if os.environ["RANK"] == "2":
    time.sleep(0.5)
    {}["batch 7"]
while True: time.sleep(1)
"""


def test_errors_jumps_to_the_traceback_of_the_one_that_failed_first(place: Place) -> None:
    (place.folder / "crash.py").write_text(CRASH)
    run_id = place.ran("python crash.py", **GANG)
    answer = place.call("logs", run_id, "--errors")
    assert answer.code == 0
    head, *lines = answer.out.splitlines()
    assert head.startswith("worker-1 (rank 2) failed first")
    assert head.endswith("attempt 1: exit code 1")
    assert lines[0] == "  [worker-1] loading"
    assert lines[1] == "> [worker-1] Traceback (most recent call last):"
    assert lines[-1] == "  [worker-1] KeyError: 'batch 7'"
    found = rows(place.call("logs", run_id, "--errors", "--json").out)
    assert {(row["replica"], row["cause"], row["message"]) for row in found} == {("worker-1", "error", "exit code 1")}
    (error,) = [row for row in found if row["is_error"]]
    assert error["line"] == "Traceback (most recent call last):"


LOST_THEN_KILLED = """
import os, signal, time
note = os.path.join(os.environ["PHALANX_OUTPUTS"], "pid")
if os.environ["RANK"] == "1":
    with open(note + ".new", "w") as stream:
        stream.write(str(os.getpid()))
    os.rename(note + ".new", note)
    raise RuntimeError("[gloo] read: Connection reset by peer")
if os.environ["RANK"] == "2":
    while not os.path.exists(note) or os.path.exists("/proc/" + open(note).read()):
        time.sleep(0.01)
    time.sleep(0.4)
    os.kill(os.getpid(), signal.SIGKILL)
while True: time.sleep(1)
"""


@pytest.mark.slow
def test_errors_and_show_blame_the_same_replica_when_another_lost_its_connection_earlier(place: Place) -> None:
    (place.folder / "train.py").write_text(LOST_THEN_KILLED)
    run_id = place.ran("python train.py", **GANG)
    assert "worker-1 failed first" in place.call("show", run_id).out
    head, other, *_ = place.call("logs", run_id, "--errors").out.splitlines()
    assert head.startswith("worker-1 (rank 2) failed first")
    assert re.fullmatch(r"  \d+\.\d s earlier worker-0: exit code 1", other)
    head = place.call("logs", run_id, "--errors", "--replica", "worker-0").out.splitlines()[0]
    assert re.match(r"worker-0 \(rank 1\) failed \d+\.\d s before worker-1, which failed first", head)


@pytest.mark.slow
def test_errors_does_not_count_the_end_of_a_segment(place: Place) -> None:
    run_id = place.ran("echo fine")
    (end_file,) = (place.home / "runs" / run_id).glob("replicas/*/attempt-1/end.json")
    ended_so = {**json.loads(end_file.read_text()), "cause": "segment", "message": "saved, and left"}
    end_file.write_text(json.dumps(ended_so))
    assert "no replica failed" in place.call("logs", run_id, "--errors").out


@pytest.mark.slow
def test_errors_shows_the_end_of_a_log_that_names_none(place: Place) -> None:
    run_id = place.ran("echo working; kill -9 $$")
    out = place.call("logs", run_id, "--errors").out
    assert "killed by signal 9" in out
    assert "no error in its log; last lines:" in out
    assert "[master-0] working" in out


@pytest.mark.slow
def test_errors_of_a_run_that_went_well_says_so(place: Place) -> None:
    run_id = place.ran("echo fine")
    answer = place.call("logs", run_id, "--errors")
    assert answer.code == 0
    assert "no replica failed" in answer.out
    assert place.call("logs", run_id, "--errors", "--json").out == ""


# pure ----------------------------------------------------------------------------------------------------------------


def line(at: float, replica: str, text: str) -> LogLine:
    return LogLine(at, replica, None, 1, text)


def test_folding_keeps_every_replica_in_its_order_and_loses_nothing() -> None:
    said = {"w-0": "a b a c", "w-1": "b a c c", "w-2": "a b a c"}
    logs = [
        [line(number / 10, name, text) for number, text in enumerate(texts.split())] for name, texts in said.items()
    ]
    items = list(folded(merged(logs)))
    for name, texts in said.items():
        assert [item.line.text for item in items if name in item.replicas] == texts.split()
    assert len(items) < 12


def test_the_same_line_much_later_is_another_one() -> None:
    items = list(folded([line(0.0, "w-0", "x"), line(1.0, "w-1", "x"), line(9.0, "w-2", "x")]))
    assert [item.replicas for item in items] == [("w-0", "w-1"), ("w-2",)]


def test_folding_holds_little_however_much_is_said_at_once() -> None:
    burst = (line(1.0, "w-0", str(number)) for number in range(10_000))
    first = next(folded(burst))
    assert first.line.text == "0"
    assert next(burst).text == "2001"


def test_names_in_a_row_are_reported_by_their_ends() -> None:
    assert names_text(["worker-10", "worker-9", "worker-8", "ps-0", "worker-2"]) == "ps-0, worker-2, worker-8..10"


def test_a_line_is_as_old_as_the_first_note_that_covers_it() -> None:
    notes = [TimeNote(10.0, 0), TimeNote(20.0, 100), TimeNote(20.1, 300)]
    # nobody saw the first at the look before, a fifth of a second earlier
    assert times_of([50, 100, 200, 400], notes, math.inf) == pytest.approx([19.9, 20.0, 20.05, math.inf])
    assert times_of([400], [notes[-1], TimeNote(30.0, 400)], math.inf) == [30.0]


def test_pieces_end_between_characters() -> None:
    text = "äöü" * 100
    pieces = cut(text.encode(), 7)
    assert "".join(piece.decode() for piece in pieces) == text
    assert all(len(piece) <= 7 for piece in pieces)
    assert b"".join(cut(b"\x80" * 50, 7)) == b"\x80" * 50


def test_lines_know_where_they_end_wherever_the_chunks_do() -> None:
    data = b"one\n\ntwo\r\nrest"
    whole = list(split_lines([data]))
    assert whole == [(b"one", 4), (b"", 5), (b"two\r", 10), (b"rest", 14)]
    assert list(split_lines([data[n : n + 1] for n in range(len(data))])) == whole
    assert list(split_lines([data], whole=False)) == whole[:-1]


def test_a_traceback_wins_over_an_error_that_was_survived() -> None:
    texts = ["ERROR: no cache", *map(str, range(9)), "Traceback (most recent call last):", "  File", "ValueError: x"]
    excerpt = first_error([line(0, "w-0", text) for text in texts])
    assert excerpt.error == 6
    assert [item.text for item in excerpt.lines[6:]] == texts[-3:]


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("RuntimeError: CUDA out of memory", True),
        ("torch.cuda.OutOfMemoryError: tried to allocate", True),
        ("bash: line 1: foo: command not found", True),
        ("2026-01-01 12:00:00 ERROR trainer: it broke", True),
        ("fatal: not a git repository: no", True),
        ("train_error: 0.25", False),
        ("error rate 0.1", False),
        ("Epoch 1 loss 0.5", False),
        ("0 errors", False),
    ],
)
def test_what_speaks_of_an_error(text: str, is_error: bool) -> None:
    assert (first_error([line(0, "w-0", text)]).error is not None) == is_error
    assert not is_error or any(word in text.encode() for word in ERROR_WORDS)
