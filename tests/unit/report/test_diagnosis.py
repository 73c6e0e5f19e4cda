"""Words of diagnose and doctor."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.inspect.doctor import Finding
from autotune.inspect.verdict import Bound, Diagnosis, Part, conclude
from autotune.report.diagnosis import ADVICE, DOUBTS, HEALTHY, MEANINGS, as_data, doctor, sentence, text
from autotune.report.formatting import WIDTH, short
from tests.doubles.inspections import facts, gain, inspection, rounds
from tests.doubles.results import BASELINE

GOLDEN = Path(__file__).with_name("golden") / "diagnosis.txt"


def diagnosis(**parts: float) -> Diagnosis:
    """Of a step in which parts take these shares."""
    found = conclude(BASELINE, facts(), inspection(**parts), rounds())
    return replace(found, threads=1)


def test_the_wording() -> None:
    """After an intended change, write the text to the golden file and read the difference."""
    found = "\n\n".join(text("model", each, 14.6) for each in (diagnosis(loop=0.6, optimizer=0.22), diagnosis()))
    assert found + "\n" == GOLDEN.read_text("utf-8")
    assert max(map(len, found.splitlines())) <= WIDTH


@pytest.mark.parametrize("doubt", DOUBTS)
def test_without_a_verdict_nothing_is_advised(doubt: Bound) -> None:
    found = diagnosis()
    found = replace(found, verdict=replace(found.verdict, bound=doubt), neighbours=1.26)
    assert sentence(found).startswith("cannot tell: 80% of a step")
    assert not {"Try", "Operators"} & set(text("m", found, 1.0).split())


@pytest.mark.parametrize(("workers", "threads", "said"), [(2, 1.9, True), (2, 1.1, False), (0, 1.9, False)])
def test_threads_of_libraries_in_workers_are_named(workers: int, threads: float, said: bool) -> None:
    found = diagnosis()
    settings = found.settings.but(num_workers=workers, prefetch_factor=2 if workers else None)
    found = replace(found, settings=settings, inspection=replace(found.inspection, load_threads=threads))
    assert ("which have 1.9 busy threads each" in " ".join(text("m", found, 1.0).split())) == said


@pytest.mark.parametrize(("workers", "most", "said"), [(2, 0.97, True), (2, 0.7, False), (8, 0.3, True), (1, 1, False)])
def test_a_worker_that_reads_for_the_others_is_named(workers: int, most: float, said: bool) -> None:
    found = diagnosis()
    settings = found.settings.but(num_workers=workers, prefetch_factor=2)
    judged = replace(found.verdict, part=Part.LOADER, bound=Bound.WORKERS)
    seen = replace(found.inspection, most_of_workers=most)
    words = " ".join(text("m", replace(found, settings=settings, inspection=seen, verdict=judged), 1.0).split())
    assert (f"one of your {workers} workers does {most:.0%} of the work" in words) == said


def test_every_bound_has_its_words() -> None:
    assert set(MEANINGS) == set(ADVICE)
    assert set(DOUBTS) == set(Bound) - set(MEANINGS)


def test_an_interval_that_allows_anything_has_no_line() -> None:
    """Seen: ``a free update: 3.46x (0.00 to 2584.73)``."""
    found = diagnosis(loader=0.6)
    found = replace(found, bounds=dict(found.bounds) | {Part.UPDATE: gain(3.46, 0.0, 2584.73)})
    assert "2.50x (" in text("model", found, 1.0)
    assert "3.46x" not in text("model", found, 1.0)
    assert short(gain(2.0, 1.5, float("inf"))) == "2.00x (1.50 to any)"


def test_json_has_plain_names() -> None:
    found = json.loads(json.dumps(as_data("model", diagnosis(loader=0.6))))
    assert (found["verdict"], found["target"]) == (Bound.MAIN_PROCESS, "model")
    assert found["shares"]["loader"] == pytest.approx(0.6, rel=1e-3)
    assert set(found["bounds"]["loader"]) == {"value", "low", "high", "confidence", "rounds"}
    assert found["settings"]["threads"] == BASELINE.threads


def test_the_doctor_names_what_helps() -> None:
    assert doctor(()) == HEALTHY
    shm = Finding("shm", "/dev/shm holds 64 MiB", "docker run --shm-size=8g")
    assert doctor((shm,)).startswith("shm: /dev/shm holds 64 MiB\n  fix    docker run --shm-size=8g\n  gain ")
