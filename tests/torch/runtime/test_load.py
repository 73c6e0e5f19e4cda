"""What `load` settles on: which profile, which level, and what of it fits this machine and this start."""

import dataclasses
import logging
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import autotune
from autotune.errors import ProfileError, UsageError
from autotune.knobs.settings import Settings
from autotune.probes.inventory import probe
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.runtime.choice import decide
from autotune.stats.proof import Proof
from tests.doubles.servers import folder_server
from tests.torch.records import quiet, shuffled, train
from tests.unit.records import inventory, profile


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A profile for one process with settings that differ in the loader only, at two levels."""
    settings = quiet(batch_size=16)
    return profiles.write(tmp_path / "own.yaml", profile(settings, max=settings.but(batch_size=32)))


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "autotune"]


def for_this_machine(folder: Path, target: str, settings: Settings, **machine: Any) -> Path:
    """A profile of ``target`` where the registry looks for it."""
    here = machine_type(probe(quick=True))
    made = profile(settings)
    target_of = dataclasses.replace(made.target, name=target)
    made = dataclasses.replace(made, machine=dataclasses.replace(here, **machine), target=target_of)
    return profiles.write(folder / "profiles" / here.key / f"{target}.yaml", made)


# Which profile --------------------------------------------------------------------------------------------------------


def test_no_profile_is_baseline_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with autotune.load(target="nothing") as tuned:
        assert (tuned.settings, tuned.origin) == (None, "defaults")
        assert repr(tuned) == "<Session without a profile (defaults)>"
        train(tuned, shuffled(64, 16))
    (notice,) = notices(caplog)
    assert "nothing" in notice


@pytest.mark.parametrize("path", ["absent.yaml", "http://127.0.0.1:9/p.yaml", ".", "evil.yaml"])
def test_what_cannot_be_read_is_named(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr even without any logging set up."""
    Path("evil.yaml").write_bytes(b"!!python/object/apply:os.system [exit]")
    with pytest.raises(ProfileError) as error:
        autotune.load(path)
    assert path in str(error.value)
    with mock.patch.object(logging.getLogger(), "handlers", []), autotune.load(path, strict=False) as tuned:
        assert tuned.settings is None
        train(tuned, shuffled(32, 16), epochs=1)
    assert path in capsys.readouterr().err


def test_a_profile_at_a_url_is_applied(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(written.parent / "cache"))
    with folder_server(written.parent) as (url, asked), autotune.load(f"{url}/own.yaml") as tuned:
        assert (tuned.settings, tuned.origin) == (quiet(batch_size=16), f"argument: {url}/own.yaml")
    assert asked == ["/own.yaml"]
    with autotune.load(f"{url}/own.yaml") as tuned:  # it is down
        assert tuned.settings == quiet(batch_size=16)


def test_a_gain_that_nobody_feels_is_applied_if_its_level_is_named(tmp_path, caplog) -> None:
    made = profile(quiet(batch_size=16))
    little = dataclasses.replace(made.levels["safe"], speedup=Proof(1.03, 1.02, 1.04, 0.95, 12))
    path = profiles.write(tmp_path / "p.yaml", dataclasses.replace(made, levels={**made.levels, "safe": little}))
    with autotune.load(path) as tuned:
        assert tuned.settings is None
    assert "too little to feel" in notices(caplog)[-1]
    with autotune.load(path, level="safe") as tuned:
        assert tuned.settings == quiet(batch_size=16)


@pytest.mark.parametrize("argument", ["path_or_url", "target", "level"])
def test_an_argument_that_is_no_text_is_named(argument: str) -> None:
    with pytest.raises(TypeError, match=rf"load\(\) got {argument}=5: give text"):
        autotune.load(**{argument: 5})


