from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import autotune
from autotune.errors import ProfileError, UsageError
from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.runtime.choice import _inventory, decide
from tests.torch.records import quiet, shuffled, train
from tests.unit.records import inventory, profile


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A profile for one process with settings that differ in the loader only, at two levels."""
    path = tmp_path / "own.yaml"
    settings = quiet(batch_size=16)
    path.write_text(profiles.dump(profile(settings, max=settings.but(batch_size=32))))
    return path


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "autotune"]


def test_no_profile_is_baseline_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with autotune.load(target="nothing") as tuned:
        assert (tuned.settings, tuned.origin) == (None, "defaults")
        parameters, _losses = train(tuned, shuffled(64, 16))
    assert len(notices(caplog)) == 1
    assert "nothing" in notices(caplog)[0]
    assert len(parameters) == 4


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"schema: [",
        b"\xff\xfe\x00",
        b"schema: autotune.profile/99\n",
        b"schema: autotune.profile/0\n",
        b"!!python/object/apply:os.system [exit]",
        b"[" * 5000,
        b"x" * 100_000,
    ],
    ids=["empty", "corrupt", "binary", "future", "old", "evil", "deep", "large"],
)
def test_bad_profiles_are_baseline_and_one_notice(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=r"bad\.yaml"):
        autotune.load(path)
    with autotune.load(path, strict=False) as tuned:
        assert tuned.settings is None
        train(tuned, shuffled(32, 16), epochs=1)
    assert len(notices(caplog)) == 1


@pytest.mark.parametrize("path", ["absent.yaml", "https://example.org/p.yaml", "."])
def test_what_cannot_be_read_is_named(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ProfileError) as error:
        autotune.load(path)
    assert path in str(error.value)
    with autotune.load(path, strict=False) as tuned:
        assert tuned.settings is None
    assert len(notices(caplog)) == 1
    assert path in notices(caplog)[0]


def test_a_level_that_does_not_exist_is_refused(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    for where in (written, None):
        with pytest.raises(UsageError, match=r"no level 'maxi'.*did you mean max\?"):
            autotune.load(where, level="maxi")
    with autotune.load(written, level="maxi", strict=False) as tuned:
        assert tuned.settings is None
    assert "no level 'maxi'" in notices(caplog)[0]


def test_what_the_environment_says_never_raises(
    written: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AUTOTUNE_LEVEL", "maxi")
    with autotune.load(written) as tuned:
        assert tuned.level == "safe"
    monkeypatch.setenv("AUTOTUNE_PROFILE", "absent.yaml")
    with autotune.load(level="safe") as tuned:
        assert tuned.settings is None


def test_a_session_says_what_it_is(written: Path) -> None:
    with autotune.load(written) as tuned:
        assert repr(tuned).startswith(f"<Session level safe; argument: {written}; applied: ")
        assert "batch_size=16" in repr(tuned)
    with autotune.load(target="nothing") as tuned:
        assert repr(tuned) == "<Session without a profile (defaults)>"


def test_a_profile_of_another_machine_is_named(written: Path) -> None:
    with autotune.load(written) as tuned:
        assert sum("the profile was measured on" in note for note in tuned.notes) == 1


@pytest.mark.parametrize("broken", ["autotune.probes.cpu.probe", "autotune.profiles.file.read"])
def test_whatever_breaks_training_goes_on(broken: str, written: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mock.patch(broken, side_effect=ZeroDivisionError), autotune.load(written) as tuned:
        assert tuned.settings is None
    assert notices(caplog) == ["autotune: training runs without a profile: ZeroDivisionError"]


def test_a_notice_reaches_stderr_without_any_logging_set_up(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    with mock.patch.object(root, "handlers", []), autotune.load("absent.yaml", strict=False):
        pass
    assert "absent.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("level", ["safe", "max"])
def test_argument_before_environment(level: str, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_PROFILE", "absent.yaml")
    monkeypatch.setenv("AUTOTUNE_LEVEL", "amp")
    with autotune.load(written, level=level) as tuned:
        assert (tuned.level, tuned.origin) == (level, f"argument: {written}")
        assert tuned.settings == quiet(batch_size=32 if level == "max" else 16)
    monkeypatch.setenv("AUTOTUNE_PROFILE", str(written))
    monkeypatch.setenv("AUTOTUNE_LEVEL", "max")
    with autotune.load() as tuned:
        assert (tuned.level, tuned.origin) == ("max", f"AUTOTUNE_PROFILE: {written}")


@pytest.mark.parametrize(("wanted", "found", "said"), [("amp", "safe", 1), ("fast", "safe", 1), (None, "safe", 0)])
def test_a_level_that_is_not_there_never_means_a_higher_one(wanted: str | None, found: str, said: int) -> None:
    data = profile(Settings(batch_size=8))
    data = dataclasses.replace(data, levels={name: data.levels[name] for name in ("safe", "max")})
    choice = decide(data, "test", wanted, {}, inventory())
    assert (choice.level, len(choice.notes)) == (found, said)


def test_profiles_beside_the_script_are_found(tmp_path: Path) -> None:
    machine = machine_type(_inventory())
    settings = quiet(batch_size=16)
    path = tmp_path / "profiles" / machine.key / "train.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(profiles.dump(dataclasses.replace(profile(settings), machine=machine)))
    with autotune.load(target="train") as tuned:
        assert tuned.settings == settings
        assert tuned.origin.startswith("found: ")
    with autotune.load(target="other") as tuned:
        assert tuned.settings is None


def test_loading_keeps_random_numbers_and_twice_is_as_good_as_once(written: Path) -> None:
    state = torch.get_rng_state()
    with autotune.load(written) as first, autotune.load(written) as second:
        assert first.settings == second.settings
        train(second, shuffled(32, 16), epochs=1)
    with autotune.load(written):
        assert torch.equal(state, torch.get_rng_state())


def test_a_profile_for_several_processes_started_as_one() -> None:
    settings = Settings(processes=4, threads=2, num_workers=1, batch_size=16)
    choice = decide(profile(settings), "test", None, {}, inventory(8))
    assert choice.settings == Settings(threads=8, num_workers=4, batch_size=64)
    assert "autotune run" in choice.notes[0]


def test_started_as_more_processes_than_the_profile() -> None:
    environment = {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    choice = decide(profile(Settings(threads=8, batch_size=64)), "test", None, environment, inventory(8))
    assert choice.settings == Settings(processes=4, threads=2, batch_size=16)
    assert any("started as 4 processes" in note for note in choice.notes)


@pytest.mark.parametrize(
    ("environment", "threads", "said"),
    [
        ({"OMP_NUM_THREADS": "3"}, 3, True),
        ({"OMP_NUM_THREADS": "8"}, 8, False),
        ({"OMP_NUM_THREADS": "4,2"}, 8, False),
        ({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "none"}, 8, False),
        ({}, 8, False),
    ],
)
def test_the_users_threads_win(environment: dict[str, str], threads: int, said: bool) -> None:
    choice = decide(profile(Settings(threads=8)), "test", None, environment, inventory(8))
    assert choice.settings is not None
    assert choice.settings.threads == threads
    assert any("OMP_NUM_THREADS" in note for note in choice.notes) is said


@given(
    settings=st.builds(
        Settings,
        processes=st.integers(1, 9),
        threads=st.integers(1, 64),
        num_workers=st.integers(0, 64),
        batch_size=st.integers(1, 64),
    ),
    world=st.integers(1, 9),
    threads=st.integers(1, 9),
)
def test_any_profile_fits_any_start(settings: Settings, world: int, threads: int) -> None:
    environment = {"WORLD_SIZE": str(world), "RANK": "0"}
    choice = decide(profile(settings), "test", None, environment, inventory(threads))
    assert choice.settings is not None
    assert choice.settings.processes == world
    assert choice.settings.threads <= threads
    assert choice.settings.global_batch >= settings.global_batch


def test_a_level_that_sets_more_than_it_allows_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "edited.yaml"
    path.write_text(profiles.dump(profile(quiet(batch_size=16), safe=quiet(batch_size=16, precision="bf16"))))
    with autotune.load(path):
        assert any("level safe of the profile sets precision bf16, which changes results" in n for n in notices(caplog))
