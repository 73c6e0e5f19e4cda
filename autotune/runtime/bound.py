"""Start one training process on its own CPUs: ``python -m autotune.runtime.bound COMMAND ...``.

Binds by the plan in the environment and the process's local rank, then becomes ``COMMAND``: masks and memory policies
outlive that, and the script runs as if it had been started by itself. What `autotune run` puts before the script.
"""

from __future__ import annotations

import os
import sys

from autotune.knobs.affinity import own_affinity
from autotune.knobs.cpu_binding import bind


def main(command: list[str]) -> None:
    """Bind, and become ``command``. Training goes on where binding fails."""
    affinity = own_affinity(os.environ)
    try:
        if affinity is not None:
            bind(affinity)
    except OSError as error:
        sys.stderr.write(f"autotune: binding not applied: {error.strerror or error}\n")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
