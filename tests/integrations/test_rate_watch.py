from __future__ import annotations

from pathlib import Path

import pytest

from autotune.integrations.rate_watch import RateWatch
from autotune.runtime.pace import SLOW_WINDOWS, STEPS, WARMUP_STEPS
from tests.integrations.records import promise, said

NEEDED = WARMUP_STEPS + SLOW_WINDOWS * STEPS


def watched(profile: Path, seconds: float, samples: float | None = 64, level: str | None = None) -> None:
    """Train for twice as many steps as a warning needs, each of so many seconds."""
    now = [0.0]
    watch = RateWatch(profile, None, level, "lightning", lambda: now[0])
    for _ in range(2 * NEEDED):
        now[0] += seconds
        watch.step(samples)


def test_one_warning_names_rates_and_the_way_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched(promise(tmp_path, 1000), 0.32)
    [warning] = said(caplog)
    assert "200 samples/s" in warning
    assert "1000" in warning
    assert "autotune export PROFILE --to lightning" in warning


def test_a_rate_near_the_profiles_is_fine(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched(promise(tmp_path, 1000), 0.08)
    assert said(caplog) == []


def test_without_a_profile_it_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    watched(tmp_path / "none.yaml", 1.0)
    assert len(said(caplog)) == 1
    assert "none.yaml" in said(caplog)[0]


def test_other_units_are_not_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched(promise(tmp_path, 1000, unit="items"), 1.0)
    assert ["counts items" in text for text in said(caplog)] == [True]


def test_unknown_batches_are_not_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched(promise(tmp_path, 1000), 1.0, samples=None)
    assert ["how large its batches are" in text for text in said(caplog)] == [True]
