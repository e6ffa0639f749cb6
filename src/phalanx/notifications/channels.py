"""Sends a message: with a program, by mail, or to a webhook. Each is tried once; the caller tries again."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from phalanx.notifications.dispatch import LONGEST_ERROR, Dispatch, NotSent
from phalanx.notifications.mail import send_mail
from phalanx.notifications.webhook import post
from phalanx.settings.home_settings import HomeSettings
from phalanx.spec.model import NotifyRule

COMMAND_S = 60.0
_HIDDEN = ("PHALANX_TOKEN", "PHALANX_DATABASE")


def send(home: Path, settings: HomeSettings, rule: NotifyRule, dispatch: Dispatch) -> None:
    """Raises NotSent."""
    if rule.channel == "command":
        run_command(rule.target, dispatch)
    elif rule.channel == "mail":
        send_mail(settings.mail, rule.target, dispatch)
    else:
        post(home, settings, rule.target[0], dispatch)


def run_command(words: tuple[str, ...], dispatch: Dispatch, timeout_s: float = COMMAND_S) -> None:
    """Run a program with the message as JSON on standard input. No shell reads any of it. Raises NotSent."""
    environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    working = dispatch.working if dispatch.working is not None and dispatch.working.is_dir() else Path("/")
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(dispatch.body)
        given.seek(0)
        try:
            process = subprocess.Popen(
                words,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=working,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as fault:
            raise NotSent(f"cannot start {words[0]}: {fault}", may_retry=False) from None
        code = _waited(process, timeout_s)
        if code != 0:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - LONGEST_ERROR))
            said = errors.read().decode("utf-8", "replace").strip()
            why = f"no end after {timeout_s:g} s" if code is None else f"exit code {code}"
            raise NotSent(f"{words[0]}: {why}" + (f": {said}" if said else ""), may_retry=False)


def _waited(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit code; None if it was killed because it did not end."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def shown_target(rule: NotifyRule) -> str:
    """Where a rule sends to, for people: the path of a URL may be secret."""
    if rule.channel != "webhook":
        return (rule.target[0] if rule.channel == "command" else ", ".join(rule.target))[:200]
    scheme, found, rest = rule.target[0].partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if found else rule.target[0]
