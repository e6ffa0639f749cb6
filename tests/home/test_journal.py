from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import CallError
from phalanx.home.group_folder import GroupFolder, trial_id
from phalanx.home.journal import RunJournal
from phalanx.tracking.external_folder import new_id


def written(path: Path, count: int) -> list[int]:
    """A journal; answers where its records end."""
    journal = RunJournal(str(path))
    journal.read()
    ends = []
    for number in range(count):
        journal.append([{"what": "create", "trial": number, "params": {"lr": number / 10}}])
        ends.append(path.stat().st_size)
    journal.close()
    return ends


def trials(path: Path) -> list[Any]:
    return [record["trial"] for record in RunJournal(str(path)).read()]


def test_a_journal_cut_at_any_byte_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ends = written(path, 4)
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        assert trials(path) == list(range(sum(cut >= end for end in ends)))


def test_what_is_appended_after_a_cut_follows_the_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ends = written(path, 2)
    data = path.read_bytes()
    for cut in range(*ends):
        path.write_bytes(data[:cut])
        journal = RunJournal(str(path))
        journal.read()
        (record,) = journal.append([{"what": "create", "trial": 7}])
        journal.close()
        assert record["seq"] == 2
        assert trials(path) == [0, 7]


def test_damage_before_the_last_record_is_not_skipped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, 3)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(CallError, match="damaged after record 1"):
        RunJournal(str(path)).read()


def test_requests_are_taken_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path)
    assert folder.requests() == []
    for number in (3, 1, 2):
        folder.ask("concurrency", n=number)
    assert [asked["n"] for _, asked in folder.requests()] == [3, 1, 2]
    folder.forget_request(folder.requests()[0][0])
    assert [asked["n"] for _, asked in folder.requests()] == [1, 2]


def test_the_id_of_a_trial_is_derived_and_looks_like_any_other() -> None:
    first = trial_id("a1b2c3d4e5", 0)
    assert first == trial_id("a1b2c3d4e5", 0)
    others = {trial_id("a1b2c3d4e5", number) for number in range(1000)}
    assert len(others) == 1000
    assert {len(other) for other in others} == {len(new_id())}
    assert set("".join(others)) <= set("abcdefghijkmnpqrstuvwxyz23456789")
