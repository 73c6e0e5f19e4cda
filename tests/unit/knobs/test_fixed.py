"""Pins as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.knobs.fixed import check_fixed, check_fixed_on, read_fixed
from benchmarks.simulation.simulator import inventory


class TestReadPin:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("num_workers=2", ("num_workers", 2)),
            ("channels_last=true", ("channels_last", True)),
            ("pin_memory=False", ("pin_memory", False)),
            ("prefetch_factor=none", ("prefetch_factor", None)),
            ("precision=bf16", ("precision", "bf16")),
            ("num_workers=-1", ("num_workers", -1)),
            ("a=b=c", ("a", "b=c")),
        ],
    )
    def test_values_are_read_as_python_would(self, text: str, expected: tuple[str, Any]) -> None:
        assert read_fixed(text) == expected

    @pytest.mark.parametrize("text", ["threads=--3", "threads=²", "threads=" + "9" * 5000])
    def test_near_numbers_are_words_not_a_traceback(self, text: str) -> None:
        assert read_fixed(text) == ("threads", text.partition("=")[2])


class TestCheckPins:
    @pytest.mark.parametrize("fixed", [{}, {"threads": 2, "backend": None, "precision": "bf16", "pin_memory": True}])
    def test_what_knobs_take_is_accepted(self, fixed: dict[str, Any]) -> None:
        check_fixed(fixed)

    @pytest.mark.parametrize(
        ("fixed", "words"),
        [
            ({"thread": 2}, "--fix thread: no such knob; did you mean threads?"),
            ({"workers": 2}, "did you mean num_workers?"),
            ({"threads": None}, "--fix threads=None: must be a whole number from 1 to 4096"),
            ({"threads": True}, "must be a whole number"),
            ({"pin_memory": 1}, "must be True or False"),
            ({"precision": "bf61"}, "did you mean bf16?"),
        ],
        ids=str,
    )
    def test_others_are_refused_with_what_is_wanted(self, fixed: dict[str, Any], words: str) -> None:
        with pytest.raises(UsageError) as error:
            check_fixed(fixed)
        assert words in str(error.value)

    @pytest.mark.parametrize("fixed", [{"threads": 400}, {"processes": 4, "threads": 3}, {"num_workers": 9}], ids=str)
    def test_more_than_the_machine_bears_is_refused(self, fixed: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match=r"CPU budget of 8.*oversubscription: nothing would be left to search"):
            check_fixed_on(inventory(8, 8), fixed)

    def test_what_the_machine_bears_is_accepted(self) -> None:
        check_fixed_on(inventory(8, 8), {"threads": 4, "processes": 2, "num_workers": 2})
