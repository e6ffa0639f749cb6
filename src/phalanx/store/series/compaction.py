"""Compaction: the points of an ended attempt become one Parquet file, with leaves next to it.

Each file is written under a hidden name, synced and renamed; the Parquet file is verified before that, and the point
files are removed only when both exist. A kill in between leaves either the points unchanged or both forms, of which
readers use the compacted one; the next compaction removes the rest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from phalanx import run_paths
from phalanx.errors import StoreError
from phalanx.locks import take
from phalanx.store.series.attempts import (
    AttemptPoints,
    PointHistory,
    PointSource,
    planned_ranks,
    replica_order,
    sources_of,
)
from phalanx.store.series.compacted import (
    TAIL_BYTES,
    CompactedPart,
    SeriesOffset,
    checksum_of,
    encode,
    parts_of,
)
from phalanx.store.series.leaves import LEAF_BYTES, LEAF_ROWS, Leaves
from phalanx.store.series.parquet import SeriesRows, consumed_by, is_available, write
from phalanx.store.series.points import PointFile
from phalanx.store.series.strands import MemoryStrand

NOT_FOR_FOLDERS = (errno.EINVAL, errno.ENOTSUP)  # some filesystems cannot sync them
BATCH_BYTES = 128 << 20  # bytes of point files per part: about 350 MB of memory


class CompactionResult(NamedTuple):
    """The result of a compaction."""

    points: int
    series: int
    files: int  # bytes of points read
    skipped_bytes: int  # of which damaged
    size_bytes: int  # bytes written
    paths: tuple[Path, ...]  # the Parquet files


def compact(run_folder: Path, attempt: int, least_bytes: int = 0) -> CompactionResult | None:
    """Compact an attempt that has no writers left. Returns None when there is nothing to do, or fewer than this many
    bytes of points; when pyarrow is missing; or when another process is compacting. Safe to repeat at any time, also
    after a kill.

    Raises OSError when the files cannot be written and StoreError when reading them back gives other data; all points
    are unchanged then.
    """
    sources = sources_of(run_folder).get(attempt, [])
    if not sources or sum(source.path.stat().st_size for source in sources) < least_bytes or not is_available():
        return None
    folder = run_folder / run_paths.SERIES
    folder.mkdir(mode=0o700, exist_ok=True)
    with _alone(folder) as alone:
        if not alone:
            return None
        _remove_drafts(folder, attempt)
        earlier = PointHistory(run_folder, attempt)
        made = [_compact(run_folder, attempt, batch, earlier) for batch in _batches(sources)]
        _remove_drafts(folder, attempt)
    return _together([one for one in made if one is not None])


def _together(made: Sequence[CompactionResult]) -> CompactionResult | None:
    if not made:
        return None
    points, series, files, skipped_bytes, size_bytes, paths = zip(*made, strict=True)
    return CompactionResult(
        sum(points), sum(series), sum(files), sum(skipped_bytes), sum(size_bytes), tuple(chain.from_iterable(paths))
    )


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether this process is the only one that compacts in the folder, until it is done."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            is_ours = take(descriptor, wait=False)
        except OSError:
            is_ours = True  # a filesystem without locks: then the scheduler's lease must do
        yield is_ours
    finally:
        os.close(descriptor)


def _remove_drafts(folder: Path, attempt: int) -> None:
    name = run_paths.attempt_name(attempt)
    for pattern in (f".{name}.*", f".{name}-*"):
        for draft in folder.glob(pattern):
            draft.unlink(missing_ok=True)


def _batches(sources: Iterable[PointSource]) -> Iterator[list[PointSource]]:
    """Whole replicas, as many as fit into memory together."""
    replicas: dict[str, list[PointSource]] = {}
    for source in sources:
        replicas.setdefault(source.replica, []).append(source)
    batch: list[PointSource] = []
    size = 0
    for files in replicas.values():
        more = sum(source.path.stat().st_size for source in files)
        if batch and size + more > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch += files
        size += more
    yield batch


def _compact(
    run_folder: Path, number: int, sources: Sequence[PointSource], earlier: PointHistory
) -> CompactionResult | None:
    attempt = AttemptPoints(number)
    attempt.poll(sources, parts_of(run_folder).get(number, {}))
    ranks = {**planned_ranks(run_folder), **attempt.ranks()}
    names = sorted(
        {replica for _, replica in attempt.fresh_series()}, key=lambda one: replica_order(one, ranks.get(one))
    )
    strands = _strands(attempt, names, earlier)
    spent = {source: file for source, file in attempt.files.items() if file.consumed or (strands and _is_ours(file))}
    made = None
    if strands:
        made = _Writing(run_folder, attempt, spent).commit(strands, {name: ranks.get(name) for name in names})
    for source, file in spent.items():
        _remove(source.path, file)
    return made


def _is_ours(file: PointFile) -> bool:
    """A file without a single known record is left for newer versions."""
    return file.offset > 0 or file.seen_bytes == 0


class NamedSeries(NamedTuple):
    metric: str
    replica: int  # replica number
    strand: MemoryStrand


def _strands(attempt: AttemptPoints, replicas: Sequence[str], earlier: PointHistory) -> list[NamedSeries]:
    """All series that are not compacted, sorted by metric and replica."""

    places = {name: place for place, name in enumerate(replicas)}
    found = []
    for metric, place in sorted({(metric, places[replica]) for metric, replica in attempt.fresh_series()}):
        replica = replicas[place]
        strand = attempt.fresh(metric, replica, partial(earlier.largest_step, metric, replica))
        if strand is not None:
            found.append(NamedSeries(metric, place, strand))
    return found


class _Writing:
    """A part that is being written."""

    def __init__(self, run_folder: Path, attempt: AttemptPoints, spent: Mapping[PointSource, PointFile]) -> None:
        self.folder = run_folder / run_paths.SERIES
        self.attempt = attempt
        self.spent = spent
        self.consumed = {source.name: (file.offset, _checksum(source, file)) for source, file in spent.items()}
        name = run_paths.series_part(attempt.number, self._free_number(run_folder))
        self.parquet, self.leaves = self.folder / f"{name}.parquet", self.folder / f"{name}.leaves"

    def _free_number(self, run_folder: Path) -> int:
        """The names of a part that does not exist yet. If only one of the two files exists, it is overwritten only when
        all its data is also in point files: usually, compaction was killed before the leaves were made."""
        return next(number for number in count(1) if self._is_free(run_folder, number))

    def _is_free(self, run_folder: Path, number: int) -> bool:
        name = run_paths.series_part(self.attempt.number, number)
        leaves, parquet = self.folder / f"{name}.leaves", self.folder / f"{name}.parquet"
        consumed: Mapping[str, Sequence[int]] | None
        if leaves.exists():
            part = CompactedPart.open(leaves)
            consumed = None if part is None or part.is_complete() else part.consumed
        elif parquet.exists():
            consumed = consumed_by(parquet)
        else:
            return True
        return consumed is not None and _are_there(consumed, run_folder, self.attempt.number)

    def commit(self, strands: Sequence[NamedSeries], replicas: Mapping[str, int | None]) -> CompactionResult:
        """Write both files, the leaves last: readers look for them."""
        draft = self._draft(self.parquet)
        rows = [SeriesRows(metric, replica, strand.columns) for metric, replica, strand in strands]
        write(draft, rows, replicas, self.attempt.number, self.consumed)
        _sync(draft)
        size = draft.stat().st_size
        directory = {
            "version": 1,
            "attempt": self.attempt.number,
            "metrics": list(dict.fromkeys(metric for metric, _, _ in strands)),
            "replicas": [(name, self.attempt.ranks().get(name)) for name in replicas],
            "rows": sum(strand.rows for _, _, strand in strands),
            "consumed": self.consumed,
            "skipped_bytes": sum(file.skipped_bytes + file.seen_bytes - file.offset for file in self.spent.values()),
            "parquet": {"size": size, "tail_checksum": checksum_of(draft, max(0, size - TAIL_BYTES), size)},
        }
        leaves_draft = self._draft(self.leaves)
        with open(leaves_draft, "wb") as stream:
            stream.writelines(_leaves(directory, strands))
        _sync(leaves_draft)
        for written, path in ((draft, self.parquet), (leaves_draft, self.leaves)):
            os.replace(written, path)
            _sync(self.folder)
        part = CompactedPart.open(self.leaves)
        if part is None or part.rows != directory["rows"] or not part.is_complete():
            message = f"cannot read {self.leaves} back: the disk may be failing; the points are kept"
            raise StoreError(message, transient=False)
        written_bytes = size + self.leaves.stat().st_size
        files = len(self.spent)
        return CompactionResult(part.rows, len(strands), files, part.skipped_bytes, written_bytes, (self.parquet,))

    def _draft(self, path: Path) -> Path:
        draft = path.with_name(f".{path.name}")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        return draft


def _are_there(consumed: Mapping[str, Sequence[int]], run_folder: Path, attempt: int) -> bool:
    """Whether the point files are unchanged."""
    for name, (size, checksum) in consumed.items():
        replica, _, file = name.rpartition("/")
        if checksum_of(run_folder / run_paths.attempt_folder(replica, attempt) / file, 0, size) != checksum:
            return False
    return True


def _leaves(directory: Mapping[str, Any], strands: Sequence[NamedSeries]) -> Iterator[bytes]:
    """The leaves file."""
    numbers = {name: number for number, name in enumerate(directory["metrics"])}
    places, totals, tables = [], Leaves(), []
    row = leaf = 0
    for metric, replica, strand in strands:
        table = strand.leaves().encode() if strand.rows > LEAF_ROWS else b""  # a single leaf is the total itself
        places.append(SeriesOffset(numbers[metric], replica, row, leaf, crc32(table)))
        totals.append(strand.total())
        tables.append(table)
        row += strand.rows
        leaf += len(table) // LEAF_BYTES
    yield encode(directory, places, totals)
    yield from tables


def _checksum(source: PointSource, file: PointFile) -> int:
    checksum = checksum_of(source.path, 0, file.offset)
    if checksum is None:
        raise FileNotFoundError(f"{source.path} was removed while it was compacted")
    return checksum


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as fault:
        if fault.errno not in NOT_FOR_FOLDERS or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def _remove(path: Path, file: PointFile) -> None:
    """Remove it, unless it was written to since it was read: then readers continue from there."""
    with suppress(FileNotFoundError):
        if path.stat().st_size <= max(file.seen_bytes, file.consumed):
            path.unlink()
