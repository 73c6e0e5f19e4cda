"""torch.compile of a model's call: when it is tried, which modes, what they may bring, and how it is applied."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import devices
from autotune.knobs.change import Change, Refused, Training
from autotune.knobs.knob import ROUNDING, Choices, Context, Knob, Word, unless
from autotune.knobs.precision import lacking
from autotune.probes.facts import Inventory

if TYPE_CHECKING:
    from torch import nn

    from autotune.knobs.model_call import Call

BACKEND = "inductor"
CUDA_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that replay CUDA graphs, whose memory the next step takes again."""
SETTLED = 3
"""Calls after which a model has no reason to be compiled again."""
OTHER_SHAPES = 0.25
"""Largest share of calls with other shapes than the first: a last batch is often smaller."""
LAST_LINES = 3
"""Last lines of a C++ compiler's output: they name the error."""
MOST_LETTERS = 300
COMPILE_PAYBACK_SECONDS = 30 * 60
"""On CPUs, training shorter than this is not worth trying compile for: each compiled trial costs up to a minute."""
COMPILE_BUDGET_SECONDS = 5 * 60
"""On CPUs a few trials and a proof whose processes all compile do not fit into less."""
FIRST_COMPILE_BUDGET_SECONDS = 45.0
"""On GPUs, runs of at least this many seconds compile the model once, to see how long that takes."""
COMPILES_IN_A_RUN = 6
"""What search and proof compile, in units of the first time: other modes and precisions anew, the rest from the cache.
A run with time for half of that still finds and proves a mode."""
TIMED_KERNELS, FIRST_COMPILES = "max-autotune", {"default": 15.0, "reduce-overhead": 15.0, "max-autotune": 60.0}
"""The mode that takes several times as long as the others, and seconds of each mode's first compile."""
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
TRITON_CAPABILITY = (7, 0)
"""Least CUDA compute capability that Triton compiles for."""
COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune")


def _why_not_compiled(context: Context) -> str | None:
    software, task, budget = context.inventory.software, context.task, context.budget_seconds
    on_host, training, took = context.device.on_host, context.train_seconds, context.compile_seconds
    if software.compiler is None:
        return software.compiler_reason or "no C++ compiler found"
    if task.batch_shapes > 1:
        return f"shapes change from batch to batch ({task.batch_shapes} in a few): each would be compiled again"
    if on_host and training is None:
        return "compiling takes up to a minute per trial; --train-time 10h allows it"
    if on_host and (training or 0.0) < COMPILE_PAYBACK_SECONDS:
        return "cannot pay back within --train-time"
    if not on_host and (reason := lacking(context.inventory, context.device, TRITON_CAPABILITY)):
        return f"Triton {reason}"
    least, allows = (COMPILE_BUDGET_SECONDS, "10m") if on_host else (FIRST_COMPILE_BUDGET_SECONDS, "3m")
    if budget < least:
        return f"compiling, and a proof with it, may not fit into {budget:g} s: --budget {allows} allows it"
    if context.compile_failure is not None:
        return f"the first compile failed: {context.compile_failure}"
    if took is None:
        return "the run ended before the model was compiled: --budget 10m gives it time"
    if took == math.inf:
        return "the first compile did not finish in its share of the run: --budget 10m gives it more"
    if COMPILES_IN_A_RUN / 2 * took > budget:
        what = f"the first compile took {took:.0f} s, and search and proof with it do not fit into {budget:.0f} s"
        return f"{what}: --budget 10m allows it"
    return None


def _compile_choices(context: Context) -> Choices:
    found = dict(unless(_why_not_compiled(context), "off", *context.device.compile_gain))
    longer = FIRST_COMPILES[TIMED_KERNELS] / FIRST_COMPILES["default"]
    slow = COMPILES_IN_A_RUN / 2 * longer * (context.compile_seconds or 0.0) > context.budget_seconds
    if slow and found.get(TIMED_KERNELS, "") is None:
        found[TIMED_KERNELS] = f"timing kernels takes about {longer:.0f} times as long: --budget 10m allows it"
    return found


def _compile_fitted(mode: str, inventory: Inventory) -> str:
    if mode == "off" or (inventory.software.compiler is None and inventory.software.compiler_reason):
        return "off"
    return mode if inventory.gpus else "default"


def import_compiler(folder: str) -> None:
    """Import TorchInductor so that it keeps precompiled C++ headers in ``folder``.

    They go to the temporary folder of the moment, which differs by trial: 150 MB and ten seconds each time.
    """
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        os.makedirs(folder, exist_ok=True)
        importlib.import_module("torch._inductor.codecache")
    except (ImportError, OSError):
        return  # compiling itself reports what is wrong
    finally:
        tempfile.tempdir = before


