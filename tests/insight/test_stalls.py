"""A rank that raised and cannot end is told from a run that is only quiet."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from phalanx.home.attempts import AttemptFolder
from phalanx.insight.stalls import STUCK_S, is_stuck, silent_s
from phalanx.spool import Writer

RAISED = 'step 3\nTraceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: a bad batch\n'


class Quiet:
    """Two replicas that have said nothing for a while."""

    def __init__(self, folder: Path) -> None:
        self.attempt_folder = AttemptFolder(folder, "run", 1, ("master-0", "worker-0"))
        for name in self.attempt_folder.replicas:
            self.attempt_folder.folder(name).mkdir(parents=True)
            self.say(name, "step 3\n")
            self.use(name, 0.0)

    def say(self, name: str, text: str, ago_s: float = STUCK_S + 5) -> None:
        path = self.attempt_folder.folder(name) / "log"
        path.write_text(text)
        os.utime(path, (time.time() - ago_s, time.time() - ago_s))

    def use(self, name: str, percent: float, ago_s: float = 1.0) -> None:
        (self.attempt_folder.folder(name) / "spool").unlink(missing_ok=True)
        spool = Writer(self.attempt_folder.folder(name) / "spool")
        for number in range(2):
            used = {"cpu_s": 10.0 + number * 5.0 * percent / 100.0, "memory_mib": 1.0, "threads": 1}
            spool.append_json({"at": time.time() - ago_s - 5.0 * (1 - number), "use": used})
        spool.close()


@pytest.fixture(name="quiet")
def quiet_fixture(tmp_path: Path) -> Quiet:
    return Quiet(tmp_path)


def test_a_quiet_run_is_left_alone(quiet: Quiet) -> None:
    assert silent_s(quiet.attempt_folder) > STUCK_S
    assert not is_stuck(quiet.attempt_folder)


def test_who_raised_and_does_not_end_is_stuck(quiet: Quiet) -> None:
    quiet.say("worker-0", RAISED)
    assert is_stuck(quiet.attempt_folder)


def test_not_while_anybody_says_anything(quiet: Quiet) -> None:
    quiet.say("worker-0", RAISED)
    quiet.say("master-0", "step 4\n", ago_s=1.0)
    assert not is_stuck(quiet.attempt_folder)
    quiet.say("master-0", "step 4\n")
    (quiet.attempt_folder.folder("master-0") / "client-1.points").write_bytes(b"x")
    assert not is_stuck(quiet.attempt_folder)


def test_not_while_anybody_works(quiet: Quiet) -> None:
    quiet.say("worker-0", RAISED)
    quiet.use("master-0", 60.0)
    assert not is_stuck(quiet.attempt_folder)


def test_not_when_no_one_knows_whether_anybody_works(quiet: Quiet) -> None:
    quiet.say("worker-0", RAISED)
    quiet.use("master-0", 0.0, ago_s=STUCK_S + 30)
    assert not is_stuck(quiet.attempt_folder)


def test_an_exception_that_was_caught_is_not_the_last_word(quiet: Quiet) -> None:
    quiet.say("worker-0", RAISED + "went on without it\n")
    assert not is_stuck(quiet.attempt_folder)


def test_one_process_alone_waits_for_no_one(quiet: Quiet) -> None:
    quiet.say("master-0", RAISED)
    assert not is_stuck(quiet.attempt_folder._replace(replicas=("master-0",)))
