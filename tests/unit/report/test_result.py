"""The final answer: its wording (golden file), its size, and that its figures are the profile's."""

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from autotune.knobs.knob import LESS, MORE, Knob
from autotune.knobs.settings import KNOBS
from autotune.probes.cpu_time import Load, Neighbour
from autotune.profiles.format import NO_LEVEL, Profile
from autotune.report import result
from autotune.report.result import CANNOT_TELL, NO_GAIN, OWN_SCRIPT, gains, recommended, start, verdict, whole_run
from autotune.stats.proof import Proof
from autotune.stats.whole_run import WholeRun
from autotune.tuning.notes import load_note
from tests.doubles import results as records

GOLDEN = Path(__file__).with_name("golden")
PATH = Path("profiles/amd-epyc-zen4-8c-32g/resnet.yaml")
EXAMPLES = {
    "gain": records.profile,
    "no_gain": records.no_gain,
    "crowded": records.crowded,
    "interrupted": records.single_replicate,
}


def text(profile: Profile, path: Path = PATH) -> str:
    """The answer on the example machine."""
    return result.text(profile, records.inventory(), path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_wording(name: str) -> None:
    """After an intended change, write `text(...)` to the golden file and read the difference."""
    found = text(EXAMPLES[name]())
    assert found + "\n" == (GOLDEN / f"{name}.txt").read_text("utf-8")
    lines = found.splitlines()
    assert (len(lines) <= 40, max(map(len, lines)) <= 80) == (True, True)


def test_others_are_named_first_by_name_on_the_users_own_terminal() -> None:
    load = Load(1.14, 0.0, (Neighbour(123, "python", 19, 0.94), Neighbour(7, "", 0, 0.2)), threads=4)
    profile = records.profile()
    profile = replace(profile, evidence=replace(profile.evidence, load=load_note(load)))
    shown = result.text(profile, records.inventory(), PATH, load)
    assert "pid 123" in shown.splitlines()[1]
    assert "pid" not in text(profile)
    assert all(each.splitlines()[1].startswith("Load") for each in (shown, text(profile)))


@pytest.mark.parametrize(
    ("proof", "answer"),
    [
        (Proof(0.9, 0.85, 0.95, 0.95, 12), NO_GAIN),
        (Proof(1.0, 0.99, 1.005, 0.95, 12), NO_GAIN),
        (Proof(1.0, 1.0, 1.0, 0.95, 0), "no proven gain: keep your settings"),
        (Proof(1.05, 0.98, 1.12, 0.95, 12), CANNOT_TELL),
        (Proof(1.05, 0.0, float("inf"), 0.95, 3), CANNOT_TELL),
    ],
)
def test_no_gain_and_cannot_tell_are_short_answers(proof: Proof, answer: str) -> None:
    level = replace(records.no_gain().levels["safe"], speedup=proof)
    profile = records.profile(recommended=NO_LEVEL, levels=dict.fromkeys(("safe", "amp", "max"), level))
    assert verdict(profile, "safe")[0] == answer
    found = text(profile)
    assert found.count("keep your settings") == 1
    assert "Level" not in found
    assert "autotune run" not in found


def test_a_level_that_adds_nothing_says_so() -> None:
    """Seen: ``max 2.56x (...) cannot tell: 1.03x measured``, which reads as a contradiction."""
    profile = records.profile()
    same = replace(profile.levels["amp"], note="1.03x measured")
    profile = replace(profile, levels={**profile.levels, "max": same})
    assert verdict(profile, "max") == ("nothing beyond amp was proven; uses amp's settings", "1.03x measured")
    assert not gains(profile, "max")


def test_a_level_that_brought_nothing_is_not_recommended() -> None:
    """A star stood beside levels that had crashed or that nobody had tried."""
    assert recommended(replace(records.no_gain(), recommended="amp")) is None
    own = records.profile()
    assert recommended(replace(own, recommended="max", levels={**own.levels, "max": own.levels["amp"]})) == "amp"


def test_a_gain_of_a_higher_level_stands_under_apply() -> None:
    """Seen: ``max 7.66x (5.95 to 9.24)``, and below it ``nothing to apply: keep your settings``."""
    own = records.no_gain()
    found = text(replace(own, levels={**own.levels, "max": records.profile().levels["amp"]}))
    assert "No gain at level amp. To use max anyway:" in found
    assert f"  autotune run --level max --profile {PATH} {OWN_SCRIPT}" in found


def followed(*figures: float | int | None) -> Profile:
    """Of a run that was followed; amp is 2.10x."""
    return records.profile(evidence=replace(records.profile().evidence, run=WholeRun(*figures)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ((20.0, 0.1, 0.2, 800), "about 1.53x: 2 min 00 s -> 1 min 19 s (20 s until it trains, 20 s evaluation"),
        ((20.0, 0.1, 0.2), "about 1.72x from epoch to epoch: 20% of it is evaluation"),
        ((60.0, 0.1, None, 150), "most of it is not training; about 1.11x"),
        ((20.0, 0.1), ""),
    ],
)
def test_what_the_whole_run_gains(figures: tuple[float, ...], words: str) -> None:
    """The first: 20 s, 80 s of steps, 20 s of evaluation."""
    found = whole_run(followed(*figures))
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_a_later_start_is_said_and_forecast() -> None:
    profile = followed(20.0, 0.1, 0.2, 800)
    amp = replace(profile.levels["amp"], start_seconds=30.0)
    profile = replace(profile, levels=profile.levels | {"amp": amp})  # type: ignore[operator]
    assert start(profile) == "the first step is made 30.0 s later than with your settings"
    assert "2 min 00 s -> 1 min 49 s" in whole_run(profile)


def test_what_a_run_does_not_feel_is_not_recommended() -> None:
    profile = followed(20.0, 0.1, None, 10)
    assert recommended(profile) is None
    assert f"autotune run --level amp --profile {PATH} {OWN_SCRIPT}" in text(profile)


def test_the_lines_to_copy_stay_whole() -> None:
    long = Path("/a folder/with 'quotes'") / ("x" * 90) / "p.yaml"
    found = result.text(records.profile(), records.inventory(), long, script="my.py --lr 1")
    quoted = re.search(r"autotune run --profile (.*) my\.py --lr 1", found)
    assert quoted[1] == "'/a folder/with '\"'\"'quotes'\"'\"'/" + "x" * 90 + "/p.yaml'"
    assert f"tuned = autotune.load({str(PurePosixPath(long))!r})" in found


def test_bound_processes_need_autotune_run() -> None:
    crowded = records.crowded()
    levels = {name: replace(r, settings=r.settings.but(binding="cores")) for name, r in crowded.levels.items()}
    shown = text(replace(crowded, levels=levels))
    assert "or in the script (which the line above starts)" in shown
    assert "torchrun" not in shown


def test_a_wide_gain_is_at_least_its_lower_end() -> None:
    wide = replace(records.profile().levels["safe"], speedup=Proof(3.03, 1.43, 6.43, 0.95, 9), note="about 40 s more")
    profile = records.profile(recommended="safe", levels=dict.fromkeys(("safe", "amp", "max"), wide))
    assert verdict(profile, "safe") == ("at least 1.43x (95 % confidence); measured 3.03x", "about 40 s more")


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_every_move_has_a_short_reason(knob: Knob) -> None:
    moves = (MORE, LESS) if knob.ordinal else knob.kind.values
    assert all(0 < len(knob.why[value]) <= 40 for value in moves)
    assert set(knob.why) - {None} == set(moves)


def test_what_trials_held_is_told_once_for_equal_settings() -> None:
    plain = records.profile()
    held = {"safe": (2**29, 0), "amp": (2**30, 2**31), "max": (2**30, 0)}
    levels = {name: replace(plain.levels[name], memory=m, gpu_memory=g) for name, (m, g) in held.items()}
    levels["max"] = replace(levels["amp"])
    assert result.memory(replace(plain, levels=levels)) == "512 MiB at safe, 1.0 GiB and 2.0 GiB of each GPU at amp"
    assert result.memory(plain) == ""
