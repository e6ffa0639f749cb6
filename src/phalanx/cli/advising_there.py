"""`phalanx advise` for runs on a server, from what it tells of their use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.output import print_json, printable, table
from phalanx.cli.tables import status_text

if TYPE_CHECKING:
    from phalanx.client.settings import Chosen
    from phalanx.store import Run


def advise_there(server: Chosen, names: Sequence[str], *, as_json: bool) -> None:
    from phalanx.cli.places import tell
    from phalanx.client import Client

    if not as_json:
        tell(server.url)
    with Client(server.url, server.token) as client:
        runs = list({run.id: run for run in map(client.run, names)}.values())
        found = [(run, client.use(run)) for run in runs]
    if as_json:
        about = [{"id": run.id, "name": run.name, "status": run.status, **use} for run, use in found]
        print_json({"ok": True, "runs": about})
        return
    for number, (run, use) in enumerate(found):
        for line in ([""] if number else []) + list(_lines(run, use)):
            click.echo(line)


def _lines(run: Run, use: dict[str, Any]) -> Iterator[str]:
    name = f" ({printable(run.name)})" if run.name else ""
    yield f"{click.style(f'run {run.id}', bold=True)}{name}: {status_text(run.status)}"
    yield ""
    rows = [["REPLICAS", "", "ASKED", "MEAN", "P95", "PEAK", "ADVICE"]]
    for role in use["roles"]:
        for place, row in enumerate(role["resources"]):
            cells = [_cell(row, name) for name in ("requested", "mean", "p95", "peak", "advice")]
            rows.append(["" if place else printable(str(role["names"])), printable(str(row["resource"])), *cells])
    yield from table(rows)
    if use["sentences"]:
        yield ""
        yield from (f"* {printable(str(sentence))}" for sentence in use["sentences"])


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, int | float):
        return "-"
    unit = "%" if row["unit"] == "%" else f" {row['unit']}"
    return f"{value:.0f}{unit}" if value >= 100 else f"{value:.3g}{unit}"
