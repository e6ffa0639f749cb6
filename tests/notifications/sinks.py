"""Real receivers: an HTTP server and an SMTP server of this machine, which keep what they get."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Posted(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class HttpSink:
    """`answers`: the statuses to answer with; the last one for all further requests."""

    def __init__(self, answers: list[int], location: str = "") -> None:
        self.answers = answers
        self.got: list[Posted] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sink.got.append(Posted(self.path, dict(self.headers), body))
                status = sink.answers.pop(0) if len(sink.answers) > 1 else sink.answers[0]
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]


@contextmanager
def http_sink(*answers: int, location: str = "") -> Iterator[HttpSink]:
    sink = HttpSink(list(answers or (200,)), location)
    thread = threading.Thread(target=sink.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield sink
    finally:
        sink.server.shutdown()
        thread.join()
        sink.server.server_close()


class SmtpSink:
    """Speaks enough SMTP to take mails. `codes`: the answers to the ends of mails; the last one for all further."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.got: list[tuple[list[str], str]] = []  # recipients, and the mail as it came
        sink = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.say("220 sink")
                recipients: list[str] = []
                while line := self.rfile.readline().decode():
                    word = line.strip().upper()
                    if word.startswith("RCPT TO:"):
                        recipients.append(line.strip()[9:-1])
                    if word == "DATA":
                        self.say("354 go on")
                        sink.got.append((recipients, self.mail()))
                        code = sink.codes.pop(0) if len(sink.codes) > 1 else sink.codes[0]
                        self.say(f"{code} so be it")
                    elif word == "QUIT":
                        self.say("221 bye")
                        return
                    else:
                        self.say("250 ok")

            def mail(self) -> str:
                lines = []
                while (line := self.rfile.readline().decode()) not in (".\r\n", ""):
                    lines.append(line)
                return "".join(lines)

            def say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]


@contextmanager
def smtp_sink(*codes: int) -> Iterator[SmtpSink]:
    sink = SmtpSink(list(codes or (250,)))
    thread = threading.Thread(target=sink.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield sink
    finally:
        sink.server.shutdown()
        thread.join()
        sink.server.server_close()
