"""Reads <home>/config.yml: who is told of the ends of runs, by which means, and how long outputs are kept.

The owner of the home writes it. What a run's own file may ask for is limited by it: see `notifications/permission.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import SpecErrors, path_error
from phalanx.spec import quantities
from phalanx.spec.model import EMPTY, NotifyRule
from phalanx.spec.section_fields import ADDRESS, HOOK, NOTIFY, TIME
from phalanx.spec.shapes import INVALID, Boolean, Field, ListOf, MapOf, Number, Quantity, RecordShape, TextShape
from phalanx.spec.tree import Diagnostics
from phalanx.spec.yaml_reader import decode, read

NAME = "config.yml"
LARGEST = 1 << 20
SMTP_PORTS = {"none": 25, "starttls": 587, "ssl": 465}


class MailSettings(NamedTuple):
    """How mail is sent: by the sendmail of this machine, unless `smtp` names a server. `recipients`: whom files that
    were submitted over a server may name; an entry that starts with `@` is a domain."""

    sender: str | None = None
    smtp: str | None = None
    port: int | None = None
    tls: str = "starttls"
    user: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    recipients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """A webhook by its name, if it has a URL, or what is true of a host."""

    url: str | None = None
    url_file: str | None = None
    key_file: str | None = None
    key_env: str | None = None
    is_private: bool = False  # it may be an address of a private network


class RetentionPolicy(NamedTuple):
    """How long outputs of finished runs are kept. None: without limit."""

    age_s: float | None = None
    failed_s: float | None = None
    archived_s: float | None = None
    size_mib: float | None = None


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    notify: tuple[NotifyRule, ...] = ()
    retention: RetentionPolicy | None = None


class HomeSettings(NamedTuple):
    notify: tuple[NotifyRule, ...] = ()
    mail: MailSettings = MailSettings()
    webhooks: Mapping[str, WebhookSettings] = EMPTY
    retention: RetentionPolicy | None = None
    gc_every_s: float | None = None  # a server applies the retention so often; None: never
    projects: Mapping[str, ProjectSettings] = EMPTY


_FILE = TextShape(pattern=r"[^\x00-\x1f]{1,1000}\Z", what="the path of a file")
_VARIABLE = TextShape(pattern=r"[A-Za-z_][A-Za-z0-9_]{0,200}\Z", what="the name of an environment variable")
_HOST = TextShape(pattern=r"[A-Za-z0-9.-]{1,253}\Z", what="a host")
_RECIPIENT = TextShape(pattern=r"[^\s@<>,;:\"()\[\]\\]{0,64}@[A-Za-z0-9.-]{1,253}\Z", what="an address or @domain")
_SIZE = Quantity(quantities.memory_mib, 'a size (a bare number is MiB; "500Gi", "2Ti")')


def _renamed(kind: Any, **names: str) -> Any:
    """A factory for a value whose field names include units."""
    return lambda **values: kind(**{names.get(key, key): value for key, value in values.items()})


_MAIL = RecordShape(
    "mail",
    {
        "from": Field(ADDRESS, "The sender."),
        "smtp": Field(_HOST, "The SMTP server. Default: the sendmail of this machine."),
        "port": Field(Number(low=1, high=65535, whole=True), "Its port. Default: 587, 465 (ssl) or 25 (none)."),
        "tls": Field(TextShape(choices=tuple(SMTP_PORTS)), "starttls (default), ssl or none."),
        "user": Field(TextShape(), "The user at the server."),
        "password_file": Field(_FILE, "The file with the password."),
        "password_env": Field(_VARIABLE, "The environment variable with the password."),
        "recipients": Field(
            ListOf(_RECIPIENT, lone=True), "Addresses, or @domains, that files submitted over a server may name."
        ),
    },
    _renamed(MailSettings, **{"from": "sender"}),
)
_WEBHOOK = RecordShape(
    "a webhook",
    {
        "url": Field(HOOK, "Its address. Without one, the name of the entry is a host."),
        "url_file": Field(_FILE, "The file with its address, if that is secret."),
        "key_file": Field(_FILE, "The file with the key of signatures. Default: webhook.key in the home."),
        "key_env": Field(_VARIABLE, "The environment variable with the key."),
        "private": Field(Boolean(), "It may be in a private network, or on this machine. Default: false."),
    },
    _renamed(WebhookSettings, private="is_private"),
)
_RETENTION_FIELDS = {
    "age": Field(TIME, "Remove outputs of runs that ended so long ago."),
    "failed": Field(TIME, "The same for runs that did not succeed."),
    "archived": Field(TIME, "The same for archived runs."),
    "size": Field(_SIZE, "Remove outputs of the oldest runs, until all outputs together are smaller."),
}
_RETENTION = RecordShape(
    "retention",
    _RETENTION_FIELDS,
    _renamed(RetentionPolicy, age="age_s", failed="failed_s", archived="archived_s", size="size_mib"),
)
_PROJECT = RecordShape(
    "a project",
    {"notify": Field(NOTIFY, "Who is told of its runs."), "retention": Field(_RETENTION, "Instead of the home's.")},
    _renamed(ProjectSettings),
)
SETTINGS = RecordShape(
    "config.yml",
    {
        "notify": Field(NOTIFY, "Who is told of all runs."),
        "mail": Field(_MAIL, "How mail is sent."),
        "webhooks": Field(MapOf(_WEBHOOK), "Webhooks by name, and hosts."),
        "retention": Field(_RETENTION, "How long outputs are kept."),
        "gc_every": Field(TIME, "How often a server applies the retention. Default: never."),
        "projects": Field(MapOf(_PROJECT), "Settings of projects, and of those nested in them."),
    },
    _renamed(HomeSettings, gc_every="gc_every_s"),
)


def read_home_settings(home: Path) -> HomeSettings:
    """The settings of a home; the defaults without the file. Raises SpecErrors with all errors of it, CallError."""
    path = home / NAME
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except FileNotFoundError:
        return HomeSettings()
    except OSError as fault:
        raise path_error(f"cannot read {path}", fault) from None
    return parse(str(path), data)


def parse(name: str, data: bytes) -> HomeSettings:
    """Raises SpecErrors."""
    if not data.strip():
        return HomeSettings()
    root = read(decode(name, data))
    findings = Diagnostics()
    values = SETTINGS.read(root, findings)
    if findings.errors or values is INVALID:
        raise SpecErrors(findings.errors)
    assert isinstance(values, HomeSettings)
    return values
