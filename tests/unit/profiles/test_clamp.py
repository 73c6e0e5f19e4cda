from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.knobs.settings import Settings
from autotune.probes.facts import Backend
from autotune.profiles.clamp import clamp, for_this_machine, launched, one_process
from autotune.profiles.format import Profile
from tests.strategies import settings as any_settings
from tests.unit.records import inventory, profile

MACHINES = st.builds(
    inventory,
    threads=st.integers(1, 20),
    gpus=st.integers(0, 4),
    features=st.sampled_from([("avx2",), ("avx2", "avx512_bf16")]),
)
SETTINGS = any_settings(64)


@given(settings=SETTINGS, machine=MACHINES)
def test_clamped_settings_fit_keep_the_batch_and_stay(settings: Settings, machine: object) -> None:
    fitted, notes = clamp(settings, machine)  # type: ignore[arg-type]
    budget = machine.budget.threads  # type: ignore[attr-defined]
    assert fitted.processes * fitted.threads <= budget
    assert fitted.processes * fitted.num_workers <= budget
    assert fitted.interop_threads <= max(settings.interop_threads, 1)
    assert fitted.global_batch == settings.global_batch
    assert clamp(fitted, machine) == (fitted, ())  # type: ignore[arg-type]
    assert bool(notes) == (fitted != settings) or not notes
    if not machine.gpus:  # type: ignore[attr-defined]
        assert fitted.backend in (None, "gloo")
        assert not fitted.pin_memory
        assert not fitted.cudnn_benchmark
        assert fitted.precision in ("fp32", "bf16")
        assert fitted.compile in ("off", "default")
    elif fitted.backend == "nccl":
        assert fitted.processes <= len(machine.gpus)  # type: ignore[attr-defined]


@given(settings=SETTINGS, machine=MACHINES)
def test_one_process_uses_the_budget_and_keeps_the_batch(settings: Settings, machine: object) -> None:
    alone = one_process(settings, machine)  # type: ignore[arg-type]
    budget = machine.budget.threads  # type: ignore[attr-defined]
    assert alone.processes == 1
    assert alone.global_batch == settings.global_batch
    assert alone.threads == min(budget, settings.processes * settings.threads)
    assert alone.num_workers <= budget
    assert (alone.num_workers > 0) == (settings.num_workers > 0)


def test_asked_and_applied_are_named() -> None:
    settings = Settings(processes=16, threads=4, num_workers=4, batch_size=8, precision="fp16", pin_memory=True)
    fitted, notes = clamp(settings, inventory(2))
    assert fitted == Settings(processes=2, threads=1, num_workers=1, batch_size=64)
    assert "processes: asked 16, applied 2 (2 online CPUs)" in notes
    assert "precision: asked fp16, applied fp32 (training on cpu here)" in notes


@pytest.mark.parametrize(
    ("settings", "applied", "reason"),
    [
        (Settings(processes=2, threads=1, binding="cores"), "cores", None),
        (Settings(processes=2, threads=1, binding="numa"), "none", "the allowed CPUs lie on one NUMA node"),
        (Settings(processes=8, threads=2, binding="cores", batch_size=8), "cores", None),
        (Settings(threads=2, binding="cores"), "none", "one process has all CPUs anyway"),
    ],
)
def test_a_binding_from_elsewhere_is_kept_where_it_works(settings: Settings, applied: str, reason: str | None) -> None:
    fitted, notes = clamp(settings, inventory(2))
    assert fitted.binding == applied
    said = [note for note in notes if note.startswith("binding")]
    assert said == ([f"binding: asked {settings.binding}, applied none ({reason})"] if reason else [])
    assert launched(settings, inventory(2), world=settings.processes, local=settings.processes)[0].processes > 0


def test_no_compiler_no_compile() -> None:
    machine = inventory(compiler=None, compiler_reason="no C++ compiler found")
    assert clamp(Settings(compile="default"), machine)[0].compile == "off"
    unknown = inventory(compiler=None)
    assert clamp(Settings(compile="default"), unknown)[0].compile == "default"


def test_the_launched_world_is_kept() -> None:
    settings = Settings(processes=2, threads=1, batch_size=32)
    same, notes = launched(settings, inventory(1), world=2, local=2)
    assert (same, notes) == (settings, ())  # each rank may be bound to one CPU: that is no smaller machine
    for world, batch in ((4, 16), (3, 22), (9, 8)):  # never fewer samples than were tuned
        more, notes = launched(settings, inventory(8), world=world, local=world)
        assert (more.processes, more.threads, more.batch_size) == (world, 1, batch)
        assert any(f"started as {world} processes" in note for note in notes)


@pytest.mark.parametrize(
    ("usable", "backend", "said"),
    [
        (("gloo", "mpi"), "mpi", ()),
        (("gloo",), "gloo", ("backend: asked mpi, applied gloo (no mpi)",)),
        ((), None, ("processes: asked 2, applied 1 (2 online CPUs)",)),
    ],
)
def test_a_missing_backend_gives_way_to_gloo(usable, backend, said) -> None:
    found = tuple(Backend(name, name in usable, f"no {name}") for name in ("gloo", "mpi"))
    fitted, notes = clamp(Settings(processes=2, backend="mpi", batch_size=8), inventory(backends=found))
    assert fitted.backend == backend
    assert notes[: len(said)] == said
    assert bool(notes) == bool(said)


def made_on(cores: int, settings: Settings, baseline: Settings, device: str = "cpu") -> Profile:
    """A profile of a machine with ``cores``."""
    made = profile(settings, device=device)
    return replace(made, machine=replace(made.machine, threads=cores, cores=cores), baseline=baseline)


def test_threads_that_tuning_left_alone_are_those_of_a_larger_machine() -> None:
    made = made_on(1, Settings(threads=1, optimizer_impl="fused"), Settings(threads=1))
    settings, notes = for_this_machine(made, "safe", inventory(2))
    assert settings == Settings(threads=2, optimizer_impl="fused")
    assert notes == ("threads: asked 1, applied 2 (tuning left the threads at the default; this is the default here)",)


@pytest.mark.parametrize(
    ("cores", "settings", "baseline", "device"),
    [
        pytest.param(2, Settings(threads=2), Settings(threads=2), "cpu", id="the same machine"),
        pytest.param(4, Settings(threads=4), Settings(threads=4), "cpu", id="a smaller machine"),
        pytest.param(2, Settings(threads=1), Settings(threads=2), "cpu", id="chosen by tuning"),
        pytest.param(1, Settings(processes=2), Settings(processes=2), "cpu", id="several processes"),
        pytest.param(1, Settings(threads=1), Settings(threads=1), "cuda", id="on a GPU"),
    ],
)
def test_other_threads_stay(cores: int, settings: Settings, baseline: Settings, device: str) -> None:
    assert for_this_machine(made_on(cores, settings, baseline, device), "safe", inventory(2)) == (settings, ())


def test_pytorchs_own_interop_threads_are_no_clamped_setting_under_a_quota() -> None:
    whole = inventory(2)
    half = replace(whole, budget=replace(whole.budget, threads=1, cores=1))
    settings = Settings(threads=1, interop_threads=2)
    assert clamp(settings, half) == (settings, ())
    assert clamp(settings.but(interop_threads=16), half)[0].interop_threads == 2
