"""The doctor's words and exit codes."""

from __future__ import annotations

import json

import pytest

from autotune.commands import doctor as command
from autotune.doctor.findings import Finding
from autotune.report.doctor import NOTHING

SHM = Finding("shm", "/dev/shm holds 64 MiB", "docker run --shm-size=8g")


@pytest.mark.parametrize(("found", "code"), [((), 0), ((SHM,), command.FOUND)])
def test_scripts_see_whether_something_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: tuple[Finding, ...], code: int
) -> None:
    monkeypatch.setattr(command, "examine", lambda: found)
    assert command.doctor(as_json=True) == code
    assert json.loads(capsys.readouterr().out) == [vars(each) for each in found]


def test_people_see_what_mends_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "examine", lambda: (SHM,))
    command.doctor(as_json=False)
    assert "shm: /dev/shm holds 64 MiB\n  mend   docker run --shm-size=8g\n  gain " in capsys.readouterr().out
    monkeypatch.setattr(command, "examine", tuple)
    command.doctor(as_json=False)
    assert capsys.readouterr().out.strip() == NOTHING
