"""Resource limits: open files, and how many processes and threads may exist."""

from __future__ import annotations

from autotune.probes import cgroup
from autotune.probes.facts import ResourceLimits
from autotune.probes.system import System


def probe(system: System) -> ResourceLimits:
    """Resource limits of this process and its cgroups. A None in it means unlimited."""
    files = system.rlimit("RLIMIT_NOFILE") or (None, None)
    candidates = [(limit, "cgroup pids.max") for limit in _pids_limits(system)]
    own = (system.rlimit("RLIMIT_NPROC") or (None, None))[0]
    if own is not None and system.uid() != 0:  # does not apply to root
        candidates.append((own, "RLIMIT_NPROC"))
    processes, source = min(candidates, default=(None, "unlimited"))
    return ResourceLimits(files[0], files[1], processes, source)


def _pids_limits(system: System) -> list[int]:
    texts = [group.read(system, "pids.max") for group in cgroup.ancestors(system, "pids")]
    return [int(text) for text in texts if text and text.isdecimal()]
