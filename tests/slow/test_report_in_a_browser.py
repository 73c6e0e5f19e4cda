"""The report in a real browser: no error, no request, and every plot drawn with its data."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("plotly", reason="the extra [report] is not installed")

from tests.unit.report.test_page import report_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PATIENCE = 120
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium, or another of its family")
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


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1200, 400])
def test_opens_without_an_error_or_a_request(file: Path, width: int) -> None:
    opened = open_page(file, width=width)
    assert opened.console == ()
    assert opened.asked == ()


def test_every_plot_has_its_data(file: Path) -> None:
    opened = open_page(file)
    plots = re.split(r'<div[^>]*class="plotly-graph-div js-plotly-plot"', opened.document)[1:]
    assert len(plots) == file.read_text("utf-8").count("Plotly.newPlot(") == 3
    for plot in plots:
        assert re.search(r'class="(point|points|trace|hm|js-line)"|class="trace |<image ', plot)
