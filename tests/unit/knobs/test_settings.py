"""Canonical settings: what acts the same compares equal."""

import json

from hypothesis import given

from autotune.knobs.settings import Settings
from tests.strategies import settings as any_settings

ANY = any_settings(256)


@given(ANY)
def test_survives_json(settings):
    assert Settings(**json.loads(json.dumps(settings.as_dict()))) == settings


@given(ANY, ANY)
def test_difference_is_empty_exactly_where_equal(first, second):
    assert bool(first.difference(second)) == (first != second)
    assert first.but(**{name: theirs for name, (_, theirs) in first.difference(second).items()}) == second


@given(ANY)
def test_knobs_that_do_not_apply_are_neutral(settings):
    alone = settings.but(processes=1, num_workers=0)
    assert (alone.backend, alone.prefetch_factor) == (None, None)
    assert hash(alone) == hash(alone.but(backend="mpi", prefetch_factor=4))
    both = settings.but(processes=2, num_workers=1)
    assert both.backend is not None
    assert both.prefetch_factor is not None
