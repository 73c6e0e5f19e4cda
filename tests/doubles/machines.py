"""Recorded machines: folder trees in the formats real kernels write, beside what a tree cannot hold.

A `Machine` is data; ``machine.at(folder)`` writes it down and gives the `Recorded` system that replays it. Tests vary
one thing at a time with `Machine.having`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.knobs.binding import cpu_list
from tests.doubles.fake_nvml import FakeGpu, FakeNvml, FakeSlice
from tests.doubles.recorded import Recorded, Recording

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
V1_UNLIMITED = "9223372036854771712"
TORCH_CHILD = "python -m autotune.probes.torch_facts"
TORCH_FACTS: dict[str, Any] = {
    "software": {
        "python": "3.12.4",
        "start_method": "fork",
        "compiler": "g++",
        "compiler_reason": None,
        "torch": "2.7.1+cu126",
        "cuda": "12.6",
        "default_threads": 4,
        "default_interop_threads": 4,
    },
    "backends": {"gloo": [True, "a process group started"], "nccl": [True, ""]},
}


@dataclass(frozen=True)
class Machine:
    """Files by absolute path, the rest of the recording, and the GPUs its driver would show."""

    files: Mapping[str, str]
    recording: Recording = field(default_factory=Recording)
    nvml: FakeNvml | None = None

    def at(self, folder: Path) -> Recorded:
        """Write the tree under ``folder`` and open it."""
        root = folder / "root"
        places = {f"{root}{path}": text for path, text in self.files.items()}
        for folder_of_files in {os.path.dirname(place) for place in places} | {str(root)}:
            os.makedirs(folder_of_files, exist_ok=True)
        for place, text in places.items():
            with open(place, "w", encoding="utf-8") as file:
                file.write(text + "\n")
        return Recorded(root, self.recording)

    def having(self, files: Mapping[str, str] | None = None, **recording: Any) -> Machine:
        """The same machine with some files and recorded facts replaced."""
        merged = {**self.files, **(files or {})}
        return dataclasses.replace(self, files=merged, recording=dataclasses.replace(self.recording, **recording))

    def without(self, *prefixes: str) -> Machine:
        """The same machine with the files under these paths gone."""
        return dataclasses.replace(self, files={p: t for p, t in self.files.items() if not p.startswith(prefixes)})


def host(
    siblings: Iterable[tuple[int, ...]],
    *,
    cpuinfo: str,
    memory: int = 64 * GIB,
    packages: Mapping[int, int] | None = None,
    machine: str = "x86_64",
    **recording: Any,
) -> Machine:
    """A bare machine: one entry of ``siblings`` per core; ``packages`` maps a core's position to its socket."""
    files = {
        "/proc/cpuinfo": cpuinfo,
        "/proc/meminfo": meminfo(memory),
        "/proc/self/cgroup": "0::/",
        "/proc/self/mountinfo": "24 30 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
        "/proc/sys/kernel/random/boot_id": "3f0c5f0e-0000-4000-8000-000000000001",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    }
    cores = list(siblings)
    cpus = sorted(cpu for core in cores for cpu in core)
    files["/sys/devices/system/cpu/online"] = cpu_list(cpus)
    for position, core in enumerate(cores):
        package = (packages or {}).get(position, 0)
        for cpu in core:
            topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
            files[f"{topology}/physical_package_id"] = str(package)
            files[f"{topology}/thread_siblings_list"] = cpu_list(core)
    defaults: dict[str, Any] = {
        "affinity": tuple(cpus),
        "machine": machine,
        "env": {"PATH": "/usr/bin"},
        "spaces": {"/dev/shm": (memory // 2, memory // 2)},
        "commands": {TORCH_CHILD: (0, json.dumps(TORCH_FACTS))},
        "modules": {"torch": 1.0},
    }
    return Machine(files, Recording(**(defaults | recording)))


def laptop() -> Machine:
    """Raptor Lake: 6 P-cores with SMT (cpu 0-11), 8 E-cores (12-19), on battery."""
    cores = [(2 * i, 2 * i + 1) for i in range(6)] + [(i,) for i in range(12, 20)]
    flags = "fpu sse2 avx f16c fma avx2 avx_vnni"
    machine = host(
        cores,
        cpuinfo=x86_cpuinfo(20, "GenuineIntel", 6, 186, 2, "13th Gen Intel(R) Core(TM) i7-13700H", flags),
        memory=32 * GIB,
    )
    return machine.having(
        {
            "/sys/devices/cpu_core/cpus": "0-11",
            "/sys/devices/cpu_atom/cpus": "12-19",
            "/sys/class/power_supply/BAT0/type": "Battery",
            "/sys/class/power_supply/BAT0/status": "Discharging",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate",
        }
    )


def server() -> Machine:
    """Two Sapphire Rapids sockets with SMT, 4 NUMA nodes, 8 GPUs on NVSwitch."""
    cores = [(i, i + 64) for i in range(64)]
    packages = {i: i // 32 for i in range(64)}
    flags = "fpu sse2 avx f16c fma avx2 avx512f avx512bw avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8 avx512_fp16"
    info = x86_cpuinfo(128, "GenuineIntel", 6, 143, 8, "Intel(R) Xeon(R) Platinum 8462Y+", flags)
    machine = host(cores, cpuinfo=info, memory=1024 * GIB, packages=packages)
    nodes = {node(i): f"{16 * i}-{16 * i + 15},{64 + 16 * i}-{64 + 16 * i + 15}" for i in range(4)}
    gpus = [FakeGpu(f"GPU-{i}", "NVIDIA H200", 141 * GIB, bus=f"00000000:{0x18 + i:02X}:00.0") for i in range(8)]
    pci = {f"/sys/bus/pci/devices/0000:{0x18 + i:02x}:00.0/numa_node": str(2 * (i // 4)) for i in range(8)}
    return dataclasses.replace(machine.having({**nodes, **pci}), nvml=FakeNvml(gpus, nvlink=True))


def pod_v2() -> Machine:
    """A Kubernetes pod on a 64-CPU host, version 2: the limits sit on the pod, which is the container's parent."""
    pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-pod1.slice"
    group = f"/sys/fs/cgroup{pod}"
    leaf = f"{group}/cri-containerd-abc.scope"
    stat = f"anon {GIB}\ninactive_file {256 * MIB}\nactive_file {128 * MIB}"
    events = "low 0\nhigh 0\nmax 4\noom 1\noom_kill {}\noom_group_kill 0"
    machine = host([(i, i + 32) for i in range(32)], cpuinfo=amd_cpuinfo(64, 25, 1, "AMD EPYC 7763 64-Core Processor"))
    return machine.having(
        {
            "/proc/self/cgroup": f"0::{pod}/cri-containerd-abc.scope",
            f"{leaf}/cpu.max": "max 100000",
            f"{leaf}/memory.max": "max",
            f"{leaf}/memory.current": str(1536 * MIB),
            f"{leaf}/memory.stat": stat,
            f"{leaf}/memory.events": events.format(1),
            f"{leaf}/pids.max": "max",
            f"{leaf}/cpuset.cpus.effective": "0-63",
            f"{group}/cpu.max": "200000 100000",
            f"{group}/memory.max": str(2 * GIB),
            f"{group}/memory.current": str(1536 * MIB),
            f"{group}/memory.stat": f"{stat}\nslab_reclaimable {64 * MIB}",
            f"{group}/memory.events": events.format(2),
            f"{group}/pids.max": "1024",
        },
        spaces={"/dev/shm": (64 * MIB, 64 * MIB)},
    )


def pod_v1() -> Machine:
    """The same on version 1: every controller has a path of its own and shows the container's group as its root."""
    pod = "/kubepods/burstable/pod1/abc"
    controllers = ("cpu,cpuacct", "memory", "pids", "cpuset")
    mounts = [
        f"{40 + i} 39 0:{30 + i} {pod} /sys/fs/cgroup/{name} ro,nosuid master:{i} - cgroup cgroup rw,{name}"
        for i, name in enumerate(controllers)
    ]
    machine = host([(i, i + 32) for i in range(32)], cpuinfo=amd_cpuinfo(64, 25, 1, "AMD EPYC 7763 64-Core Processor"))
    cpu, memory = "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory"
    return machine.having(
        {
            "/proc/self/cgroup": "\n".join(f"{i + 2}:{name}:{pod}" for i, name in enumerate(controllers)) + "\n0::/",
            "/proc/self/mountinfo": "\n".join(mounts),
            f"{cpu}/cpu.cfs_quota_us": "150000",
            f"{cpu}/cpu.cfs_period_us": "100000",
            f"{memory}/memory.limit_in_bytes": V1_UNLIMITED,
            f"{memory}/memory.usage_in_bytes": str(GIB),
            f"{memory}/memory.stat": f"cache 1\nhierarchical_memory_limit {4 * GIB}\ntotal_inactive_file {512 * MIB}",
            f"{memory}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3",
            "/sys/fs/cgroup/pids/pids.max": "512",
            "/sys/fs/cgroup/cpuset/cpuset.cpus": "0-63",
            "/sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-63",
        },
        spaces={"/dev/shm": (64 * MIB, 64 * MIB)},
    )


def mig_slice() -> Machine:
    """A container that was given one 1g.10gb slice of an A100; others use the card and cannot be seen."""
    slices = [FakeSlice(f"MIG-{i:08x}-aaaa-bbbb-cccc-dddddddddddd", 10 * GIB) for i in range(2)]
    gpu = FakeGpu(
        "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77",
        "NVIDIA A100-SXM4-80GB",
        80 * GIB,
        capability=(8, 0),
        slices=slices,
        used=9 * GIB,
    )
    machine = host([(i,) for i in range(8)], cpuinfo=amd_cpuinfo(8, 25, 1, "AMD EPYC 7J13 64-Core Processor"))
    env = {"PATH": "/usr/bin", "CUDA_VISIBLE_DEVICES": slices[1].uuid}
    return dataclasses.replace(machine.having(env=env), nvml=FakeNvml([gpu]))


def slurm_step() -> Machine:
    """A job step started by srun without --cpus-per-task: the batch script's variable says 8, the mask one CPU."""
    machine = host([(i,) for i in range(64)], cpuinfo=amd_cpuinfo(64, 23, 49, "AMD EPYC 7742 64-Core Processor"))
    return machine.having(env={"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "8"}, affinity=(17,))


def arm_server() -> Machine:
    """Graviton3: 64 Neoverse-V1 cores, no SMT, no model name."""
    features = "fp asimd evtstrm aes sha2 crc32 atomics fphp asimddp sve i8mm bf16"
    info = "\n\n".join(
        f"processor\t: {i}\nBogoMIPS\t: 2100.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
        "CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1"
        for i in range(64)
    )
    machine = host([(i,) for i in range(64)], cpuinfo=info, memory=128 * GIB, machine="aarch64")
    return machine.having({node(0): "0-63"})


MACHINES = {
    "laptop": laptop,
    "server": server,
    "pod_v2": pod_v2,
    "pod_v1": pod_v1,
    "mig_slice": mig_slice,
    "slurm_step": slurm_step,
    "arm_server": arm_server,
}


def amd_cpuinfo(count: int, family: int, model: int, name: str, flags: str = "fpu sse2 avx f16c fma avx2") -> str:
    """``/proc/cpuinfo`` of an AMD machine."""
    return x86_cpuinfo(count, "AuthenticAMD", family, model, 1, name, flags)


def x86_cpuinfo(count: int, vendor: str, family: int, model: int, stepping: int, name: str, flags: str) -> str:
    """``/proc/cpuinfo`` in the x86 format."""
    return "\n\n".join(
        f"processor\t: {i}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\n"
        f"stepping\t: {stepping}\nphysical id\t: 0\ncore id\t\t: {i}\nflags\t\t: {flags}\nbugs\t\t: spectre_v1\n"
        "power management:"
        for i in range(count)
    )


def meminfo(total: int) -> str:
    """``/proc/meminfo`` of a machine whose memory is three quarters available."""
    kib = total // KIB
    return (
        f"MemTotal:       {kib:8d} kB\nMemFree:        {kib // 2:8d} kB\nMemAvailable:   {kib * 3 // 4:8d} kB\n"
        "SwapTotal:      2097148 kB\nActive(anon):     21300 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB"
    )


def node(number: int) -> str:
    """Return the file that lists the CPUs of a NUMA node."""
    return f"/sys/devices/system/node/node{number}/cpulist"
