"""Start torchrun, and leave with the exit status of the process that failed first: torchrun itself leaves with 1.

    python -m autotune.scripts.entry.torchrun OPTIONS train.py ARGS

Here is also what processes find when torchrun has started them, for those who start processes in its place.
"""

from __future__ import annotations

import socket
import sys

from autotune.environment import DISABLE

AS_TORCHRUN: dict[str, object] = {
    "MASTER_ADDR": "127.0.0.1",
    "GROUP_RANK": 0,
    "GROUP_WORLD_SIZE": 1,
    "ROLE_NAME": "default",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": 0,
    "TORCHELASTIC_MAX_RESTARTS": 0,
}
"""What scripts and frameworks look for to see that torchrun has started them, on one machine."""


def variables(rank: int = 0, world: int = 1, port: int | None = None) -> dict[str, str]:
    """Return what torchrun sets for the process ``rank`` of ``world`` on one machine, which meet at ``port``."""
    found = AS_TORCHRUN | {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    found |= {"ROLE_RANK": rank, "ROLE_WORLD_SIZE": world, "MASTER_PORT": port or free_port()}
    return {name: str(value) for name, value in found.items()}


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Run torchrun with this process's arguments."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main()
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        rank, first = error.get_first_failure()
        if first.exitcode > 0:
            sys.exit(first.exitcode)
        # It could not say so itself, as a process does that an error ends.
        print(f"autotune: rank {rank} trained with a profile. {DISABLE}=1 trains without", file=sys.stderr)
        sys.exit(128 - first.exitcode)


if __name__ == "__main__":
    main()
