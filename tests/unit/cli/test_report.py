"""Writing a report."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from autotune import cli_profiles as command
from autotune.errors import UsageError
from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from benchmarks.simulation.profiles import profile


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return profiles.write(tmp_path / "train.yaml", profile(Settings(batch_size=64)))


def test_without_plotly_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, written: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'torch-autotune\[report\]'"):
        command.report(written, written.parent / "report.html")


def test_a_profile_without_its_journal(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly")
    command.report(written, written.parent / "report.html")
    assert (written.parent / "report.html").read_text().startswith("<!doctype html>")
    assert "without its journal train.journal" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["none/report.html", "loop.html"])
def test_a_place_that_cannot_be_written_is_named(written: Path, name: str) -> None:
    pytest.importorskip("plotly")
    (written.parent / "loop.html").symlink_to(written.parent / "loop.html")
    with pytest.raises(UsageError, match=f"{name}: the report cannot be written"):
        command.report(written, written.parent / name)


@pytest.mark.parametrize("name", ["train.yaml", "train.journal", "link.html"])
def test_a_report_never_replaces_its_profile_or_journal(written: Path, name: str) -> None:
    pytest.importorskip("plotly")
    written.with_suffix(".journal").write_text("")
    (written.parent / "link.html").symlink_to(written)
    before = written.read_text()
    with pytest.raises(UsageError, match=r"the report would replace|is no report"):
        command.report(written, written.parent / name)
    assert written.read_text() == before


def test_a_broken_journal_is_named(written: Path) -> None:
    pytest.importorskip("plotly")
    written.with_suffix(".journal").write_text('{"op_code": 99}\n{"what": 1}\n')
    with pytest.raises(UsageError, match="the journal cannot be read"):
        command.report(written, written.parent / "report.html")


def test_a_file_that_is_no_report_is_not_replaced(written: Path) -> None:
    pytest.importorskip("plotly")
    (script := written.parent / "train.py").write_text("import torch")
    with pytest.raises(UsageError, match=r"train\.py: is no report, and is not replaced"):
        command.report(written, script)
    with pytest.raises(UsageError, match="is a folder"):
        command.check_report(written.parent)
