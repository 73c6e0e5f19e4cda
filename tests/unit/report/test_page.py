"""The report as a page: one file, no network, all data."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.profiles.format import Written
from autotune.report.page import html
from tests.doubles.proven_profile import profile
from tests.doubles.results import OWN, WORKERS, tried

HISTORY = [tried(OWN, 100), tried(WORKERS, 150, 2.0), tried(OWN.but(threads=4), 0.0, 3.0)]
LIMIT = 20_000


@pytest.fixture(scope="module")
def page() -> str:
    """Of a run whose words hold markup."""
    found = profile(WORKERS)
    evidence = replace(found.evidence, load="<training> took 1.1 of 2 CPUs")
    return html(replace(found, baseline=OWN, evidence=evidence), HISTORY, Path("a/train.yaml"))


def test_is_one_file_that_asks_for_nothing(page: str) -> None:
    assert re.findall(r"(?i)\b(?:src|href)\b", page) == []
    assert len(page.encode()) < LIMIT


def test_shows_every_part(page: str) -> None:
    for heading in ("How much faster", "Trials over time", "What changes, and why", "Apply"):
        assert f"<h2>{heading}</h2>" in page
    assert (page.count("<circle"), page.count("<path")) == (2, 3), "trials; axes, the best so far, one that failed"
    assert "<title>2 loader workers, 2 batches ahead, 150 samples/s</title>" in page
    assert "autotune run --profile a/train.yaml SCRIPT.py" in page
    assert "<tr><td>num_workers</td><td>0</td><td>" in page


def test_the_load_beside_it_date_and_versions_come_first() -> None:
    found = profile(WORKERS)
    evidence = replace(found.evidence, load="other processes took 1.1 of 2 CPUs")
    shown = html(replace(found, evidence=evidence, written=Written("0.1.0", "2026-11-23")), [], Path("p.yaml"))
    head = shown[shown.index("<h1>") : shown.index("<section>")]
    versions = "2026-11-23, torch-autotune 0.1.0, python 3.11.9, torch 2.9.0"
    assert head.index("other processes took 1.1") < head.index(versions)


def test_the_scripts_own_name_stands_in_apply() -> None:
    found = profile(WORKERS)
    script = replace(found, target=replace(found.target, script="batches"))
    assert "p.yaml fit.py --lr 1</pre>" in html(script, [], Path("p.yaml"), "fit.py --lr 1")
    assert f"p.yaml {found.target.name}.py</pre>" in html(script, [], Path("p.yaml"))


def test_words_of_the_user_are_no_markup(page: str) -> None:
    assert "&lt;training&gt; took" in page
    assert "<training>" not in page
