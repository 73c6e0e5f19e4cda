"""The study on disk: trials survive it, and a run outlives it."""

import resource
from pathlib import Path

import pytest
from hypothesis import given
from optuna.storages import InMemoryStorage

from autotune.errors import UsageError
from autotune.knobs.settings import Settings
from autotune.profiles.places import journal_of
from autotune.search.history import Trial
from autotune.search.study import Study, distributions, journal_storage, read_history, study_of
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import KINDS, Compared, Completed, Crashed, NotApplied, Outcome, OutOfMemory
from tests.strategies import settings as any_settings

OWN = Settings(batch_size=64)
MEASURED = Completed(
    measurement=Measurement((Block(64, 0.5, 1), Block(64, 0.25, 1, cpu_wait=0.5)), skipped_steps=1),
    losses=(1.5, 0.5),
    seconds=2.0,
)


def crashed(batch: int) -> Trial:
    return Trial(Settings(batch_size=batch), Crashed("signal 9"), "safe")


def batches(study: Study) -> list[int]:
    return [trial.settings.batch_size for trial in study.trials()]


def test_every_end_but_a_comparison_has_a_name_of_its_own() -> None:
    assert {*KINDS.values(), Compared} == set(Outcome.__subclasses__())


@pytest.mark.parametrize(
    "outcome",
    [
        MEASURED,
        OutOfMemory("r", "d", "shm"),
        NotApplied("r", "d", "allocator"),
        *(kind("r") for kind in KINDS.values()),
    ],
)
def test_trials_survive_the_journal(outcome: Outcome, tmp_path: Path) -> None:
    trial = Trial(OWN, outcome, "amp")
    Study(journal_storage(tmp_path / "study.log")).record(trial)
    (found,) = Study(journal_storage(tmp_path / "study.log")).trials()
    assert found == trial


def test_long_details_keep_their_end() -> None:
    study = Study(InMemoryStorage())
    study.record(Trial(OWN, KINDS["crashed"](detail="x" * 10_000 + "the end"), "safe"))
    kept = study.trials()[0].outcome.detail
    assert len(kept) == 2000
    assert kept.endswith("the end")


@given(any_settings())
def test_settings_are_their_parameters(settings: Settings) -> None:
    kinds = distributions(settings)
    values = {name: getattr(settings, name) for name in kinds}
    assert Settings(**values) == settings
    assert all(kinds[name]._contains(kinds[name].to_internal_repr(value)) for name, value in values.items())


class TestFile:
    def test_a_torn_last_line_is_cut_off_and_the_study_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "run.journal"
        Study(journal_storage(path)).record(crashed(1))
        whole = path.read_bytes()
        Study(journal_storage(path)).record(crashed(2))
        last = path.read_bytes()[len(whole) :]
        for cut in (1, len(last) // 2, len(last) - 1):
            path.write_bytes(whole + last[:cut])
            study = Study(journal_storage(path))
            assert batches(study) == [1]
            for batch in (3, 4):
                study.record(crashed(batch))
            assert batches(Study(journal_storage(path))) == [1, 3, 4]

    @pytest.mark.parametrize("room", [0, 1, 200])
    def test_a_full_disk_costs_the_run_nothing_and_a_resumed_one_what_came_after(self, tmp_path: Path, room) -> None:
        path = tmp_path / "run.journal"
        study = Study(journal_storage(path))
        study.record(crashed(1))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, before[1]))
        try:
            for batch in (2, 3):
                study.record(crashed(batch))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        study.record(crashed(4))
        assert len(read_history(path)) == 1
        assert batches(Study(journal_storage(path))) == [1]

    def test_other_words_are_another_run_and_only_a_resumed_one_is_kept(self, tmp_path: Path) -> None:
        profile = tmp_path / "out.yaml"
        study_of(profile, ["one"], resume=False).record(crashed(1))
        assert batches(study_of(profile, ["one"], resume=True)) == [1]
        with pytest.raises(UsageError, match="nothing to resume"):
            study_of(profile, ["two"], resume=True)
        assert batches(study_of(profile, ["one"], resume=False)) == []
        assert list(tmp_path.iterdir()) == []  # the journal is in the cache folder

    def test_a_folder_in_its_place_is_said(self, tmp_path: Path) -> None:
        journal_of(tmp_path / "out.yaml").mkdir(parents=True)
        with pytest.raises(UsageError, match=r"cannot be used \(Is a directory\)\. Move it away, or make room"):
            study_of(tmp_path / "out.yaml", ["one"], resume=False)


def test_the_history_is_that_of_a_journals_latest_run(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    Study(journal_storage(path), "old").record(crashed(1))
    study = Study(journal_storage(path), "new")
    study.record(Trial(OWN, MEASURED, "safe"))
    study.record(Trial(OWN.but(num_workers=2), Crashed("no fork"), "amp"))
    first, second = read_history(path)
    assert first == Trial(OWN, MEASURED, "safe", 0.0)
    assert second.seconds > 0
