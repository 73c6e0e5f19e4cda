"""The measured loop of a script."""

from types import SimpleNamespace
from typing import Any

import torch

from autotune.scripts.hooks import Hooks
from autotune.trial.child.measured_loop import LIFE_SIGN_SECONDS, Tuner
from autotune.trial.child.script_trial import ScriptLoop


class Connection:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


def test_a_long_step_shows_life_at_its_backward_passes() -> None:
    """LBFGS makes up to twenty backward passes a step. The loop itself starts no device before the script does."""
    connection: Any = Connection()
    spec: Any = SimpleNamespace(settings=SimpleNamespace(processes=1), without="", evidence=False, first_steps="")
    loaded: Any = SimpleNamespace(facts=SimpleNamespace(script="batches"), hooks=Hooks(), skip=0)
    applied: Any = SimpleNamespace(session=SimpleNamespace(device=torch.device("cuda:1"), world_size=1))
    loop = ScriptLoop(loaded, spec, Tuner(connection, 0), applied)
    loop._measured = iter(())  # type: ignore[assignment]  # the first step has begun
    loop.goes_backward(torch.ones(()))
    assert connection.sent == []
    loop._last_sign_at -= 2 * LIFE_SIGN_SECONDS
    loop.goes_backward(torch.ones(()))
    assert connection.sent == [{"event": "phase", "phase": "stepping"}]
