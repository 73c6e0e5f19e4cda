"""The gradient-exchange backends: one row each."""

from __future__ import annotations

from dataclasses import dataclass

TORCHRUN = "torch.distributed.run"


@dataclass(frozen=True)
class BackendRow:
    """One backend of ``torch.distributed``.

    Attributes:
        name: as ``init_process_group`` takes it.
        devices: kinds of device whose gradients it exchanges.
        launcher: module that starts the processes; None where this version cannot start it yet.
        module: Python module that must be imported first to register it, or None.
        interface_variable: variable that names the network interface; set to the loopback for one machine, where a
            host name that resolves to nothing would otherwise stop it (pytorch/pytorch#74316). None where the
            backend finds its way by itself.
    """

    name: str
    devices: tuple[str, ...]
    launcher: str | None
    module: str | None = None
    interface_variable: str | None = None


BACKENDS: dict[str, BackendRow] = {
    row.name: row
    for row in (
        BackendRow("gloo", ("cpu", "cuda"), TORCHRUN, interface_variable="GLOO_SOCKET_IFNAME"),
        BackendRow("nccl", ("cuda",), TORCHRUN),
        BackendRow("ccl", ("cpu",), TORCHRUN, module="oneccl_bindings_for_pytorch"),
        BackendRow("mpi", ("cpu",), None),
    )
}