class Compiled(Change):
    """A model's call that is compiled for training steps of one shape, so that training waits for the compiler once.

    Other shapes, such as a smaller last batch, and calls without gradients run as they are. If the compiler, not the
    model, fails, the plain call takes over.
    """

    def __init__(self, model: nn.Module, mode: str, training: Training) -> None:
        from autotune.knobs.model_call import Layered

        self.model, self.mode = model, mode
        self.graphs = mode in CUDA_GRAPHS and mode in devices.of(training.device).compile_gain
        self.calls, self.others, self.recompiles = 0, 0, 0
        self._shapes: list[Any] | None = None
        self._failure: str | None = None
        config: Any = importlib.import_module("torch._dynamo.config")
        restore = contextlib.ExitStack()
        self.back = restore.close
        restore.enter_context(config.patch(skip_nnmodule_hook_guards=False))  # hooks may come later
        try:
            self._compiled: Call | None = self._compile()
        except Exception as error:  # an interpreter or platform that torch.compile refuses
            self._compiled, self._failure = None, words(error)
        restore.callback(Layered(model, lambda plain: functools.partial(self._call, plain)).undo)

    def _compile(self) -> Call:
        import torch

        if BACKEND == "inductor" and CACHE_VARIABLE in os.environ:
            import_compiler(os.environ[CACHE_VARIABLE])  # before torch.compile does
        options: dict[str, Any] = {"mode": self.mode} if BACKEND == "inductor" else {"backend": BACKEND}
        model = self.model

        # What model.compile() does, but from a function of this file: Dynamo starts no graph in PyTorch's own files,
        # and would leave a model that is an nn.Sequential as it is.
        def call(*arguments: Any, **keywords: Any) -> Any:
            return model._call_impl(*arguments, **keywords)  # type: ignore[no-untyped-call]

        return torch.compile(call, **options)

    def _call(self, plain: Call, *arguments: Any, **options: Any) -> Any:
        """Return the model's outputs."""
        import torch
        from torch.utils import _pytree as pytree

        if self._compiled is None or not self._serves(arguments, options):
            return plain(*arguments, **options)
        if self.graphs:
            _keep_gradients(self.model)
        before = compiled_graphs()
        try:
            outputs = self._compiled(*arguments, **options)
        except Exception as error:
            exceptions = sys.modules.get("torch._dynamo.exc")
            if not isinstance(error, getattr(exceptions, "TorchDynamoException", ())):
                raise  # the model's own
            self._compiled, self._failure = None, words(error)
            if folder := os.environ.get(CACHE_VARIABLE):  # a half-written header of a killed process fails them all
                for path in Path(folder).glob("torchinductor_*/precompiled_headers/*.gch"):
                    path.unlink(missing_ok=True)
            return plain(*arguments, **options)
        self.calls += 1
        self.recompiles += compiled_graphs() - before if self.calls > SETTLED else 0
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, outputs) if self.graphs else outputs

    def _serves(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Return True if the compiled call is for this one: a training step of the first one's shapes."""
        import torch

        if not torch.is_grad_enabled():
            return False
        shapes = tensor_shapes((arguments, options))
        if self._shapes is None:
            self._shapes = shapes
        self.others += shapes != self._shapes
        return shapes == self._shapes

    def why_not(self) -> str | None:
        """Return why training does not run compiled, or None: known after at least one forward."""
        calls = self.calls + self.others
        if self._failure is not None or not calls:
            return self._failure
        if not compiled_graphs():
            return "no graph was compiled; the model ran as before"
        if self.others > OTHER_SHAPES * calls:
            return f"{self.others} of {calls} calls had other shapes than the first and ran as before"
        if self.recompiles:
            return f"the model was compiled again {self.recompiles} times, for something that changes with the steps"
        return None


def _keep_gradients(model: nn.Module) -> None:
    """Move gradients that a CUDA graph has made out of its memory, which the coming forward pass takes again."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = parameter.grad.clone()


def tensor_shapes(values: Any) -> list[tuple[int, ...]]:
    """Return the shapes of all tensors in nested ``values``."""
    import torch
    from torch.utils import _pytree as pytree

    return [tuple(leaf.shape) for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def compiled_graphs() -> int:
    """Return the number of graphs that were compiled in this process so far."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def words(error: BaseException) -> str:
    """Return the first line of ``error``, and the last lines of the compiler behind it."""
    first = " ".join(str(error).split("\n\n")[0].split())
    text = f"{type(error).__name__}: {first[: MOST_LETTERS - 100]}"
    inner: Any = error
    while inner is not None and not hasattr(inner, "output"):
        inner = getattr(inner, "inner_exception", None)
    output = getattr(inner, "output", None)
    if isinstance(output, str):
        lines = [line.strip() for line in output.strip().splitlines() if line.strip()]
        text += f"; the compiler's last lines: {' | '.join(lines[-LAST_LINES:])[-MOST_LETTERS:]}"
    return text


def _on_model(value: str, model: nn.Module, training: Training) -> Change | None:
    from autotune.knobs.model_call import compiled_by_user

    if compiled_by_user(model):
        return Refused("the script compiles its model itself")
    return Compiled(model, value, training)


COMPILE = Knob(
    name="compile",
    kind=Word(COMPILE_MODES),
    neutral="off",
    applied="model",
    choices=_compile_choices,
    adapted=_compile_fitted,
    why={
        "default": "fused kernels after a slower start",
        "reduce-overhead": "fused kernels, launched together",
        "max-autotune": "fused, timed kernels; slow start",
        "off": "compiling did not pay back",
    },
    spread=0.15,
    gain=lambda settings, context: context.device.compile_gain.get(settings.compile, 0.0),
    changes_memory=True,
    keeps=ROUNDING,
    start_seconds=dict.fromkeys(COMPILE_MODES[1:], 5.0),
    first_seconds=FIRST_COMPILES,
    on_model=_on_model,
    plain=lambda plan: f'model = torch.compile(model, mode="{plan.settings.compile}")',
)
