"""phalanx config"""

from __future__ import annotations

import os

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable, table
from phalanx.client.user_defaults import MEANING, VARIABLES, Default, defaults
from phalanx.errors import CallError

NAME = click.argument("name", type=click.Choice(list(VARIABLES)))


@click.group("config", invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List your defaults: home, server, project and backend, where each comes from, and the files that are read.

    The subcommands get, set and unset one. Options of a command take precedence, then environment variables, then
    these settings. They are in ~/.config/phalanx/config.json; logins, with their tokens, are in servers.json beside it.
    """
    if context.invoked_subcommand is None:
        _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    from phalanx.client.config import logins_file
    from phalanx.home.home import default_home
    from phalanx.tracking.user_settings import settings_file

    found = defaults(os.environ)
    files = {
        "config": settings_file(os.environ),
        "logins": str(logins_file(os.environ)),
        "home": str(default_home() / "config.yml"),
    }
    if as_json:
        settings = [{**one._asdict(), "variable": VARIABLES[one.name]} for one in found]
        print_json({"ok": True, "settings": settings, "files": files})
        return
    rows = [["NAME", "VALUE", "FROM", "VARIABLE", "MEANING"]]
    rows += [[one.name, _shown(one), one.source, VARIABLES[one.name], MEANING[one.name]] for one in found]
    print_lines(table(rows))
    click.echo()
    print_lines(f"{printable(path)}{'' if os.path.exists(path) else '  (does not exist)'}" for path in files.values())


def _shown(one: Default) -> str:
    hidden = f" (instead of {printable(one.overridden)})" if one.overridden else ""
    return printable(one.value or "-") + hidden


@command.command("get")
@NAME
@json_option
def get(name: str, as_json: bool) -> None:
    """Print the value of a default."""
    (found,) = (one for one in defaults(os.environ) if one.name == name)
    if as_json:
        print_json({"ok": True, **found._asdict()})
        return
    if found.value is None:
        raise CallError(f"`{name}` is not set: `phalanx config set {name} VALUE` sets it")
    click.echo(printable(found.value))


@command.command("set")
@NAME
@click.argument("value")
@json_option
def set_(name: str, value: str, as_json: bool) -> None:
    """Set a default. `server` must be one that you are logged in to."""
    from phalanx.client.config import change_setting, checked, choose_default

    if name == "server":
        value = checked(value)
        choose_default(os.environ, value)
    else:
        change_setting(os.environ, name, _checked(name, value))
    print_result({"name": name, "value": value}, f"{name}: {printable(value)}{_warning(name)}", as_json=as_json)


@command.command("unset")
@NAME
@json_option
def unset(name: str, as_json: bool) -> None:
    """Remove a default. Without a default server, commands use the local home; logins stay."""
    from phalanx.client.config import change_setting, choose_default

    if name == "server":
        choose_default(os.environ, None)
    else:
        change_setting(os.environ, name, None)
    (now,) = (one for one in defaults(os.environ) if one.name == name)
    print_result({"name": name, "value": now.value}, f"{name}: {_shown(now)}", as_json=as_json)


def _checked(name: str, value: str) -> str:
    """Raises CallError."""
    if name == "project":
        from phalanx.home.projects import check_new_name

        check_new_name(value)
        return value
    if name == "backend":
        from phalanx.backends import find

        find(value)
        return value
    path = os.path.abspath(os.path.expanduser(value))
    if not value.strip() or "\0" in value or (os.path.exists(path) and not os.path.isdir(path)):
        raise CallError(f"{path!r} is not a folder")
    return path


def _warning(name: str) -> str:
    variable = VARIABLES[name]
    return f"\nnote: {variable} is set and takes precedence" if os.environ.get(variable) else ""
