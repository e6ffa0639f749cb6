"""Points as Parquet: the only module that uses pyarrow.

Columns metric, replica, rank, attempt, step, time and value, sorted by metric, replica and the order of logging, in row
groups of equal length, so that a row number alone locates a row.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from phalanx import extras
from phalanx.errors import StoreError, disk_fault
from phalanx.store.series.points import Columns

GROUP_ROWS = 131_072
CONSUMED = b"phalanx.consumed"  # which point files are in it
RANKS = range(-(2**31), 2**31)
NUMBERS = ("step", "time", "value")


class SeriesRows(NamedTuple):
    """A series to be written."""

    metric: str
    replica: int  # replica number
    columns: Columns


def is_available() -> bool:
    try:
        import pyarrow.parquet  # type: ignore[import-untyped] # noqa: F401
    except ImportError:
        return False
    return True


def read_group(path: Path, number: int) -> Columns:
    """One row group. Raises CallError when pyarrow is missing, or the file cannot be read."""
    with extras.needed("series", f"reading the points in {path}"):
        import pyarrow.compute  # type: ignore[import-untyped]
        import pyarrow.parquet
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            steps, moments, values = _numbers(file, number)
    except (OSError, pyarrow.ArrowException) as fault:
        raise disk_fault(f"the points in {path} cannot be read", fault) from None
    times = pyarrow.compute.divide(moments.cast(pyarrow.float64()), 1e6)
    return Columns(*(_plain(kind, column) for kind, column in zip("qdd", (steps, times, values), strict=True)))


def _numbers(file: Any, group: int) -> list[Any]:
    """Steps, times in microseconds and values."""
    table = file.read_row_group(group, columns=list(NUMBERS), use_threads=False)
    steps, times, values = (table.column(name).combine_chunks() for name in NUMBERS)
    return [steps, times.view(steps.type), values]


def _plain(kind: str, column: Any) -> array[Any]:
    found = array(kind)
    found.frombytes(_bytes(column))
    return found


def _bytes(column: Any) -> memoryview:
    """The numbers of a pyarrow column, eight bytes each."""
    return memoryview(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))]


def write(
    path: Path,
    series: Sequence[SeriesRows],
    replicas: Mapping[str, int | None],
    attempt: int,
    consumed: Mapping[str, Any],
) -> None:
    """Write a file and read it back. `replicas` are names and ranks by replica number.

    Raises OSError when the file cannot be written, StoreError when reading it back gives other data.
    """
    import pyarrow as pa
    import pyarrow.parquet

    names = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [
            ("metric", names),
            ("replica", names),
            ("rank", pa.int32()),
            ("attempt", pa.int32()),
            ("step", pa.int64()),
            ("time", pa.timestamp("us", "UTC")),
            ("value", pa.float64()),
        ],
        metadata={CONSUMED: json.dumps(dict(consumed))},
    )
    checksums = []
    with pyarrow.parquet.ParquetWriter(
        path,
        schema,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=["metric", "replica", "rank", "attempt"],
        column_encoding={"step": "DELTA_BINARY_PACKED", "time": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT"},
    ) as writer:
        for group in _groups(series):
            columns = _table(group, replicas, attempt)
            checksums.append(_checksum(columns[4:]))
            columns[5] = columns[5].view(schema.field("time").type)
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=GROUP_ROWS)
    if _checksums(path) != checksums:
        message = f"{path} does not contain what was written: the disk may be failing; the points are kept"
        raise StoreError(message, transient=False)


def _groups(series: Sequence[SeriesRows]) -> Iterator[list[SeriesRows]]:
    """The same rows, in groups of equal length."""
    group: list[SeriesRows] = []
    room = GROUP_ROWS
    for one in series:
        first = 0
        while first < len(one.columns):
            piece = one.columns.cut(first, first + room)
            group.append(one._replace(columns=piece))
            first += len(piece)
            room -= len(piece)
            if not room:
                yield group
                group, room = [], GROUP_ROWS
    if group:
        yield group


def _table(group: Sequence[SeriesRows], replicas: Mapping[str, int | None], attempt: int) -> list[Any]:
    """The columns of a row group, with times in microseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    metrics = {name: number for number, name in enumerate(dict.fromkeys(one.metric for one in group))}
    held, metric, replica = Columns(), array("i"), array("i")
    for one in group:
        held.extend(one.columns)
        metric.extend(array("i", [metrics[one.metric]]) * len(one.columns))
        replica.extend(array("i", [one.replica]) * len(one.columns))

    def column(kind: Any, numbers: array[Any]) -> Any:
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])

    ranks = pa.array([None if rank is None or rank not in RANKS else rank for rank in replicas.values()], pa.int32())
    replica_column = column(pa.int32(), replica)
    times = pc.round(pc.multiply(column(pa.float64(), held.times), 1e6)).cast(pa.int64())
    return [
        pa.DictionaryArray.from_arrays(column(pa.int32(), metric), pa.array(list(metrics), pa.string())),
        pa.DictionaryArray.from_arrays(replica_column, pa.array(list(replicas), pa.string())),
        ranks.take(replica_column),
        column(pa.int32(), array("i", [attempt]) * len(held)),
        column(pa.int64(), held.steps),
        times,
        column(pa.float64(), held.values),
    ]


def _checksum(columns: Sequence[Any]) -> int:
    checksum = 0
    for column in columns:
        checksum = crc32(_bytes(column), checksum)
    return checksum


def _checksums(path: Path) -> list[int]:
    """A checksum over the numbers of each row group."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        return [_checksum(_numbers(file, group)) for group in range(file.num_row_groups)]


def consumed_by(path: Path) -> dict[str, Any] | None:
    """The point files that are in one of our Parquet files; None when it cannot be read, or is not ours."""
    import pyarrow
    import pyarrow.parquet

    try:
        found = json.loads((pyarrow.parquet.read_schema(path).metadata or {})[CONSUMED])
    except (OSError, ValueError, LookupError, pyarrow.ArrowException):
        return None
    return found if isinstance(found, dict) else None
