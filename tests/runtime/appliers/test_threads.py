"""How OpenMP's threads wait: a running process can only look."""

from __future__ import annotations

import pytest
import torch
from autotune.runtime.applier import Training
from autotune.runtime.appliers.threads import OmpWaitPolicy

from autotune.knobs.omp_wait_policy import WAIT_VARIABLES

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({}, "OMP_WAIT_POLICY must be passive before Python starts; autotune run sets it"),
        ({"OMP_WAIT_POLICY": "Passive "}, None),
        ({"OMP_WAIT_POLICY": "active"}, "OMP_WAIT_POLICY=active is yours and stays"),
        ({"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "9"}, "GOMP_SPINCOUNT=9 is yours and stays"),
    ],
)
def test_a_variable_of_the_users_own_is_named(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str], words: str | None
) -> None:
    for name in WAIT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert OmpWaitPolicy("passive", Training(None, None, torch.device("cpu"))).start() == words
