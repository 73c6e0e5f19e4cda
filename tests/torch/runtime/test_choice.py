"""What `load` settles on where something is missing: the script's name, the proof, the GPUs or NVML."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

import autotune
from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.runtime.choice import _inventory, decide
from tests.doubles.servers import folder_server
from tests.torch.records import quiet
from tests.unit.records import inventory, profile


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "autotune"]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """No script file, as in notebooks and under ``python -c``."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)


def for_this_machine(folder: Path, target: str, settings: Settings) -> Path:
    """A profile of ``target`` where the registry looks for it."""
    machine = machine_type(_inventory())
    made = profile(settings)
    made = dataclasses.replace(made, machine=machine, target=dataclasses.replace(made.target, name=target))
    return profiles.write(folder / "profiles" / machine.key / f"{target}.yaml", made)


@pytest.mark.usefixtures("notebook")
def test_without_a_script_no_other_trainings_profile_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("resnet", "bert"):
        for_this_machine(tmp_path, name, quiet(batch_size=1024))
    with autotune.load() as tuned:
        assert (tuned.settings, tuned.origin) == (None, "defaults")
    (notice,) = notices(caplog)
    for words in ("without a profile", 'autotune.load(target="NAME")', 'autotune.load("profiles/', "bert, resnet"):
        assert words in notice


@pytest.mark.usefixtures("notebook")
def test_without_a_script_and_profiles_the_notice_names_none(caplog: pytest.LogCaptureFixture) -> None:
    with autotune.load() as tuned:
        assert tuned.settings is None
    (notice,) = notices(caplog)
    assert notice.endswith('autotune.load("profiles/...yaml")')


@pytest.mark.usefixtures("notebook")
def test_without_a_script_a_named_profile_or_target_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for_this_machine(tmp_path, "bert", quiet(batch_size=32))
    written = profiles.write(tmp_path / "own.yaml", profile(quiet(batch_size=8)))
    with autotune.load(target="bert") as tuned:
        assert tuned.settings == quiet(batch_size=32)
    with autotune.load(written) as tuned:
        assert tuned.origin == f"argument: {written}"
    monkeypatch.setenv("AUTOTUNE_PROFILE", str(written))
    with autotune.load() as tuned:
        assert tuned.origin == f"AUTOTUNE_PROFILE: {written}"


@pytest.mark.parametrize(
    ("partial", "proven", "words"),
    [(True, False, "interrupted run"), (False, False, "level safe is not proven"), (False, True, None)],
)
def test_what_is_not_proven_is_said(partial: bool, proven: bool, words: str | None) -> None:
    data = profile(Settings(batch_size=8))
    results = {name: dataclasses.replace(result, proven=proven) for name, result in data.levels.items()}
    evidence = dataclasses.replace(data.evidence, partial=partial)
    choice = decide(dataclasses.replace(data, levels=results, evidence=evidence), "test", None, {}, inventory())
    assert [words in note for note in choice.notes] == ([True] if words else [])


def test_the_reason_of_an_unproven_level_is_given() -> None:
    data = profile(Settings(batch_size=8))
    data.levels["safe"] = dataclasses.replace(data.levels["safe"], proven=False, note="no gain: nothing is faster")  # type: ignore[index]
    (note,) = decide(data, "test", None, {}, inventory()).notes
    assert note == "level safe is not proven to be faster than the baseline (no gain: nothing is faster)"


GPU = SimpleNamespace(name="NVIDIA H200", total_memory=2**37, major=9, minor=0)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch that has two CUDA devices, on a machine where nothing else knows of them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _index: GPU)


@pytest.mark.usefixtures("cuda")
def test_a_cuda_profile_stays_on_cuda_where_the_gpus_cannot_be_probed() -> None:
    choice = decide(profile(Settings(batch_size=8), device="cuda"), "test", None, {}, inventory(gpus=0))
    assert (choice.device, choice.notes) == ("cuda", ())


@pytest.mark.parametrize("broken", [False, True], ids=["missing", "broken"])
@pytest.mark.usefixtures("cuda")
def test_without_nvml_pytorch_says_what_gpus_there_are(broken: bool) -> None:
    found: dict[str, Any] = {"side_effect": RuntimeError("driver/library mismatch")} if broken else {"return_value": ()}
    with mock.patch("autotune.probes.gpu.probe", **found):
        here = _inventory()
    assert [(gpu.name, gpu.memory_total, gpu.capability) for gpu in here.gpus] == [("NVIDIA H200", 2**37, (9, 0))] * 2
    wanted = Settings(batch_size=8, pin_memory=True, precision="tf32")
    choice = decide(profile(wanted, device="cuda"), "test", None, {}, here)
    assert choice.settings is not None
    assert (choice.settings.pin_memory, choice.settings.precision) == (True, "tf32")


def test_another_machine_trains_with_what_one_has_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a real web server: found, applied, and again without the server."""
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for_this_machine(tmp_path / "server", "bert", quiet(batch_size=32))
    with folder_server(tmp_path / "server" / "profiles") as (url, _asked):
        monkeypatch.setenv("AUTOTUNE_PROFILES", url)
        with autotune.load(target="bert") as tuned:
            assert tuned.settings == quiet(batch_size=32)
            assert tuned.origin.startswith(f"found: {url}/")
    with autotune.load(target="bert") as tuned:
        assert tuned.settings == quiet(batch_size=32)
        assert any("copies of what was read before are used" in note for note in tuned.notes)


def test_a_shared_folder_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AUTOTUNE_PROFILES", f"{tmp_path}/gone")
    with autotune.load(target="bert") as tuned:
        assert tuned.settings is None
    assert f"AUTOTUNE_PROFILES names {tmp_path}/gone, which is no folder" in "\n".join(notices(caplog))


def test_a_profile_of_a_gpu_server_is_not_applied_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = profile(Settings(processes=8, batch_size=64, precision="fp16"), device="cuda")
    server = dataclasses.replace(machine_type(_inventory()), key="server-64c-512g-h200x8", gpus=("h200",) * 8)
    made = dataclasses.replace(made, machine=server)
    path = profiles.write(tmp_path / "server.yaml", made)
    with autotune.load(path) as tuned:
        assert tuned.settings is None
    (notice,) = notices(caplog)
    assert "measured on server-64c-512g-h200x8 and does not fit here" in notice
    assert "device: profile cuda, here cpu" in notice


def test_what_is_only_similar_is_named_and_not_applied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = for_this_machine(tmp_path, "bert", quiet(batch_size=32))
    made = profiles.read(path)
    another = dataclasses.replace(made.machine, family="another")
    profiles.write(path, dataclasses.replace(made, machine=another))
    with autotune.load(target="bert") as tuned:
        assert tuned.settings is None
    (notice,) = notices(caplog)
    assert "only similar" in notice
    assert "autotune check" in notice


def test_a_profile_of_one_core_does_not_take_the_cores_of_a_larger_machine() -> None:
    made = profile(Settings(threads=1))
    smaller = dataclasses.replace(made.machine, threads=1, cores=1)
    made = dataclasses.replace(made, machine=smaller, baseline=Settings(threads=1))
    choice = decide(made, "here", None, {}, inventory(2))
    assert choice.settings == Settings(threads=2)
    assert any("threads: asked 1, applied 2" in note for note in choice.notes)
    started = decide(made, "here", None, {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_WORLD_SIZE": "2"}, inventory(2))
    assert started.settings is not None
    assert started.settings.threads == 1
