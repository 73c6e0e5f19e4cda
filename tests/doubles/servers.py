"""Real servers of registries, on the loopback."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, counts requests, writes no log."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_arguments: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def folder_server(root: Path) -> Iterator[tuple[str, list[str]]]:
    """The URL of a server of the files below ``root``, and the list of what is asked of it."""
    asked: list[str] = []
    handler = type("Handler", (Quiet,), {"asked": asked})
    with serving(functools.partial(handler, directory=str(root))) as url:
        yield url, asked


@contextlib.contextmanager
def serving(handler: Any) -> Iterator[str]:
    """The URL of a server whose requests ``handler`` answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Lying(BaseHTTPRequestHandler):
    """Answers each path in its own bad way."""

    stop: threading.Event

    def do_GET(self) -> None:
        kind = self.path.strip("/").split("/")[0]
        getattr(self, kind, self.garbage)()

    def garbage(self) -> None:
        """Bytes that are no profile."""
        self._answer(200, b"\xff\xfe not a profile")

    def endless(self) -> None:
        """More than anybody wants."""
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.stop.is_set():
                self.wfile.write(b"x" * 65536)

    def slow(self) -> None:
        """No answer."""
        self.stop.wait(20)

    def around(self) -> None:
        """A redirect without end."""
        self.send_response(302)
        self.send_header("Location", self.path)
        self.end_headers()

    def broken(self) -> None:
        """An error of the server that quotes a secret."""
        self._answer(500, b"secret-word")

    def short(self) -> None:
        """Less than was promised."""
        self.send_response(200)
        self.send_header("Content-Length", "5000")
        self.end_headers()
        self.wfile.write(b"schema: autotune.profile\n")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Nothing."""
