"""Charts of braille characters, with two by four dots each."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.store.series.run_series import Bucket, Spread

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column
BLANK = 0x2800
WIDTH, HEIGHT = 72, 12


def plot(buckets: Sequence[Bucket | Spread], width: int = WIDTH, height: int = HEIGHT) -> list[str]:
    """Draw the range from minimum to maximum of each bucket over the steps, with labels at the ends of both axes."""
    shown = [
        (bucket, bucket.min, bucket.max) for bucket in buckets if bucket.min is not None and bucket.max is not None
    ]
    if not shown:
        return ["  (no finite values)"]
    low, high = min(least for _, least, _ in shown), max(most for _, _, most in shown)
    first, last = shown[0][0].first_step, shown[-1][0].last_step
    cells = [[0] * width for _ in range(height)]
    rows, columns = 4 * height, 2 * width
    for bucket, least, most in shown:
        column = _place(bucket.first_step, first, last, columns)
        top, bottom = (rows - 1 - _place(value, low, high, rows) for value in (most, least))
        for row in range(top, bottom + 1):
            cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    room = max(map(len, labels))
    lines = [
        f"{label.rjust(room)} │{''.join(chr(BLANK + cell) for cell in row)}".rstrip("\N{BRAILLE PATTERN BLANK}")
        for label, row in zip(labels, cells, strict=True)
    ]
    begin, end = str(first), str(last)
    return [*lines, f"{' ' * room} └{'─' * width}", f"{' ' * (room + 2)}{begin}{end.rjust(width - len(begin))}"]


def _place(value: float, low: float, high: float, count: int) -> int:
    return round((value - low) / (high - low) * (count - 1)) if high > low else 0
