"""Sending to real receivers, and everything that must not be reached."""

from __future__ import annotations

import email
import email.policy
import ipaddress
import json
import os
import socket
import stat
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from phalanx.notifications.channels import run_command, send, shown_target
from phalanx.notifications.dispatch import Dispatch, NotSent
from phalanx.notifications.message import Happening, message
from phalanx.notifications.webhook import KEY_FILE, is_public, signature
from phalanx.settings.home_settings import HomeSettings, MailSettings, WebhookSettings
from phalanx.spec.model import NotifyEvent, NotifyRule
from phalanx.store import Run
from tests.notifications.sinks import http_sink, smtp_sink

LOCAL = {"127.0.0.1": WebhookSettings(is_private=True)}


def a_run(**fields: Any) -> Run:
    now = datetime.now(UTC)
    usual = dict.fromkeys(Run._fields) | {
        "id": "aaaa1",
        "project": "default",
        "kind": "experiment",
        "backend": "native",
        "user": "me",
        "status": "failed",
        "reason": "exit code 1",
        "attempt": 1,
        "priority": 0,
        "created_at": now,
        "updated_at": now,
        "tags": (),
        "params": {},
        "summary": {},
    }
    return Run(**{**usual, **fields})


def dispatch(run: Run | None = None, failure: dict[str, Any] | None = None) -> Dispatch:
    happened = Happening(NotifyEvent.FAILED, 1, "exit code 1", failure)
    return Dispatch("d1", message(run or a_run(), happened, "http://page/runs/aaaa1"))


def hook(url: str) -> NotifyRule:
    return NotifyRule("webhook", (url,))


def refused(home: Path, settings: HomeSettings, rule: NotifyRule) -> NotSent:
    with pytest.raises(NotSent) as fault:
        send(home, settings, rule, dispatch())
    return fault.value


# webhooks ------------------------------------------------------------------------------------------------------------


def test_a_webhook_gets_signed_json(tmp_path: Path) -> None:
    with http_sink() as sink:
        settings = HomeSettings(webhooks=LOCAL)
        send(tmp_path, settings, hook(f"http://127.0.0.1:{sink.port}/a/b?c=d"), dispatch(a_run(name="näme\n")))
    ((path, headers, body),) = sink.got
    assert path == "/a/b?c=d"
    data = json.loads(body)
    assert (data["event"], data["run"]["id"], data["url"]) == ("failed", "aaaa1", "http://page/runs/aaaa1")
    moment, given = headers["X-Phalanx-Signature"].removeprefix("t=").split(",v1=")
    key = (tmp_path / KEY_FILE).read_text().strip()
    assert given == signature(key, moment, body) != signature("other", moment, body)
    assert stat.S_IMODE(os.stat(tmp_path / KEY_FILE).st_mode) == 0o600
    assert headers["X-Phalanx-Delivery"] == data["id"] == "d1"


def test_a_webhook_has_its_own_key_and_a_secret_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_KEY", "of-the-environment")
    with http_sink() as sink:
        (tmp_path / "url").write_text(f"http://127.0.0.1:{sink.port}/T0P-SECRET\n")
        own = WebhookSettings(url_file=str(tmp_path / "url"), key_env="HOOK_KEY", is_private=True)
        send(tmp_path, HomeSettings(webhooks={"chat": own}), hook("chat"), dispatch())
    ((path, headers, body),) = sink.got
    moment, given = headers["X-Phalanx-Signature"].removeprefix("t=").split(",v1=")
    assert (path, given) == ("/T0P-SECRET", signature("of-the-environment", moment, body))
    assert not (tmp_path / KEY_FILE).exists()
    assert shown_target(hook("https://hooks.example.org/T0P-SECRET")) == "https://hooks.example.org"
    monkeypatch.delenv("HOOK_KEY")
    fault = refused(tmp_path, HomeSettings(webhooks={"chat": own}), hook("chat"))
    assert ("HOOK_KEY is not set" in str(fault), fault.may_retry) == (True, False)


def test_private_addresses_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with http_sink() as sink:
        for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "0x7f.1"):
            fault = refused(tmp_path, HomeSettings(), hook(f"https://{host}:{sink.port}/"))
            assert ("private network" in str(fault), fault.may_retry) == (True, False), (host, str(fault))
        assert "use https" in str(refused(tmp_path, HomeSettings(), hook(f"http://127.0.0.1:{sink.port}/")))
    assert sink.got == []


def test_a_name_that_means_this_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(host: str, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 443)) for one in ("93.184.216.34", "10.0.0.7")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    fault = refused(tmp_path, HomeSettings(), hook("https://innocent.example.org/"))
    assert "innocent.example.org is 10.0.0.7" in str(fault)


