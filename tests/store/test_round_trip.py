"""Any profile that the tuner can make comes back as it was."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.core.errors import ProfileError
from autotune.core.profile import Evidence, Failure, LevelResult, NotOffered, Profile, Target
from autotune.core.proof import Proof
from autotune.store import profiles, yaml_text
from autotune.store.fields import MAX_NUMBER, look_alike
from tests.strategies import settings as any_settings

from .records import profile

threads = st.integers(1, 4096)
rates = st.floats(0, MAX_NUMBER, allow_nan=False)
words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20).filter(
    lambda text: not set(text) & set("/\\~")
)
names = words.filter(lambda text: look_alike(text) is None)
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-MAX_NUMBER, MAX_NUMBER)
tuned = any_settings()


@st.composite
def proofs(draw: st.DrawFn) -> Proof:
    """Ordered figures; the upper end may be open."""
    low, value, high = sorted(draw(st.tuples(rates, rates, rates | st.just(math.inf))))
    if math.isinf(value):
        value = low
    return Proof(value, low, high, draw(st.sampled_from((0.9, 0.95, 0.99))), draw(st.integers(0, 10_000)))


levels = st.builds(LevelResult, tuned, rates, proofs(), st.booleans(), words | st.just(""))
evidences = st.builds(
    Evidence,
    trials=st.integers(0, 10_000),
    seconds=rates,
    failures=st.lists(
        st.builds(Failure, names, words, st.dictionaries(st.sampled_from(("threads", "precision")), scalars | words)),
        max_size=3,
    ).map(tuple),
    not_offered=st.lists(st.builds(NotOffered, names, scalars | words, words), max_size=3).map(tuple),
    warnings=st.lists(words, max_size=3).map(tuple),
    partial=st.booleans(),
)
targets = st.builds(
    Target, names, names, st.sampled_from(("cpu", "cuda")), st.integers(0, 2**50), st.none() | st.integers(0, 2**50)
)


@st.composite
def generated(draw: st.DrawFn) -> Profile:
    """Any valid profile."""
    software: dict[str, Any] = draw(st.dictionaries(st.sampled_from(("torch", "cuda", "python")), st.none() | words))
    return replace(
        profile(),
        software=software,
        target=draw(targets),
        recommended=draw(st.sampled_from(("safe", "amp", "max"))),
        baseline=draw(tuned),
        baseline_rate=draw(rates),
        levels={name: draw(levels) for name in ("safe", "amp", "max")},
        evidence=draw(evidences),
    )


@given(generated())
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(one: Profile) -> None:
    text = profiles.dump(one)
    assert profiles.parse(text, "p.yaml") == one
    assert profiles.dump(profiles.parse(text, "p.yaml")) == text


@given(generated())
@settings(max_examples=10, deadline=None)
def test_other_yaml_readers_see_the_same(one: Profile) -> None:
    assert yaml.safe_load(profiles.dump(one)) == profiles.to_data(one)


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_no_text_does_worse_than_a_profile_error(text: str) -> None:
    with pytest.raises(ProfileError, match=r"\Ap\.yaml: "):
        profiles.parse(text, "p.yaml")


@pytest.mark.parametrize("text", ["0E0", "1e5", "-0e-3", "1.5", "no", "1:30", "010", "~", "true", ""])
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert yaml_text.load(yaml_text.dump({"a": [text]})) == {"a": [text]}


@pytest.mark.parametrize("high", [1e300, math.inf])
def test_an_interval_that_is_as_good_as_open_is_written_as_open(high: float) -> None:
    """The upper end of few rounds that contradict each other can be any number."""
    one = profile()
    level = replace(one.levels["safe"], speedup=replace(one.levels["safe"].speedup, high=high))
    written = profiles.dump(replace(one, levels={**one.levels, "safe": level}))
    assert math.isinf(profiles.parse(written, "x").levels["safe"].speedup.high)
