"""Is what the tuner claims true? Three experiments; each prints a table.

    python -m benchmarks.honesty aa|neighbours|coverage --help

``aa`` and ``neighbours`` time real training; ``coverage`` is simulated.
"""

from __future__ import annotations

import argparse

from benchmarks.honesty import aa, coverage, neighbours

EXPERIMENTS = {"aa": aa, "neighbours": neighbours, "coverage": coverage}


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="|".join(EXPERIMENTS))
    for name, experiment in EXPERIMENTS.items():
        command = commands.add_parser(name, help=experiment.__doc__, description=experiment.__doc__)
        experiment.add_arguments(command)
        command.set_defaults(main=experiment.main)
    arguments = parser.parse_args()
    arguments.main(arguments)


if __name__ == "__main__":
    main()
