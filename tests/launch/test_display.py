"""How runs are shown, without a front end. `tests/notebook/test_real_kernel.py` has a real one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from phalanx.errors import CallError
from phalanx.launch.display import LiveDisplay, mime_bundle, text_of
from phalanx.store import Run
from tests.store.samples import run as record


@dataclass
class Shown:
    """A run in one state."""

    id: str
    record: Run | None
    lines: list[str] = field(default_factory=list)
    series: dict[str, Sequence[float]] = field(default_factory=dict)

    def snapshot(self, tail: int, points: int) -> tuple[Run | None, list[str], dict[str, Sequence[float]]]:
        return self.record, self.lines[-tail:], {name: values[-points:] for name, values in self.series.items()}


class Gone(Shown):
    def snapshot(self, tail: int, points: int) -> tuple[Run | None, list[str], dict[str, Sequence[float]]]:
        raise CallError("it no longer exists")


def test_texts_of_users_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script>"
    shown = Shown("abc", record("abc", name=evil, reason=evil), [evil], {evil: [1.0, 2.0]})
    page = mime_bundle(shown)["text/html"]
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 4


def test_a_sparkline_leaves_out_what_is_not_finite() -> None:
    page = mime_bundle(Shown("abc", record("abc"), [], {"loss": [3.0, math.nan, 1.0], "one": [1.0], "none": []}))
    assert page["text/html"].count("<polyline") == 1
    assert 'points="0.0,1.0 120.0,19.0"' in page["text/html"]


def test_a_run_that_waits_or_is_gone_is_shown_too() -> None:
    assert mime_bundle(Shown("abc", None))["text/plain"] == "<run abc: waits in its batch>"
    assert mime_bundle(Gone("abc", None)) == {"text/plain": "<run abc: it no longer exists>"}
    assert text_of(Gone("abc", None)) == "<run abc>"


def test_nothing_is_shown_outside_of_a_kernel() -> None:
    with LiveDisplay.open(Gone("abc", None)) as screen:
        screen.update()
    assert not screen.is_shown
