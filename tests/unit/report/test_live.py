"""The live view: what it says, that it stays small, and that it costs next to nothing."""

import math
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from autotune.report import live
from autotune.stats.proof import Proof
from autotune.tuning.events import RunProgress
from tests.doubles.results import BASELINE, SAFE

PROGRESS = RunProgress(
    stage="searching",
    baseline=BASELINE,
    unit="samples",
    trying=SAFE,
    trials=7,
    baseline_rate=1000.0,
    best=BASELINE.but(num_workers=1),
    gain=Proof(1.62, 1.4, 1.8, 0.95, 4),
    elapsed=30.0,
    budget=90.0,
    failures=2,
    last_failure="host memory\nran out [/bold]",
)


def test_one_line_is_one_line() -> None:
    assert live.line(PROGRESS) == (
        "[30 s of 1 min 30 s] searching | 7 trials | trying 4 loader workers, 4 batches ahead, "
        "fused optimizer | your settings 1000 samples/s | "
        "so far 1.62x (1.40 to 1.80) with 1 loader worker, 2 batches ahead | "
        "2 settings did not work, last: host memory ran out [/bold]"
    )
    assert live.line(RunProgress(stage="starting", baseline=BASELINE, unit="samples")) == "[0 s] starting"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trying": BASELINE}, "trying your settings"),
        ({"trying": BASELINE.but(channels_last=True)}, "trying channels_last"),
        ({"trying": BASELINE.but(processes=2, threads=1, batch_size=32)}, "trying 2 processes x 1 thread"),
        ({"rounds": {"a": 3, "your settings": 2}}, "a 3, your settings 2"),
        ({"gain": None}, "| fastest so far, not proven: 1 loader worker, 2 batches ahead"),
        ({"gain": Proof(382.0, 0.0, math.inf, 0.95, 1)}, "| fastest so far, not proven: 1 loader worker"),
        ({"gain": Proof(1.1, 0.9, 1.4, 0.95, 4)}, "| so far 1.10x (0.90 to 1.40) with 1 loader worker"),
        ({"baseline_rate": 0.0}, "| your settings 0 samples/s"),
        ({"elapsed": 200.0}, "[3 min 20 s] "),
        ({"failures": 1, "last_failure": ""}, "1 setting did not work"),
        ({"last_failure": "x" * 999}, "x" * (live.MAX_REASON - 3) + "..."),
    ],
)
def test_other_moments(changes: dict[str, object], words: str) -> None:
    moment = replace(PROGRESS, **changes)  # type: ignore[arg-type]
    assert words in live.line(moment)


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("budget", [0.0, 90.0, 10.0])
def test_a_terminal_has_whole_lines(width: int, budget: float) -> None:
    file = StringIO()
    console = Console(width=width, force_terminal=True, color_system=None, file=file)
    console.print(live.view(replace(PROGRESS, budget=budget)))
    clock, stage, *rest = file.getvalue().splitlines()
    assert (stage.strip(), len(rest)) == ("searching", 5)
    assert clock.strip().endswith("30 s of 1 min 30 s" if budget == 90 else "30 s")
    assert max(map(len, (clock, *rest))) <= width


def test_a_log_has_a_line_for_a_new_stage_and_every_ten_seconds(monkeypatch, capsys) -> None:
    moments = [(0.0, "searching"), (9.9, "searching"), (10.0, "searching"), (10.1, "race")]
    clock = iter([at for at, _stage in moments])
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with live.live_view(0.0, 0.0) as observe:
        for _at, stage in moments:
            observe(stage=stage)
    assert capsys.readouterr().err.splitlines() == ["[0 s] searching", "[10 s] searching", "[10 s] race"]