@pytest.mark.parametrize("broken", ["autotune.runtime.choice.probe", "autotune.profiles.file.read"])
def test_whatever_breaks_training_goes_on(broken: str, written: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mock.patch(broken, side_effect=ZeroDivisionError), autotune.load(written) as tuned:
        assert tuned.settings is None
    assert notices(caplog) == ["autotune: training runs without a profile: ZeroDivisionError"]


def test_without_a_script_no_other_trainings_profile_is_taken(tmp_path, monkeypatch, caplog) -> None:
    """As in a notebook and under ``python -c``; a profile or a target that is named works."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with autotune.load() as tuned:
        assert tuned.settings is None
    assert notices(caplog)[-1].endswith('autotune.load("profiles/...yaml")')
    for name in ("resnet", "bert"):
        for_this_machine(tmp_path, name, quiet(batch_size=32))
    with autotune.load() as tuned:
        assert (tuned.settings, tuned.origin) == (None, "defaults")
    for words in ("without a profile", 'autotune.load(target="NAME")', 'autotune.load("profiles/', "bert, resnet"):
        assert words in notices(caplog)[-1]
    with autotune.load(target="bert") as tuned:
        assert tuned.settings == quiet(batch_size=32)
        assert tuned.origin.startswith("found: ")
    with autotune.load(target="other") as tuned:
        assert tuned.settings is None


@pytest.mark.parametrize("level", ["safe", "max"])
def test_argument_before_environment(level: str, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_PROFILE", "absent.yaml")
    monkeypatch.setenv("AUTOTUNE_LEVEL", "amp")
    with autotune.load(written, level=level) as tuned:
        assert (tuned.level, tuned.origin) == (level, f"argument: {written}")
        assert tuned.settings == quiet(batch_size=32 if level == "max" else 16)
        assert repr(tuned).startswith(f"<Session level {level}; argument: {written}; applied: ")
        assert sum("the profile was measured on" in note for note in tuned.notes) == 1
    with autotune.load(level="safe") as tuned:
        assert tuned.settings is None, "what the environment says never raises"
    monkeypatch.setenv("AUTOTUNE_PROFILE", str(written))
    monkeypatch.setenv("AUTOTUNE_LEVEL", "max")
    with autotune.load() as tuned:
        assert (tuned.level, tuned.origin) == ("max", f"AUTOTUNE_PROFILE: {written}")


def test_a_level_that_does_not_exist_is_refused(written, caplog, monkeypatch) -> None:
    for where in (written, None):
        with pytest.raises(UsageError, match=r"no level 'maxi'.*did you mean max\?"):
            autotune.load(where, level="maxi")
    with autotune.load(written, level="maxi", strict=False) as tuned:
        assert tuned.settings is None
    assert "no level 'maxi'" in notices(caplog)[0]
    monkeypatch.setenv("AUTOTUNE_LEVEL", "maxi")
    with autotune.load(written) as tuned:
        assert tuned.level == "safe"
        assert any("no level 'maxi'" in note and note.endswith("; using safe") for note in tuned.notes)


def test_what_is_only_similar_is_named_and_not_applied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for_this_machine(tmp_path, "bert", quiet(batch_size=32), family="another")
    with autotune.load(target="bert") as tuned:
        assert tuned.settings is None
    (notice,) = notices(caplog)
    assert "only similar" in notice
    assert "autotune check" in notice


# What of it -----------------------------------------------------------------------------------------------------------


def ranks(world: int, **more: str) -> dict[str, str]:
    return {"WORLD_SIZE": str(world), "RANK": "0", "LOCAL_WORLD_SIZE": str(world), **more}


THREADS = "OMP_NUM_THREADS"
STARTS: dict[str, tuple[Settings, dict[str, str], Settings, str | None]] = {
    "several, started as one": (
        Settings(processes=4, threads=2, num_workers=1, batch_size=16),
        {},
        Settings(threads=8, num_workers=4, batch_size=64),
        "autotune run",
    ),
    "one, started as four": (
        Settings(threads=8, batch_size=64),
        ranks(4),
        Settings(processes=4, threads=2, batch_size=16),
        "started as 4 processes",
    ),
    "the user's threads": (Settings(threads=8), {THREADS: "3"}, Settings(threads=3), THREADS),
}


@pytest.mark.parametrize(("tuned", "environment", "wanted", "words"), STARTS.values(), ids=STARTS)
def test_settings_fit_how_the_script_was_started(tuned, environment, wanted, words) -> None:
    choice = decide(profile(tuned), "test", None, environment, inventory(8))
    assert choice.settings == wanted
    assert any((words or THREADS) in note for note in choice.notes) is (words is not None)


@pytest.mark.parametrize(
    ("partial", "proven", "words"),
    [
        (True, False, "tuning was interrupted before level safe was proven"),
        (False, False, "level safe is not proven to be faster than the baseline (no gain: nothing is faster)"),
        (False, True, None),
    ],
)
def test_what_is_not_proven_is_said(partial: bool, proven: bool, words: str | None) -> None:
    data = profile(Settings(batch_size=8))
    note = "" if proven else "no gain: nothing is faster"
    levels = {name: dataclasses.replace(level, proven=proven, note=note) for name, level in data.levels.items()}
    evidence, own = dataclasses.replace(data.evidence, partial=partial), data.baseline.but(threads=7)
    data = dataclasses.replace(data, levels=levels, evidence=evidence, baseline=own)
    choice = decide(data, "test", None, {}, inventory())
    assert [words in note for note in choice.notes] == ([True] if words else [])
    assert (choice.settings is None) is partial
