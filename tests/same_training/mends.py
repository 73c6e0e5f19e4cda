"""What keeps the runtime's training the same, each with a case that differs without it.

    python -m tests.same_training.mends          take back one after the other; each must be found different

A mend is taken back by putting something else in the place of one function of the runtime, in every rank: the worker
reads the mend's name from the environment.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch import Tensor

from autotune.runtime import relay
from tests.same_training.case import Case

VARIABLE = "SAME_TRAINING_WITHOUT"
"""Names the mend that is taken back."""


@dataclass(frozen=True)
class Mend:
    """The function that keeps training the same, as ``module:name`` or ``module:Class.name`` of `autotune`; what is put
    ``instead`` of it; and a case that is different then."""

    place: str
    instead: Any
    case: Case


def _returns(value: Any) -> Callable[..., Any]:
    """Stand in for a function or method that returns ``value``."""
    return lambda *_arguments, **_options: value


def _trained_at_first(self: Any) -> list[Tensor]:
    if not hasattr(self, "_first"):
        self._first = [p for model in self.models for p in model.parameters() if p.requires_grad]
    return list(self._first)


def _seen_apart(self: Any, reader: object, source: Any) -> relay.Pass:
    """Every rank goes by how often it has begun a pass."""
    self._count = getattr(self, "_count", 0) + 1
    return relay.Pass(self, self._count, f"{self.name}/{self._count}", source)


def _read_by_nobody(self: Any, reader: object, source: Any, begin: Any = relay.Relay.begin) -> relay.Pass:
    begun: relay.Pass = begin(self, reader, source)
    begun.reader = _returns(None)
    return begun


MENDS: Mapping[str, Mend] = {
    # what it keeps
    "checkpoints hold the user's flags": Mend(
        "knobs.optimizer_impl:_Switched._saved",
        _returns(None),
        Case(optimizer="adam", checkpoint="back", optimizer_impl="foreach"),
    ),
    "sparse gradients, and momentum that comes later, end fused steps": Mend(
        "knobs.optimizer_impl:_Switched._why_stop",
        _returns(None),
        Case(model="unfrozen_later", optimizer_impl="fused"),
    ),
    "an iterable dataset keeps its workers": Mend(
        "runtime.loaders:why_left_alone", _returns(None), Case(loader="stream", num_workers=2)
    ),
    "level max replaces the batch of the first loader only": Mend(
        "runtime.loaders:reads_like", _returns(True), Case(loop="two_loaders", level="max", profile_batch="other")
    ),
    "gradients are averaged over processes": Mend(
        "runtime.gradient_sync:_average", _returns(True), Case(world="gloo2", model="layernorm")
    ),
    "all processes start with rank 0's parameters, frozen ones too": Mend(
        "runtime.gradient_sync:_from_rank_zero", _returns(False), Case(world="gloo2", model="teacher")
    ),
    "gradients of what trains later are averaged too": Mend(
        "runtime.gradient_sync:GradientSync._trained", _trained_at_first, Case(world="gloo2", model="unfrozen_later")
    ),
    "a look at the loader by rank 0 alone shifts nothing": Mend(
        "runtime.relay:Relay.begin", _seen_apart, Case(world="gloo2", loop="peek", model="layernorm")
    ),
    "a ragged batch leaves no process with one sample": Mend(
        "runtime.shards:LEAST", 1, Case(world="gloo3", model="batchnorm1d", loader="batch_sampler", tail=3)
    ),
    "two passes that are read together are two": Mend(
        "runtime.relay:Relay.begin",
        _read_by_nobody,
        Case(world="gloo2", loop="twice_at_once", model="layernorm"),
    ),
    "gradients made apart after averaged ones are averaged too": Mend(
        "runtime.gradient_sync:GradientSync.before_backward",
        _returns(None),
        Case(world="gloo2", loop="skip", model="layernorm"),
    ),
    "all processes have the same running statistics": Mend(
        "runtime.gradient_sync:GradientSync._buffers",
        _returns(([], [])),
        Case(world="gloo2", loop="evaluate", model="batchnorm", schedule="plateau"),
    ),
}


@contextlib.contextmanager
def taken_back(name: str | None) -> Iterator[None]:
    """Without mend ``name`` while inside; nothing is changed for None."""
    if not name:
        yield
        return
    mend = MENDS[name]
    module, _, attribute = mend.place.partition(":")
    owner: Any = importlib.import_module(f"autotune.{module}")
    *classes, last = attribute.split(".")
    for part in classes:
        owner = getattr(owner, part)
    with mock.patch.object(owner, last, mend.instead):
        yield


def main() -> int:
    """Take back each mend; 1 where one is not missed."""
    from tests.same_training import ranks
    from tests.same_training.outcome import DIFFERENT

    missing = 0
    for name, mend in MENDS.items():
        with mock.patch.dict(os.environ, {VARIABLE: name}):
            (outcome,) = ranks.run([mend.case])
        found = outcome.verdict == DIFFERENT
        missing += not found
        print(f"{name}\n    {mend.case!r}\n    {outcome.reasons[0][:150] if found else 'NOT MISSED'}")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
