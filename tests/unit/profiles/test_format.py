"""The format: its keys and order, what is refused in which words, and that any profile comes back as it was."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.decoding import MOST_NUMBER
from autotune.errors import ProfileError
from autotune.knobs.knob import Count, Knob
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import KNOBS
from autotune.knobs.task_facts import Fingerprint, LeftOut
from autotune.profiles import file
from autotune.profiles.format import MOST_SPEEDUP, Evidence, Failure, LevelResult, Profile, Target, Written
from autotune.report.profile import show
from autotune.stats.decide import LevelVerdict
from autotune.stats.proof import Proof
from autotune.stats.whole_run import WholeRun
from tests.doubles.profiles import BASELINE, TUNED, profile
from tests.strategies import settings as any_settings

TEXT = file.dump(profile())
OLDER = TEXT[: TEXT.index("  max:")] + TEXT[TEXT.index("evidence:") :]
COMPARED = Fingerprint(("0123456789abcdef",), ("0" * 16,), ())


def changed(old: str, new: str, after: str = "schema:") -> str:
    """The good text with one value changed: the first one behind ``after``."""
    head, found, tail = TEXT.partition(after)
    assert old in tail
    return head + found + tail.replace(old, new, 1)


def refusal(text: str) -> str:
    """What the reader says about ``text``."""
    with pytest.raises(ProfileError) as caught:
        file.parse(text, "p.yaml")
    return str(caught.value)


def test_a_profile_from_before_a_level_existed_is_valid() -> None:
    older = file.parse(OLDER, "p.yaml")
    assert list(older.levels) == ["safe", "amp"]
    assert file.parse(file.dump(older), "p.yaml") == older
    assert "amp" in show(older)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("threads: 8", "threads: 1000000000", "threads: 1000000000 is not a whole number from 1 to 4096"),
        ("threads: 8", "threads: [8]", "threads: a list is not a whole number"),
        ("pin_memory: false", "pin_memory: no", "pin_memory: 'no' is not one of False, True"),
        ("allocator: default", "allocator: /tmp/x.so", "allocator: '/tmp/x.so' is not one of"),
        ("threads: 8", "thread: 8", "settings.thread: is no key of this format; did you mean threads?"),
        ("rate: 2010.5", "rate: .nan", "levels.amp.rate: '.nan' is not a number"),
        ("low: 1.55", "low: 1.65", "levels.amp: speedup: 1.62 is not between low 1.65 and high 1.7"),
        ("confidence: 0.95", "confidence: 1.5", "speedup.confidence: 1.5 is not between 0.5 and 0.9999"),
        ("proven: true", "proven: 1", "levels.amp.proven: 1 is not true or false"),
        ("  max:", "  fast:", "levels.fast: 'fast' is not one of safe, amp, max"),
        ("kind: out", "knd: out", "evidence.failures.0.knd: is no key of this format; did you mean kind?"),
        ("      batch_size: 512", "      PYTHONSTARTUP: 1", "changed.PYTHONSTARTUP: 'PYTHONSTARTUP' is not a knob"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, words: str) -> None:
    said = refusal(changed(old, new, "  amp:"))
    assert re.match(r"p\.yaml: line \d+: ", said)
    assert words in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed("  rate: 1240.25\n", ""), "baseline.rate: is missing"),
        (changed("sockets: 1", "sockets: 0"), "machine.facts.sockets: 0 is not between 1 and 1048576"),
        (OLDER.replace("recommended: amp", "recommended: max"), "levels: the recommended max is missing"),
        ("{}", "has no key 'schema'"),
        ("schema: autotune.profile/2\n", "another version or program wrote it. Tune again"),
        *(
            (changed("name: resnet", f"name: {name}"), "is not a plain name")
            for name in ("..", "/tmp/x", "a<b>", "'[b]'")
        ),
    ],
)
def test_other_mistakes(text: str, words: str) -> None:
    assert words in refusal(text)


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_a_value_that_a_knob_does_not_have(knob: Knob) -> None:
    wrong = 2**40 if isinstance(knob.kind, Count) else "perhaps"
    text = re.sub(rf"(?m)^(\s+{knob.name}:) \S+$", rf"\1 {wrong}", TEXT, count=1)
    assert text != TEXT
    assert f"{knob.name}: " in refusal(text)


def claim(value: float, low: float, high: float, rounds: int = 12) -> LevelResult:
    """A level that is said to be proven."""
    return LevelResult(TUNED, 10.0, Proof(value, low, high, 0.95, rounds), proven=True)


@pytest.mark.parametrize(
    ("level", "possible"),
    [
        (claim(1.5, 1.2, math.inf), True),
        (claim(MOST_SPEEDUP, 2.0, math.inf), True),
        (claim(1.5, 1.2, 2.0, rounds=0), False),
        (claim(1.5, 0.99, 2.0), False),
        (claim(1e6, 1e5, math.inf), False),
        (replace(claim(1e6, 0.0, math.inf), proven=False), True),
    ],
)
def test_claims_that_nobody_can_have_measured_are_refused(level: LevelResult, possible: bool) -> None:
    assert (level.problem() is None) is possible
    claims = profile(levels={"amp": level, "max": level})
    if possible:
        assert file.parse(file.dump(claims), "p.yaml") == claims
    else:
        with pytest.raises(ProfileError, match="proven: true, but"):
            file.dump(claims)


@pytest.mark.parametrize(("level", "change"), [("safe", {"precision": "bf16"}), ("amp", {"batch_size": 512})])
def test_what_a_level_keeps_is_not_changed_by_a_strangers_profile(level: str, change: dict[str, Any]) -> None:
    own = replace(profile().levels[level], settings=BASELINE.but(**change))
    with pytest.raises(ProfileError, match=f"levels.{level}: changes .*, which this level keeps"):
        file.dump(profile(levels={**profile().levels, level: own}))


@pytest.mark.parametrize("lines", ["    note: ''|  partial: false", " +matmul_precision: .*| +omp_wait_policy: .*"])
def test_what_is_usual_may_be_left_out_and_a_knob_that_came_later_has_pytorchs_own_value(lines: str) -> None:
    short, count = re.subn(rf"(?m)^({lines})\n", "", TEXT)
    assert count > 1
    assert file.parse(short, "p.yaml") == profile()


# Any profile ----------------------------------------------------------------------------------------------------------

rates = st.floats(0, MOST_NUMBER, allow_nan=False)
words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20).filter(
    lambda text: not set(text) & set("/\\~")
)
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-MOST_NUMBER, MOST_NUMBER)
tuned = any_settings()


@st.composite
def levels(draw: st.DrawFn) -> LevelResult:
    """Ordered figures; the upper end may be open; what is said to be proven can be."""
    low, value, high = sorted(draw(st.tuples(rates, rates, rates | st.just(math.inf))))
    ratio = Proof(low if math.isinf(value) else value, low, high, 0.95, draw(st.integers(0, 10_000)))
    found = LevelResult(draw(tuned), draw(rates), ratio, draw(st.booleans()), draw(words | st.just("")))
    found = replace(found, verdict=draw(st.sampled_from(["", *(each.value for each in LevelVerdict)])))
    return replace(found, proven=False) if found.problem() else found


evidences = st.builds(
    Evidence,
    trials=st.integers(0, 10_000),
    seconds=rates,
    failures=st.lists(
        st.builds(Failure, words, words, st.dictionaries(st.sampled_from(("threads", "precision")), scalars | words)),
        max_size=3,
    ).map(tuple),
    not_offered=st.lists(st.builds(LeftOut, words, scalars | words, words), max_size=3).map(tuple),
    warnings=st.lists(words, max_size=3).map(tuple),
    partial=st.booleans(),
    load=words | st.just(""),
)
targets = st.builds(
    Target,
    st.from_regex(r"\A\w[\w .-]{0,20}\w\Z").filter(str.isprintable),
    words,
    st.sampled_from(("cpu", "cuda")),
    st.integers(0, 2**50),
    st.none() | st.integers(0, 2**50),
    script=st.sampled_from((None, "batches", "steps")),
    compared=st.sampled_from((Fingerprint(), COMPARED)),
)


@st.composite
def generated(draw: st.DrawFn) -> Profile:
    """Any valid profile."""
    software: dict[str, Any] = draw(st.dictionaries(st.sampled_from(("torch", "cuda", "python")), st.none() | words))
    made = replace(
        profile(),
        software=software,
        target=draw(targets),
        recommended=draw(st.sampled_from(list(LEVELS))),
        baseline=draw(tuned),
        baseline_rate=draw(rates),
        levels={name: draw(levels()) for name in LEVELS},
        evidence=draw(evidences),
        written=draw(st.sampled_from((None, Written("0.1.0", "2026-11-22")))),
    )
    return made if made.problem() is None else replace(made, levels={"max": made.levels["max"]}, recommended="max")


@given(generated())
@settings(max_examples=10, deadline=None)
def test_what_is_written_is_read_by_us_and_by_other_readers(one: Profile) -> None:
    text = file.dump(one)
    assert file.parse(text, "p.yaml") == one
    assert file.dump(file.parse(text, "p.yaml")) == text
    assert yaml.safe_load(text) == file.to_data(one)


@pytest.mark.parametrize("high", [1e300, math.inf])
def test_an_interval_that_is_as_good_as_open_is_written_as_open(high: float) -> None:
    """The upper end of few rounds that contradict each other can be any number."""
    one = profile()
    level = replace(one.levels["safe"], speedup=replace(one.levels["safe"].speedup, high=high))
    written = file.dump(replace(one, levels={**one.levels, "safe": level}))
    assert "high: null" in written
    assert math.isinf(file.parse(written, "x").levels["safe"].speedup.high)


@pytest.mark.parametrize(
    ("run", "gain", "felt"),
    [
        (None, 1.03, False),
        (None, 1.06, True),
        (WholeRun(5.0, 0.1, 0.1, 100_000), 1.03, False),
        (WholeRun(5.0, 0.1, 0.1, 100_000), 1.08, True),
        (WholeRun(1000.0, 0.1, None, 10_000), 1.08, False),
        (WholeRun(0.1, 0.01, None, 100), 1.5, False),
    ],
)
def test_a_gain_that_nobody_feels_is_not_recommended(run: WholeRun | None, gain: float, felt: bool) -> None:
    found = profile()
    level = replace(found.levels["amp"], speedup=Proof(gain, gain - 0.01, gain + 0.01, 0.95, 12))
    found = replace(found, levels={**found.levels, "amp": level}, evidence=replace(found.evidence, run=run))
    assert found.saves_time("amp") is felt
    assert ("too little to feel" in found.unfelt("amp")) is not felt


def test_a_notebook_shows_the_levels_as_a_table() -> None:
    found = profile()
    shown = found._repr_html_()
    assert shown.count("<tr>") == len(found.levels)
    assert all(f"<td>{name}</td>" in shown for name in found.levels)
