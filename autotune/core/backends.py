"""The gradient-exchange backends: one row each. The next one is one more row."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.probes.facts import Inventory

TORCHRUN = "torchrun"
MPIEXEC = "mpiexec"
SCRIPT_VARIABLE = "AUTOTUNE_SCRIPT"
"""``known by:loaders before``: the script is unmodified, and settings are applied to it from outside. Where several
processes share the work: ``:batch:share:samples`` besides, see `autotune.script.shared_batch`."""
TIMEOUT_VARIABLE = "AUTOTUNE_TIMEOUT"
"""Seconds without an optimizer step after which a process ends; set by ``autotune run --timeout``."""


@dataclass(frozen=True)
class BackendRow:
    """One backend of ``torch.distributed``.

    Attributes:
        name: as ``init_process_group`` takes it.
        devices: kinds of device whose gradients it exchanges.
        launcher: what starts the processes: `TORCHRUN` or `MPIEXEC`.
        module: Python module that must be imported first to register it, or None. Scripts then start through
            ``autotune.runtime.entry``, which imports it and puts it in the place of the backend that they name.
        interface_variable: variable that names the network interface; set to the loopback for one machine, where a
            host name that resolves to nothing would otherwise stop it (pytorch/pytorch#74316). None where the
            backend finds its way by itself.
        waits_busily: a process that waits for the others keeps its core: every thread needs one of its own.
    """

    name: str
    devices: tuple[str, ...]
    launcher: str = TORCHRUN
    module: str | None = None
    interface_variable: str | None = None
    waits_busily: bool = False


BACKENDS: dict[str, BackendRow] = {
    row.name: row
    for row in (
        BackendRow("gloo", ("cpu", "cuda"), interface_variable="GLOO_SOCKET_IFNAME"),
        BackendRow("nccl", ("cuda",)),
        BackendRow("mpi", ("cpu",), MPIEXEC, module="autotune.runtime.mpi", waits_busily=True),
        BackendRow("ccl", ("cpu",), module="oneccl_bindings_for_pytorch"),
    )
}
"""By name. Whether one is usable on a machine is the probes' answer: it may be missing or broken."""


def why_not_usable(inventory: Inventory, name: str) -> str | None:
    """Why ``torch.distributed`` backend ``name`` cannot be used here; None where it can."""
    for backend in inventory.software.backends:
        if backend.name == name:
            return None if backend.usable else backend.reason
    return f"torch.distributed has no {name} backend here"
