"""``autotune`` and ``python -m autotune``: Ctrl-C during its imports prints no traceback."""

from __future__ import annotations

import sys
from typing import NoReturn


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line, and exit with its code."""
    try:
        from autotune import cli
    except KeyboardInterrupt:
        print("autotune: interrupted by SIGINT; nothing was written", file=sys.stderr)
        sys.exit(130)
    cli.main(arguments)


if __name__ == "__main__":
    main()
