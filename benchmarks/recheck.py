"""Re-measure a profile's claims in fresh processes with plain PyTorch: nothing of the project runs in them.

    python -m benchmarks.recheck PROFILE.yaml TASK.py [--rounds 6] [--seconds 4]

Each round starts fresh processes for the baseline and for every distinct level, in random order, warms them up and
counts items over the measured seconds. Printed are the claim and the re-measured ratio: geometric mean and range.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time

import yaml

from benchmarks.rivals.measuring import rate


def main() -> None:
    """Print one line per level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile")
    parser.add_argument("task")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    with open(arguments.profile) as file:
        profile = yaml.safe_load(file)
    baseline = profile["baseline"]["settings"]
    levels = {name: level for name, level in profile["levels"].items() if level["settings"] != baseline}
    logs: dict[str, list[float]] = {name: [] for name in levels}
    for turn in range(arguments.rounds):
        contenders = [("baseline", baseline), *((name, level["settings"]) for name, level in levels.items())]
        random.shuffle(contenders)
        rates = {name: rate(arguments.task, settings, arguments.seconds) for name, settings in contenders}
        for name in levels:
            logs[name].append(math.log(rates[name] / rates["baseline"]))
        print(f"round {turn + 1}", {name: round(value, 1) for name, value in rates.items()}, file=sys.stderr)
        time.sleep(0.2)
    for name, level in levels.items():
        claim, values = level["speedup"], logs[name]
        mean = math.exp(sum(values) / len(values))
        low, high = math.exp(min(values)), math.exp(max(values))
        print(
            f"{name}: claimed {claim['value']:.2f}x ({claim['low']:.2f} to {claim['high']:.2f}),"
            f" re-measured {mean:.2f}x (rounds {low:.2f} to {high:.2f})"
        )
    if not levels:
        print("no level differs from the baseline: nothing is claimed")


if __name__ == "__main__":
    main()
