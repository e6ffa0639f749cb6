"""Selection of the server and its token: from arguments, environment variables, or `phalanx login`.

$XDG_CONFIG_HOME/phalanx/servers.json (~/.config/phalanx/servers.json) has the tokens of the servers the user is logged
in to, and the default server. Only its owner can read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError, path_error
from phalanx.tracking import user_settings
from phalanx.tracking.user_settings import SETTINGS, read_settings, settings_file, settings_folder

SERVER, TOKEN, HOME, RUN = "PHALANX_SERVER", "PHALANX_TOKEN", "PHALANX_HOME", "PHALANX_RUN_ID"
LONGEST_TOKEN = 4096
BY_ARGUMENT, BY_LOGIN = "argument", "login"


class ServerChoice(NamedTuple):
    """A server, its token (empty if there is none) and what selected it: an argument, PHALANX_SERVER or a login."""

    url: str
    token: str
    by: str


class Logins(NamedTuple):
    """The logins of the user: tokens by address, and the default server."""

    default: str | None
    tokens: Mapping[str, str]


def choose_server(
    environment: Mapping[str, str], url: str | None = None, token: str | None = None
) -> ServerChoice | None:
    """The selected server; None for the local home. Raises CallError for an invalid address.

    PHALANX_SERVER takes precedence over a login. PHALANX_HOME, or being part of a run, selects the local home, unless
    PHALANX_SERVER is set as well.
    """
    if url is not None:
        return _with_token(url, token, BY_ARGUMENT, environment)
    if environment.get(SERVER):
        return _with_token(environment[SERVER], token, SERVER, environment)
    if environment.get(HOME) or environment.get(RUN):
        return None
    default = logins(environment).default
    return None if default is None else _with_token(default, token, BY_LOGIN, environment)


def _with_token(url: str, token: str | None, by: str, environment: Mapping[str, str]) -> ServerChoice:
    url = checked(url)
    found = token or environment.get(TOKEN) or logins(environment).tokens.get(url) or _token_of_home(url)
    return ServerChoice(url, checked_token(found) if found else "", by)


def checked_token(token: str) -> str:
    """The token as it goes into a header. Raises CallError, without the token in the message, if it is invalid."""
    token = token.strip()
    if not token or len(token) > LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise CallError("invalid token: create one with `phalanx token create NAME` on the server")
    return token


def _token_of_home(url: str) -> str:
    """The owner's token, if the address is that of a running server of the local home."""
    from phalanx.home.run_tokens import server_urls

    home = Path(user_settings.default_home())
    with suppress(OSError, ValueError):
        if url in map(checked, server_urls(home)):
            return (home / "token").read_text("ascii").strip()
    return ""


def checked(url: str) -> str:
    """A normalized address. Raises CallError for anything but http and https."""
    from urllib.parse import urlsplit

    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        raise CallError(f"invalid server address `{url[:100]}`: expected something like https://host:8000")
    if parts.username is not None or parts.password is not None:
        raise CallError(f"the server address must not contain a token: set {TOKEN}, or use `phalanx login`")
    if parts.query or parts.fragment:
        raise CallError(f"remove `?` and `#` from the server address: {url.split('?')[0].split('#')[0]}")
    return url


def is_loopback(url: str) -> bool:
    """Whether an address is a loopback address, which must not go through a proxy."""
    import ipaddress
    from urllib.parse import urlsplit

    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


# Logins ---------------------------------------------------------------------------------------------------------------


def logins_file(environment: Mapping[str, str]) -> Path:
    return Path(settings_folder(environment)) / "servers.json"


def logins(environment: Mapping[str, str]) -> Logins:
    """Raises CallError if the file exists but cannot be read."""
    path = logins_file(environment)
    try:
        data = json.loads(path.read_bytes())
        tokens = {str(url): str(server["token"]) for url, server in data["servers"].items()}
        default = data.get("default")
        return Logins(default if default in tokens else None, tokens)
    except (FileNotFoundError, NotADirectoryError):
        return Logins(None, {})
    except OSError as fault:
        raise path_error(f"cannot read {path}", fault) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CallError(f"{path} is damaged: delete it and log in again") from None


def save_login(environment: Mapping[str, str], url: str, token: str) -> Path:
    """Save a login and make it the default server. Raises CallError if the file cannot be written."""
    return _write(environment, Logins(url, {**logins(environment).tokens, url: token}))


def delete_login(environment: Mapping[str, str], url: str | None = None) -> list[str]:
    """Log out of a server, or of all. Returns their addresses. Raises CallError."""
    known = logins(environment)
    gone = [one for one in known.tokens if url in (None, one)]
    if gone:
        left = {one: token for one, token in known.tokens.items() if one not in gone}
        _write(environment, Logins(None if known.default in gone else known.default, left))
    return gone


def choose_default(environment: Mapping[str, str], url: str | None) -> None:
    """Make a server the default, or none: then commands use the local home. Raises CallError without a login."""
    known = logins(environment)
    if url is not None and url not in known.tokens:
        raise CallError(f"you are not logged in to {url}: run `phalanx login {url}`")
    _write(environment, Logins(url, known.tokens))


def _write(environment: Mapping[str, str], known: Logins) -> Path:
    data = {"default": known.default, "servers": {url: {"token": token} for url, token in known.tokens.items()}}
    return _write_private(logins_file(environment), data)


# Settings -------------------------------------------------------------------------------------------------------------


def change_setting(environment: Mapping[str, str], name: str, value: str | None) -> Path:
    """Set or remove a setting of the user. Raises CallError if the file cannot be written."""
    if name not in SETTINGS:
        raise CallError(f"`{name}` is no setting: they are {', '.join(SETTINGS)}")
    changed = {**read_settings(environment), name: value}
    kept = {one: text for one, text in changed.items() if text is not None}
    return _write_private(Path(settings_file(environment)), kept)


def _write_private(path: Path, data: object) -> Path:
    """Write atomically, and never readable by other users, not even for a moment."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, json.dumps(data, indent=1).encode(), sync=False)
    except OSError as fault:
        raise path_error(f"cannot write {path}", fault) from None
    return path
