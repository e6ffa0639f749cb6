"""phalanx completion"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import fail, print_json

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print a shell completion script.

    \b
    bash: add `eval "$(phalanx completion bash)"` to ~/.bashrc
    zsh:  add `eval "$(phalanx completion zsh)"` to ~/.zshrc
    fish: phalanx completion fish > ~/.config/fish/completions/phalanx.fish
    """
    from click.shell_completion import get_completion_class

    from phalanx.cli import phalanx

    maker = get_completion_class(shell)
    if maker is None:
        fail(f"no completion for {shell}", as_json=as_json)
    try:
        script = maker(phalanx, {}, "phalanx", "_PHALANX_COMPLETE").source()
    except RuntimeError as fault:
        fail(str(fault), as_json=as_json)
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
