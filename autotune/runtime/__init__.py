"""Apply `Settings` to a training loop, in trials and in the user's training alike, and put everything back.

`APPLIERS` names, for every knob of `autotune.core.knobs.KNOBS`, the function that applies it.
"""

from __future__ import annotations

APPLIERS: dict[str, str] = {
    "processes": "autotune.runtime.processes:join",
    "threads": "autotune.runtime.switches:set_threads",
    "interop_threads": "autotune.runtime.switches:set_interop_threads",
    "backend": "autotune.runtime.processes:join",
    "data_parallel": "autotune.runtime.data_parallel:Replicated",
    "binding": "autotune.runtime.binding:bind",
    "num_workers": "autotune.runtime.loader:arguments",
    "prefetch_factor": "autotune.runtime.loader:arguments",
    "persistent_workers": "autotune.runtime.loader:arguments",
    "pin_memory": "autotune.runtime.loader:arguments",
    "batch_size": "autotune.runtime.dealing:deal",
    "channels_last": "autotune.runtime.layout:apply",
    "optimizer_impl": "autotune.runtime.optimizer:Implementation",
    "allocator": "autotune.runtime.switches:check_allocator",
    "cudnn_benchmark": "autotune.runtime.switches:set_cudnn_benchmark",
    "compile": "autotune.runtime.compile:around",
    "precision": "autotune.runtime.precision:create",
}
"""``module:function`` for each knob, as text: naming them must not import PyTorch."""
