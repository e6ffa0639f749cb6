"""phalanx logout"""

from __future__ import annotations

import os

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json, printable


@click.command("logout")
@click.argument("url", required=False)
@json_option
def command(url: str | None, as_json: bool) -> None:
    """Forget the token of a server, or of all; the verbs are about this machine's own runs again.

    The token itself stays valid: `phalanx token revoke NAME` on the server ends it.
    """
    with answering(as_json=as_json):
        from phalanx.client.settings import checked, forget

        gone = forget(os.environ, None if url is None else checked(url))
        if as_json:
            print_json({"ok": True, "forgotten": gone})
        elif gone:
            click.echo(f"logged out of {printable(', '.join(gone))}")
        else:
            click.echo("not logged in" + (f" to {printable(url)}" if url is not None else " anywhere"))
