"""phalanx site"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import complete_site, json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table, write_file
from phalanx.errors import CallError, PhalanxError
from phalanx.sites.profile_search import OWN, FoundProfile, added, locate, shipped

if TYPE_CHECKING:
    from phalanx.sites.model import Site


@click.group("site")
def command() -> None:
    """Manage site profiles: the hardware, limits and rules of clusters.

    `check --on slurm` validates files against the profile, and job scripts follow it. The profile in use is the one
    named by --site, the file's `environment.slurm.site` or PHALANX_SITE, else `site.yml` in the home.
    """


@command.command("init")
@click.option("-o", "--output", metavar="FILE", help="File to write; - prints it. Default: site.yml in the home.")
@click.option("--name", help="Name of the site. Default: the name of the cluster.")
@click.option("--force", is_flag=True, help="Overwrite an existing profile.")
@json_option
def init(output: str | None, name: str | None, force: bool, as_json: bool) -> None:
    """Inspect this cluster and write its profile.

    Runs sinfo, scontrol, sacctmgr and the module command, once each. Use it on a login node.
    """
    from phalanx.sites.probe import probe
    from phalanx.sites.profile_reader import load
    from phalanx.sites.profile_writer import as_document, write

    if name is not None and not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise CallError(f"--name {name!r}: use letters, digits, `-`, `_` and `.`")
    target = _target(output)
    if target is not None and target.exists() and not force:
        raise CallError(f"{target} exists: name another file with -o, or overwrite it with --force")
    found = probe(_user(), os.environ, name=name)
    text = write(found.site, found.comments)
    load("the new profile", text.encode())  # fail here rather than write an invalid profile
    if target is not None:
        write_file(target, text, force=force)
    if as_json:
        file = str(target) if target is not None else None
        answer = {"ok": True, "file": file, "remarks": list(found.remarks), "site": as_document(found.site)}
        print_json({**answer, "text": text})
        return
    if target is None:
        click.echo(text, nl=False)
    else:
        print_lines(site_lines(found.site))
    for remark in found.remarks:
        click.echo(f"{click.style('note', fg='yellow')}: {printable(remark)}", err=target is None)
    if target is not None:
        click.echo(f"wrote {printable(str(target))}; next: phalanx check -f FILE --on slurm")


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise CallError("cannot find the user name: set USER") from None


def _target(output: str | None) -> Path | None:
    """The file to write; None for standard output."""
    if output == "-":
        return None
    if output is not None:
        return Path(output)
    from phalanx.home.home import Home, default_home

    return Home(default_home()).path / OWN


@command.command("show")
@click.argument("name", required=False, shell_complete=complete_site)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show a profile. NAME is a site or a file. Default: the profile in use."""
    from phalanx.sites.profile_writer import as_document

    found = used_profile(name)
    if found is None:
        raise CallError("no profile is in use: create one with `phalanx site init`, or name one of `phalanx site list`")
    site = found.read()
    if as_json:
        print_json({"ok": True, "file": str(found.file), "shipped": found.is_shipped, "site": as_document(site)})
        return
    print_lines(site_lines(site))
    click.echo(f"file        {printable(str(found.file))}")


def used_profile(name: str | None) -> FoundProfile | None:
    """The profile of that name, or the one in use. Raises CallError."""
    from phalanx.home.home import default_home

    return locate(name, default_home())


@command.command("list")
@json_option
def list_sites(as_json: bool) -> None:
    """List the profiles and mark the one in use."""
    rows = list(_rows())
    if as_json:
        print_json({"ok": True, "sites": rows})
        return
    lines = [["NAME", "NODES", "GPUS", "MAX TIME", "DATE", "FROM", ""]]
    for row in rows:
        shown = [row["name"], *(row[key] for key in ("nodes", "gpus", "max_time", "date"))]
        lines.append([*(printable(str(cell or "-")) for cell in shown), row["from"], "in use" if row["used"] else ""])
        if row["fault"]:
            lines[-1][-1] = printable(row["fault"])
    print_lines(table(lines))
    if not any(row["used"] for row in rows):
        click.echo("No profile is in use: create one with `phalanx site init`, or name one with --site or PHALANX_SITE")


def _rows() -> Iterator[dict[str, Any]]:
    from phalanx.home.home import default_home

    home = default_home()
    try:
        used = locate(None, home)
    except CallError:
        used = None  # PHALANX_SITE names a missing profile
    own = {"": FoundProfile(home / OWN)} if (home / OWN).is_file() else {}
    listed = {**shipped(), **added(home), **own}
    if used is not None and used not in listed.values():
        listed[used.file.stem] = used
    for name, found in listed.items():
        row: dict[str, Any] = {"name": name or "-", "used": found == used, "file": str(found.file), "fault": None}
        row["from"] = "Phalanx" if found.is_shipped else "home" if found.file.is_relative_to(home) else "file"
        row |= dict.fromkeys(("title", "nodes", "gpus", "max_time", "date"))
        try:
            row |= _summary(found.read())
        except PhalanxError as fault:
            row["fault"] = str(fault).split("\n", 1)[0]
        yield row


