"""Words of diagnose and doctor."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autotune.inspect.doctor import Finding
from autotune.inspect.verdict import Bound, Diagnosis, Part, conclude
from autotune.report.diagnosis import ADVICE, DOUBTS, HEALTHY, MEANINGS, as_json, bound, doctor, sentence, text
from autotune.report.formatting import WIDTH
from tests.doubles.inspections import facts, gain, inspection, rounds
from tests.doubles.results import BASELINE


def diagnosis(**parts: float) -> Diagnosis:
    """Of a step in which parts take these shares."""
    found = conclude(BASELINE, facts(), inspection(**parts), rounds())
    return replace(found, threads=1)


def test_says_what_bounds_the_step_and_what_each_part_could_bring() -> None:
    found = text("model", diagnosis(loader=0.6, update=0.1), 14.6)
    assert all(len(line) <= WIDTH for line in found.splitlines())
    flat = " ".join(found.split())
    for words in (
        "diagnose model (15 s)",
        "Verdict input-bound: the training process itself reads and augments samples",
        "Try DataLoader(num_workers=...)",
        f"Step {BASELINE.global_batch} ms, 1000 samples/s with ",
        "loader 60%, forward and backward 30%, update 10%",
    ):
        assert words in flat
    assert flat.index("a free loader: 2.50x (") < flat.index("a free update: 1.11x (")


def test_the_users_loop_has_a_name() -> None:
    assert sentence(diagnosis(loop=0.58, update=0.22)) == (
        "loop-bound: your loop outside the step: 58%, most of it in log_metrics (train.py:41); also update 22% of the"
        " step"
    )


@pytest.mark.parametrize("doubt", DOUBTS)
def test_who_cannot_tell_says_why(doubt: Bound) -> None:
    found = diagnosis()
    judged = replace(found.verdict, bound=doubt)
    words = sentence(replace(found, verdict=judged, neighbours=1.26))
    assert words.startswith("cannot tell: 80% of a step is forward and backward, but ")
    assert ("1.3 CPUs" in words) == (doubt is Bound.BUSY)
    assert "Try" not in text("m", replace(found, verdict=judged), 1.0)


def test_every_bound_has_its_words() -> None:
    assert set(MEANINGS) == set(ADVICE)
    assert set(DOUBTS) == set(Bound) - set(MEANINGS)


def test_an_open_interval_has_words() -> None:
    assert bound(gain(2.0, 1.5, float("inf"))) == "2.00x (1.50 to any)"


def test_an_interval_that_allows_anything_has_no_figures() -> None:
    """Seen: ``a free update: 3.46x (0.00 to 2584.73)``."""
    found = diagnosis(loader=0.6)
    found = replace(found, bounds=dict(found.bounds) | {Part.UPDATE: gain(3.46, 0.0, 2584.73)})
    shown = text("model", found, 1.0)
    assert shown.index("a free loader: 2.50x (") < shown.index("a free update: cannot tell by 6 rounds")


def test_json_has_plain_names() -> None:
    found = json.loads(as_json("model", diagnosis(loader=0.6)))
    assert found["verdict"] == "input-bound: augmentation in the main process"
    assert found["target"] == "model"
    assert found["shares"]["loader"] == pytest.approx(0.6, rel=1e-3)
    assert set(found["bounds"]["loader"]) == {"value", "low", "high", "confidence", "rounds"}
    assert found["settings"]["threads"] == BASELINE.threads


def test_the_doctor_names_what_mends() -> None:
    assert doctor(()) == HEALTHY
    shm = Finding("shm", "/dev/shm holds 64 MiB", "docker run --shm-size=8g")
    assert doctor((shm,)).startswith("shm: /dev/shm holds 64 MiB\n  fix    docker run --shm-size=8g\n  gain ")
