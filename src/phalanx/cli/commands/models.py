"""phalanx models"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable, table
from phalanx.cli.render.progress import ProgressMeter, bytes_text, count_text
from phalanx.cli.workspace.base import require_local_home
from phalanx.cli.workspace.models import ModelDetails, find, open_catalogue, registry
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.registry.candidates import Candidate
    from phalanx.registry.registry import Registry
    from phalanx.store.model_index import Model, ModelEvent, ModelVersion

CANDIDATES_SHOWN = 10

reason_option = click.option("--reason", default="", help="Reason to record in the history.")


@contextmanager
def changing() -> Iterator[Registry]:
    """The registry of the local home. Raises CallError if a server is selected."""
    require_local_home("models are registered and changed")
    with registry() as models:
        yield models


@click.group("models", invoke_without_command=True)
@click.option("-q", "--query", default="", metavar="TEXT", help="Only models whose name contains this text.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only models with this label. Repeatable.")
@json_option
@click.pass_context
def command(ctx: click.Context, query: str, labels: tuple[str, ...], as_json: bool) -> None:
    """List models, and candidates: outputs of runs that look like models and are not registered.

    The subcommands show, register, promote and download versions.

    A REFERENCE is NAME/3 for a version, NAME@champion for an alias, or NAME for the latest version.
    """
    if ctx.invoked_subcommand is not None:
        return
    wanted = parse_labels(labels)

    with open_catalogue(quiet=as_json) as catalogue:
        found = [model for model in catalogue.models(query) if wanted.items() <= model.labels.items()]
        offered = [] if query or labels else catalogue.candidates(CANDIDATES_SHOWN)
    if as_json:
        listed = {"candidates": [one.as_json() for one in offered]}
        print_json({"ok": True, "models": [model_row(model) for model in found], **listed})
        return
    if found:
        rows = [["NAME", "LATEST", "VERSIONS", "ALIASES", "UPDATED", "DESCRIPTION"], *map(_model_cells, found)]
        print_lines(table(rows))
    elif query or labels:
        click.echo("No matching models.")
    elif not offered:
        click.echo("No models yet: register one with `phalanx models register RUN PATH --name NAME`")
    if offered:
        click.echo(("\n" if found else "") + "Candidates: files of runs that look like models and are not registered.")
        print_lines(table([["RUN", "NAME", "PATH", "SIZE", "SAVED"], *map(_candidate_cells, offered)]))
        first = f"{offered[0].run_id} {shlex.quote(offered[0].path)}"
        click.echo(f"Register one: phalanx models register {printable(first)} --name NAME")


def _candidate_cells(one: Candidate) -> list[str]:
    saved = f"{one.at.astimezone():%Y-%m-%d %H:%M}"
    return [one.run_id, printable(one.run_name or "-"), printable(one.path), bytes_text(one.size), saved]


def parse_labels(pairs: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CallError(f"--label {pair!r}: expected NAME=VALUE")
        labels[name] = value
    return labels


def _model_cells(model: Model) -> list[str]:
    return [
        printable(model.name),
        str(model.latest or "-"),
        str(model.versions),
        printable(", ".join(f"{alias} -> {number}" for alias, number in model.aliases.items()) or "-"),
        f"{model.updated_at.astimezone():%Y-%m-%d %H:%M}",
        printable(model.description)[:60],
    ]


@command.command("show")
@click.argument("reference")
@json_option
def show(reference: str, as_json: bool) -> None:
    """Show a model and its versions, or the lineage and metrics of one version.

    REFERENCE is NAME for a model, or NAME/VERSION or NAME@ALIAS for a version.
    """
    with open_catalogue(quiet=as_json) as catalogue:
        if "/" in reference or "@" in reference:
            whole, version = find(catalogue, reference)
            is_here = version.files is not None and catalogue.has_files(version)
            _show_version(whole, version, is_here=is_here, as_json=as_json)
            return
        model, versions, events = catalogue.whole(reference)
    if as_json:
        print_json(
            {
                "ok": True,
                **model_row(model),
                "versions": [version_row(version) for version in versions],
                "history": [event_row(event) for event in events],
            }
        )
        return
    click.echo(click.style(f"model {printable(model.name)}", bold=True) + _described(model.description))
    _print_labels(model.labels)
    rows = [["VERSION", "ALIASES", "RUN", "SIZE", "SHA-256", "CREATED", "METRICS"]]
    print_lines(table([*rows, *(_version_cells(version) for version in versions)]) if versions else ["no versions"])
    click.echo("")
    _print_history(events[-20:])


def _described(description: str) -> str:
    return f": {printable(description)}" if description else ""


def _print_labels(labels: Mapping[str, str]) -> None:
    if labels:
        click.echo(f"  labels     {printable(', '.join(f'{name}={text}' for name, text in labels.items()))}")


def _version_cells(version: ModelVersion) -> list[str]:
    return [
        str(version.number),
        printable(", ".join(version.aliases) or "-"),
        version.run_id or "-",
        "-" if version.size is None else bytes_text(version.size),
        (version.digest or "-")[:12],
        f"{version.created_at.astimezone():%Y-%m-%d %H:%M}",
        printable(_metrics_text(version.metrics))[:60],
    ]


def _metrics_text(metrics: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in metrics.items() if isinstance(value, int | float))


def _show_version(whole: ModelDetails, version: ModelVersion, *, is_here: bool, as_json: bool) -> None:
    events = [event for event in whole.events if event.version == version.number]
    if as_json:
        history = [event_row(event) for event in events]
        print_json({"ok": True, **version_row(version), "has_files": is_here, "history": history})
        return
    click.echo(click.style(f"model {printable(version.title)}", bold=True) + _described(version.description))
    if version.aliases:
        click.echo(f"  aliases    {printable(', '.join(version.aliases))}")
    _print_labels(version.labels)
    click.echo(f"  created    {version.created_at.astimezone():%Y-%m-%d %H:%M:%S}, by {printable(version.user)}")
    if version.files is None:
        click.echo(f"  files      at {printable(version.source)}")
    else:
        size = f"{count_text(version.files)}, {bytes_text(version.size or 0)}"
        click.echo(f"  files      {size}" + ("" if is_here else click.style(": missing", fg="red", bold=True)))
        click.echo(f"  sha256     {version.digest or 'not computed yet'}")
    for name, text in _lineage_lines(version):
        click.echo(f"  {name:<10} {printable(text)}")
    click.echo(f"  metrics    {printable(_metrics_text(version.metrics)) or '-'}")
    click.echo("")
    _print_history(events)


def _lineage_lines(version: ModelVersion) -> Iterator[tuple[str, str]]:
    lineage = version.lineage
    if version.run_id:
        name = (lineage.get("run") or {}).get("name")
        yield "run", f"{version.run_id}{f' ({name})' if name else ''}, {version.source}"
    if lineage.get("commit"):
        yield "commit", f"{lineage['commit']}{' with uncommitted changes' if lineage.get('dirty') else ''}"
    if lineage.get("code"):
        yield "code", f"snapshot, sha256 {lineage['code']}"
    if lineage.get("params"):
        yield "params", ", ".join(f"{name}={value}" for name, value in lineage["params"].items())
    for dataset in lineage.get("datasets") or []:
        parts = [dataset.get(name) for name in ("name", "uri", "path", "digest")] if isinstance(dataset, dict) else []
        yield "dataset", ", ".join(str(part) for part in parts if part)


@command.command("history")
@click.argument("name")
@json_option
def history(name: str, as_json: bool) -> None:
    """Show the history of a model: every change, with user, time and reason."""
    with open_catalogue(quiet=as_json) as catalogue:
        events = catalogue.events(name)
    if as_json:
        print_json({"ok": True, "history": [event_row(event) for event in events]})
    else:
        _print_history(events)


def _print_history(events: Sequence[ModelEvent]) -> None:
    for event in events:
        if event.kind == "settle":
            continue  # internal: not an action of a user
        what = event.model if event.version is None else f"{event.model}/{event.version}"
        why = f": {event.reason}" if event.reason else ""
        line = f"{event_text(event)} {what}{_was(event)}, by {event.user}{why}"
        click.echo(f"  {event.at.astimezone():%Y-%m-%d %H:%M:%S}  {printable(line)}")


def event_text(event: ModelEvent) -> str:
    alias = event.data.get("alias")
    return {
        "create": "created",
        "register": "registered",
        "alias": f"pointed {alias} to",
        "unalias": f"removed {alias} from",
        "describe": "described",
        "label": "labelled",
        "delete": "deleted",
    }.get(event.kind, event.kind)


def _was(event: ModelEvent) -> str:
    was = event.data.get("was")
    return f" (before: {was})" if event.kind == "alias" and was is not None else ""


@command.command("register")
@click.argument("run")
@click.argument("path")
@click.option("--name", required=True, help="Name of the model; created if new.")
@click.option("--description", default="", help="Description of this version.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Label of this version. Repeatable.")
@click.option("--alias", "aliases", multiple=True, help="Point this alias to the version. Repeatable.")
@reason_option
@json_option
def register(
    run: str,
    path: str,
    name: str,
    description: str,
    labels: tuple[str, ...],
    aliases: tuple[str, ...],
    reason: str,
    as_json: bool,
) -> None:
    """Register a file or folder of a run as a new model version.

    PATH is a path listed by `phalanx outputs RUN`; `outputs/` can be left out.
    """
    with changing() as models:
        from phalanx.artifacts.objects import Objects, TreeDigester
        from phalanx.registry.names import check_alias

        for alias in aliases:
            check_alias(alias)
        with ProgressMeter(quiet=as_json) as meter:
            version = models.register(
                name, run, path, description=description, labels=parse_labels(labels), reason=reason
            )
            if version.files is not None:
                version = models.finalize_version(version, TreeDigester(Objects(models.home.path), meter.show))
        for alias in aliases:
            version = models.alias(version.model, alias, version.number, reason)
        print_result({**version_row(version)}, f"registered {printable(version.title)}", as_json=as_json)


@command.command("alias")
@click.argument("reference")
@click.argument("alias")
@reason_option
@json_option
def alias_command(reference: str, alias: str, reason: str, as_json: bool) -> None:
    """Point an alias to a version.

    Example: `phalanx models alias NAME/3 champion --reason "best on the holdout"`.
    """
    with changing() as models:
        found = models.find(reference)
        was = models.index.aliases(found.model).get(alias)
        version = models.alias(found.model, alias, found.number, reason)
        if as_json:
            print_json({"ok": True, "was": was, **version_row(version)})
            return
        before = f" (before: {was})" if was not in (None, version.number) else ""
        click.echo(f"{printable(alias)} points to {printable(version.title)}{before}")


@command.command("unalias")
@click.argument("name")
@click.argument("alias")
@reason_option
@json_option
def unalias(name: str, alias: str, reason: str, as_json: bool) -> None:
    """Remove an alias from a model."""
    with changing() as models:
        models.unalias(name, alias, reason)
        print_result(
            {"model": name, "alias": alias},
            f"removed alias {printable(alias)} from {printable(name)}",
            as_json=as_json,
        )


@command.command("describe")
@click.argument("reference")
@click.argument("text", required=False)
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Label to set; NAME= removes it. Repeatable."
)
@json_option
def describe(reference: str, text: str | None, labels: tuple[str, ...], as_json: bool) -> None:
    """Set the description and labels of a model or version.

    REFERENCE is NAME for a model, or NAME/VERSION or NAME@ALIAS for a version.
    """
    with changing() as models:
        is_version = "/" in reference or "@" in reference
        found = models.find(reference) if is_version else None
        name, number = (found.model, found.number) if found else (models.model(reference).name, None)
        wanted = {key: value or None for key, value in parse_labels(labels).items()}
        if text is None and not wanted:
            raise CallError("give a description or a --label")
        if text is not None:
            models.describe(name, text, number)
        if wanted:
            models.label(name, wanted, number)
        if as_json:
            row = model_row(models.model(name)) if number is None else version_row(models.version(name, number))
            print_json({"ok": True, **row})
        else:
            click.echo(f"described {printable(reference)}")


@command.command("get")
@click.argument("reference")
@click.option("-o", "--to", "target", metavar="DIR", help="Target folder.  [default: NAME-VERSION]")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@json_option
def get(reference: str, target: str | None, force: bool, as_json: bool) -> None:
    """Download the files of a version and verify their digests."""
    with open_catalogue(quiet=as_json) as catalogue:
        _, version = find(catalogue, reference)
        place = Path(target or f"{version.model}-{version.number}")
        with ProgressMeter(quiet=as_json) as meter:
            taken = catalogue.take(version, place, force=force, progress=meter.show)
    if as_json:
        print_json({"ok": True, **version_row(version), "target": str(place), "unchecked": taken.unchecked})
        return
    checked = "all verified" if not taken.unchecked else f"{taken.unchecked} not verified (no digest)"
    size = f"{count_text(taken.files)}, {bytes_text(taken.size)}, {checked}"
    click.echo(f"{printable(version.title)} -> {printable(str(place))}: {size}")


@command.command("compare")
@click.argument("references", nargs=-1, required=True)
@json_option
def compare(references: tuple[str, ...], as_json: bool) -> None:
    """Compare the metrics of versions side by side, and the params that differ."""
    with open_catalogue(quiet=as_json) as catalogue:
        found = [find(catalogue, reference)[1] for reference in references]
    if len(found) < 2:
        raise CallError("name at least two versions, such as NAME/1 NAME/2")
    metrics = _columns([version.metrics for version in found])
    params = _columns([version.lineage.get("params") or {} for version in found])
    differing = {name: values for name, values in params.items() if any(value != values[0] for value in values)}
    if as_json:
        versions = [version_row(version) for version in found]
        print_json({"ok": True, "versions": versions, "metrics": metrics, "params": differing})
        return
    rows = [["", *(printable(version.title) for version in found)]]
    rows.append(["run", *(version.run_id or "-" for version in found)])
    rows += [[f"metric {printable(name)}", *map(_cell, values)] for name, values in metrics.items()]
    rows += [[f"param {printable(name)}", *map(_cell, values)] for name, values in differing.items()]
    print_lines(table(rows))


def _columns(dicts: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for values in dicts for name in values)
    return {name: [values.get(name) for values in dicts] for name in sorted(names)}


def _cell(value: Any) -> str:
    text = "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return printable(text)[:40]


@command.command("delete")
@click.argument("reference")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@click.option("--force", is_flag=True, help="Delete even if an alias points to it.")
@reason_option
@json_option
def delete(reference: str, yes: bool, force: bool, reason: str, as_json: bool) -> None:
    """Delete a version and its files (NAME/VERSION), or a model with all versions (NAME). The history is kept."""
    with changing() as models:
        is_version = "/" in reference or "@" in reference
        version = models.find(reference) if is_version else None
        name = version.model if version else models.model(reference).name
        what = version.title if version else f"{name} with all its versions"
        if not yes and not as_json and not click.confirm(f"Permanently delete {printable(what)}?"):
            sys.exit(1)
        models.delete(name, version.number if version else None, reason, force=force)
        print_result({"deleted": version.title if version else name}, f"deleted {printable(what)}", as_json=as_json)


def model_row(model: Model) -> dict[str, Any]:
    return {**model._asdict(), "created_at": model.created_at.isoformat(), "updated_at": model.updated_at.isoformat()}


def version_row(version: ModelVersion) -> dict[str, Any]:
    times = {"created_at": version.created_at.isoformat(), "updated_at": version.updated_at.isoformat()}
    return {**version._asdict(), **times, "aliases": list(version.aliases)}


def event_row(event: ModelEvent) -> dict[str, Any]:
    return {**event._asdict(), "at": event.at.isoformat()}
