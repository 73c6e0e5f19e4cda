"""``python -m tests.same_training``: run all combinations and print the table; see ``docs/training.md``."""

import argparse
import sys
import time

from tests.same_training import covering, ranks, table
from tests.same_training.case import WORLDS, parsed
from tests.same_training.outcome import DIFFERENT


def main() -> int:
    """1 where something is different."""
    options = argparse.ArgumentParser(prog="python -m tests.same_training")
    options.add_argument("--world", choices=WORLDS, action="append", help="only these processes and backends")
    options.add_argument("--case", help="one case, as an expression: \"Case(model='lstm')\"")
    options.add_argument("--write", action="store_true", help=f"put the totals into {table.PAGE.name}")
    given = options.parse_args()
    started = time.perf_counter()
    if given.case is not None:
        outcomes = ranks.run([parsed(given.case)])
        print(outcomes[0].verdict, *outcomes[0].reasons, sep="\n  ")
        return int(outcomes[0].verdict == DIFFERENT)
    outcomes = [outcome for world in given.world or WORLDS for outcome in ranks.run(covering.cases(world))]
    body = table.text(outcomes, time.perf_counter() - started)
    print(body)
    print(table.differences(outcomes))
    if given.write:
        table.write(body)
    return int(any(outcome.verdict == DIFFERENT for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
