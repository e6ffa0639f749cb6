"""Fuzz the reader.

    python -m tests.fuzz --seconds 60
    python -m tests.fuzz --seed 7 --files 1000
    python -m tests.fuzz --seed 7 --only 123

Every file goes through `check`, one `plan` and mostly `convert`. Failures are made smaller and written to a folder, one
per kind. The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.cases import Case, read_cases
from tests.fuzz.doors import EVERY_DOOR, call, plant_crash, prepare
from tests.fuzz.minimiser import minimise
from tests.fuzz.mutations import Seeds
from tests.fuzz.seed_files import seed_texts
from tests.fuzz.workers import Batch, Found, Pool, case_of, examine_alone

BATCH = 250
MOST_KINDS = 40  # that are made smaller


class Report:
    """Counts, prints progress, and writes the first case of each kind of failure."""

    def __init__(self, seed: int, seeds: Seeds, folder: Path) -> None:
        self.seed = seed
        self.seeds = seeds
        self.folder = folder
        self.files = 0
        self.cpu_s = 0.0
        self.kinds: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.began = self.printed = time.monotonic()

    def take(self, batch: Batch) -> None:
        self.files += batch.files
        self.cpu_s += batch.cpu_s
        self.codes.update(batch.codes)
        for found in batch.found:
            self.kinds[found.failure.kind] += 1
            if self.kinds[found.failure.kind] == 1 and len(self.kinds) <= MOST_KINDS:
                self._keep(found)
        self._progress()

    def _keep(self, found: Found) -> None:
        case, doors, _ = case_of(self.seed, found.number, self.seeds)
        kind, door = found.failure.kind, found.failure.door or doors[0]
        wanted = doors if kind.startswith(("killed", "check and convert", "memory")) else [door]

        def fails(smaller: Case) -> bool:
            return any(failure.kind == kind for failure in examine_alone(smaller, wanted))

        print(f"FAILURE {found.number}: {kind} ({' '.join(door)})", flush=True)
        repeats = fails(case)
        small = minimise(case, fails) if repeats else case
        name = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")[:80]
        self.folder.mkdir(parents=True, exist_ok=True)
        small.write(self.folder, name)
        call_line = f"phalanx {' '.join(door)}"
        remark = "" if repeats else "It did not fail again alone.\n"
        text = f"{kind}\n{call_line}\n--seed {self.seed} --only {found.number}\n{remark}\n{found.failure.detail}\n"
        (self.folder / f"{name}.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
        print(f"  made smaller: {self.folder / name}.*", flush=True)

    def _progress(self) -> None:
        now = time.monotonic()
        if now - self.printed < (1.0 if sys.stdout.isatty() else 30.0):
            return
        self.printed = now
        line = (
            f"{self.files:,} files, {self.files / (now - self.began):,.0f} files/s, {len(self.kinds)} kinds of failures"
        )
        print(line, end="\r" if sys.stdout.isatty() else "\n", flush=True)

    def summary(self) -> str:
        elapsed = time.monotonic() - self.began
        rate = (
            f"{self.files / elapsed:,.0f} files/s; {self.files / self.cpu_s if self.cpu_s else 0:,.0f} per CPU second"
        )
        lines = [f"{self.files:,} files in {elapsed:,.0f} s: {rate}; seed {self.seed}", "exit codes:"]
        doors = sorted({door.rpartition(": ")[0] for door in self.codes})
        for door in doors:
            counts = ", ".join(f"{code}: {self.codes[f'{door}: {code}']:,}" for code in (0, 1, 2))
            lines.append(f"  {door:<28} {counts}")
        lines += [f"  {count:>7,} x {kind}" for kind, count in self.kinds.most_common()]
        lines.append(f"{len(self.kinds)} kinds of failures" + (f", kept in {self.folder}" if self.kinds else ""))
        return "\n".join(lines)


def batches(begin: int, files: int | None, until: float | None) -> Iterator[range]:
    """Ranges of numbers, until enough files or enough time."""
    while (files is None or begin < files) and (until is None or time.monotonic() < until):
        end = begin + BATCH if files is None else min(begin + BATCH, files)
        yield range(begin, end)
        begin = end


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, help="start of the random numbers; default: another one each time")
    parser.add_argument("--files", type=int, help="stop after so many files")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--begin", type=int, default=0, help="number of the first file")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="examine one file, and print it and its failures")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes; default: all cores")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where failing files go; default: a temporary folder")
    parser.add_argument(
        "--kept", type=Path, metavar="DIR", help="take the cases of a folder through every door instead"
    )
    parser.add_argument("--plant", metavar="KEY", help="break the reader for files with this key, to test the fuzzer")
    parser.add_argument("corpus", nargs="*", type=Path, help="folders with more seed files")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(1 << 32)
    seeds = Seeds(seed_texts([folder.absolute() for folder in given.corpus]))
    keep = (given.keep or Path(tempfile.gettempdir()) / f"phalanx-fuzz-{seed}").absolute()
    kept = read_cases(given.kept) if given.kept else {}
    with tempfile.TemporaryDirectory(prefix="phalanx-fuzz-") as scratch:
        prepare(Path(scratch))
        _warm_up()
        if given.plant:
            plant_crash(given.plant)
        if given.kept:
            return _examine_kept(kept)
        if given.only is not None:
            return _show_one(seed, given.only, seeds)
        print(f"seed {seed}, {len(seeds.trees)} seed files ({seeds.valid} valid), {given.jobs} processes", flush=True)
        report = Report(seed, seeds, keep)
        until = time.monotonic() + given.seconds if given.seconds else None
        last = given.begin + given.files if given.files else None
        try:
            for batch in Pool(seed, seeds, given.jobs).run(batches(given.begin, last, until)):
                report.take(batch)
        except KeyboardInterrupt:
            print()
        print(report.summary(), flush=True)
        return 1 if report.kinds else 0


def _warm_up() -> None:
    """Import everything that calls import, once for all children."""
    example = Path("seed.yml")
    cmd = "version: 1\nkind: experiment\nframework: {}\nbuild: {{image: x}}\nparams: {{a: 1}}\n"
    cmd += "environment: {{replicas: {{n_workers: 2}}}}\nrun: {{cmd: '{{{{ a | string }}}}'}}\n"
    for framework in ("tensorflow", "pytorch", "horovod", "mpi", "jax"):
        example.write_text(cmd.format(framework), encoding="ascii")
        for door in EVERY_DOOR:
            call([*door, "-f", str(example)])
    example.unlink()
    gc.collect()
    gc.freeze()  # children need not look at what was made before


def _examine_kept(cases: dict[str, Case]) -> int:
    failed = 0
    for name, case in cases.items():
        for failure in examine_alone(case, EVERY_DOOR):
            failed += 1
            print(f"{name}: {failure.kind}: {' '.join(failure.door)}\n{failure.detail}")
    print(f"{len(cases)} cases, {failed} failures")
    return 1 if failed else 0


def _show_one(seed: int, number: int, seeds: Seeds) -> int:
    case, doors, _ = case_of(seed, number, seeds)
    for ending, text in case.files:
        print(f"--- {ending}\n{text.decode('utf-8', 'backslashreplace')}")
    print(f"--- -P {list(case.params)}")
    failures = examine_alone(case, doors)
    for failure in failures:
        print(f"{failure.kind}: {' '.join(failure.door)}\n{failure.detail}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
