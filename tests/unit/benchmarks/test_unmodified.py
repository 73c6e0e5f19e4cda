"""The comparison of claims with whole runs: intervals, what overlaps, what is slower, and the table."""

from __future__ import annotations

import ast

import pytest

from benchmarks.ratios import Ratio
from benchmarks.unmodified import FOLDER, SCRIPTS, Row, Run, compared, table


def pair(plain_step: float, tuned_step: float, start: float = 0.0) -> tuple[Run, Run]:
    """A process without autotune and one with it, of 100 steps each; ``start`` seconds were added."""
    plain, tuned = (Run(3 + added + 100 * step, step, step, 3 + added) for step, added in
                    ((plain_step, 0.0), (tuned_step, start)))  # fmt: skip
    return plain, tuned


def test_pairs_give_steps_runs_and_what_was_added() -> None:
    step, run, added = compared([pair(0.2, 0.1, 0.5), pair(0.2, 0.1, 0.4), pair(0.2, 0.1, 0.6)])
    assert (step.value, step.low, step.high) == pytest.approx((2, 2, 2))
    assert run.value == pytest.approx(23 / 13.5, rel=0.01)
    assert added == pytest.approx(0.5)


def test_the_table_says_what_overlaps_and_what_is_slower() -> None:
    rows = [
        Row("kept", 60, "amp", Ratio(1.5, 1.4, 1.6), Ratio(1.5, 1.45, 1.55), Ratio(1.2, 1.1, 1.3), 0.3, 1.25),
        Row("false", 61, "safe", Ratio(1.2, 1.1, 1.3), Ratio(1.0, 0.97, 1.03), Ratio(0.95, 0.9, 0.99), 2.5, 1.15),
        Row("ended", failure="exit 3: ValueError: no files"),
    ]
    *written, _empty, end = table(rows).splitlines()[2:]
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in written] == [
        ["kept", "`amp` 1.50x (1.40 to 1.60)", "1.50x (1.45 to 1.55)", "1.20x (1.10 to 1.30)", "1.25x",
         "yes", "no", "+0.3 s", "60 s"],
        ["false", "`safe` 1.20x (1.10 to 1.30)", "1.00x (0.97 to 1.03)", "0.95x (0.90 to 0.99)", "1.15x",
         "no", "yes", "+2.5 s", "61 s"],
        ["ended", "exit 3: ValueError: no files", "", "", "", "", "", "", "0 s"],
    ]  # fmt: skip
    assert end == (
        "1 of 2 claims overlap the script's own steps; 1 of 2 runs are slower by more than 3 %; 1 of 2 forecasts are"
        " within 10 %."
    )


def test_every_script_is_listed_and_takes_its_short_arguments() -> None:
    files = {path.stem: path.read_text("utf-8") for path in FOLDER.glob("*.py") if path.stem != "step_times"}
    assert {script.name for script in SCRIPTS} == set(files)
    for script in SCRIPTS:
        assert f'"{script.short[0]}"' in files[script.name], script.name
        imported = [node for node in ast.walk(ast.parse(files[script.name])) if isinstance(node, ast.ImportFrom)]
        assert "step_times" in {node.module for node in imported}
        assert "autotune" not in files[script.name]
