"""Notes of a script's run are said on standard error, and never end the training."""

import io
import sys

import pytest

from autotune.runtime.notes import Notes


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [closed(), None], ids=["closed", "none"])
def test_a_note_that_cannot_be_said_ends_nothing(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    notes = Notes(announce=True, of_script=True)
    notes.add("a note")
    assert notes.texts == ["a note"]
    assert capsys.readouterr().out == "", "it belongs to the script"


def test_a_note_is_said_once_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    notes = Notes(announce=True, of_script=True)
    notes.add("one", "two", "one")
    notes.add("two")
    assert capsys.readouterr().err == "autotune: one; two\n"
