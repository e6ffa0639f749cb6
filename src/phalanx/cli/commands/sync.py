"""phalanx sync"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError

PATIENCE_S = 2.0  # per run; the next call continues where this one stopped


@click.command("sync")
@click.option("--server", help="URL of the server. Default: PHALANX_SERVER.")
@json_option
def command(server: str | None, as_json: bool) -> None:
    """Upload tracked data that has not reached the server yet.

    Exit code 1: some data is still not uploaded.
    """
    from phalanx.backends.local.runner import observe_replica
    from phalanx.home.attempts import ReplicaPhase
    from phalanx.tracking.external_folder import attempt_folder
    from phalanx.tracking.folder_upload import FolderUploader, server_url, token

    home, store = open_home()
    store.close()
    try:
        url = server_url(server)
    except ValueError as fault:
        raise CallError(str(fault)) from None
    outbox = home.path / "outbox" / "runs"
    waiting = sorted(path for path in outbox.iterdir() if not path.name.startswith(".")) if outbox.is_dir() else []
    if waiting and url is None:
        raise CallError("name a server with --server http://… or PHALANX_SERVER")
    rows = []
    for folder in waiting:
        if observe_replica(folder.joinpath(attempt_folder(str(folder)))).state == ReplicaPhase.RUNNING:
            rows.append({"id": folder.name, "delivered": False, "why": "its process is still running"})
            continue
        shipper = FolderUploader(str(url), token(str(home.path)), str(folder))
        is_delivered = shipper.finish(PATIENCE_S)
        rows.append({"id": folder.name, "delivered": is_delivered, "why": shipper.trouble})
        if not as_json:
            click.echo(f"{folder.name}  {'delivered' if is_delivered else printable(shipper.trouble)}")
    left = sum(not row["delivered"] for row in rows)
    if as_json:
        print_json({"ok": not left, "runs": rows})
    elif not rows:
        click.echo("Nothing to upload.")
    if left:
        raise SystemExit(1)
