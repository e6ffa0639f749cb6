"""phalanx logout"""

from __future__ import annotations

import os

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable


@click.command("logout")
@click.argument("url", required=False)
@json_option
def command(url: str | None, as_json: bool) -> None:
    """Forget the token of a server, or of all servers. Commands then use the local home again.

    The token stays valid. To revoke it, run `phalanx token revoke NAME` on the server.
    """
    from phalanx.client.config import checked, delete_login

    gone = delete_login(os.environ, None if url is None else checked(url))
    if as_json:
        print_json({"ok": True, "forgotten": gone})
    elif gone:
        click.echo(f"logged out of {printable(', '.join(gone))}")
    else:
        click.echo("not logged in" + (f" to {printable(url)}" if url is not None else " anywhere"))
