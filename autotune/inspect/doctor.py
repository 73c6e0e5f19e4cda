"""``autotune doctor``: what costs speed on this machine, as rules over facts, and the command that fixes it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.knobs.binding import OPENMP_BINDING
from autotune.probes.cpu import moves_pages, power
from autotune.probes.cpu_time import Load, Neighbours
from autotune.probes.facts import CpuBudget, Inventory
from autotune.probes.inventory import probe
from autotune.probes.system import System
from autotune.trial import paths
from autotune.tuning.notes import named

LOOK_SECONDS = 1.0
"""Seconds for which the CPU time of other processes is measured."""
LEAST_SHM = 2**30
WHOLE_CORE = 0.5
"""Processors that other processes must keep busy before that is a finding."""
UNKNOWN = "unknown; autotune tune measures it"
COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Finding:
    """One thing that costs speed.

    Attributes:
        name: a short key for scripts.
        what: the problem, in one sentence.
        fix: the command that fixes it, or what to do.
        gain: what that would bring, as far as it is known.
    """

    name: str
    what: str
    fix: str
    gain: str = UNKNOWN


def examine() -> tuple[Finding, ...]:
    """Look at this machine, and for a second at its other processes."""
    system = System()
    inventory, neighbours = probe(system), Neighbours()
    time.sleep(LOOK_SECONDS)
    return findings(
        inventory,
        neighbours.load(inventory.budget.threads),
        moves_pages=moves_pages(system),
        power=power(system),
        temporary=system.env.get("TMPDIR") or "/tmp",
    )


def findings(
    inventory: Inventory,
    load: Load,
    *,
    moves_pages: bool = False,
    power: tuple[str, ...] = (),
    temporary: str = "/tmp",
) -> tuple[Finding, ...]:
    """Return everything that costs speed.

    Args:
        inventory: facts about the machine.
        load: of other processes.
        moves_pages: True if the kernel moves pages between NUMA nodes by itself.
        power: why the CPU frequency is held down, and the battery, in words.
        temporary: the folder of temporary files.
    """
    return (
        *_software(inventory),
        *_processors(inventory.budget, load),
        *_threads(inventory),
        *_folders(inventory, temporary),
        *_memory(inventory),
        *_switches(len(inventory.cpu.nodes) if moves_pages else 0, power),
        *_gpus(inventory),
    )


def _processors(budget: CpuBudget, load: Load) -> Iterator[Finding]:
    """Check that the budget's CPUs are free, and that they are whole ones."""
    if load.taken >= WHOLE_CORE:
        left = max(budget.threads - load.taken, budget.threads / 10)
        names = ", ".join(map(named, load.neighbours[:2])) or "none of them for long"
        yield Finding(
            "neighbour",
            f"other processes keep {load.taken:.1f} of {budget.threads} CPUs busy: {names}",
            "end them, or start them with nice -n 19; else tune while they run: OMP_WAIT_POLICY=passive is tried then",
            f"up to {budget.threads / left:.1f}x if all CPUs are used",
        )
    if budget.quota is not None and budget.quota < len(budget.cpus) and budget.quota != int(budget.quota):
        whole = max(1, round(budget.quota + 0.5))
        fraction = f"{budget.quota / budget.threads:.2f}x if the fraction can be used"
        yield Finding(
            "cpu-quota",
            f"the CPU quota is {budget.quota:g} on {len(budget.cpus)} CPUs: its fraction only makes threads wait",
            f"docker update --cpus {whole} CONTAINER, or resources.limits.cpu: {whole}",
            fraction if budget.quota > 1 else f"{1 / budget.quota:.2f}x, and steady steps",
        )


