"""Being told to save, before the time of a job is over."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run_program(program: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that is told to save while it trains; it says when it is ready."""
    text = "import os, signal, sys, threading, time\nfrom phalanx import tracking\n" + textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-c", text],
        env={"PYTHONPATH": ":".join(sys.path), "PHALANX_HOME": str(tmp_path), "PHALANX_TRACKING": "off", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_training_goes_on_after_it_saved(tmp_path: Path) -> None:
    done = run_program(
        """
        tracking.on_checkpoint(lambda: print("one"))
        tracking.on_checkpoint(lambda: print("two"))
        os.kill(os.getpid(), signal.SIGUSR1)
        print("went on")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "one\ntwo\nwent on\n")


def test_it_may_leave_for_the_next_segment(tmp_path: Path) -> None:
    done = run_program(
        """
        tracking.on_checkpoint(lambda: print("saved"), leave=True)
        os.kill(os.getpid(), signal.SIGUSR1)
        print("never")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (85, "saved\n")


def test_what_the_saving_raises_does_not_end_the_training(tmp_path: Path) -> None:
    done = run_program(
        """
        tracking.on_checkpoint(lambda: 1 / 0)
        tracking.on_checkpoint(lambda: print("saved all the same"))
        os.kill(os.getpid(), signal.SIGUSR1)
        print("went on")
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "saved all the same\nwent on\n")
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("number", ["USR2", "HUP"])
def test_the_signal_is_the_one_that_the_file_names(tmp_path: Path, number: str) -> None:
    program = f"""
        tracking.on_checkpoint(lambda: print("saved"))
        os.kill(os.getpid(), signal.SIG{number})
        """
    assert run_program(program, tmp_path, PHALANX_CHECKPOINT_SIGNAL=number).stdout == "saved\n"


def test_a_handler_that_was_there_before_is_called_too(tmp_path: Path) -> None:
    done = run_program(
        """
        signal.signal(signal.SIGUSR1, lambda *_: print("the old one"))
        tracking.on_checkpoint(lambda: print("saved"))
        os.kill(os.getpid(), signal.SIGUSR1)
        """,
        tmp_path,
    )
    assert done.stdout == "saved\nthe old one\n"


def test_in_another_thread_it_is_said_and_nothing_raised(tmp_path: Path) -> None:
    done = run_program(
        """
        answers = []
        thread = threading.Thread(target=lambda: answers.append(tracking.on_checkpoint(print)))
        thread.start(); thread.join()
        print(answers)
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "[False]\n")
    assert "main thread" in done.stderr


def test_a_strange_signal_is_no_reason_to_raise(tmp_path: Path) -> None:
    program = "print(tracking.on_checkpoint(print))"
    assert run_program(program, tmp_path, PHALANX_CHECKPOINT_SIGNAL="NOSUCH").stdout == "False\n"
