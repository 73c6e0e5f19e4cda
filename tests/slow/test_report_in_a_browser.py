"""The report in a real browser: no error, no request, and every plot drawn with its data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("plotly", reason="the extra [report] is not installed")

from tests.slow import browser
from tests.unit.report.test_page import report_page

pytestmark = pytest.mark.skipif(browser.BROWSER is None, reason="needs chromium")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1200, 400])
def test_opens_without_an_error_or_a_request(file: Path, width: int) -> None:
    opened = browser.open_page(file, width=width)
    assert opened.console == ()
    assert opened.asked == ()


def test_every_plot_has_its_data(file: Path) -> None:
    opened = browser.open_page(file)
    plots = re.split(r'<div[^>]*class="plotly-graph-div js-plotly-plot"', opened.document)[1:]
    assert len(plots) == file.read_text("utf-8").count("Plotly.newPlot(") == 3
    for plot in plots:
        assert re.search(r'class="(point|points|trace|hm|js-line)"|class="trace |<image ', plot)
