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

from tests.same_training.case import Case

VARIABLE = "SAME_TRAINING_WITHOUT"
"""Names the mend that is taken back."""


@dataclass(frozen=True)
class Mend:
    """One mend.

    Attributes:
        what: what it keeps.
        place: the function that does it, as ``module:name`` or ``module:Class.name`` of `autotune.runtime`.
        instead: what stands there without it.
        case: a training that is different then.
    """

    what: str
    place: str
    instead: Any
    case: Case


def _nothing(*_arguments: Any, **_options: Any) -> None:
    return None


def _false(*_arguments: Any, **_options: Any) -> bool:
    return False


def _true(*_arguments: Any, **_options: Any) -> bool:
    return True


def _moved_only(value: Tensor, parameter: Tensor, *, away: bool) -> Tensor:
    return value.to("cpu" if away else parameter.device)


def _as_it_is(_optimizer: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
    return state_dict


def _trained_at_first(self: Any) -> list[Tensor]:
    if not hasattr(self, "_first"):
        self._first = [p for model in self.models for p in model.parameters() if p.requires_grad]
    return list(self._first)


def _persisting(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def arguments(*given: Any) -> dict[str, Any]:
        made = original(*given)
        return made | {"persistent_workers": True} if made["num_workers"] else made

    return arguments


def _seen_apart(self: Any, source: Any) -> Iterator[Any]:
    """Every rank goes by how often it has begun a pass."""
    self._count = getattr(self, "_count", 0) + 1
    pass_of = importlib.import_module("autotune.runtime.relay")._Pass
    return pass_of(self, self._count, 0, iter(source) if self.rank == 0 else iter(())).items()  # type: ignore[no-any-return]


MENDS: Mapping[str, Mend] = {
    "state layout": Mend(
        "optimizer state of a plain checkpoint is laid out like its parameters",
        "appliers.optimizer:_placed",
        _moved_only,
        Case(optimizer="adam", checkpoint="after", channels_last=True, optimizer_impl="fused"),
    ),
    "portable checkpoint": Mend(
        "checkpoints are contiguous",
        "appliers.optimizer:_portable",
        _as_it_is,
        Case(optimizer="adam", checkpoint="back", channels_last=True),
    ),
    "flags": Mend(
        "parameter groups and checkpoints hold the user's flags",
        "appliers.optimizer:Implementation._put_back",
        _nothing,
        Case(optimizer="adam", checkpoint="back", optimizer_impl="foreach"),
    ),
    "sparse gradients": Mend(
        "a step with sparse gradients is the optimizer's own",
        "appliers.optimizer:_same_layout",
        _true,
        Case(model="sparse", optimizer="adagrad", optimizer_impl="fused"),
    ),
    "momentum": Mend(
        "fused SGD waits until all parameters have momentum",
        "appliers.optimizer:Implementation._half_begun",
        _false,
        Case(model="unfrozen_later", optimizer_impl="fused"),
    ),
    "flattened gradients": Mend(
        "LBFGS keeps the usual layout",
        "appliers.layout:flattens",
        _false,
        Case(optimizer="lbfgs", channels_last=True),
    ),
    "averaging": Mend(
        "gradients are averaged over processes",
        "exchange:average",
        _nothing,
        Case(world="gloo2", model="layernorm"),
    ),
    "frozen models": Mend(
        "all processes start with rank 0's parameters, frozen ones too",
        "exchange:from_rank_zero",
        _false,
        Case(world="gloo2", model="teacher"),
    ),
    "unfrozen later": Mend(
        "gradients of what trains later are averaged too",
        "exchange:Exchange._trained",
        _trained_at_first,
        Case(world="gloo2", model="unfrozen_later"),
    ),
    "a look by rank 0": Mend(
        "a look at the loader by rank 0 alone shifts nothing",
        "relay:Relay.items",
        _seen_apart,
        Case(world="gloo2", loop="peek", model="layernorm"),
    ),
    "one order": Mend(
        "rank 0's sampler decides for all",
        "sharing:Sharer.dealt",
        _nothing,
        Case(world="gloo2", loader="sampler_unsized", model="layernorm"),
    ),
    "no single samples": Mend(
        "a ragged batch leaves no process with one sample",
        "dealing:LEAST",
        1,
        Case(world="gloo3", model="batchnorm1d", loader="batch_sampler", tail=3),
    ),
    "equal parts": Mend(
        "parts of a ragged batch weigh the same, whichever batch was read last",
        "sharing:EQUAL_PARTS",
        (),
        Case(world="gloo2", loop="reads_ahead", model="layernorm", tail=5),
    ),
    "two at once": Mend(
        "two passes that are read together are two",
        "relay:_Pass.read_now",
        property(lambda self: False),
        Case(world="gloo2", loop="twice_at_once", model="layernorm"),
    ),
    "thrown away": Mend(
        "gradients made apart after averaged ones are averaged too",
        "exchange:Exchange.before_backward",
        _nothing,
        Case(world="gloo2", loop="skip", model="layernorm"),
    ),
    "drawn everywhere": Mend(
        "what rank 0's sampler draws is drawn on all ranks",
        "random_state:write",
        _nothing,
        Case(world="gloo2", loop="reset", model="layernorm"),
    ),
    "statistics": Mend(
        "all processes have the same running statistics",
        "exchange:Exchange._statistics",
        lambda self: [],
        Case(world="gloo2", loop="evaluate", model="batchnorm", schedule="plateau"),
    ),
    "counted": Mend(
        "an iterator has the length of its pass before it has begun",
        "passes:_Batches.__len__",
        lambda self: 0,
        Case(loop="counted", num_workers=1),
    ),
    "random numbers": Mend(
        "a rebuilt loader draws what the user's draws",
        "passes:PreparedLoader._draw",
        _nothing,
        Case(num_workers=1),
    ),
    "worker_init_fn": Mend(
        "a worker_init_fn that opens the dataset goes on running",
        "loader:_workers_stay",
        _nothing,
        Case(loader="worker_init", num_workers=0),
    ),
    "state of the dataset": Mend(
        "a dataset that keeps state is read in the process",
        "loader:why_not_in_workers",
        _nothing,
        Case(loader="keeps_state", num_workers=1),
    ),
    "outputs": Mend(
        "outputs have the usual layout",
        "appliers.layout:usual",
        lambda value: value,
        Case(model="maps", channels_last=True),
    ),
    "streams": Mend(
        "an iterable dataset keeps its workers",
        "loader:_workers_stay",
        _nothing,
        Case(loader="stream_sharded", num_workers=2),
    ),
    "changing dataset": Mend(
        "workers see a dataset that changes between epochs",
        "loader:arguments",
        _persisting,
        Case(loader="changing", num_workers=1),
    ),
    "batch at max": Mend(
        "level max replaces the batch of the first loader only",
        "feeder:Feeder._is_trained_on",
        lambda self, loader: True,
        Case(loop="two_loaders", level="max", profile_batch="other"),
    ),
    "fp16 on CPUs": Mend(
        "a precision that is refused is not in force",
        "appliers.precision:Fp16.around",
        lambda self, model, call: importlib.import_module("autotune.runtime.calls").Autocast(
            model, call, lambda: importlib.import_module("torch").autocast("cpu", dtype=self.dtype)
        ),
        Case(precision="fp16"),
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
    owner: Any = importlib.import_module(f"autotune.runtime.{module}")
    *classes, last = attribute.split(".")
    for part in classes:
        owner = getattr(owner, part)
    instead = mend.instead(getattr(owner, last)) if mend.instead is _persisting else mend.instead
    with mock.patch.object(owner, last, instead, create=not hasattr(owner, last)):
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
        print(f"{name}: {mend.what}\n    {mend.case!r}\n    {outcome.reasons[0][:150] if found else 'NOT MISSED'}")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
