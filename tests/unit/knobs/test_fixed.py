"""Pins as people write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.knobs.fixed import check_fixed, check_fixed_for, check_fixed_on, read_fixed
from autotune.probes.facts import Backend
from benchmarks.simulation.simulator import context, inventory

OWN = context(inventory(8, 8), 32).baseline


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("num_workers=2", "num_workers", 2),
        ("channels_last=true", "channels_last", True),
        ("pin_memory=False", "pin_memory", False),
        ("prefetch_factor=none", "prefetch_factor", None),
        ("precision=bf16", "precision", "bf16"),
        ("num_workers=-1", "num_workers", -1),
        ("a=b=c", "a", "b=c"),
        *((f"threads={near}", "threads", near) for near in ("--3", "²", "9" * 5000)),  # no numbers, and no traceback
    ],
    ids=range(10),
)
def test_values_are_read_as_python_would(text: str, name: str, value: object) -> None:
    assert read_fixed([text]) == {name: value}


class TestCheckPins:
    @pytest.mark.parametrize(
        ("fixed", "only", "level", "words"),
        [
            ({"thread": 2}, (), None, "--fix thread: no such knob; did you mean threads?"),
            ({"workers": 2}, (), None, "did you mean num_workers?"),
            ({"threads": None}, (), None, "--fix threads=None: must be a whole number from 1 to 4096"),
            ({"threads": True}, (), None, "must be a whole number"),
            ({"threads": "two"}, (), None, "--fix threads=two: must be a whole number from 1"),
            ({"num_workers": 2.5}, (), None, "--fix num_workers=2.5: must be a whole number from 0"),
            ({"compile": "maybe"}, (), None, "--fix compile=maybe: must be"),
            ({"pin_memory": 1}, (), None, "must be True or False"),
            ({"precision": "bf61"}, (), None, "did you mean bf16?"),
            ({"threads": 2}, ("threads",), None, "--fix threads=2 --only threads: a fixed knob cannot move"),
            ({"precision": "bf16"}, (), "safe", "--fix precision=bf16 --level safe: precision moves from level amp on"),
        ],
        ids=str,
    )
    def test_others_are_refused_with_what_is_wanted(
        self, fixed: dict[str, Any], only: tuple[str, ...], level: str | None, words: str
    ) -> None:
        with pytest.raises(UsageError) as error:
            check_fixed(fixed, only, level)
        assert words in str(error.value)
        check_fixed({"num_workers": 2, "precision": "fp32"}, ("threads",), "safe")

    @pytest.mark.parametrize("fixed", [{"threads": 400}, {"processes": 4, "threads": 3}, {"num_workers": 9}], ids=str)
    def test_more_than_the_machine_bears_is_refused(self, fixed: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match=r"CPU budget of 8.*oversubscription: nothing would be left to search"):
            check_fixed_on(inventory(8, 8), fixed)

    def test_two_values_of_one_knob_are_refused(self) -> None:
        assert read_fixed(["threads=1", "num_workers=2"]) == {"threads": 1, "num_workers": 2}
        with pytest.raises(UsageError, match="--fix threads is given twice, as 1 and 2"):
            read_fixed(["threads=1", "threads=2"])

    @pytest.mark.parametrize(
        ("fixed", "words"),
        [
            ({"backend": "nccl"}, "--fix backend=nccl: no CUDA device is visible"),
            ({"pin_memory": True}, "--fix pin_memory=True: it does nothing without a GPU"),
            ({"allocator": "jemalloc"}, "--fix allocator=jemalloc: library not installed"),
        ],
        ids=str,
    )
    def test_what_the_machine_lacks_is_refused(self, fixed: dict[str, Any], words: str) -> None:
        plain = inventory(8, 8)
        backends = (Backend("gloo", True, ""), Backend("nccl", False, "no CUDA device is visible"))
        machine = replace(plain, software=replace(plain.software, backends=backends, allocators=()))
        with pytest.raises(UsageError, match=words):
            check_fixed_on(machine, fixed)
        check_fixed_on(machine, {"backend": "gloo", "pin_memory": False, "allocator": "default"})

    def test_processes_of_a_task_that_has_none_are_refused(self) -> None:
        alone = replace(context(inventory(8, 8), 32).task, why_not_several="each process would train on its own")
        with pytest.raises(UsageError, match="--fix processes=2: each process would train on its own"):
            check_fixed_for(alone, OWN, {"processes": 2})
        check_fixed_for(alone, OWN, {"processes": 1, "threads": 2})
        check_fixed_for(replace(alone, why_not_several=None), OWN, {"processes": 2})

    def test_what_the_script_leaves_no_choice_of_is_refused(self) -> None:
        why = "no loader was seen"
        left_out = (("num_workers", None, why), ("batch_size", None, why))
        task = replace(context(inventory(8, 8), 32).task, left_out=left_out)
        with pytest.raises(UsageError, match="--fix num_workers=2: no loader was seen"):
            check_fixed_for(task, OWN, {"num_workers": 2})
        check_fixed_for(task, OWN, {"num_workers": 0, "threads": 2, "batch_size": OWN.batch_size})
