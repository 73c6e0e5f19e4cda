"""A run read from its journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.search.history import History
from autotune.search.past_run import read_history
from autotune.search.protocol import Observation
from autotune.search.study import open_study
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed
from autotune.stats.proof import Round

OWN = Settings(batch_size=64)
MEASURED = Measurement((Block(100, 1.0, 10),))


def test_trials_and_rounds_come_back(tmp_path: Path) -> None:
    journal = tmp_path / "run.journal"
    study = open_study(journal, "run")
    study.record(Observation(OWN, Completed(measurement=MEASURED), "safe"))
    study.record(Observation(OWN.but(num_workers=2), Crashed("no fork"), "amp"), "moves")
    study.keep_rounds([Round(1, {"baseline": 10.0, "safe": 12.0})])
    found = read_history(journal)
    first, second = found.trials
    assert (first.settings, first.measurement, first.seconds, first.stage) == (OWN, MEASURED, 0.0, "baseline")
    assert (second.measurement, second.kind, second.reason, second.level) == (None, "crashed", "no fork", "amp")
    assert found.rounds == (Round(1, {"baseline": 10.0, "safe": 12.0}),)


def test_the_latest_run_of_a_journal_counts(tmp_path: Path) -> None:
    journal = tmp_path / "run.journal"
    for name, rounds in (("old", 1), ("new", 2)):
        open_study(journal, name).keep_rounds([Round(1, {"baseline": 1.0})] * rounds)
    assert len(read_history(journal).rounds) == 2


def test_no_journal_is_an_empty_history(tmp_path: Path) -> None:
    assert read_history(tmp_path / "none.journal") == History()
    assert not (tmp_path / "none.journal").exists()


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "run.journal"
    broken.write_text('{"op_code": 99}\n{"what": 1}\n')
    with pytest.raises(ValueError):
        read_history(broken)
