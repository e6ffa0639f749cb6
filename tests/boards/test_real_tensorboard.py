"""The example of docs/track/tensorboard.md with the real TensorBoard: it reads what we write and ends with us."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.boards.example import shown, write_example
from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name


def asked(url: str) -> Any:
    return httpx.get(url, trust_env=False, verify=False).json()


def processes_on(folder: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_the_page_of_the_documentation_works_with_the_real_tensorboard(place: Place) -> None:
    write_example(place)
    process, said = shown(place, os.environ["PHALANX_TEST_TENSORBOARD"])
    tags = f"{said['url']}data/plugin/scalars/tags"
    wait_for(lambda: {"lr=0.1", "lr=0.2"} <= set(asked(tags)))
    rows = f"{said['url']}data/plugin/scalars/scalars?tag=loss&run={quote('lr=0.2')}"
    points = wait_for(lambda: len(found := asked(rows)) == 20 and found)
    assert [step for _, step, _ in points] == list(range(20))
    assert abs(points[3][2] - 0.05) < 1e-6
    logdir = asked(f"{said['url']}data/environment")["data_location"]
    assert processes_on(logdir)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    wait_for(lambda: not processes_on(logdir))
    assert not Path(logdir).exists()


def test_points_that_a_new_attempt_overwrote_are_gone(place: Place) -> None:
    """TensorBoard forgets them when our files say that the run started again."""
    from phalanx.formats.tfevents_writer import EventFileWriter

    place.remember("aaa1", tags=("rates",))
    outputs = place.home / "runs" / "aaa1" / "outputs"
    outputs.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(outputs / "events.out.tfevents.1.here", 1.0)
    for step, value in ((0, 1.0), (1, 2.0), (2, 3.0)):
        writer.scalar("loss", step, 1.0 + step, value)
    writer.restart(1, 9.0)
    writer.scalar("loss", 1, 10.0, 7.0)
    writer.close()
    process, said = shown(place, os.environ["PHALANX_TEST_TENSORBOARD"])
    rows = f"{said['url']}data/plugin/scalars/scalars?tag=loss&run=aaa1"
    points = wait_for(lambda: (answer := httpx.get(rows, trust_env=False, verify=False)).is_success and answer.json())
    assert [(step, value) for _, step, value in points] == [(0, 1.0), (1, 7.0)]
    process.terminate()
    assert process.wait(30) == 0
