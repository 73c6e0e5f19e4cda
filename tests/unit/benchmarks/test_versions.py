"""What the table of versions says of a run of pytest."""

from __future__ import annotations

import pytest

from benchmarks.versions import counts


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("..\n2 passed in 0.10s\n", "2 passed, 0 failed, 0 skipped"),
        (
            "FAILED a.py::b\n1 failed, 2 passed, 3 skipped, 9 warnings, 4 errors in 3.2s",
            "2 passed, 5 failed, 3 skipped",
        ),
        ("Interrupted: 1 error during collection\n1 error in 0.19s\n", "0 passed, 1 failed, 0 skipped"),
        ("ImportError: 3 passed\npytest: no module named torch", "did not run"),
        ("", "did not run"),
    ],
)
def test_counts_the_tests_from_the_last_line(output: str, said: str) -> None:
    assert counts(output) == said
