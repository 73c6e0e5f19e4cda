"""Every knob is applied by its own class, by the start of processes, or by how batches are shared out."""

from __future__ import annotations

import pytest
import torch
from autotune.runtime.applier import Applier, Training, class_of, create_appliers

from autotune.knobs.knob import Knob
from autotune.knobs.settings import Settings
from autotune.knobs.table import KNOBS

SHARED_OUT = {"processes", "backend", "num_workers", "persistent_workers", "batch_size"}
"""Applied by `autotune.launch`, `autotune.runtime.processes`, `loader` and `dealing`."""
CPU = torch.device("cpu")


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_every_knob_is_applied(knob: Knob) -> None:
    if knob.applier is None:
        assert knob.name in SHARED_OUT
    else:
        assert isinstance(class_of(knob)(knob.neutral, Training(Settings(), None, CPU)), Applier)


def test_without_settings_only_models_and_optimizers_are_looked_after() -> None:
    training = Training(None, None, CPU)
    create_appliers(training)
    assert set(training.appliers) == {k.name for k in KNOBS if k.applier and k.applied in ("model", "optimizer")}
