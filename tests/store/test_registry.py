"""Which profile is found for which machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.core.machine import MachineType
from autotune.core.match import COMPATIBLE, EXACT, SIMILAR, Here
from autotune.store import layout, profiles, registry

from .records import MACHINE, profile


def put(root: Path, machine: MachineType = MACHINE, target: str = "resnet") -> Path:
    """A profile file where it belongs."""
    return profiles.write(layout.default_path(machine.key, target, root), profile(machine, target))


def here(machine: MachineType = MACHINE, target: str | None = "resnet", nnodes: int = 1) -> Here:
    """This machine, with the software that the profiles were measured with."""
    return Here(machine, profile().software, target, nnodes)


def find(machine: MachineType, target: str | None, roots: list[Path], nnodes: int = 1) -> registry.Match | None:
    return registry.search(here(machine, target, nnodes), roots).match


def search(machine: MachineType, target: str | None, roots: list[Path]) -> registry.Lookup:
    return registry.search(here(machine, target), roots)


def test_the_default_place() -> None:
    assert layout.default_path("amd-8c", "resnet") == Path("profiles/amd-8c/resnet.yaml")


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
    assert layout.safe_name(text) == name
    assert layout.default_path(text, text, Path("r")).parts == ("r", name, f"{name}.yaml")


def test_as_many_machines_are_preferred_and_other_numbers_passed_over(tmp_path: Path) -> None:
    one = put(tmp_path)
    assert layout.default_path(MACHINE.key, "resnet", tmp_path, 2).name == "resnet.2nodes.yaml"
    for nnodes in (2, 4):
        several = replace(profile().target, nnodes=nnodes)
        path = layout.default_path(MACHINE.key, "resnet", tmp_path, nnodes)
        profiles.write(path, replace(profile(), target=several))
    for nnodes, name in ((1, one.name), (2, "resnet.2nodes.yaml"), (3, one.name), (4, "resnet.4nodes.yaml")):
        match = find(MACHINE, "resnet", [tmp_path], nnodes=nnodes)
        assert match is not None
        assert match.path.name == name
    one.unlink()
    assert find(MACHINE, "resnet", [tmp_path]) is None


def test_the_same_machine_is_exact(tmp_path: Path) -> None:
    path = put(tmp_path)
    match = find(MACHINE, "resnet", [tmp_path])
    assert match is not None
    assert (match.profile, match.path, match.source, match.verdict) == (profile(), path, str(path), EXACT)
    assert find(MACHINE, "other", [tmp_path]) is None


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"threads": 4}, COMPATIBLE),
        ({"memory_gib": 16}, COMPATIBLE),
        ({"threads": 2}, SIMILAR),
        ({"family": "epyc-zen5"}, SIMILAR),
        ({"architecture": "aarch64"}, None),
        ({"gpus": ("h200",)}, None),
    ],
)
def test_what_is_only_similar_is_not_applied_but_named(
    tmp_path: Path, change: dict[str, Any], verdict: str | None
) -> None:
    put(tmp_path)
    found = search(replace(MACHINE, key="other", **change), "resnet", [tmp_path])
    best = found.match or found.similar
    assert (best.verdict if best else None) == verdict
    assert (found.match is not None) is (verdict == COMPATIBLE)


def test_another_number_of_the_same_gpus(tmp_path: Path) -> None:
    put(tmp_path, replace(MACHINE, key="eight", gpus=("h200",) * 8))
    for count, verdict in ((8, COMPATIBLE), (4, COMPATIBLE), (1, SIMILAR)):
        found = search(replace(MACHINE, key="other", gpus=("h200",) * count), "resnet", [tmp_path])
        best = found.match or found.similar
        assert best is not None
        assert best.verdict == verdict


def test_the_software_is_said(tmp_path: Path) -> None:
    put(tmp_path)
    updated = Here(MACHINE, {"torch": "2.12.0", "cuda": None}, "resnet")
    match = registry.search(updated, [tmp_path]).match
    assert match is not None
    assert match.verdict == COMPATIBLE
    assert "torch: profile 2.9.0, here 2.12.0" in match.comparison.sentence


def test_the_nearer_folder_wins_and_the_closer_machine(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    put(far)
    assert find(MACHINE, "resnet", [near, far]).path.is_relative_to(far)  # type: ignore[union-attr]
    put(near)
    assert find(MACHINE, "resnet", [near, far]).path.is_relative_to(near)  # type: ignore[union-attr]
    put(near, replace(MACHINE, key="a-far-one", threads=64, cores=64, memory_gib=512))
    there = replace(MACHINE, key="new", threads=4)
    found = find(there, "resnet", [near])
    assert found is not None
    assert found.profile.key == MACHINE.key


def test_without_a_target_nothing_matches_and_the_targets_are_named(tmp_path: Path) -> None:
    nothing = search(MACHINE, None, [tmp_path])
    for target in ("resnet", "bert"):
        put(tmp_path, target=target)
    put(tmp_path, replace(MACHINE, key="another"), target="gpt")
    several = search(MACHINE, None, [tmp_path])
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
    assert find(MACHINE, "resnet", [near, far]).path == partial  # type: ignore[union-attr]
    other = put(far, replace(MACHINE, key="other"))
    assert find(MACHINE, "resnet", [near, far]).path == other  # type: ignore[union-attr]
    own = put(far)
    assert find(MACHINE, "resnet", [near, far]).path == own  # type: ignore[union-attr]
    for path in (partial, other, own):
        path.unlink()
    assert find(MACHINE, "resnet", [near, far]).path == elsewhere  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"schema: autotune.profile/9\n", b"[" * 5000, b"a: [", b"x" * 99_999]
)
def test_unreadable_files_are_skipped_with_a_note(tmp_path: Path, content: bytes) -> None:
    path = layout.default_path(MACHINE.key, "resnet", tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    found = search(MACHINE, "resnet", [tmp_path])
    assert found.match is None
    assert [note.startswith(f"skipped {path}: ") for note in found.notes] == [True]
    put(tmp_path, replace(MACHINE, key="other"))
    match = find(MACHINE, "resnet", [tmp_path])
    assert match is not None
    assert search(MACHINE, "resnet", [tmp_path]).notes == found.notes
    assert [item.profile is None for item in registry.list_profiles([tmp_path])] == [True, False]


def test_a_file_of_another_target_is_skipped_with_a_note(tmp_path: Path) -> None:
    path = put(tmp_path, target="other").rename(layout.default_path(MACHINE.key, "resnet", tmp_path))
    found = search(MACHINE, "resnet", [tmp_path])
    assert found.match is None
    assert found.notes == (f"skipped {path}: was made for the target 'other', not for 'resnet'",)


def test_looking_in_strange_places_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "resnet.yaml").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "a" / ".resnet.yaml").write_text("")
    roots = [tmp_path, tmp_path / "none", tmp_path / "file", Path("/proc/self/mem")]
    assert find(MACHINE, "resnet", roots) is None
    assert [item.path.name for item in registry.list_profiles(roots)] == ["resnet.yaml"]


def test_an_evil_key_inside_a_file_moves_nothing(tmp_path: Path) -> None:
    path = put(tmp_path)
    path.write_text(path.read_text("utf-8").replace(MACHINE.key, "another-machine"), "utf-8")
    match = find(MACHINE, "resnet", [tmp_path])
    assert match is None or match.verdict != EXACT
