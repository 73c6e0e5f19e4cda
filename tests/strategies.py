"""Hypothesis strategies that several tests share."""

from hypothesis import strategies as st

from autotune.knobs.knob import Count, Knob
from autotune.knobs.settings import KNOBS, Settings


def values(knob: Knob, most: int | None = None) -> st.SearchStrategy:
    """Every value of ``knob``; counts up to ``most``."""
    kind = knob.kind
    if isinstance(kind, Count):
        own = st.integers(kind.least, kind.most if most is None else min(kind.most, most))
    else:
        own = st.sampled_from(kind.values)
    return st.none() | own if knob.neutral is None else own


def settings(most: int | None = None, **given: st.SearchStrategy) -> st.SearchStrategy[Settings]:
    """Any settings; counts up to ``most``, and knobs that are ``given``."""
    return st.builds(Settings, **({knob.name: values(knob, most) for knob in KNOBS} | given))
