"""Real servers of registries, on the loopback."""

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
    """Answers each path in its own bad way, by a row of `LIES`, or without an end."""

    stop: threading.Event

    def do_GET(self) -> None:
        kind = self.path.split("/")[1]
        if kind == "slow":
            self.stop.wait(20)
            return
        code, headers, body = LIES.get(kind, (200, {}, b"x" * 65536))
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value or self.path)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)
            while kind == "endless" and not self.stop.is_set():
                self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Nothing."""


LIES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "garbage": (200, {}, b"\xff\xfe not a profile"),
    "around": (302, {"Location": ""}, b""),
    "inside": (302, {"Location": "http://169.254.169.254/latest/meta-data/"}, b""),
    "broken": (500, {}, b"secret-word"),
    "short": (200, {"Content-Length": "5000"}, b"schema: autotune.profile\n"),
}
"""Status, headers (an empty one is the path itself) and body: no profile, a redirect without an end and one to a
cloud's secrets, an error that quotes a secret, and less than was promised."""