def _summary(site: Site) -> dict[str, Any]:
    from phalanx.sites.profile_writer import time_text

    counts = [kind.count for kind in site.nodes]
    limits = [site.max_time_s] if site.max_time_s is not None else [part.max_time_s for part in site.partitions]
    known = [limit for limit in limits if limit is not None]
    return {
        "name": site.name,
        "title": site.title,
        "nodes": sum(count or 0 for count in counts) if counts and None not in counts else None,
        "gpus": ", ".join(name for name in site.gpu_types if (kind := site.gpu(name)) and not kind.is_mig) or None,
        "max_time": time_text(max(known)) if known and len(known) == len(limits) else None,
        "date": site.date,
    }


def site_lines(site: Site) -> Iterator[str]:
    """The lines that describe a site."""
    from phalanx.sites.profile_writer import memory_text, time_text

    head = printable(site.title or site.name)
    yield click.style(head, bold=True) + (f", as of {printable(site.date)}" if site.date else "")
    if site.source:
        yield f"from        {printable(site.source)}"
    if site.nodes:
        rows = [["NODES", "CORES", "MEMORY", "GPUS", "FEATURES", "PARTITIONS"]]
        for kind in site.nodes:
            named = [(kind.gpu_type, kind.gpus), *kind.other_gpus] if kind.gpus else list(kind.other_gpus)
            gpus = ", ".join(f"{number} {name or 'untyped'}" for name, number in named)
            cells = [str(kind.count or "?"), str(kind.cpus), memory_text(kind.memory_mib), gpus or "-"]
            rows.append([*cells, ", ".join(kind.features) or "-", ", ".join(kind.partitions) or "-"])
        yield from ("", *_without_empty_columns(rows))
    if site.gpus:
        rows = [["GPU", "CORES PER GPU", "MEMORY PER GPU", "ALIASES"]]
        for gpu in site.gpus:
            share = [f"{gpu.cpus:g}" if gpu.cpus else "-", memory_text(gpu.memory_mib) if gpu.memory_mib else "-"]
            rows.append([gpu.name, *share, ", ".join(gpu.aliases) or "-"])
        yield from ("", *_without_empty_columns(rows))
    if site.partitions:
        rows = [["PARTITION", "MAX TIME", "MAX NODES", "ACCOUNTS, QOS"]]
        for part in site.partitions:
            name = part.name + (" (default)" if part.is_default else "") + ("" if part.is_up else " (down)")
            limits = [time_text(part.max_time_s) if part.max_time_s else "-", str(part.max_nodes or "-")]
            rows.append([name, *limits, ", ".join((*part.accounts, *part.qos)) or "-"])
        yield from ("", *_without_empty_columns(rows))
    yield ""
    for name, text in _facts(site):
        yield f"{name:<11} {printable(text)}"


def _without_empty_columns(rows: list[list[str]]) -> list[str]:
    kept = [column for column in range(len(rows[0])) if any(row[column] != "-" for row in rows[1:])]
    return table([[printable(row[column]) for column in kept] for row in rows])


def _facts(site: Site) -> Iterator[tuple[str, str]]:
    from phalanx.sites.profile_writer import memory_text, time_text

    times = [
        (site.time_required, "required"),
        (site.min_time_s, "at least {}"),
        (site.wanted_time_s, "preferably at least {}"),
        (site.max_time_s, "at most {}"),
    ]
    limits = [words.format(time_text(value)) if value is not True else words for value, words in times if value]
    if site.time_steps_s:
        limits.append(f"starts sooner below {', '.join(map(time_text, site.time_steps_s))}")
    accounts = ", ".join(site.accounts)
    jobs = [
        f"at most {site.max_jobs} running" if site.max_jobs else "",
        f"at most {site.max_submitted} in total" if site.max_submitted else "",
    ]
    jobs.append(f"{time_text(site.submit_interval_s)} between two submissions" if site.submit_interval_s else "")
    gpus = ["type required"] if site.gpu_type_required else []
    gpus += [f"one, or a multiple of {site.gpu_multiple}"] if site.gpu_multiple else []
    gpus += ["one MIG slice per job"] if site.one_mig_per_job else []
    facts = {
        "time": ", ".join(limits),
        "account": ", ".join(filter(None, ["required" if site.account_required else "", accounts])),
        "partition": "" if site.partition == "optional" else site.partition,
        "qos": ", ".join(
            one.name + (f" (at most {time_text(one.max_time_s)})" if one.max_time_s else "") for one in site.qos
        ),
        "gpus": ", ".join(gpus),
        "nodes": "allocated whole" if site.whole_nodes else "",
        "memory": f"{memory_text(site.default_memory_mib)} per core by default" if site.default_memory_mib else "",
        "jobs": ", ".join(filter(None, jobs)),
        "internet": {True: "yes", False: "no", None: ""}[site.internet],
        "scratch": f"${site.scratch}" if site.scratch else "",
        "writable": ", ".join(f"only ${name}" for name in site.writable),
        "interface": site.interface or "",
        "wheelhouse": site.wheelhouse or "",
        "modules": ", ".join(site.modules),
    }
    yield from ((name, text) for name, text in facts.items() if text)
    yield from (("note", text) for text in site.notes)
