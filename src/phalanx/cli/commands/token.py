"""phalanx token"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable, report_errors, table
from phalanx.server.auth.identities import OLD_WORDS, ROLES

if TYPE_CHECKING:
    from phalanx.server.auth.tokens import Token, Tokens


@click.group("token")
def command() -> None:
    """Tokens for those who use `phalanx serve`.

    The home keeps only their hashes: a token is shown once, when it is created.
    """


@command.command("create")
@click.argument("name")
@click.option("--role", "--scope", "role", type=click.Choice([*ROLES, *OLD_WORDS]), default="editor", show_default=True)
@click.option(
    "--days", type=click.FloatRange(0, 36_500, min_open=True), help="How long it is valid; always, if not given."
)
@click.option("--user", metavar="NAME", help="Whose it is: it never opens more than they may, and ends with them.")
@click.option("--project", "projects", multiple=True, metavar="NAME", help="Only for this project; may be repeated.")
@json_option
def create(
    name: str, role: str, days: float | None, *, user: str | None, projects: tuple[str, ...], as_json: bool
) -> None:
    """Give out a new token, and print it this once."""
    with report_errors(as_json=as_json):
        text = _tokens().create(name, role, days, user=user, projects=projects or None)
        if as_json:
            print_json({"ok": True, "token": text, **_row(_named(name))})
        else:
            click.echo(text)
            click.echo("It is not shown again.", err=True)


@command.command("list")
@json_option
def list_tokens(as_json: bool) -> None:
    """Show which tokens there are."""
    with report_errors(as_json=as_json):
        tokens = _tokens().known()
        if as_json:
            print_json({"ok": True, "tokens": [_row(token) for token in tokens]})
            return
        if not tokens:
            click.echo("no tokens yet: `phalanx serve` makes the owner's, `phalanx token create NAME` any other")
            return
        rows = [
            [printable(token.name), token.role, _projects(token), token.user or "-", _day(token.created), _end(token)]
            for token in tokens
        ]
        for line in table([["NAME", "ROLE", "PROJECTS", "USER", "CREATED", "VALID UNTIL"], *rows]):
            click.echo(line)


@command.command("revoke")
@click.argument("name")
@json_option
def revoke(name: str, as_json: bool) -> None:
    """Make a token invalid from now on."""
    with report_errors(as_json=as_json):
        _tokens().revoke(name)
        if as_json:
            print_json({"ok": True, "revoked": name})
        else:
            click.echo(f"revoked {printable(name)}")


def _tokens() -> Tokens:
    from phalanx.home.home import Home, default_home
    from phalanx.server.auth.tokens import Tokens

    return Tokens(Home(default_home()).path)


def _named(name: str) -> Token:
    return next(token for token in _tokens().known() if token.name == name)


def _row(token: Token) -> dict[str, Any]:
    """All but the hash, which is nobody's business."""
    row = {"name": token.name, "role": token.role, "created": token.created, "expires": token.expires}
    return {**row, "user": token.user, "projects": list(token.projects) if token.projects is not None else None}


def _projects(token: Token) -> str:
    return "all" if token.projects is None else ", ".join(printable(project) for project in token.projects)


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def _end(token: Token) -> str:
    if token.expires is None:
        return "revoked"
    over = token.expires <= datetime.now(UTC).timestamp()
    return _day(token.expires) + (" (over)" if over else "")
