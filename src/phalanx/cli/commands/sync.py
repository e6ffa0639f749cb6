"""phalanx sync"""

from __future__ import annotations

import os

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError

PATIENCE_S = 2.0  # per run; the next call continues where this one stopped


@click.command("sync")
@click.option("--server", help="URL of the server. Default: the one that each run was started with.")
@json_option
def command(server: str | None, as_json: bool) -> None:
    """Upload tracked data that has not reached the server yet.

    Exit code 1: some data is still not uploaded.
    """
    from phalanx.backends.local.runner import observe_replica
    from phalanx.home.attempts import ReplicaPhase
    from phalanx.home.outbox import unsent_runs
    from phalanx.tracking.external_folder import attempt_folder
    from phalanx.tracking.folder_upload import FolderUploader

    home, store = open_home()
    store.close()
    rows = []
    for run in reversed(unsent_runs(home.path)):
        if observe_replica(run.folder.joinpath(attempt_folder(str(run.folder)))).state == ReplicaPhase.RUNNING:
            rows.append({"id": run.id, "delivered": False, "why": "its process is still running"})
            continue
        url, token = _server_of(run.id, server or run.server)
        shipper = FolderUploader(url, token, str(run.folder))
        is_delivered = shipper.finish(PATIENCE_S)
        rows.append({"id": run.id, "server": url, "delivered": is_delivered, "why": shipper.trouble})
        if not as_json:
            text = f"delivered to {url}" if is_delivered else printable(shipper.trouble)
            click.echo(f"{run.id}  {text}")
    left = sum(not row["delivered"] for row in rows)
    if as_json:
        print_json({"ok": not left, "runs": rows})
    elif not rows:
        click.echo("Nothing to upload.")
    if left:
        raise SystemExit(1)


def _server_of(run_id: str, url: str | None) -> tuple[str, str]:
    """The address and token of a server; without a URL, of PHALANX_SERVER or `phalanx login`. Raises CallError."""
    from phalanx.client.config import choose_server

    found = choose_server(os.environ, url)
    if found is None:
        raise CallError(f"which server is run {run_id} for? Name it with --server http://… or PHALANX_SERVER")
    return found.url, found.token
