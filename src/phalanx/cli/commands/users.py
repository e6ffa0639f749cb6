"""phalanx users"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable, table
from phalanx.errors import CallError
from phalanx.server.auth.identities import ALL, ROLES, role_named

if TYPE_CHECKING:
    from phalanx.server.auth.accounts import Accounts, User

NONE = "none"
projects_option = click.option(
    "--project",
    "projects",
    multiple=True,
    metavar="NAME",
    help="Project of the role. Repeatable. Default: all projects.",
)


@click.group("users")
def command() -> None:
    """Manage the users of `phalanx serve`, who sign in with name and password, or through `serve --sign-on`.

    A viewer can read; an editor can also track, submit and change runs; an admin can do everything. A role applies to
    one project, several, or all.
    """


@command.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice([*ROLES]), default="viewer", show_default=True, help="Role of the user.")
@projects_option
@json_option
def add(name: str, role: str, projects: tuple[str, ...], as_json: bool) -> None:
    """Add a user. Asks for the password, or reads it from the first line of standard input."""
    from phalanx.server.auth.accounts import check_name

    check_name(name)
    found = _accounts().add(name, _password(), dict.fromkeys(projects or (ALL,), role_named(role)))
    print_result(_row(found), f"added {printable(name)}", as_json=as_json)


@command.command("list")
@json_option
def list_users(as_json: bool) -> None:
    """List the users and their roles."""
    users = _accounts().known()
    if as_json:
        print_json({"ok": True, "users": [_row(user) for user in users]})
    elif not users:
        click.echo("No users yet: add one with `phalanx users add NAME`")
    else:
        rows = [[user.name, _roles(user), _way(user), _day(user.created)] for user in users]
        print_lines(table([["NAME", "ROLES", "SIGN-IN", "CREATED"], *rows]))


@command.command("role")
@click.argument("name")
@click.argument("role", type=click.Choice([*ROLES, NONE]))
@projects_option
@json_option
def give(name: str, role: str, projects: tuple[str, ...], as_json: bool) -> None:
    """Change or remove the role of a user."""
    found = _accounts().give(name, projects or (ALL,), None if role == NONE else role_named(role))
    print_result(_row(found), f"{printable(name)}: {_roles(found)}", as_json=as_json)


@command.command("password")
@click.argument("name")
@json_option
def password(name: str, as_json: bool) -> None:
    """Change the password of a user, and sign the user out everywhere."""
    accounts = _accounts()
    accounts.get(name)
    row = _row(accounts.set_password(name, _password()))
    print_result(row, f"changed the password of {printable(name)}", as_json=as_json)


@command.command("remove")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove a user with all their sessions and tokens."""
    _accounts().remove(name)
    print_result({"removed": name}, f"removed {printable(name)}", as_json=as_json)


def _accounts() -> Accounts:
    from phalanx.home.home import Home, default_home
    from phalanx.server.auth.accounts import Accounts

    return Accounts(Home(default_home()).path)


def _password() -> str:
    """Read the password. Not a command-line argument, because other users can see those and the shell keeps them."""
    if sys.stdin.isatty():
        return str(click.prompt("password", hide_input=True, confirmation_prompt=True, err=True))
    text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise CallError("no password on standard input: provide it there, or use a terminal")
    return text


def _row(user: User) -> dict[str, Any]:
    """All fields except the password hash."""
    roles = {project: role.word for project, role in user.roles.items()}
    return {
        "name": user.name,
        "roles": roles,
        "sign_in": _way(user),
        "created": user.created,
        "changed": user.changed,
    }


def _way(user: User) -> str:
    return "password" if user.subject is None else "sign-on"


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def _roles(user: User) -> str:
    roles = [
        f"{role.word} on {'all' if place == ALL else printable(place)}" for place, role in sorted(user.roles.items())
    ]
    return ", ".join(roles) or "no role"
