"""config.yml of a home."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import SpecErrors
from phalanx.settings.home_settings import HomeSettings, RetentionPolicy, parse, read_home_settings
from phalanx.spec.model import ENDS_TOLD, NotifyEvent, NotifyRule

WHOLE = b"""
notify:
  - {mail: [a@example.org, b@example.org], on: failed}
  - {command: [notify-send, done], waiting: 2h}
mail: {from: lab@example.org, smtp: smtp.example.org, tls: ssl, password_file: ~/.smtp, recipients: "@example.org"}
webhooks:
  chat: {url_file: ~/.chat, key_env: CHAT_KEY}
  10.0.0.7: {private: true}
retention: {age: 180d, failed: 14d, size: 500Gi}
gc_every: 1d
projects:
  team/vision: {notify: [{webhook: chat}], retention: {age: 30d}}
"""


def test_all_settings_are_read() -> None:
    found = parse("config.yml", WHOLE)
    assert found.notify[0] == NotifyRule("mail", ("a@example.org", "b@example.org"), (NotifyEvent.FAILED,))
    assert found.notify[1] == NotifyRule("command", ("notify-send", "done"), (), 7200.0)
    assert (found.mail.sender, found.mail.tls, found.mail.recipients) == ("lab@example.org", "ssl", ("@example.org",))
    assert (found.webhooks["chat"].key_env, found.webhooks["10.0.0.7"].is_private) == ("CHAT_KEY", True)
    assert found.retention == RetentionPolicy(180 * 86_400.0, 14 * 86_400.0, None, 500 * 1024.0)
    assert found.projects["team/vision"].notify == (NotifyRule("webhook", ("chat",), ENDS_TOLD),)
    assert found.gc_every_s == 86_400.0


def test_a_home_without_settings_has_the_defaults(tmp_path: Path) -> None:
    assert read_home_settings(tmp_path) == HomeSettings()
    (tmp_path / "config.yml").write_text("\n")
    assert read_home_settings(tmp_path) == HomeSettings()


def test_all_errors_are_reported_at_once() -> None:
    text = b"""
notfy: []
notify:
  - {mail: "x@y\\nBcc: z", on: failed}
  - {mail: a@b, webhook: chat}
  - {command: "rm -rf /"}
  - {webhook: "https://user:pw@host/"}
  - {webhook: "file:///etc/passwd"}
  - {mail: a@b, on: []}
retention: {age: soon}
"""
    with pytest.raises(SpecErrors) as fault:
        parse("config.yml", text)
    said = [str(error) for error in fault.value.errors]
    assert len(said) == 8, said
    for words in ("notfy", "mail address", "one of `command`", "no shell", "URL", "never be sent", "a time"):
        assert any(words in one for one in said), (words, said)
