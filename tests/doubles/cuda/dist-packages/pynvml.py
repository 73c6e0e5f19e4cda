"""NVML over the cards of the double, as they are now; without ``CUDA_DOUBLE`` there is no driver."""

import importlib.util
import os
import sys
from pathlib import Path

import fake_cards

_spec = importlib.util.spec_from_file_location("fake_nvml", Path(__file__).parents[2] / "fake_nvml.py")
_double = sys.modules["fake_nvml"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_double)


def _gpu(card):
    held = fake_cards.Shared().held(card)
    memory = None if "nvml" in fake_cards.WITHOUT else fake_cards.MEMORY
    facts = {"capability": card.capability, "used": sum(held.values()), "processes": tuple(held.items())}
    return _double.FakeGpu(card.uuid, card.name, memory, bus=card.bus, **facts)


def __getattr__(name):
    there = "CUDA_DOUBLE" in os.environ and "library" not in fake_cards.WITHOUT
    gpus = [_gpu(card) for card in fake_cards.BY_BUS] if there and not name.startswith("_") else []
    return getattr(_double.FakeNvml(gpus, failure=None if there else "NVMLError_LibraryNotFound"), name)
