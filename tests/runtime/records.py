"""Inventories, profiles and tiny trainings for the runtime's tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.core.knobs.knob import LEVELS
from autotune.core.profile import Evidence, LevelResult, Profile, Target
from autotune.core.proof import Proof
from autotune.core.settings import Settings
from autotune.runtime.session import Session
from probes.facts import (
    Backend,
    Cpu,
    CpuBudget,
    Gpu,
    Inventory,
    Limits,
    LogicalCpu,
    Memory,
    Software,
    Storage,
)


def inventory(threads: int = 2, gpus: int = 0, features: tuple[str, ...] = ("avx2",), **software: Any) -> Inventory:
    """A machine with so many CPUs and GPUs."""
    logical = tuple(LogicalCpu(k, 0, k, 0) for k in range(threads))
    backends = (Backend("gloo", True, ""), Backend("nccl", gpus > 0, "" if gpus else "no CUDA device"))
    facts: dict[str, Any] = {"compiler": "g++", "compiler_reason": None, "backends": backends, **software}
    return Inventory(
        cpu=Cpu("amd", "test", "epyc-zen4", "x86_64", features, logical, (), ()),
        budget=CpuBudget(tuple(range(threads)), None, threads, threads, threads, f"{threads} online CPUs"),
        memory=Memory(2**34, 2**34, "MemTotal", 2**34, 0, None, None, None, None, None),
        gpus=tuple(Gpu(k, "", "NVIDIA H200", 2**37, 2**37, (9, 0), False, 0) for k in range(gpus)),
        limits=Limits(None, None, None),
        storage=Storage("unknown", "unknown", None),
        network=(),
        software=Software(
            python="3.11",
            platform="linux",
            torch="2.9.0",
            cuda=None,
            blas=None,
            openmp=None,
            default_threads=None,
            default_interop_threads=None,
            start_method="fork",
            **facts,
        ),
    )


def profile(settings: Settings, *, device: str = "cpu", rate: float = 1000.0, **levels: Settings) -> Profile:
    """A profile that recommends level ``safe``; ``settings`` at every level but those named."""
    proof = Proof(1.5, 1.4, 1.6, 0.95, 12)
    chosen = dict.fromkeys(LEVELS, settings) | levels
    results = {name: LevelResult(chosen[name], rate, proof, True) for name in LEVELS}
    facts = {
        "vendor": "amd",
        "family": "epyc-zen4",
        "architecture": "x86_64",
        "threads": 64,
        "cores": 64,
        "sockets": 1,
        "nodes": 1,
        "memory_gib": 64,
        "gpus": [],
        "features": ["avx2"],
    }
    return Profile(
        machine={"key": "amd-epyc-zen4-64c-64g", "facts": facts},
        software={"python": "3.11.9", "torch": "2.9.0", "cuda": None},
        target=Target("train", "samples", device, 100, 1000),
        recommended="safe",
        baseline=Settings(batch_size=settings.global_batch),
        baseline_rate=500.0,
        levels=results,
        evidence=Evidence(trials=3, seconds=10.0),
    )


def quiet(**changes: Any) -> Settings:
    """Settings that leave this process's threads as they are."""
    return Settings(
        **{"threads": torch.get_num_threads(), "interop_threads": torch.get_num_interop_threads(), **changes}
    )


def dataset(samples: int) -> TensorDataset:
    """A small regression problem."""
    random = torch.Generator().manual_seed(7)
    inputs = torch.randn(samples, 8, generator=random)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())


def network() -> nn.Module:
    """A small model, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def shuffled(samples: int, batch: int, **options: Any) -> DataLoader[Any]:
    """A loader that shuffles by a generator of its own."""
    return DataLoader(
        dataset(samples), batch_size=batch, shuffle=True, generator=torch.Generator().manual_seed(3), **options
    )


def train(
    session: Session, loader: DataLoader[Any], epochs: int = 2, **options: Any
) -> tuple[list[torch.Tensor], list[float]]:
    """Parameters after ``epochs``, and the loss of every optimizer step on this process."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, prepared = session.prepare(model, optimizer, loader, **options)
    losses = []
    for _ in range(epochs):
        for inputs, targets in prepared:
            loss = nn.functional.mse_loss(model(inputs), targets)
            session.backward(loss)
            losses.append(loss.item() * session.part.weight)
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()], losses
