"""A page in a real browser without a window: Debian's chromium, or another of its family."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PATIENCE = 120
PAGES = ("null", "file://")
"""Who asks, in the browser's log, for what a page wants. The browser itself asks for more, with other names."""


@dataclass(frozen=True)
class Opened:
    """What a browser made of a page.

    Attributes:
        document: the page's elements once its scripts have run.
        console: what its scripts said.
        asked: addresses that it asked for, but for the file itself.
    """

    document: str
    console: tuple[str, ...]
    asked: tuple[str, ...]


def open_page(page: Path, *, width: int = 1200) -> Opened:
    """Open the file ``page`` in a window of ``width`` pixels."""
    log = page.with_suffix(".netlog.json")
    done = _run(page, [f"--window-size={width},900", f"--log-net-log={log}", "--dump-dom"])
    console = re.findall(r"CONSOLE[^\]]*\] (.*)", done.stderr)
    return Opened(done.stdout, tuple(console), _asked(log.read_text("utf-8")))


def _run(page: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--enable-logging=stderr",
        f"--user-data-dir={page.parent / 'browser'}",
        "--virtual-time-budget=10000",
        *options,
        page.resolve().as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)


def _asked(log: str) -> tuple[str, ...]:
    """Addresses in the browser's own log of its network."""
    try:
        events = json.loads(log)["events"]
    except json.JSONDecodeError:  # it ended before the log did
        events = json.loads(log.rstrip().rstrip(",") + "]}")["events"]
    known = (event.get("params", {}) for event in events)
    urls = (each.get("url", "") for each in known if each.get("initiator") in PAGES)
    return tuple(url for url in urls if url.startswith(("http:", "https:", "ws:", "wss:", "ftp:")))
