"""Draws the lines of a chart as SVG, without scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from phalanx.reports.blocks import ChartBlock
from phalanx.reports.lines import Line, smoothed

WIDTH = 860
RIGHT, TOP, FOOT, ROW = 16, 34, 26, 18
LETTER = 6.4  # about the width of one
MOST_ROWS = 12  # of the legend
COLOURS = ("#0072b2", "#c44e00", "#008a64", "#b0568d", "#8a6d00", "#2b8fc4", "#5a4fb0", "#555b66")
DASHES = ("", "6 4", "2 3", "10 3 2 3")  # after the last colour, they repeat with other dashes
SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # by XML


@dataclass(frozen=True, slots=True)
class Scale:
    """Places values between two ends of an axis."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def __call__(self, value: float) -> float:
        place, low, high = (math.log10(one) if self.is_log else one for one in (value, self.low, self.high))
        return self.start + (place - low) / ((high - low) or 1) * (self.end - self.start)


def chart_svg(chart: ChartBlock, title: str, lines: Sequence[Line], number: int) -> str:
    """`number` tells the charts of a page apart."""
    legend = _legend(lines)
    height = chart.height + len(legend) * ROW
    bottom = height - FOOT - len(legend) * ROW - (6 if legend else 0)
    drawn = [_drawable(chart, line) for line in lines]
    across, up = _range_x(chart, drawn), _range_y(chart, drawn)
    to_y = Scale(*up, bottom, TOP, chart.log_y)
    y_ticks = [(tick, axis_text(tick)) for tick in ticks(*up, max(2, (bottom - TOP) // 44), is_log=chart.log_y)]
    left = max(34.0, 14 + LETTER * max((len(text) for _, text in y_ticks), default=0))
    to_x = Scale(*across, left, WIDTH - RIGHT, chart.log_x)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        f' role="img" aria-label="{escaped(title)}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        '<g font-family="system-ui, sans-serif" font-size="11" fill="#5c6470">',
        f'<text x="12" y="20" font-size="13" font-weight="600">{escaped(title)}</text>',
        *(_y_tick(to_y(tick), text, left) for tick, text in y_ticks),
        *_x_ticks(chart, across, to_x, bottom, left),
        *_legend_rows(legend, bottom + FOOT + 8),
        "</g>",
        f'<clipPath id="plot-{number}"><rect x="{left:.1f}" y="{TOP}" width="{WIDTH - RIGHT - left:.1f}"'
        f' height="{bottom - TOP}"/></clipPath>',
        f'<g clip-path="url(#plot-{number})" fill="none">',
        *(
            mark
            for place, line in enumerate(drawn)
            for mark in _marks(line, _style(chart, place, len(drawn)), to_x, to_y)
        ),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts)


def escaped(text: str) -> str:
    """Text for SVG and HTML, without characters that XML forbids."""
    return escape(_FORBIDDEN.sub("", text))


def ticks(low: float, high: float, count: float, *, is_log: bool = False) -> list[float]:
    """Round places between two values: about `count`."""
    if not high > low:
        return [low]
    if is_log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        factors = (1, 2, 5) if len(powers) <= 4 else (1,)
        every = max(1, len(powers) // 6)
        found = [factor * 10.0**power for power in powers[::every] for factor in factors]
        return [value for value in found if low <= value <= high] or [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    return _multiples(low, high, next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.75))


def _multiples(low: float, high: float, step: float) -> list[float]:
    first = math.ceil(low / step - 1e-9)
    last = high + step * 1e-9
    return [float(f"{number * step:.12g}") for number in range(first, first + 100) if number * step <= last]


def axis_text(value: float) -> str:
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e9):
        return f"{value:.1e}".replace(".0e", "e").replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    if size >= 1e4:
        return f"{value / 1e6:.4g}M" if size >= 1e6 else f"{value / 1e3:.4g}k"
    return f"{value:.5g}"


def span_text(seconds: float) -> str:
    for size, unit in ((86_400 * 2, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return f"{seconds / (86_400 if unit == 'd' else size):.3g} {unit}"
    return f"{seconds:.3g} s"


def _drawable(chart: ChartBlock, line: Line) -> Line:
    """Without what a logarithmic axis cannot show, and inside of the chosen range."""
    first, last = chart.range or (-math.inf, math.inf)
    kept = [place for place, x in enumerate(line.x) if first <= x <= last and not (chart.log_x and x <= 0)]

    def column(values: Sequence[float | None]) -> tuple[float | None, ...]:
        found = (values[place] for place in kept) if values else ()
        return tuple(None if value is None or (chart.log_y and value <= 0) else value for value in found)

    odd = tuple(x for x in line.odd if first <= x <= last and not (chart.log_x and x <= 0))
    x, (y, low, high) = tuple(line.x[place] for place in kept), map(column, (line.y, line.low, line.high))
    return Line(line.label, x, y, low, high, odd)


def _range_x(chart: ChartBlock, lines: Sequence[Line]) -> tuple[float, float]:
    places = [x for line in lines for x in (*line.x[:1], *line.x[-1:], *(line.x if chart.x != "step" else ()))]
    if chart.range is not None and not (chart.log_x and chart.range[0] <= 0):
        return chart.range
    low, high = min(places, default=1.0), max(places, default=10.0)
    if low < high:
        return low, high
    return (low / 2, low * 2) if chart.log_x else (low - 0.5, low + 0.5)


def _range_y(chart: ChartBlock, lines: Sequence[Line]) -> tuple[float, float]:
    columns = [column for line in lines for column in (line.y, line.low, line.high)]
    values = [value for column in columns for value in column if value is not None]
    low, high = min(values, default=1.0), max(values, default=10.0)
    if chart.log_y:
        return low / 1.2, high * 1.2
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - room, high + room


def _y_tick(y: float, text: str, left: float) -> str:
    return (
        f'<line x1="{left:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e9ebef"/>'
        f'<text x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{escaped(text)}</text>'
    )


def _x_ticks(chart: ChartBlock, across: tuple[float, float], to_x: Scale, bottom: float, left: float) -> Iterator[str]:
    count = (WIDTH - left) / 110
    step = next((one for one in SECONDS if one >= (across[1] - across[0]) / count * 0.75), None)
    is_time = chart.x == "time" and not chart.log_x
    places = _multiples(*across, step) if is_time and step else ticks(*across, count, is_log=chart.log_x)
    for place in places:
        text = span_text(place) if chart.x == "time" else axis_text(place)
        yield f'<text x="{to_x(place):.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{escaped(text)}</text>'
    if chart.x.startswith("metric."):
        name = escaped(chart.x.removeprefix("metric."))
        yield f'<text x="{WIDTH - RIGHT}" y="{bottom - 4:.1f}" text-anchor="end">{name}</text>'


class Style(NamedTuple):
    colour: str
    dash: str
    width: float = 1.5
    smooth: float = 0.0


def _style(chart: ChartBlock, place: int, count: int) -> Style:
    return Style(*_look(place), 1 if count > 6 else 1.5, chart.smooth)


def _look(place: int) -> tuple[str, str]:
    """The colour and the dashes of a line."""
    return COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)]


def _marks(line: Line, style: Style, to_x: Scale, to_y: Scale) -> Iterator[str]:
    """The band, the line and the marks of values that are not finite."""
    colour = style.colour
    for part in _stretches(line.low):
        upper = [_at(line.x[one], line.high[one], to_x, to_y) for one in part]
        lower = [_at(line.x[one], line.low[one], to_x, to_y) for one in reversed(part)]
        yield f'<path d="M{"L".join([*upper, *lower])}Z" fill="{colour}" fill-opacity="0.16"/>'
    strokes = [(line.y, f'stroke-width="{style.width}" stroke-dasharray="{style.dash}"')]
    if style.smooth:
        strokes = [(line.y, 'stroke-opacity="0.28"'), (tuple(smoothed(line.y, style.smooth)), strokes[0][1])]
    for values, stroke in strokes:
        for part in _stretches(values):
            points = [_at(line.x[one], values[one], to_x, to_y) for one in part]
            dot = ' stroke-linecap="round"' if len(points) == 1 else ""
            path = "L".join(points) if len(points) > 1 else f"{points[0]}h.01"
            yield f'<path d="M{path}" stroke="{colour}" {stroke}{dot}/>'
    for x in line.odd:
        yield f'<path d="M{to_x(x):.1f} {to_y.start - 6:.1f}m-3-3l6 6m0-6l-6 6" stroke="{colour}" stroke-width="1.5"/>'


def _stretches(values: Sequence[float | None]) -> Iterator[list[int]]:
    """The places of values without gaps."""
    part: list[int] = []
    for place, value in enumerate(values):
        if value is not None:
            part.append(place)
        elif part:
            yield part
            part = []
    if part:
        yield part


def _at(x: float, y: float | None, to_x: Scale, to_y: Scale) -> str:
    return f"{to_x(x):.1f} {to_y(y or 0.0):.1f}"


def _legend(lines: Sequence[Line]) -> list[list[tuple[float, int, str]]]:
    """Rows of entries: their left ends, the numbers of their lines, and their labels."""
    rows: list[list[tuple[float, int, str]]] = []
    left = math.inf
    for place, line in enumerate(lines if len(lines) > 1 else ()):
        label = line.label if len(line.label) <= 60 else f"{line.label[:59]}…"
        width = 46 + len(label) * LETTER
        if left + width > WIDTH - 24:
            rows.append([])
            left = 12.0
        rows[-1].append((left, place, label))
        left += width
    return rows[:MOST_ROWS]


def _legend_rows(rows: Sequence[Sequence[tuple[float, int, str]]], top: float) -> Iterator[str]:
    for number, row in enumerate(rows):
        y = top + number * ROW
        for left, place, label in row:
            colour, dash = _look(place)
            yield (
                f'<line x1="{left:.1f}" x2="{left + 22:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"'
                f' stroke-width="2.5" stroke-dasharray="{dash}"/>'
                f'<text x="{left + 28:.1f}" y="{y + 4:.1f}">{escaped(label)}</text>'
            )
