"""Each message at most once, although the sender or the scheduler is killed in between."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.home.home import Home
from phalanx.notifications.delivery_log import Delivery, DeliveryLog, DeliveryState
from phalanx.notifications.notices import NoticeBoard, read_notices
from phalanx.notifications.run_rules import FileRules, encode_rules, read_rules, rules_of
from phalanx.notifications.sender import Sender, last_trouble, work
from phalanx.settings.home_settings import HomeSettings, ProjectSettings
from phalanx.spec.model import NotifyEvent, NotifyRule
from phalanx.store import Run, StatusChange, Store
from tests.notifications.sinks import HttpSink, http_sink
from tests.notifications.test_channels import a_run


class Desk:
    """A home with one run, whose file tells a webhook."""

    def __init__(self, path: Path, sink: HttpSink, **rule: Any) -> None:
        self.home = Home(path)
        self.store = Store.open(path)
        self.sink = sink
        (path / "config.yml").write_text("webhooks: {127.0.0.1: {private: true}}\n")
        self.rule = NotifyRule("webhook", (f"http://127.0.0.1:{sink.port}/",), **rule)
        self.run = a_run(status="created", reason="submitted", attempt=0)
        self.add(self.run, FileRules((self.rule,)))
        self.board = NoticeBoard(self.home)

    def add(self, run: Run, rules: FileRules) -> None:
        self.home.add(run, {"notify.json": encode_rules(rules)}, {})
        self.store.add(run)

    def change(self, status: str, reason: str = "why", attempt: int = 1) -> int:
        folder = self.home.run(self.run.id)
        number = len(folder.history()) + 1
        folder.append(StatusChange(self.run.id, number, attempt, status, reason, self.run.updated_at))
        return number

    def end(self, status: str = "failed") -> None:
        number = len(self.home.run(self.run.id).history()) + 1
        self.board.leave_end(self.run, status, number, "why")
        self.change(status)

    def work(self, *back_off_s: float) -> float | None:
        return Sender(self.home, self.store, back_off_s or (0.0, 0.0)).send_all()

    def states(self) -> list[str]:
        return [str(one.state) for one in DeliveryLog(self.home.run(self.run.id).path).read().values()]

    def left(self) -> int:
        return len(list(read_notices(self.home.path)))


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with http_sink() as made:
        yield made


@pytest.fixture
def desk(tmp_path: Path, sink: HttpSink) -> Iterator[Desk]:
    made = Desk(tmp_path / "home", sink)
    yield made
    made.store.close()


def test_the_end_of_a_run_is_told_once(desk: Desk) -> None:
    desk.end()
    work(desk.home, desk.store)
    work(desk.home, desk.store)
    assert [json.loads(one.body)["event"] for one in desk.sink.got] == ["failed"]
    assert (desk.states(), desk.left()) == (["sent"], 0)
    (row,) = desk.store.facts(desk.run.id)["notifications"]
    assert (row["state"], row["to"]) == ("sent", f"http://127.0.0.1:{desk.sink.port}")
    desk.change("resuming")
    desk.end()
    desk.work()
    assert len(desk.sink.got) == 2, "it has failed again"


def test_what_was_being_sent_when_the_sender_was_killed_is_not_sent_again(desk: Desk) -> None:
    desk.end()
    log = DeliveryLog(desk.home.run(desk.run.id).path)
    desk.work()
    (sent,) = log.read().values()
    log.path.unlink()
    log.append(sent._replace(state=DeliveryState.SENDING))  # as it was when it was killed
    desk.board.leave_end(desk.run, "failed", 2, "why")
    desk.work()
    assert (len(desk.sink.got), desk.states(), desk.left()) == (1, ["unknown"], 0)
    assert "killed" in str((last_trouble(desk.home.path) or {})["why"])


def test_nothing_is_sent_before_the_status_is_written(desk: Desk) -> None:
    desk.board.leave_end(desk.run, "failed", 2, "why")  # and the scheduler is killed
    assert desk.work() is not None
    assert (desk.sink.got, desk.left()) == ([], 1)
    desk.end("failed")  # the next scheduler decides the same
    desk.work()
    assert (len(desk.sink.got), desk.left()) == (1, 0)


def test_a_notice_that_did_not_come_true_is_dropped(desk: Desk) -> None:
    desk.board.leave_end(desk.run, "failed", 2, "why")
    desk.change("succeeded")
    assert desk.work() is None
    assert (desk.sink.got, desk.left()) == ([], 0)


def test_a_receiver_that_is_away_is_tried_again_and_then_given_up(desk: Desk) -> None:
    desk.sink.answers[:] = [503, 503, 200]
    desk.end()
    while desk.work(0.0, 0.0, 0.0) is not None:
        pass
    assert (len(desk.sink.got), desk.states()) == (3, ["sent"])
    assert len({one.headers["X-Phalanx-Delivery"] for one in desk.sink.got}) == 1
    desk.sink.answers[:] = [503]
    desk.change("resuming")
    desk.end()
    while desk.work(0.0, 0.0) is not None:
        pass
    assert (len(desk.sink.got), desk.states(), desk.left()) == (6, ["sent", "failed"], 0)


def test_tries_wait_for_their_time(desk: Desk) -> None:
    desk.sink.answers[:] = [503]
    desk.end()
    at = desk.work(60.0)
    assert at is not None
    assert 50 < at - time.time() < 61
    assert (desk.work(60.0) == at, len(desk.sink.got)) == (True, 1)


def test_a_broken_configuration_keeps_the_notices(desk: Desk) -> None:
    desk.end()
    (desk.home.path / "config.yml").write_text("notify: {x")
    from phalanx.errors import SpecErrors

    with pytest.raises(SpecErrors):
        desk.work()
    assert (desk.left(), desk.sink.got) == (1, [])


def test_files_that_came_over_a_server_may_do_less(desk: Desk, tmp_path: Path) -> None:
    desk.home.run(desk.run.id).path.joinpath("notify.json").write_bytes(
        encode_rules(
            FileRules(
                (
                    NotifyRule("command", ("touch", str(tmp_path / "owned"))),
                    NotifyRule("webhook", (f"http://localhost:{desk.sink.port}/",)),
                    NotifyRule("mail", ("all@example.org",)),
                    desk.rule,
                ),
                is_remote=True,
            )
        )
    )
    desk.end()
    desk.work()
    assert (desk.states(), (tmp_path / "owned").exists()) == (["failed", "failed", "failed", "sent"], False)


def test_trials_are_told_of_only_if_a_rule_says_so() -> None:
    quiet, loud = NotifyRule("mail", ("a@b",)), NotifyRule("mail", ("c@d",), trials=True)
    settings = HomeSettings(notify=(quiet, loud))
    assert [one.rule for one in rules_of(a_run(), FileRules(), settings)] == [quiet, loud]
    assert [one.rule for one in rules_of(a_run(group="g"), FileRules((quiet,)), settings)] == [loud]


def test_projects_have_rules_and_the_same_rule_counts_once() -> None:
    own, team, home = (NotifyRule("mail", (f"{name}@b",)) for name in ("own", "team", "home"))
    projects = {"team": ProjectSettings((team,)), "other": ProjectSettings((home,))}
    settings = HomeSettings(notify=(home, own), projects=projects)
    found = rules_of(a_run(project="team/vision"), FileRules((own,)), settings)
    assert [one.rule for one in found] == [own, team, home]


def test_a_run_that_waits_for_long_is_told_of_once(tmp_path: Path, sink: HttpSink) -> None:
    desk = Desk(tmp_path / "home", sink, on=(), waiting_s=60.0)
    now = desk.run.updated_at.timestamp()
    for board in (desk.board, desk.board, NoticeBoard(desk.home)):
        board._looked_at = float("-inf")
        board.look_for_waiting(desk.store, now + 30)
        assert desk.left() == 0
    for _ in range(2):
        board = NoticeBoard(desk.home)
        board.look_for_waiting(desk.store, now + 90)
        desk.work()
    desk.store.close()
    ((_, _, body),) = sink.got
    data = json.loads(body)
    assert (data["event"], data["run"]["reason"]) == ("waiting", "created for 2 min")


def test_a_stall_that_ends_in_a_failure_is_one_message(tmp_path: Path, sink: HttpSink) -> None:
    desk = Desk(tmp_path / "home", sink, on=(NotifyEvent.FAILED, NotifyEvent.STALLED))
    desk.board.leave(desk.run, NotifyEvent.STALLED, 1, "silent")
    desk.end()
    desk.work()
    desk.store.close()
    assert [json.loads(one.body)["event"] for one in sink.got] == ["failed"]


def test_damaged_rules_and_logs_are_no_rules_and_no_deliveries(tmp_path: Path) -> None:
    (tmp_path / "notify.json").write_text('{"rules": [{"channel": 1}], "remote": 0}')
    (tmp_path / "notifications").write_bytes(b"\0" * 50)
    assert read_rules(tmp_path) == FileRules()
    assert DeliveryLog(tmp_path).read() == {}
    made = Delivery("a", "failed", 1, "mail", "a@b", DeliveryState.SENT, 0.0)
    DeliveryLog(tmp_path).append(made)
    assert DeliveryLog(tmp_path).read()["a"].state is DeliveryState.SENT
