"""scripts/with_postgres.sh, with programs that pretend to be PostgreSQL: how it ends when it is told to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.leftovers import PATIENCE_S, Moment, marked

SCRIPT = Path(__file__).parent.parent / "scripts" / "with_postgres.sh"
PROGRAMS = {
    "initdb": ":",
    "pg_ctl": 'echo "$@" >>"$CALLS"',
    "chown": ":",
    "runuser": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
}


def variables_in(folder: Path) -> dict[str, str]:
    (folder / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CALLS": str(folder / "calls")}


def command_in(folder: Path, *command: str) -> list[str]:
    """A PostgreSQL that is installed here is passed over."""
    text = SCRIPT.read_text()
    for place in ("/usr/lib/postgresql", "/usr/pgsql-"):
        assert place in text
        text = text.replace(place, f"{folder}/none")
    (folder / "with_postgres.sh").write_text(text)
    return ["bash", str(folder / "with_postgres.sh"), *command]


def test_the_command_runs_beside_a_server_that_is_stopped_afterwards(tmp_path: Path) -> None:
    with marked() as here:
        command = command_in(tmp_path, "sh", "-c", f'echo "$PHALANX_TEST_POSTGRES" >{tmp_path}/url; exit 7')
        assert here.start(command, variables_in(tmp_path)).wait(PATIENCE_S) == 7
    assert (tmp_path / "url").read_text().startswith("postgresql://phalanx@/postgres?host=/tmp/")
    started, stopped = (tmp_path / "calls").read_text().splitlines()
    assert " start " in started
    assert " stop" in stopped


@pytest.mark.parametrize(
    "before",
    ['cd_and_log "$bin/initdb"*', "export PHALANX_TEST_POSTGRES=*", '"$@"*', "command_pid=$!", "status=0", "wait *"],
)
def test_asked_to_end_at_any_moment_it_ends_the_command_and_the_server(tmp_path: Path, before: str) -> None:
    moment = Moment(tmp_path, 1, before)
    with marked() as here:
        process = here.start(command_in(tmp_path, "sleep", "600"), {**variables_in(tmp_path), **moment.variables})
        assert process.wait(PATIENCE_S) == 143
        assert moment.has_come
        assert here.left() == []
    assert " stop" in (tmp_path / "calls").read_text().splitlines()[-1]
