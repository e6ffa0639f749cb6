"""phalanx users"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable, report_errors, table
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
    help="On this project (may be repeated), not on all.",
)


@click.group("users")
def command() -> None:
    """People who use `phalanx serve` with a name and a password.

    A viewer looks, an editor also tracks, submits and changes, an admin may do everything; each on one project, on
    several, or on all.
    """


@command.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice([*ROLES]), default="viewer", show_default=True)
@projects_option
@json_option
def add(name: str, role: str, projects: tuple[str, ...], as_json: bool) -> None:
    """Add somebody. The password is asked for, or read from the input's first line."""
    with report_errors(as_json=as_json):
        from phalanx.server.auth.accounts import check_name

        check_name(name)
        found = _accounts().add(name, _password(), dict.fromkeys(projects or (ALL,), role_named(role)))
        _tell(found, f"added {printable(name)}", as_json=as_json)


@command.command("list")
@json_option
def list_users(as_json: bool) -> None:
    """Show who there is, and with which roles."""
    with report_errors(as_json=as_json):
        users = _accounts().known()
        if as_json:
            print_json({"ok": True, "users": [_row(user) for user in users]})
        elif not users:
            click.echo("no users yet: `phalanx users add NAME` adds one")
        else:
            rows = [
                [user.name, _roles(user), f"{datetime.fromtimestamp(user.created, UTC):%Y-%m-%d}"] for user in users
            ]
            for line in table([["NAME", "ROLES", "CREATED"], *rows]):
                click.echo(line)


@command.command("role")
@click.argument("name")
@click.argument("role", type=click.Choice([*ROLES, NONE]))
@projects_option
@json_option
def give(name: str, role: str, projects: tuple[str, ...], as_json: bool) -> None:
    """Give somebody another role, or none."""
    with report_errors(as_json=as_json):
        found = _accounts().give(name, projects or (ALL,), None if role == NONE else role_named(role))
        _tell(found, f"{printable(name)}: {_roles(found)}", as_json=as_json)


@command.command("password")
@click.argument("name")
@json_option
def password(name: str, as_json: bool) -> None:
    """Give somebody another password. Wherever they are signed in, they are not any more."""
    with report_errors(as_json=as_json):
        accounts = _accounts()
        accounts.get(name)
        _tell(accounts.set_password(name, _password()), f"{printable(name)} has a new password", as_json=as_json)


@command.command("remove")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove somebody, and with them their sessions and tokens."""
    with report_errors(as_json=as_json):
        _accounts().remove(name)
        if as_json:
            print_json({"ok": True, "removed": name})
        else:
            click.echo(f"removed {printable(name)}")


def _accounts() -> Accounts:
    from phalanx.home.home import Home, default_home
    from phalanx.server.auth.accounts import Accounts

    return Accounts(Home(default_home()).path)


def _password() -> str:
    """Never an argument: those are seen by everybody on the machine, and kept by the shell."""
    if sys.stdin.isatty():
        return str(click.prompt("password", hide_input=True, confirmation_prompt=True, err=True))
    text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise CallError("there is no password on the input: write it there, or use a terminal")
    return text


def _tell(user: User, sentence: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, **_row(user)})
    else:
        click.echo(sentence)


def _row(user: User) -> dict[str, Any]:
    """All but what is left of the password, which is nobody's business."""
    roles = {project: role.word for project, role in user.roles.items()}
    return {"name": user.name, "roles": roles, "created": user.created, "changed": user.changed}


def _roles(user: User) -> str:
    told = [
        f"{role.word} on {'all' if place == ALL else printable(place)}" for place, role in sorted(user.roles.items())
    ]
    return ", ".join(told) or "no role"
