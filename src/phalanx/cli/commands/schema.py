"""phalanx schema"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json


@click.command("schema")
@json_option
def command(as_json: bool) -> None:
    """Print the JSON Schema of a polyaxonfile, for editors.

    For VS Code, save it as polyaxonfile.schema.json and start a polyaxonfile with the line
    `# yaml-language-server: $schema=polyaxonfile.schema.json`.
    """
    del as_json  # the output is always JSON
    from phalanx.spec.schema import json_schema

    print_json(json_schema(), indent=2)
