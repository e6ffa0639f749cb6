"""Sign-on settings: the identity provider or proxy that authenticates users, and the roles of their groups.

`phalanx serve --sign-on FILE` reads them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from phalanx.errors import CallError
from phalanx.server.auth.identities import ALL, ROLES, Role, role_named
from phalanx.server.auth.sessions import LIFE_S

LARGEST_FILE = 1 << 20
HOUR_S = 3600


def checked_url(url: str) -> str:
    """Tokens and codes travel to these addresses: only over TLS, or on this machine."""
    parts = urlsplit(url)
    is_local = parts.hostname == "localhost" or _is_loopback(parts.hostname or "")
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an https:// address without `?` and `#`")
    if parts.scheme == "http" and not is_local:
        raise ValueError("must be an https:// address")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_network(text: str) -> str:
    ipaddress.ip_network(text)  # raises ValueError
    return text


Url = Annotated[str, AfterValidator(checked_url)]
Network = Annotated[str, AfterValidator(_checked_network)]
Word = Annotated[str, Field(min_length=1, max_length=500)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RoleRule(_Section):
    """The role that members of a group have."""

    group: Word  # `*`: every user who signs on
    role: Literal["viewer", "editor", "admin"]
    projects: tuple[Word, ...] = (ALL,)


class OidcSettings(_Section):
    """An OpenID Connect provider."""

    issuer: Url
    client_id: Word
    client_secret_file: Path | None = None  # without: a public client, protected by PKCE alone
    url: Url  # of this server, as users enter it
    label: Word = "single sign-on"  # on the page's button
    scopes: tuple[Word, ...] = ("openid", "profile", "email")
    name_claim: Word = "preferred_username"
    groups_claim: Word = "groups"
    sign_out: bool = True  # signing out of the page signs out of the provider, too, if it supports that

    @property
    def signed_out_uri(self) -> str:
        """Where the provider sends users who have signed out."""
        return f"{self.url.rstrip('/')}/login"

    @property
    def redirect_uri(self) -> str:
        return f"{self.url.rstrip('/')}/api/v1/sign-on/callback"

    def client_secret(self) -> str | None:
        """Raises CallError."""
        return None if self.client_secret_file is None else read_secret(self.client_secret_file)


class ProxySettings(_Section):
    """A proxy that authenticates users and names them in a header."""

    addresses: tuple[Network, ...] = Field(min_length=1)
    user_header: Word = "X-Forwarded-User"
    groups_header: Word = "X-Forwarded-Groups"
    secret_file: Path | None = None  # the proxy must send its content as X-Phalanx-Proxy-Secret

    def trusts(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        peer = getattr(peer, "ipv4_mapped", None) or peer
        return any(peer in ipaddress.ip_network(network) for network in self.addresses)


class SignOnSettings(_Section):
    roles: tuple[RoleRule, ...] = Field(min_length=1)
    session_hours: float = Field(default=12, gt=0, le=LIFE_S / HOUR_S)
    oidc: OidcSettings | None = None
    proxy: ProxySettings | None = None

    @model_validator(mode="after")
    def _has_a_source(self) -> SignOnSettings:
        if self.oidc is None and self.proxy is None:
            raise ValueError("needs a section `oidc` or `proxy`")
        return self

    def roles_of(self, groups: Iterable[str]) -> dict[str, Role]:
        """The roles of a user in these groups: on each project the highest. Empty: the user may not sign on."""
        mine = {*groups, ALL}
        found: dict[str, Role] = {}
        for rule in self.roles:
            if rule.group in mine:
                for project in rule.projects:
                    found[project] = max(found.get(project, Role.VIEWER), role_named(rule.role))
        return found


def read_settings(path: Path) -> SignOnSettings:
    """Raises CallError, which names the file and the wrong field."""
    try:
        content = yaml.safe_load(path.read_bytes()[:LARGEST_FILE])
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as fault:
        reason = (getattr(fault, "strerror", None) or str(fault)).splitlines()[0]
        raise CallError(f"cannot read the sign-on settings {path}: {reason}") from None
    try:
        found = SignOnSettings.model_validate(content)
    except ValidationError as wrong:
        raise CallError(f"{path}: {_first(wrong)}") from None
    return found


def read_secret(path: Path) -> str:
    """Raises CallError."""
    try:
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as fault:
        raise CallError(f"cannot read the secret {path}: {getattr(fault, 'strerror', None) or fault}") from None
    if not found:
        raise CallError(f"the secret {path} is empty")
    return found


def groups_in(value: Any) -> list[str]:
    """The groups in a claim or header: a list of strings, or one string separated by commas."""
    listed = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [word.strip() for word in listed if isinstance(word, str) and word.strip() not in ("", ALL)]


def _first(wrong: ValidationError) -> str:
    error = wrong.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, error["loc"])) or "the file"
    roles = f"; roles are {', '.join(ROLES)}" if "role" in error["loc"] else ""
    return f"`{place}`: {error['msg'].removeprefix('Value error, ')}{roles}"
