"""Verdicts of a check."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.errors import AutotuneError, MachineChanged
from autotune.report.profile import CHECKED, checked
from autotune.stats.proof import Proof, Round
from autotune.trial.messages import ScriptOver, error_report
from autotune.trial.parent.judge import TrialEnd
from autotune.trial.target import TaskFile
from autotune.tuning import check
from autotune.tuning.check import EXIT_CODES, CheckResult, Claim
from autotune.tuning.events import ignore
from tests.doubles.profiles import profile
from tests.doubles.simulation.simulator import inventory

HOLDS, FAILS, OPEN = Claim


def proof(low: float, high: float) -> Proof:
    """An interval of a ratio."""
    return Proof(low, low, high, 0.95, 8)


@pytest.mark.parametrize(
    ("claimed", "measured", "verdict"),
    [
        ((1.4, 1.6), (1.35, 1.7), HOLDS),
        ((1.4, 1.6), (1.0, 1.39), FAILS),
        ((1.4, 1.6), (1.0, 1.5), OPEN),
        ((2.0, 9.0), (0.37, 184.61), OPEN),
        ((0.97, 1.1), (0.98, 1.1), HOLDS),
        ((0.97, 1.1), (0.8, 1.1), OPEN),
    ],
)
def test_an_interval_that_holds_and_does_not_is_inconclusive(claimed, measured, verdict) -> None:
    result = CheckResult("amp", proof(*claimed), proof(*measured))
    assert (result.verdict, EXIT_CODES) == (verdict, {HOLDS: 0, FAILS: 4, OPEN: 5})
    assert checked(result).endswith(CHECKED[verdict.value])


@contextmanager
def fewer_cpus(_inventory: object) -> Iterator[None]:
    """They are taken away while it measures."""
    yield
    raise MachineChanged("1 of 2 CPUs")


@pytest.mark.parametrize(
    ("same_cpus", "ended", "code", "words"),
    [
        (nullcontext, True, EXIT_CODES[OPEN], "level amp could not be measured: the script ended after 9 steps"),
        (fewer_cpus, False, MachineChanged.exit_code, "1 of 2 CPUs"),
    ],
    ids=["it trains too briefly", "CPUs are taken away"],
)
def test_what_ends_a_check_is_named(same_cpus, ended, code, words, monkeypatch: pytest.MonkeyPatch) -> None:
    end = TrialEnd(report=error_report(ScriptOver("the script ended after 9 steps")), code=1)
    trials = {"amp": SimpleNamespace(end=end, last=None)} if ended else {}
    replicate = SimpleNamespace(rounds=lambda *_: [Round(0, {}, 0.0)], ended=trials)
    runner = nullcontext(SimpleNamespace(warm=lambda: None))
    bench = SimpleNamespace(start_replicate=lambda _: nullcontext(replicate))
    read = SimpleNamespace(profile=profile(), verdict="exact")
    fakes = {"open_runner": lambda *_: runner, "same_cpus": same_cpus, "TrialBench": lambda *_: bench}
    for name, fake in (fakes | {"of_file": lambda *_: read, "probe": lambda: inventory(2, 2)}).items():
        monkeypatch.setattr(check, name, fake)
    with pytest.raises(AutotuneError, match=words) as said:
        check.check("p.yaml", TaskFile(Path("a.py")), "amp", 0.0, ignore, force=True)
    assert said.value.exit_code == code
