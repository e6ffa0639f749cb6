"""Which attempts are held after a failure: as the scheduler records it, and agents read it."""

from __future__ import annotations

from pathlib import Path

from phalanx.agent.interactive.hold import read_hold, write_hold


def test_a_hold_counts_for_its_attempt_and_those_that_an_engine_starts_after_it(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert read_hold(folder, 1) is None
    write_hold(folder, 2, 90.0)
    assert [read_hold(folder, attempt) for attempt in (1, 2, 3)] == [None, 90.0, 90.0]
    write_hold(folder, 4, None)
    assert read_hold(folder, 4) is None
    write_hold(folder, 4, None)


def test_a_damaged_file_holds_nothing(tmp_path: Path) -> None:
    write_hold(str(tmp_path), 1, 90.0)
    for text in ("", "[]", '{"attempt": "x"}', '{"attempt": 1, "hold_s": "long"}'):
        (tmp_path / "job" / "hold.json").write_text(text)
        assert read_hold(str(tmp_path), 1) is None
