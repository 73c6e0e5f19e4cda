"""``autotune`` and ``python -m autotune``: Ctrl-C during its imports prints no traceback."""

from __future__ import annotations

import sys
from typing import NoReturn

STOPPED = "interrupted by SIGINT; nothing was written"


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line, and exit with its code."""
    try:
        from autotune import cli
    except KeyboardInterrupt:
        print(f"autotune: {STOPPED}", file=sys.stderr)
        if "--json" in sys.argv and sys.argv[1] != "run":
            print(f'{{"error": "{STOPPED}", "exit_code": 130, "traceback": null}}')
        sys.exit(130)
    cli.main(arguments)


if __name__ == "__main__":
    main()
