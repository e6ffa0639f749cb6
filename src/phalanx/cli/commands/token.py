"""phalanx token"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable, table
from phalanx.server.auth.identities import ALL, OLD_WORDS, ROLES

if TYPE_CHECKING:
    from phalanx.server.auth.tokens import Token, Tokens


@click.group("token")
def command() -> None:
    """Manage the tokens of `phalanx serve`.

    The home stores only hashes: a token is shown once, when it is created.
    """


@command.command("create")
@click.argument("name")
@click.option(
    "--role",
    "--scope",
    "role",
    type=click.Choice([*ROLES, *OLD_WORDS]),
    default="viewer",
    show_default=True,
    help="Role of the token. An editor can start runs, which is as much as a shell.",
)
@click.option(
    "--days",
    type=click.FloatRange(0, 36_500, min_open=True),
    default=30,
    show_default=True,
    help="Days until the token expires.",
)
@click.option("--forever", is_flag=True, help="The token does not expire; instead of --days.")
@click.option(
    "--user", metavar="NAME", help="Owner: the token is limited to the user's roles and removed with the user."
)
@click.option("--project", "projects", multiple=True, metavar="NAME", help="Limit to this project. Repeatable.")
@json_option
@click.pass_context
def create(
    context: click.Context,
    name: str,
    role: str,
    days: float,
    *,
    forever: bool,
    user: str | None,
    projects: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a token and print it. It is shown only once.

    On a terminal it asks for the role, the projects and the days that are not given.
    """
    if sys.stdin.isatty() and sys.stderr.isatty() and not as_json:
        role, projects, days = _asked(context, role, projects, days, forever=forever)
    text = _tokens().create(name, role, None if forever else days, user=user, projects=projects or None)
    if as_json:
        print_json({"ok": True, "token": text, **_row(_named(name))})
        return
    made = _named(name)
    click.echo(text)
    click.echo(f"{made.role} of {_projects(made)}, valid until {_end(made)}", err=True)
    click.echo("Save this token: it is not shown again.", err=True)


def _asked(
    context: click.Context, role: str, projects: tuple[str, ...], days: float, *, forever: bool
) -> tuple[str, tuple[str, ...], float]:
    """What the command line left out, asked for with the defaults as suggestions."""

    def is_given(option: str) -> bool:
        return context.get_parameter_source(option) is ParameterSource.COMMANDLINE

    if not is_given("role"):
        role = click.prompt("Role", default=role, type=click.Choice(list(ROLES)), err=True)
    if not is_given("projects"):
        named = click.prompt(f"Projects, separated by commas ({ALL} for all)", default=ALL, err=True)
        projects = tuple(part.strip() for part in named.split(",") if part.strip() not in ("", ALL))
    if not is_given("days") and not forever:
        days = click.prompt("Days", default=days, type=click.FloatRange(0, 36_500, min_open=True), err=True)
    return role, projects, days


@command.command("list")
@json_option
def list_tokens(as_json: bool) -> None:
    """List the tokens."""
    tokens = _tokens().known()
    if as_json:
        print_json({"ok": True, "tokens": [_row(token) for token in tokens]})
        return
    if not tokens:
        click.echo("No tokens yet: `phalanx serve` creates the owner's, `phalanx token create NAME` others")
        return
    rows = [
        [printable(token.name), token.role, _projects(token), token.user or "-", _day(token.created), _end(token)]
        for token in tokens
    ]
    print_lines(table([["NAME", "ROLE", "PROJECTS", "USER", "CREATED", "VALID UNTIL"], *rows]))


@command.command("revoke")
@click.argument("name")
@json_option
def revoke(name: str, as_json: bool) -> None:
    """Revoke a token. It stops working at once."""
    _tokens().revoke(name)
    print_result({"revoked": name}, f"revoked {printable(name)}", as_json=as_json)


def _tokens() -> Tokens:
    from phalanx.home.home import Home, default_home
    from phalanx.server.auth.tokens import Tokens

    return Tokens(Home(default_home()).path)


def _named(name: str) -> Token:
    return next(token for token in _tokens().known() if token.name == name)


def _row(token: Token) -> dict[str, Any]:
    """All fields except the hash."""
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
    return _day(token.expires) + (" (expired)" if over else "")
