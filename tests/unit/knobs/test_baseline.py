from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import ContractError
from autotune.knobs.baseline import DEFAULT_BATCH, baseline_settings
from autotune.knobs.settings import Settings
from autotune.knobs.task import TaskFacts
from benchmarks.simulation.simulator import context, inventory


def task(device: str = "cpu", **current: Any) -> TaskFacts:
    """A task whose ``CURRENT`` says so."""
    return replace(context(inventory(), 32).task, device=device, current=current)


class TestCurrent:
    @pytest.mark.parametrize(("own", "expected"), [((4, 8), (4, 8)), ((None, None), (8, 4))])
    def test_nothing_said_is_what_pytorch_does_or_else_the_budget(
        self, own: tuple[int | None, int | None], expected: tuple[int, int]
    ) -> None:
        machine = inventory(threads=8, cores=4)
        software = replace(machine.software, default_threads=own[0], default_interop_threads=own[1])
        wanted = Settings(threads=expected[0], interop_threads=expected[1], batch_size=DEFAULT_BATCH)
        assert baseline_settings(task(), replace(machine, software=software)) == wanted

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

    def test_what_the_user_says_wins_over_defaults(self) -> None:
        said = {"threads": 1, "interop_threads": 3, "num_workers": 2, "prefetch_factor": 4, "channels_last": True}
        found = baseline_settings(task(**said), inventory(8, 8)).as_dict()
        assert {name: found[name] for name in said} == said

    @pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
    def test_several_processes_share_the_threads_and_take_the_devices_backend(self, device: str, backend: str) -> None:
        found = baseline_settings(
            task(device, processes=4, batch_size=32), inventory(8, 8, gpus=4 * (device == "cuda"))
        )
        assert (found.backend, found.threads) == (backend, 2)


@pytest.mark.parametrize(
    ("current", "words"),
    [
        ({"batch_size": 50, "processes": 4}, ['CURRENT["batch_size"] = 50', "global batch", "4 process(es)"]),
        ({"batch_size": 0}, ['CURRENT["batch_size"] = 0', "from 1 to"]),
        ({"batch_size": -8}, ['CURRENT["batch_size"] = -8', "from 1 to"]),
        ({"batch_size": True}, ['CURRENT["batch_size"] = True', "whole number"]),
        ({"accumulation": 4}, ["CURRENT['accumulation'] is no knob", 'CURRENT["batch_size"] is the batch that your']),
        ({"workers": 2}, ["CURRENT['workers'] is no knob", "num_workers"]),
        ({"precision": "fp8"}, ["precision"]),
        ({"num_workers": "4"}, ["num_workers"]),
        ({"prefetch_factor": 0, "num_workers": 2}, ["prefetch_factor"]),
        ({"channels_last": "yes"}, ["channels_last"]),
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
