"""Writing a report."""

from pathlib import Path

import pytest

from autotune import cli_profiles as command
from autotune.errors import ProfileError, UsageError
from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from autotune.profiles.places import journal_of
from tests.doubles.proven_profile import profile


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return profiles.write(tmp_path / "train.yaml", profile(Settings(batch_size=64)))


def test_a_profile_without_its_journal(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.report(written, written.parent / "report.html")
    assert (written.parent / "report.html").read_text().startswith("<!doctype html>")
    assert "without its journal (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("train.yaml/report.html", "train.yaml/report.html: a report cannot be written"),
        ("train.yaml", "train.yaml: is no report, and is not replaced"),
        ("train.journal", r"train\.journal: is no report"),
    ],
)
def test_a_report_replaces_nothing_else(written: Path, name: str, words: str) -> None:
    folder, before = written.parent, written.read_text()
    (folder / "train.journal").write_text("{}")
    with pytest.raises((UsageError, ProfileError), match=words):
        command.report(written, folder / name)
    assert (written.read_text(), (folder / "train.journal").read_text()) == (before, "{}")


def test_a_broken_journal_is_named(written: Path) -> None:
    journal = journal_of(written)
    journal.parent.mkdir(parents=True)
    journal.write_text('{"op_code": 99}\n{"what": 1}\n')
    with pytest.raises(UsageError, match="the journal cannot be read"):
        command.report(written, written.parent / "report.html")
