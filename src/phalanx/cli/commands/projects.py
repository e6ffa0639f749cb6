"""phalanx projects"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable, table
from phalanx.cli.workspace.base import open_workspace
from phalanx.errors import CallError


@click.group("projects", invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List projects with their numbers of runs. The subcommands show, create, describe and remove them.

    `team/vision` is inside of `team`: lists of `team` include its runs, and a role on `team` is one on it. A project
    needs no `create`: it appears with its first run, as in `phalanx run --project team/vision`.
    """
    if context.invoked_subcommand is None:
        _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    from phalanx.home.projects import summary_row

    with open_workspace(quiet=as_json) as workspace:
        found = workspace.projects.list()
    if as_json:
        print_json({"ok": True, "projects": [summary_row(one) for one in found]})
        return
    if not found:
        click.echo("No projects yet: `phalanx run --project NAME` makes one.")
        return
    rows = [["PROJECT", "RUNS", "WITH NESTED", "ACTIVE", "DESCRIPTION"]]
    for one in found:
        words = printable(" ".join(one.description.split()))[:80]
        rows.append([printable(one.name), str(one.runs), str(one.total), str(one.active), words])
    print_lines(table(rows))


@command.command("show")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show a project: its description, nested projects, and runs by status."""
    from phalanx.home.projects import details_row

    with open_workspace(quiet=as_json) as workspace:
        found = workspace.projects.show(name)
    about = details_row(found)
    if as_json:
        print_json({"ok": True, **about})
        return
    made = f", created by {about['user']} at {about['created']}" if about["created"] else ""
    click.echo(printable(f"{name}{made}"))
    if about["description"]:
        click.echo(printable(about["description"]))
    counts = ", ".join(f"{count} {status}" for status, count in about["statuses"].items())
    click.echo(f"runs: {about['total']}" + (f" ({counts})" if counts else ""))
    print_lines(f"  {printable(nested)}" for nested in about["nested"])


@command.command("create")
@click.argument("name")
@click.option("--description", default="", help="What it is for.")
@json_option
def create(name: str, description: str, as_json: bool) -> None:
    """Create a project, before its first run."""
    with open_workspace(settled=False, quiet=as_json) as workspace:
        made = workspace.projects.create(name, description)
    print_result({"project": made.name}, f"created {printable(made.name)}", as_json=as_json)


@command.command("describe")
@click.argument("name")
@click.argument("description")
@json_option
def describe(name: str, description: str, as_json: bool) -> None:
    """Replace the description of a project."""
    with open_workspace(settled=False, quiet=as_json) as workspace:
        workspace.projects.describe(name, description)
    print_result({"project": name}, f"described {printable(name)}", as_json=as_json)


@command.command("rm")
@click.argument("name")
@click.option("--runs", "with_runs", is_flag=True, help="Also delete its finished runs, and those of nested projects.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@json_option
def rm(name: str, with_runs: bool, yes: bool, as_json: bool) -> None:
    """Remove a project that has no runs, with those nested in it."""
    with open_workspace(quiet=as_json) as workspace:
        found = workspace.projects.show(name).summary
        if with_runs and found.total:
            if not yes and (as_json or not click.confirm(f"Delete {found.total:,} runs of {name}, with all files?")):
                raise CallError("nothing was deleted: confirm with --yes")
            workspace.acts.remove(workspace.rows.runs(limit=None, project=name))
        workspace.projects.remove(name)
    print_result({"removed": name}, f"removed {printable(name)}", as_json=as_json)
