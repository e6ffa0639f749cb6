"""phalanx mcp"""

from __future__ import annotations

import sys

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json


@click.command("mcp")
@click.option("--allow-writes", is_flag=True, help="Also offer tools that start, stop, resume and restart runs.")
@json_option
def command(allow_writes: bool, as_json: bool) -> None:
    """Serve runs to assistants with the Model Context Protocol, on standard input and output.

    Assistants that speak the protocol start this command by themselves; add it to their configuration. Its tools read
    the same home or server as all other commands: runs, metrics, logs, failures, advice, the queue. On a server they
    have the rights of your token.

    --json prints the tools and exits.
    """
    from phalanx.cli.mcp.server import description_json, require_package, serve, tools_of

    require_package()
    if as_json:
        tools = tools_of(allow_writes=allow_writes)
        print_json({"ok": True, "tools": [description_json(tool) for tool in tools.values()]})
        return
    if sys.stdin is not None and sys.stdin.isatty():
        click.echo("waiting for the messages of an assistant; `phalanx mcp --json` lists the tools", err=True)
    serve(allow_writes=allow_writes)
