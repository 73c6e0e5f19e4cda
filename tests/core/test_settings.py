"""Canonical settings: what acts the same compares equal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.errors import UsageError
from autotune.core.settings import ALLOCATORS, BACKENDS, BINDINGS, COMPILE_MODES, OPTIMIZER_IMPLS, PRECISIONS, Settings

ANY = st.builds(
    Settings,
    processes=st.integers(1, 8),
    threads=st.integers(1, 256),
    interop_threads=st.integers(1, 64),
    backend=st.sampled_from([None, *BACKENDS]),
    data_parallel=st.booleans(),
    binding=st.sampled_from(BINDINGS),
    num_workers=st.integers(0, 8),
    prefetch_factor=st.none() | st.integers(1, 8),
    persistent_workers=st.booleans(),
    pin_memory=st.booleans(),
    batch_size=st.integers(1, 1024),
    channels_last=st.booleans(),
    optimizer_impl=st.sampled_from(OPTIMIZER_IMPLS),
    allocator=st.sampled_from(ALLOCATORS),
    cudnn_benchmark=st.booleans(),
    compile=st.sampled_from(COMPILE_MODES),
    precision=st.sampled_from(PRECISIONS),
)


@given(ANY)
def test_survives_json(settings):
    assert Settings.from_dict(json.loads(json.dumps(settings.as_dict()))) == settings


@given(ANY, ANY)
def test_difference_is_empty_exactly_where_equal(first, second):
    assert bool(first.difference(second)) == (first != second)
    assert first.but(**{name: theirs for name, (_, theirs) in first.difference(second).items()}) == second


@given(ANY)
def test_knobs_that_do_not_apply_are_neutral(settings):
    alone = settings.but(processes=1, num_workers=0)
    assert (alone.backend, alone.prefetch_factor, alone.persistent_workers) == (None, None, False)
    assert hash(alone) == hash(alone.but(backend="mpi", prefetch_factor=4, persistent_workers=True))
    both = settings.but(processes=2, num_workers=1)
    assert both.backend is not None
    assert both.prefetch_factor is not None


def test_global_batch_counts_everything():
    assert Settings(processes=4, batch_size=16).global_batch == 64


def test_an_unknown_knob_is_named():
    with pytest.raises(UsageError, match="'worker_count'"):
        Settings.from_dict({"worker_count": 2})


def test_accumulation_of_an_older_file_is_dropped_where_it_changes_nothing():
    assert Settings.from_dict(Settings(batch_size=8).as_dict() | {"accumulation": 1}) == Settings(batch_size=8)
    for steps in (2, 0, True, "1", None):
        with pytest.raises(UsageError, match="accumulation is no longer a knob"):
            Settings.from_dict({"batch_size": 8, "accumulation": steps})
