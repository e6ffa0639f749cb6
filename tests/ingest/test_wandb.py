"""Offline runs of W&B in a replica's folder are read while they are written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from phalanx.agent.launcher import _sends_to_wandb
from phalanx.ingest.wandb import WandbFollower
from phalanx.spool import read
from phalanx.store.series.points import FolderSummaries
from tests.formats.encoding import wandb_exit, wandb_history, wandb_log, wandb_run, wandb_summary, write_wandb

COUNT = 3000  # records over several blocks of 32 KiB


class Offline:
    """A replica whose W&B file grows."""

    def __init__(self, run_folder: Path) -> None:
        self.run_folder = run_folder
        self.folder = run_folder / "replicas" / "master-0" / "attempt-1"
        self.folder.mkdir(parents=True)
        history = [wandb_history(step, {"loss": float(step)}, 1.7e9 + step) for step in range(COUNT)]
        ends = [wandb_summary({("loss",): 1.0, ("best",): 0.5}), wandb_exit(0)]
        records = [wandb_run("abc", config={"lr": 0.1}), *history, *ends]
        self.files = write_wandb(self.folder / "wandb", "abc", records)
        (self.log,) = (self.folder / "wandb").glob("*/*.wandb")
        self.data = wandb_log(records)
        assert self.log.read_bytes() == self.data
        assert len(self.data) > 3 * 32_768
        self.follower = self.restarted()

    def restarted(self) -> WandbFollower:
        self.follower = WandbFollower(self.run_folder, {"master-0": self.folder})
        return self.follower

    def grow(self, part: float) -> None:
        self.log.write_bytes(self.data[: int(part * len(self.data))])

    def follow(self, *, is_over: bool = False) -> None:
        self.follower.look_at = 0.0
        self.follower.follow(is_over=is_over)

    def counts(self) -> dict[str, int]:
        points = FolderSummaries(self.folder, {})
        points.poll()
        return {name: summary.count for name, summary in points.summaries.items()}

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for record in read(self.folder / "wandb.events") if (event := record.data())["kind"] == kind]


@pytest.fixture
def offline(tmp_path: Path) -> Offline:
    return Offline(tmp_path)


def test_a_growing_file_is_read_once_also_by_the_next_scheduler(offline: Offline) -> None:
    seen = 0
    for part in (0.00001, 0.1, 0.33, 0.66, 0.67):
        offline.grow(part)
        offline.follow()
        assert seen <= offline.counts().get("loss", 0) <= (part + 0.05) * COUNT
        seen = offline.counts().get("loss", 0)
        offline.follower.close()
        offline.restarted()
    assert seen > COUNT / 2
    offline.grow(1)
    (offline.files / "kept.txt").write_text("x")
    offline.follow(is_over=True)
    assert offline.counts() == {"loss": COUNT, "best": 1}
    assert [event["values"] for event in offline.events("params")] == [{"lr": 0.1}]
    assert (offline.run_folder / "artifacts" / "kept.txt").read_text() == "x"
    offline.restarted()
    offline.follow(is_over=True)
    assert offline.counts() == {"loss": COUNT, "best": 1}
    assert len(offline.events("artifact")) == 1


def test_a_damaged_file_costs_only_its_own_part(offline: Offline) -> None:
    changed = bytearray(offline.data)
    changed[40_000:40_010] = os.urandom(10)
    offline.log.write_bytes(bytes(changed))
    offline.follow(is_over=True)
    assert COUNT / 3 < offline.counts()["loss"] < COUNT


def test_a_user_who_logs_to_wandb_is_not_sent_offline(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert not _sends_to_wandb(home)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        assert _sends_to_wandb({**home, name: "x"})
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert _sends_to_wandb(home)
