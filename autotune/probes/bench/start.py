"""Seconds that a process takes to start: Python alone, and with ``import torch``.

python -m autotune.probes.bench.start
"""

from __future__ import annotations

import json
import subprocess
import sys
import time


def main() -> None:
    """Print ``{"python", "import_torch"}``; the latter is null where the import fails."""
    print(json.dumps({"python": seconds("pass"), "import_torch": seconds("import torch")}))


def seconds(code: str) -> float | None:
    """Wall time of a fresh interpreter that runs ``code``, or None where it fails."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False)
    return round(time.perf_counter() - start, 4) if done.returncode == 0 else None


if __name__ == "__main__":
    main()