def test_the_connection_goes_to_the_address_that_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def answer(host: str, *words: Any, **more: Any) -> Any:
        asked.append(host)
        return resolve("127.0.0.1" if host == "once.example.org" and len(asked) == 1 else host, *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with http_sink() as sink:
        settings = HomeSettings(webhooks={"once.example.org": WebhookSettings(is_private=True)})
        send(tmp_path, settings, hook(f"http://once.example.org:{sink.port}/"), dispatch())
    assert len(sink.got) == 1
    assert asked.count("once.example.org") == 1, "it is not resolved again"
    assert sink.got[0].headers["Host"] == f"once.example.org:{sink.port}"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *((one, True) for one in ("8.8.8.8", "2606:4700::1111")),
        *((one, False) for one in ("10.1.2.3", "169.254.169.254", "100.64.0.1", "192.168.0.1", "224.0.0.1", "0.0.0.0")),
        *((one, False) for one in ("::1", "fe80::1", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::")),
    ],
)
def test_only_addresses_of_the_internet_are_public(address: str, expected: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is expected


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with http_sink() as target, http_sink(307, location=f"http://127.0.0.1:{target.port}/inside") as sink:
        fault = refused(tmp_path, HomeSettings(webhooks=LOCAL), hook(f"http://127.0.0.1:{sink.port}/"))
    assert ("redirects" in str(fault), fault.may_retry, target.got) == (True, False, [])


def test_only_what_certainly_failed_is_tried_again(tmp_path: Path) -> None:
    settings = HomeSettings(webhooks=LOCAL)
    with http_sink(503, 429, 404) as sink:
        url = f"http://127.0.0.1:{sink.port}/"
        assert [refused(tmp_path, settings, hook(url)).may_retry for _ in range(3)] == [True, True, False]
    assert refused(tmp_path, settings, hook(url)).may_retry, "nobody listens"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(5)

        def hang_up() -> None:
            silent.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        fault = refused(tmp_path, settings, hook(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
        thread.join()
    assert ("may have got it" in str(fault), fault.may_retry) == (True, False)


# mail ----------------------------------------------------------------------------------------------------------------


def test_mail_arrives_with_the_first_failure_and_no_forged_header(tmp_path: Path) -> None:
    failure = {"attempt": 1, "replica": "worker-1", "why": "killed", "advice": "request 40 GiB", "lines": ["\r\n.\r\n"]}
    run = a_run(name="x\r\nBcc: all@example.org\r\n\r\nhello", project="p\nq", summary={"loss": 0.5})
    with smtp_sink() as sink:
        settings = HomeSettings(mail=MailSettings("lab@example.org", "127.0.0.1", sink.port, "none"))
        rule = NotifyRule("mail", ("ana@example.org", "bo@example.org"))
        send(tmp_path, settings, rule, dispatch(run, failure))
    ((recipients, text),) = sink.got
    mail = email.message_from_string(text, policy=email.policy.default)
    assert recipients == ["ana@example.org", "bo@example.org"]
    assert (mail["Bcc"], mail["From"], mail["To"]) == (None, "lab@example.org", "ana@example.org, bo@example.org")
    assert str(mail["Subject"]).startswith("[phalanx] experiment x__Bcc: all@example.org____hello failed")
    body = mail.get_content()
    assert "worker-1 failed first: killed" in body
    assert "what to do: request 40 GiB" in body
    assert "loss = 0.5" in body


def test_mail_that_a_server_defers_is_tried_again(tmp_path: Path) -> None:
    with smtp_sink(451, 554) as sink:
        settings = HomeSettings(mail=MailSettings("lab@example.org", "127.0.0.1", sink.port, "none"))
        rule = NotifyRule("mail", ("ana@example.org",))
        assert [refused(tmp_path, settings, rule).may_retry for _ in range(2)] == [True, False]
    assert refused(tmp_path, settings, rule).may_retry, "nobody listens"


def test_a_missing_password_is_named_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("S3CRET")
    with smtp_sink() as sink:
        mail = MailSettings("lab@example.org", "127.0.0.1", sink.port, "none", "ana", str(tmp_path / "password"))
        fault = refused(tmp_path, HomeSettings(mail=mail), NotifyRule("mail", ("ana@example.org",)))
        assert "S3CRET" not in str(fault)
        gone = HomeSettings(mail=mail._replace(password_file=str(tmp_path / "gone")))
        assert "gone" in str(refused(tmp_path, gone, NotifyRule("mail", ("ana@example.org",))))
    assert sink.got == []


def test_mail_goes_through_sendmail_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f"#!/bin/sh\necho $@ > {tmp_path}/words; cat > {tmp_path}/mail\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    send(tmp_path, HomeSettings(), NotifyRule("mail", ("ana@example.org",)), dispatch())
    assert (tmp_path / "words").read_text().strip() == "-i -t"
    assert "To: ana@example.org" in (tmp_path / "mail").read_text()


# commands ------------------------------------------------------------------------------------------------------------


def test_a_command_gets_json_and_no_shell_reads_the_words(tmp_path: Path) -> None:
    script = "import sys, json; json.dump([sys.argv[1:], json.load(sys.stdin)], open(sys.argv[1], 'w'))"
    words = (sys.executable, "-c", script, str(tmp_path / "got"), "$(touch x); `touch y`")
    run_command(words, dispatch(a_run(name="'; touch z; '")))
    (_, *rest), data = json.loads((tmp_path / "got").read_text())
    assert (rest, data["run"]["name"]) == (["$(touch x); `touch y`"], "'; touch z; '")
    assert [path.name for path in tmp_path.iterdir()] == ["got"]


def test_a_command_that_fails_or_hangs_is_reported(tmp_path: Path) -> None:
    failing = ("sh", "-c", "echo no luck >&2; exit 7")
    for words, said in ((failing, "exit code 7: no luck"), ((str(tmp_path / "gone"),), "cannot start")):
        with pytest.raises(NotSent, match=said):
            run_command(words, dispatch())
    with pytest.raises(NotSent, match=r"no end after 0\.2 s"):
        run_command(("sh", "-c", "sleep 60"), dispatch(), timeout_s=0.2)
