"""What the file of a run may ask for, if it was submitted over a server: it must not act as the server's user."""

from __future__ import annotations

from urllib.parse import urlsplit

from phalanx.settings.home_settings import HomeSettings
from phalanx.spec.model import NotifyRule


def refusal(rule: NotifyRule, settings: HomeSettings) -> str | None:
    """Why a file that came over a server may not have this rule; None if it may."""
    if rule.channel == "command":
        return "a file that is submitted to a server cannot run commands there: use `mail` or `webhook`"
    if rule.channel == "mail":
        unknown = [address for address in rule.target if not _is_recipient(address, settings.mail.recipients)]
        if unknown:
            return f"the server sends no mail to {unknown[0]}: its owner lists `mail.recipients` in config.yml"
        return None
    (target,) = rule.target
    host = urlsplit(target).hostname if "://" in target else None
    if (host or target).casefold() not in (name.casefold() for name in settings.webhooks):
        return f"the server sends nothing to `{host or target}`: its owner lists it under `webhooks` in config.yml"
    return None


def _is_recipient(address: str, allowed: tuple[str, ...]) -> bool:
    one = address.casefold()
    return any(one == name.casefold() or (name.startswith("@") and one.endswith(name.casefold())) for name in allowed)
