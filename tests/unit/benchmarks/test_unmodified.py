"""The comparison of claims with whole runs: intervals, what was added, and that every script is listed."""

import ast

import pytest

from benchmarks.in_turns import Finished
from benchmarks.unmodified import FOLDER, SCRIPTS, Failed, Run, compared, run_of


def pair(plain_step: float, tuned_step: float, start: float = 0.0) -> tuple[Run, Run]:
    """A process without autotune and one with it, of 100 steps each; ``start`` seconds were added."""
    plain, tuned = (Run(3 + added + 100 * step, step, 3 + added) for step, added in
                    ((plain_step, 0.0), (tuned_step, start)))  # fmt: skip
    return plain, tuned


def test_pairs_give_steps_runs_and_what_was_added() -> None:
    step, run, added = compared([pair(0.2, 0.1, 0.5), pair(0.2, 0.1, 0.4), pair(0.2, 0.1, 0.6)])
    assert (step.value, step.low, step.high) == pytest.approx((2, 2, 2))
    assert run.value == pytest.approx(23 / 13.5, rel=0.01)
    assert added == pytest.approx(0.5)


def test_every_script_is_listed_and_takes_its_short_arguments() -> None:
    files = {path.stem: path.read_text("utf-8") for path in FOLDER.glob("*.py") if path.stem != "step_times"}
    assert {script.name for script in SCRIPTS} == set(files)
    for script in SCRIPTS:
        assert f'"{script.short[0]}"' in files[script.name], script.name
        imported = [node for node in ast.walk(ast.parse(files[script.name])) if isinstance(node, ast.ImportFrom)]
        assert "step_times" in {node.module for node in imported}
        assert "autotune" not in files[script.name]


def test_a_step_lasts_as_long_as_its_process_ran_meanwhile() -> None:
    steps = [[float(second), second + 0.5] for second in range(10, 18)]
    found = run_of(Finished(0, ((9.0, 12.0), (13.0, 20.0)), f'hello\n{{"steps": {steps}}}\n', ""))
    assert (found.wall, found.mean, found.start) == pytest.approx((10.0, 0.5, 4.5))
    with pytest.raises(Failed, match=r"made 5 steps"):
        run_of(Finished(0, ((9.0, 12.0),), f'{{"steps": {steps[:5]}}}', ""))
    with pytest.raises(Failed, match=r"exit 3: no such file"):
        run_of(Finished(3, ((9.0, 12.0),), "", "no such file\n"))
