"""Amounts as people write them."""

from __future__ import annotations

import pytest

from phalanx.spec import Amount, Resources
from phalanx.spec.quantities import count, cpus, memory_mib, seconds, tidy
from tests.spec.helpers import EXPERIMENT, load_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2.0), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("500m", 0.5), ("1500m", 1.5), (" 2 ", 2.0), ("1e1", 10.0),
        ("-1", -1.0), ("2Gi", None), ("2k", None), ("", None), ("m", None), ("two", None), ("2 m", 0.002),
        ("1,5", None), ("0x10", None), ("1_000", None), ("2m2", None), ("nan", None), ("inf", None),
    ],
)  # fmt: skip
def test_cpus_are_numbers_or_thousandths(text: str, value: float | None) -> None:
    assert cpus(text) == value


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512.0), ("0.5", 0.5), ("512Mi", 512.0), ("2Gi", 2048.0), ("1Ti", 1024.0**2), ("1Pi", 1024.0**3),
        ("1024Ki", 1.0), ("2GiB", 2048.0), ("1048576k", 1000.0), ("1M", 1e6 / 2**20), ("1G", 1e9 / 2**20),
        ("1GB", 1e9 / 2**20), ("1K", 1000 / 2**20), ("2 Gi", 2048.0),
        ("2gi", None), ("2m", None), ("B", None), ("2X", None), ("Gi", None), ("", None), ("2Gi2", None),
    ],
)  # fmt: skip
def test_memory_is_mib_unless_it_carries_a_unit(text: str, mib: float | None) -> None:
    assert memory_mib(text) == mib


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2.0), ("2.5", 2.5), ("-3", -3.0), ("2m", None), ("2Gi", None), ("", None), ("two", None)]
)
def test_a_count_is_a_bare_number(text: str, value: float | None) -> None:
    assert count(text) == value


@pytest.mark.parametrize("parse", [count, cpus, memory_mib, seconds])
def test_a_quantity_is_read_to_its_end_however_long_it_is(parse: object) -> None:
    assert callable(parse)
    assert parse("2" + " " * 100 + "and more") is None
    assert parse("1" * 63 + "x" * 10) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90.0), ("90s", 90.0), ("1.5", 1.5), ("90m", 5400.0), ("1h", 3600.0), ("1h30m", 5400.0),
        ("1d12h", 129600.0), ("1d 2h 3m 4s", 93784.0), ("2d", 172800.0), ("0", 0.0),
        ("", None), ("soon", None), ("1w", None), ("m", None), ("30m1h", None), ("-5", None), ("1h30", 3630.0),
    ],
)  # fmt: skip
def test_a_time_is_seconds_or_days_hours_minutes_and_seconds(text: str, value: float | None) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(("number", "shown"), [(2.0, "2"), (2.5, "2.5"), (0.0, "0"), (1e20, "100000000000000000000")])
def test_a_whole_number_is_shown_without_its_point(number: float, shown: str) -> None:
    assert str(tidy(number)) == shown


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_what_is_not_finite_is_shown_as_it_is(number: float) -> None:
    assert str(tidy(number)) == str(number)


def test_amounts_of_a_file_are_numbers_or_text_with_units() -> None:
    spec = load_text(
        EXPERIMENT
        + "environment:\n  resources:\n    cpu: {requests: 500m, limits: '2'}\n"
        + "    memory: {requests: 256, limits: 2Gi}\n    gpu: {requests: '1', limits: 1}\n    tpu: {requests: 0}\n"
    )
    assert spec.environment.settings.resources == Resources(
        cpu=Amount(0.5, 2.0), memory=Amount(256.0, 2048.0), gpu=Amount(1.0, 1.0), tpu=Amount(0.0, None)
    )
