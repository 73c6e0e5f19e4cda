"""Start torchrun, and leave with the exit status of the process that failed first: torchrun itself leaves with 1.

    python -m autotune.launch.torchrun OPTIONS train.py ARGS
"""

from __future__ import annotations

import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

if __name__ == "__main__":
    try:
        main()
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        _rank, first = error.get_first_failure()
        sys.exit(first.exitcode if first.exitcode > 0 else 128 - first.exitcode)
