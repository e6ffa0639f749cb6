"""A package index on this machine: the wheels of a folder, as pip and uv ask for them (PEP 503)."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote


class Index:
    """`asked`: the packages that somebody wanted a list of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: set[str] = set()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, *, with_body: bool) -> None:
                parts = unquote(self.path).strip("/").split("/")
                body = index.listing(parts[1]) if parts[0] == "simple" and len(parts) == 2 else index.file(parts[-1])
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", "text/html" if parts[0] == "simple" else "application/octet-stream")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if with_body:
                    self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/simple"

    def listing(self, package: str) -> bytes | None:
        self.asked.add(package)
        files = [path.name for path in self.folder.glob("*.whl") if _normal(path.name.split("-")[0]) == package]
        links = "".join(f'<a href="/files/{name}">{name}</a>\n' for name in files)
        return f"<!doctype html><html><body>{links}</body></html>".encode() if files else None

    def file(self, name: str) -> bytes | None:
        path = self.folder / Path(name).name
        return path.read_bytes() if path.is_file() else None

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
