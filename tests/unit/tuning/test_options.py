"""Spaces of what the user asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.knobs.knob import LEVELS
from autotune.tuning.options import Options
from benchmarks.simulation.simulator import context, inventory

MACHINE = replace(inventory(4, 4), gpus=())
CONTEXT = context(MACHINE, 32)
OWN = CONTEXT.baseline


class TestSpaces:
    def test_one_for_each_level(self) -> None:
        spaces = Options().spaces(CONTEXT)
        assert tuple(spaces) == LEVELS
        assert [space.level for space in spaces.values()] == list(LEVELS)

    @pytest.mark.parametrize(
        ("only", "follow"),
        [
            ("optimizer_impl", set()),
            ("channels_last", set()),
            ("num_workers", {"prefetch_factor"}),
            ("processes", {"threads", "backend", "batch_size"}),
        ],
    )
    def test_only_lets_this_knob_move_and_what_follows_from_it(self, only: str, follow: set[str]) -> None:
        said = replace(CONTEXT, task=replace(CONTEXT.task, has_convolutions=True))
        space = Options(only=(only,)).spaces(said)["safe"]
        moves = [set(settings.difference(OWN)) for _, settings in space.moves(OWN, far=True)]
        assert any(only in changed for changed in moves)
        assert all(changed <= {only} | follow for changed in moves)

    def test_fix_pins(self) -> None:
        space = Options(fix={"num_workers": 1}).spaces(CONTEXT)["safe"]
        assert space.values["num_workers"] == (1,)
