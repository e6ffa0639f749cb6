"""Mail: through the sendmail of this machine, or an SMTP server."""

from __future__ import annotations

import getpass
import shutil
import smtplib
import socket
import ssl
import subprocess
from email.message import EmailMessage
from email.policy import SMTP

from phalanx.notifications.dispatch import Dispatch, NotSent, read_secret
from phalanx.settings.home_settings import SMTP_PORTS, MailSettings

TIMEOUT_S = 20.0
SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")


def send_mail(settings: MailSettings, recipients: tuple[str, ...], dispatch: Dispatch) -> None:
    """Raises NotSent."""
    try:
        mail = composed(settings, recipients, dispatch)
    except (ValueError, IndexError) as fault:  # an address that the mail format does not allow
        raise NotSent(f"not a valid mail: {fault}", may_retry=False) from None
    if settings.smtp is None:
        _by_sendmail(mail)
    else:
        _by_smtp(settings, mail)


def composed(settings: MailSettings, recipients: tuple[str, ...], dispatch: Dispatch) -> EmailMessage:
    mail = EmailMessage(policy=SMTP)
    mail["From"] = settings.sender or f"{getpass.getuser()}@{socket.getfqdn()}"
    mail["To"] = ", ".join(recipients)
    mail["Subject"] = f"[phalanx] {dispatch.message.subject}"
    mail["Message-ID"] = f"<{dispatch.id}@phalanx>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(dispatch.message.text)
    return mail


def _by_sendmail(mail: EmailMessage) -> None:
    program = shutil.which("sendmail") or next(filter(shutil.which, SENDMAIL), None)
    if program is None:
        raise NotSent("this machine has no sendmail: name an SMTP server (`mail.smtp`) in config.yml", may_retry=False)
    words = [program, "-i", "-t"]
    try:
        done = subprocess.run(words, input=bytes(mail), capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as fault:
        raise NotSent(f"{program}: {fault}", may_retry=False) from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise NotSent(f"{program}: exit code {done.returncode}: {said}", may_retry=False)


def _by_smtp(settings: MailSettings, mail: EmailMessage) -> None:
    """Raises NotSent: retried unless the server may have taken the mail."""
    password = read_secret(settings.password_file, settings.password_env)
    place = f"{settings.smtp}:{settings.port or SMTP_PORTS[settings.tls]}"
    try:
        server = _connected(settings, password)
    except smtplib.SMTPAuthenticationError as fault:
        raise NotSent(f"{place} refused the user: {fault.smtp_code}", may_retry=False) from None
    except (OSError, smtplib.SMTPException) as fault:
        raise NotSent(f"cannot use {place}: {fault}", may_retry=not isinstance(fault, ssl.SSLError)) from None
    try:
        with server:
            server.send_message(mail)
    except smtplib.SMTPRecipientsRefused as fault:
        raise NotSent(f"{place} refused the recipients: {fault}", may_retry=False) from None
    except smtplib.SMTPResponseException as fault:
        raise NotSent(f"{place}: {fault}", may_retry=400 <= fault.smtp_code < 500) from None
    except (OSError, smtplib.SMTPException) as fault:
        raise NotSent(f"{place}: the connection broke while the mail was sent: {fault}", may_retry=False) from None


def _connected(settings: MailSettings, password: str | None) -> smtplib.SMTP:
    assert settings.smtp is not None
    port = settings.port or SMTP_PORTS[settings.tls]
    server: smtplib.SMTP
    if settings.tls == "ssl":
        server = smtplib.SMTP_SSL(settings.smtp, port, timeout=TIMEOUT_S, context=ssl.create_default_context())
    else:
        server = smtplib.SMTP(settings.smtp, port, timeout=TIMEOUT_S)
    try:
        if settings.tls == "starttls":
            server.starttls(context=ssl.create_default_context())
        if settings.user is not None:
            server.login(settings.user, password or "")
    except BaseException:
        server.close()
        raise
    return server
