"""The meter of a script's trial."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


def test_a_long_step_shows_life_at_its_backward_passes() -> None:
    """LBFGS makes up to twenty backward passes a step."""
    from autotune.script.watch import Watch

    from autotune.trial.child.measured_loop import LIFE_SIGN_SECONDS, MeasuredLoop
    from autotune.trial.child.script_trial import _Meter

    signs: list[str] = []
    spec: Any = SimpleNamespace(settings=SimpleNamespace(threads=1))
    session: Any = SimpleNamespace(device=torch.device("cpu"))
    meter = _Meter(spec, None, None, Watch())  # type: ignore[arg-type]
    MeasuredLoop.__init__(meter, session, spec, lambda: signs.append("life"))
    meter._last_sign_at -= 2 * LIFE_SIGN_SECONDS
    meter.goes_backward(torch.ones(()))
    assert signs == ["life"]