def _threads(inventory: Inventory) -> Iterator[Finding]:
    """Check the thread variables of the user's environment."""
    set_by_user, threads = dict(inventory.software.environment), inventory.budget.threads
    for name in COUNTS:
        value = set_by_user.get(name, "")
        if value.isdecimal() and int(value) != threads:
            what = f"{name}={value} is left in the environment, and {threads} threads fit"
            more = f"up to {threads / max(1, int(value)):.1f}x if steps are large"
            yield Finding(name, what, f"unset {name}", more if int(value) < threads else UNKNOWN)
    for name in OPENMP_BINDING:
        if set_by_user.get(name, "").lower() not in ("", "false"):
            what = f"{name}={set_by_user[name]} binds threads: several processes share the same CPUs"
            yield Finding(name, what, f"unset {name}")


def _switches(nodes: int, power: tuple[str, ...]) -> Iterator[Finding]:
    """Check power settings, and whether the kernel moves pages between ``nodes`` NUMA nodes."""
    if nodes > 1:
        what = f"the kernel moves pages between {nodes} NUMA nodes while training runs"
        yield Finding("numa-balancing", what, "as root: sysctl kernel.numa_balancing=0")
    for note in power:
        battery = "battery" in note
        fix = "plug it in" if battery else "as root: cpupower frequency-set -g performance"
        yield Finding("battery" if battery else "governor", note.rstrip("."), fix)


def _memory(inventory: Inventory) -> Iterator[Finding]:
    """Check how memory is taken from the kernel."""
    software = inventory.software
    if software.platform == "linux" and not software.allocators and not inventory.gpus:
        yield Finding(
            "allocator",
            "neither tcmalloc nor jemalloc is installed: freed memory goes back to the kernel and is cleared again",
            "apt-get install libtcmalloc-minimal4 (Debian, Ubuntu), or dnf install gperftools-libs",
        )
    if inventory.memory.transparent_hugepages == "never":
        yield Finding(
            "huge-pages",
            "transparent huge pages are off: large tensors need many more entries in the page tables",
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; then THP_MEM_ALLOC_ENABLE=1",
        )


def _folders(inventory: Inventory, temporary: str) -> Iterator[Finding]:
    """Check the folders through which loader workers hand batches over."""
    size = inventory.memory.shm_total
    if size is not None and size < LEAST_SHM:
        yield Finding(
            "shm",
            f"/dev/shm holds {size / 2**20:.0f} MiB: loader workers hand batches over in it",
            "docker run --shm-size=8g, or an emptyDir of medium Memory; as root: mount -o remount,size=8G /dev/shm",
            "loader workers that do not end with a bus error",
        )
    if inventory.software.platform == "linux" and not paths.fits(temporary):
        most = paths.LONGEST_FOLDER
        what = f"TMPDIR has {len(temporary)} characters: with more than {most}, loader workers fail or hang"
        yield Finding("tmpdir", what, "export TMPDIR=/tmp", "loader workers that start")


def _gpus(inventory: Inventory) -> Iterator[Finding]:
    """Check that no other process uses the GPUs, and that nothing holds their clocks back."""
    for gpu in inventory.gpus:
        if gpu.foreign_processes:
            what = f"other processes ({gpu.foreign_processes}) use GPU {gpu.index}"
            yield Finding("gpu-neighbour", what, "nvidia-smi shows them; end them, or set CUDA_VISIBLE_DEVICES")
        if gpu.clocks_throttled:
            what = f"clocks of GPU {gpu.index} are held back: {', '.join(gpu.clocks_throttled)}"
            yield Finding("gpu-clocks", what, "nvidia-smi -q -d PERFORMANCE shows more; as root: nvidia-smi -pl WATTS")


def _software(inventory: Inventory) -> Iterator[Finding]:
    """Check that PyTorch is there, with all that it needs on this machine."""
    software, gpus = inventory.software, inventory.gpus
    if software.torch is None:
        yield Finding("torch", "PyTorch cannot be imported", "pip install torch", "everything")
    elif gpus and software.cuda is None:
        what = f"{gpus[0].name} is there, but this PyTorch was built without CUDA"
        yield Finding("torch-cuda", what, "pip install torch")
    if software.torch is not None and software.compiler is None:
        what = f"torch.compile cannot be used: {software.compiler_reason}"
        yield Finding("compiler", what, "apt-get install g++ python3-dev")
