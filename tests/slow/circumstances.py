"""What a process inherits that decides how fast it runs. Plain children, trials and what `run` starts read it.

python circumstances.py unusual CPUS COMMAND ...   # become COMMAND, in circumstances nobody has by chance
python circumstances.py                            # write them down
"""

import ctypes
import json
import os
import resource
import sys
from pathlib import Path

FOLDER = "AUTOTUNE_TEST_CIRCUMSTANCES"
LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
PR_SET_TIMERSLACK, PR_SET_THP_DISABLE = 29, 41
ADDR_NO_RANDOMIZE = 0x0040000


def read() -> dict[str, object]:
    """Of this process. Ids of a session of its own are left out: they differ in every start."""
    own = os.getsid(0) == os.getpid()
    status = dict(line.split(":\t", 1) for line in _text("status").splitlines() if ":\t" in line)
    return {
        "session": "own" if own else os.getsid(0),
        "autogroup": "own" if own else _text("autogroup"),
        "cgroup": _text("cgroup"),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduler": os.sched_getscheduler(0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "oom_score_adj": int(_text("oom_score_adj")),
        "timer_slack": _text("timerslack_ns"),
        "huge_pages": status.get("THP_enabled"),
        "umask": status.get("Umask"),
        "personality": _text("personality"),
        **{name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
    }


def write() -> None:
    """One file for each rank, in the folder that the environment names."""
    file = Path(os.environ[FOLDER], os.environ.get("RANK", "0"))
    if not file.exists():
        file.write_text(json.dumps(read()))


def make_unusual(cpus: int) -> None:
    """Change all that a process may change of itself; ``cpus`` are left to it."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_TIMERSLACK, 70_000, 0, 0, 0)
    libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    libc.personality(ADDR_NO_RANDOMIZE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    Path("/proc/self/oom_score_adj").write_text("100")
    os.umask(0o027)
    os.nice(3)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-cpus:]))


def _text(name: str) -> str:
    try:
        return Path("/proc/self", name).read_text().strip()
    except OSError:  # this kernel has no such thing, or does not let it be read
        return ""


if __name__ == "__main__":
    if sys.argv[1:2] == ["unusual"]:
        make_unusual(int(sys.argv[2]))
        os.execvp(sys.argv[3], sys.argv[3:])
    write()
