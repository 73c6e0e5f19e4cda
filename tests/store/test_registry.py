"""Which profile is found for which machine."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from autotune.core.machine import MachineType
from autotune.store import profiles, registry

from .records import MACHINE, profile


def put(root: Path, machine: MachineType = MACHINE, target: str = "resnet") -> Path:
    """A profile file where it belongs."""
    return profiles.write(registry.default_path(machine.key, target, root), profile(machine, target))


def test_the_default_place() -> None:
    assert registry.default_path("amd-8c", "resnet") == Path("profiles/amd-8c/resnet.yaml")
    assert registry.default_roots()[0] == Path("profiles")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("/etc/passwd", "etc-passwd"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("a\\b\nc\0d", "a-b-c-d"),
        (".hidden", "hidden"),
        ("mein modell ü", "mein-modell"),
        ("x" * 300, "x" * 100),
        ("resnet_50.v2", "resnet_50.v2"),
    ],
)
def test_names_stay_inside_their_folder(text: str, name: str) -> None:
    assert registry.safe_name(text) == name
    assert registry.default_path(text, text, Path("r")).parts == ("r", name, f"{name}.yaml")


def test_as_many_machines_are_preferred_and_other_numbers_passed_over(tmp_path: Path) -> None:
    one = put(tmp_path)
    assert registry.default_path(MACHINE.key, "resnet", tmp_path, 2).name == "resnet.2nodes.yaml"
    for nnodes in (2, 4):
        several = replace(profile().target, nnodes=nnodes)
        path = registry.default_path(MACHINE.key, "resnet", tmp_path, nnodes)
        profiles.write(path, replace(profile(), target=several))
    for nnodes, name in ((1, one.name), (2, "resnet.2nodes.yaml"), (3, one.name), (4, "resnet.4nodes.yaml")):
        match = registry.find(MACHINE, "resnet", [tmp_path], nnodes=nnodes)
        assert match is not None
        assert match.path.name == name
    one.unlink()
    assert registry.find(MACHINE, "resnet", [tmp_path]) is None


def test_the_same_machine_is_exact(tmp_path: Path) -> None:
    path = put(tmp_path)
    match = registry.find(MACHINE, "resnet", [tmp_path])
    assert match == registry.Match(profile(), path, True, ())
    assert registry.find(MACHINE, "other", [tmp_path]) is None


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"vendor": "intel"}, "vendor: profile amd, here intel"),
        ({"family": "epyc-zen5"}, "family: profile epyc-zen4, here epyc-zen5"),
        ({"threads": 2}, "threads: profile 8, here 2"),
        ({"cores": 4}, "cores: profile 8, here 4"),
        ({"sockets": 2}, "sockets: profile 1, here 2"),
        ({"nodes": 2}, "nodes: profile 1, here 2"),
        ({"memory_gib": 16}, "memory_gib: profile 32, here 16"),
        ({"features": ("avx2",)}, "features: not here: avx512f"),
        ({"features": ("avx512f", "avx2", "amx")}, "features: only here: amx"),
        ({"architecture": "aarch64"}, None),
        ({"gpus": ("h200",)}, None),
    ],
)
def test_one_changed_fact_is_compatible_with_a_note_or_no_match(
    tmp_path: Path, change: dict[str, Any], note: str | None
) -> None:
    put(tmp_path)
    here = replace(MACHINE, key="other", **change)
    match = registry.find(here, "resnet", [tmp_path])
    if note is None:
        assert match is None
    else:
        assert match is not None
        assert not match.exact
        assert match.notes == (note,)


def test_every_fact_is_compared(tmp_path: Path) -> None:
    other = MachineType(**{field.name: _other(getattr(MACHINE, field.name)) for field in fields(MachineType)})
    assert len(registry.differences(profile(), other)) == len(fields(MachineType)) - 1  # all but the key


def _other(value: Any) -> Any:
    return {str: "other", int: 3, tuple: ("other",)}[type(value)]


def test_another_number_of_the_same_gpus(tmp_path: Path) -> None:
    put(tmp_path, replace(MACHINE, key="eight", gpus=("h200",) * 8))
    match = registry.find(replace(MACHINE, key="one", gpus=("h200",)), "resnet", [tmp_path])
    assert match is not None
    assert match.notes == ("gpus: profile 8, here 1",)


def test_the_nearer_folder_wins_and_the_closer_machine(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    put(far)
    assert registry.find(MACHINE, "resnet", [near, far]).path.is_relative_to(far)  # type: ignore[union-attr]
    put(near)
    assert registry.find(MACHINE, "resnet", [near, far]).path.is_relative_to(near)  # type: ignore[union-attr]
    put(near, replace(MACHINE, key="a-far-one", threads=64, cores=64, memory_gib=512))
    here = replace(MACHINE, key="new", threads=4)
    found = registry.find(here, "resnet", [near])
    assert found is not None
    assert found.profile.key == MACHINE.key


def test_without_a_target_nothing_matches_and_the_targets_are_named(tmp_path: Path) -> None:
    nothing = registry.search(MACHINE, None, [tmp_path])
    for target in ("resnet", "bert"):
        put(tmp_path, target=target)
    put(tmp_path, replace(MACHINE, key="another"), target="gpt")
    several = registry.search(MACHINE, None, [tmp_path])
    assert (nothing.match, several.match) == (None, None)
    assert nothing.notes == (f"no script names the target: write {registry.NAMING}",)
    assert several.notes == (f"{nothing.notes[0]}; this machine has profiles for: bert, resnet",)


def interrupted(root: Path, machine: MachineType = MACHINE, name: str = "resnet.partial.yaml") -> Path:
    """The profile of an interrupted run."""
    made = profile(machine)
    partial = replace(made, evidence=replace(made.evidence, partial=True))
    return profiles.write(root / machine.key / name, partial)


@pytest.mark.parametrize("name", ["resnet.partial.yaml", "resnet.yaml"])
def test_an_interrupted_runs_profile_is_found_where_nothing_else_fits(tmp_path: Path, name: str) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    partial = interrupted(near, name=name)
    elsewhere = interrupted(near, replace(MACHINE, key="elsewhere"))
    assert registry.find(MACHINE, "resnet", [near, far]).path == partial  # type: ignore[union-attr]
    other = put(far, replace(MACHINE, key="other"))
    assert registry.find(MACHINE, "resnet", [near, far]).path == other  # type: ignore[union-attr]
    own = put(far)
    assert registry.find(MACHINE, "resnet", [near, far]).path == own  # type: ignore[union-attr]
    for path in (partial, other, own):
        path.unlink()
    assert registry.find(MACHINE, "resnet", [near, far]).path == elsewhere  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("measured", "here", "noted"),
    [
        ("2.9.0", "2.10.0", True),
        ("2.9.0", "3.9.0", True),
        ("2.9.0+cu128", "2.9.1+cpu", False),
        (None, "2.9.0", False),
        (2.9, "2.10.0", True),
        ("2.9.0", None, False),
    ],
)
def test_another_version_of_pytorch_is_noted(measured: str | float | None, here: str | None, noted: bool) -> None:
    notes = registry.another_torch(profile(software={"torch": measured}), here)
    assert [f"PyTorch {measured}, this is {here}" in note for note in notes] == [True] * noted


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"schema: autotune.profile/9\n", b"[" * 5000, b"a: [", b"x" * 99_999]
)
def test_unreadable_files_are_skipped_with_a_note(tmp_path: Path, content: bytes) -> None:
    path = registry.default_path(MACHINE.key, "resnet", tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    found = registry.search(MACHINE, "resnet", [tmp_path])
    assert found.match is None
    assert [note.startswith(f"skipped {path}: ") for note in found.notes] == [True]
    put(tmp_path, replace(MACHINE, key="other"))
    match = registry.find(MACHINE, "resnet", [tmp_path])
    assert match is not None
    assert match.notes == found.notes
    assert [item.profile is None for item in registry.list_profiles([tmp_path])] == [True, False]


def test_looking_in_strange_places_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "resnet.yaml").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "a" / ".resnet.yaml").write_text("")
    roots = [tmp_path, tmp_path / "none", tmp_path / "file", Path("/proc/self/mem")]
    assert registry.find(MACHINE, "resnet", roots) is None
    assert [item.path.name for item in registry.list_profiles(roots)] == ["resnet.yaml"]


def test_a_home_that_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(*_args: Any, **_options: Any) -> str:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(registry, "user_data_dir", homeless)
    assert registry.default_roots() == (Path("profiles"),)


def test_an_evil_key_inside_a_file_moves_nothing(tmp_path: Path) -> None:
    path = put(tmp_path)
    path.write_text(path.read_text("utf-8").replace(MACHINE.key, "another-machine"), "utf-8")
    match = registry.find(MACHINE, "resnet", [tmp_path])
    assert match is None or not match.exact
