"""What people state: ``CURRENT`` of a task file, and the knobs that they fix."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import ContractError, UsageError
from autotune.knobs.settings import Settings
from autotune.knobs.stated import (
    DEFAULT_BATCH,
    baseline_settings,
    check_fixed,
    check_fixed_for,
    check_fixed_on,
    own_threads,
    read_fixed,
)
from autotune.knobs.task_facts import LeftOut, TaskFacts
from autotune.probes.facts import Backend
from tests.doubles.simulation.simulator import context, inventory

OWN = context(inventory(8, 8), 32).baseline


def task(device: str = "cpu", **current: Any) -> TaskFacts:
    """A task whose ``CURRENT`` says so."""
    return replace(context(inventory(), 32).task, device=device, current=current)


class TestCurrent:
    @pytest.mark.parametrize(("own", "expected"), [((4, 8), (4, 8)), ((None, None), (8, 4))])
    def test_nothing_said_is_what_pytorch_does_or_else_the_budget(self, own, expected) -> None:
        machine = inventory(threads=8, cores=4)
        software = replace(machine.software, default_threads=own[0], default_interop_threads=own[1])
        wanted = Settings(threads=expected[0], interop_threads=expected[1], batch_size=DEFAULT_BATCH)
        there = replace(machine, software=software)
        assert baseline_settings(task(), there) == wanted
        said = {"threads": 1, "interop_threads": 3, "num_workers": 2, "prefetch_factor": 4, "channels_last": True}
        assert baseline_settings(task(**said), there) == wanted.but(**said)

    @pytest.mark.parametrize(
        ("current", "share"),
        [
            ({"batch_size": 64}, (1, 64)),
            ({"batch_size": 64, "processes": 2}, (2, 32)),
            ({"processes": 2}, (2, DEFAULT_BATCH // 2)),
        ],
    )
    def test_batch_size_is_the_global_batch(self, current: dict[str, int], share: tuple[int, int]) -> None:
        found = baseline_settings(task(**current), inventory())
        assert (found.processes, found.batch_size) == share
        assert found.global_batch == current.get("batch_size", DEFAULT_BATCH)

    @pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
    def test_several_processes_share_the_threads_and_take_the_devices_backend(self, device: str, backend: str) -> None:
        found = baseline_settings(
            task(device, processes=4, batch_size=32), inventory(8, 8, gpus=4 * (device == "cuda"))
        )
        assert (found.backend, found.threads) == (backend, 2)


@pytest.mark.parametrize(
    ("current", "words"),
    [
        ({"batch_size": 50, "processes": 4}, ['CURRENT["batch_size"] = 50', "4 processes cannot"]),
        ({"batch_size": 0}, ['CURRENT["batch_size"] = 0', "from 1 to"]),
        ({"workers": 2}, ["CURRENT['workers']: no such knob", "num_workers"]),
        ({"precision": "fp8"}, ["precision"]),
        ({"prefetch_factor": 0, "num_workers": 2}, ["prefetch_factor"]),
    ],
    ids=str,
)
def test_contradictions_are_quoted_back(current: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ContractError) as error:
        baseline_settings(task(**current), inventory())
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("current", [{"pin_memory": True}, {"cudnn_benchmark": True}], ids=str)
def test_a_switch_for_gpus_has_no_effect_on_a_cpu_and_is_not_asked_for(current: dict[str, Any]) -> None:
    """O07: ``pin_memory=True`` is in most people's loaders; without an accelerator it does nothing."""
    found = baseline_settings(task(**current), inventory())
    assert not any(getattr(found, name) for name in current)


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
            *(({"threads": wrong}, (), None, "must be a whole number from 1 to 4096") for wrong in (None, True, 2.5)),
            ({"pin_memory": 1}, (), None, "must be one of False, True"),
            ({"precision": "bf61"}, (), None, "did you mean bf16?"),
            ({"threads": 2}, ("threads",), None, "--fix threads=2 --only threads: a fixed knob cannot move"),
            ({"precision": "bf16"}, (), "safe", "--fix precision=bf16 --level safe: moves from level amp on"),
            ({}, ("precision",), "safe", "--only precision --level safe: moves from level amp on"),
            ({"prefetch_factor": 4, "num_workers": 0}, (), None, "prefetch_factor=4: it does nothing beside"),
            ({"backend": "mpi", "processes": 1}, (), None, "--fix backend=mpi: it does nothing beside --fix proc"),
        ],
        ids=str,
    )
    def test_others_are_refused_with_what_is_wanted(self, fixed, only, level, words) -> None:
        with pytest.raises(UsageError) as error:
            check_fixed(fixed, only, level)
        assert words in str(error.value)
        check_fixed({"num_workers": 2, "precision": "fp32"}, ("threads",), "safe")
        check_fixed({"prefetch_factor": 4, "backend": "mpi"}, ("threads", "precision"), "safe")

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
            *(
                (each, r"CPU budget of 8.*oversubscription: nothing would be left to search")
                for each in ({"threads": 400}, {"processes": 4, "threads": 3}, {"num_workers": 9})
            ),
        ],
        ids=str,
    )
    def test_what_the_machine_lacks_or_does_not_bear_is_refused(self, fixed: dict[str, Any], words: str) -> None:
        plain = inventory(8, 8)
        backends = (Backend("gloo", True, ""), Backend("nccl", False, "no CUDA device is visible"))
        machine = replace(plain, software=replace(plain.software, backends=backends, allocators=()))
        with pytest.raises(UsageError, match=words):
            check_fixed_on(machine, fixed)
        check_fixed_on(machine, {"backend": "gloo", "pin_memory": False, "allocator": "default"})

    def test_what_the_task_or_the_script_leaves_no_choice_of_is_refused(self) -> None:
        plain = context(inventory(8, 8), 32).task
        left_out = tuple(LeftOut(name, None, "no loader was seen") for name in ("num_workers", "batch_size"))
        task = replace(plain, left_out=left_out, why_not_several="each process would train on its own")
        for name, words in (("processes", task.why_not_several), ("num_workers", "no loader was seen")):
            with pytest.raises(UsageError, match=f"--fix {name}=2: {words}"):
                check_fixed_for(task, OWN, {name: 2})
        check_fixed_for(task, OWN, {"processes": 1, "num_workers": 0, "threads": 2, "batch_size": OWN.batch_size})
        check_fixed_for(plain, OWN, {"processes": 2})


@pytest.mark.parametrize(
    ("words", "threads"),
    [
        ({"OMP_NUM_THREADS": "3"}, 3),
        *(({"OMP_NUM_THREADS": other}, 4) for other in ("4", "3,2", "x")),
        ({}, 4),
        ({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "none"}, 4),
    ],
)
def test_torchruns_own_default_is_not_the_users_word(words: dict[str, str], threads: int) -> None:
    settings, notes = own_threads(Settings(threads=4), words)
    assert (settings.threads, len(notes)) == (threads, threads != 4)
