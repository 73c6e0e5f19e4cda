"""Whole processes in turns: what they print is kept, their children stop with them, and only their turns count."""

import itertools
import sys
from pathlib import Path

from benchmarks.in_turns import in_turns

COUNTS = "import sys\nfor number in range(200_000_000):\n    if number == int(sys.argv[1]): print(number); break\n"


def test_processes_take_turns_and_keep_what_they_print(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", COUNTS, str(count)] for count in (3_000_000, 4_000_000)]
    found = in_turns(commands, tmp_path, seconds=0.01)
    assert [each.code for each in found] == [0, 0]
    assert [each.stdout for each in found] == ["3000000\n", "4000000\n"]
    turns = sorted(turn for each in found for turn in each.turns)
    assert len(turns) > 2
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(turns))


def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    (found,) = in_turns([[sys.executable, "-c", "while True: pass"]], tmp_path, seconds=0.05, patience=0.2)
    assert found.code is None
    assert found.failure.startswith("not over after")
