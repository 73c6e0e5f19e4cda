"""Which profile is found for which machine, in folders."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune import project
from autotune.profiles import file, registry
from autotune.profiles.format import MachineType
from autotune.profiles.match import COMPATIBLE, EXACT, SIMILAR
from autotune.profiles.places import default_path
from autotune.profiles.registry import NEIGHBOURS, Registry
from tests.doubles.profiles import MACHINE, find, here, profile, put


def test_the_same_machine_is_exact(tmp_path: Path) -> None:
    path = put(tmp_path)
    match = find(here(), [tmp_path])
    assert (match.profile, match.path, match.source, match.verdict) == (profile(), path, str(path), EXACT)
    assert find(here(target="other"), [tmp_path]) is None
    path.write_text(path.read_text("utf-8").replace(MACHINE.key, "another-machine"), "utf-8")
    assert find(here(), [tmp_path]).verdict == COMPATIBLE  # what the file says counts, not where it lies


@pytest.mark.parametrize(
    ("change", "verdict"),
    [({"threads": 4}, COMPATIBLE), ({"family": "epyc-zen5"}, SIMILAR), ({"architecture": "aarch64"}, None)],
)
def test_what_is_only_similar_is_not_applied_but_named(tmp_path: Path, change, verdict) -> None:
    put(tmp_path)
    found = registry.search(here(replace(MACHINE, key="other", **change)), [tmp_path])
    assert (found.best.verdict if found.best else None) == verdict
    assert (found.match is not None) is (verdict == COMPATIBLE)


def test_the_nearer_folder_wins_and_the_closer_machine(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    put(far)
    assert find(here(), [near, far]).path.is_relative_to(far)  # type: ignore[union-attr]
    put(near)
    assert find(here(), [near, far]).path.is_relative_to(near)  # type: ignore[union-attr]
    put(near, replace(MACHINE, key="a-far-one", threads=64, cores=64, memory_gib=512))
    assert registry.search(here(replace(MACHINE, key="new", threads=4)), [near]).best.profile.key == MACHINE.key  # type: ignore[union-attr]


def test_of_many_machines_those_with_keys_like_this_ones_are_read(tmp_path: Path) -> None:
    for number in range(3 * NEIGHBOURS):
        put(tmp_path, replace(MACHINE, key=f"intel-core{number}-2c-4g", family=f"core{number}", vendor="intel"))
    twin = replace(MACHINE, key="amd-epyc-zen4-4c-32g", threads=4, cores=4)
    put(tmp_path, twin)
    assert registry.search(here(), [tmp_path]).best.profile.machine == twin  # type: ignore[union-attr]
    assert len(Registry(tmp_path).like(MACHINE.key, ["resnet.yaml"])) == NEIGHBOURS


def test_without_a_target_nothing_matches_and_the_targets_are_named(tmp_path: Path) -> None:
    nothing = registry.search(here(target=None), [tmp_path])
    for target in ("resnet", "bert"):
        put(tmp_path, target=target)
    put(tmp_path, replace(MACHINE, key="another"), target="gpt")
    several = registry.search(here(target=None), [tmp_path])
    assert (nothing.match, several.match) == (None, None)
    assert nothing.reason == f"no script names the target: write {registry.NAMING}"
    assert several.reason == f"{nothing.reason}; this machine has profiles for: bert, resnet"
    other = registry.search(here(target="brt"), [tmp_path]).reason
    assert " and brt; did you mean bert?; this machine has profiles for: bert, resnet; make one" in other


def interrupted(root: Path, machine: MachineType = MACHINE, name: str = "resnet.partial.yaml") -> Path:
    """The profile of an interrupted run."""
    made = profile(machine)
    partial = replace(made, evidence=replace(made.evidence, partial=True))
    return file.write(root / machine.key / name, partial)


@pytest.mark.parametrize("name", ["resnet.partial.yaml", "resnet.yaml"])
def test_an_interrupted_runs_profile_is_found_if_nothing_else_fits(tmp_path: Path, name: str) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    partial = interrupted(near, name=name)
    elsewhere = interrupted(near, replace(MACHINE, key="elsewhere"))
    assert find(here(), [near, far]).path == partial  # type: ignore[union-attr]
    other = put(far, replace(MACHINE, key="other"))
    assert find(here(), [near, far]).path == other  # type: ignore[union-attr]
    own = put(far)
    assert find(here(), [near, far]).path == own  # type: ignore[union-attr]
    for path in (partial, other, own):
        path.unlink()
    assert find(here(), [near, far]).path == elsewhere  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 5000, b"x" * 99_999, "another target"])
def test_files_that_are_no_use_are_skipped_with_a_note(tmp_path: Path, content: bytes | str) -> None:
    path = default_path(MACHINE.key, "resnet", tmp_path)
    if isinstance(content, bytes):
        path.parent.mkdir()
        path.write_bytes(content)
    else:
        put(tmp_path, target="other").rename(path)
    found = registry.search(here(), [tmp_path])
    assert found.match is None
    assert [note.startswith(f"skipped {path}: ") for note in found.notes] == [True]
    assert isinstance(content, bytes) or "was made for the target 'other', not for 'resnet'" in found.notes[0]
    put(tmp_path, replace(MACHINE, key="other"))
    assert find(here(), [tmp_path]) is not None
    assert registry.search(here(), [tmp_path]).notes == found.notes


def test_looking_in_strange_places_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "a" / "resnet.yaml").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "a" / ".resnet.yaml").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    roots = [
        tmp_path,
        *(tmp_path / name for name in ("none", "file", "loop")),
        Path("/proc/self/mem"),
        Path("~nobody/x"),
    ]
    assert find(here(), roots) is None
    assert [Registry(root).names() for root in roots] == [["a/resnet.yaml"], [], [], [], [], []]


def test_another_projects_script_of_the_same_name_has_another_profile(tmp_path: Path, monkeypatch) -> None:
    """Seen: src/train.py of one project was started with one thread, which was measured for another project's."""
    path = put(tmp_path / "shared", target="src.train")
    found = file.read(path)
    file.write(path, replace(found, target=replace(found.target, project="first")))
    monkeypatch.setenv("AUTOTUNE_PROFILES", str(tmp_path / "shared"))
    for name, fits in (("first", True), ("second", False)):
        script = tmp_path / name / "src" / "train.py"
        script.parent.mkdir(parents=True)
        (tmp_path / name / "pyproject.toml").touch()
        looked = registry.search(replace(here(), names=project.names_of(script)), script=script)
        assert (looked.match is not None, "another project" in "".join(looked.notes)) == (fits, not fits)


def test_links_that_lead_out_of_a_registry_are_not_followed(tmp_path: Path) -> None:
    """Who may write there must not see what its readers may read."""
    secret = tmp_path / "secret.yaml"
    secret.write_text("root:x:0:0")
    put(tmp_path / "team")
    for name, target in (("out.yaml", secret), ("within.yaml", "resnet.yaml")):
        (tmp_path / "team" / MACHINE.key / name).symlink_to(target)
    one = Registry(tmp_path / "team")
    assert one.read(f"{MACHINE.key}/within.yaml") == one.read(f"{MACHINE.key}/resnet.yaml")
    found = registry.search(here(target="out"), [tmp_path / "team"])
    assert found.notes == (
        f"skipped {tmp_path}/team/{MACHINE.key}/out.yaml: is a link that leads out of {tmp_path}/team",
    )


def test_a_script_that_is_called_otherwise_today_has_its_profile(tmp_path: Path) -> None:
    both = replace(here(), names=("vision.train", "train"))
    old = put(tmp_path / "profiles", target="train")
    assert registry.search(both, [tmp_path / "profiles"]).match.path == old  # type: ignore[union-attr]
    new = put(tmp_path / "profiles", target="vision.train")
    assert registry.search(both, [tmp_path / "profiles"]).match.path == new  # type: ignore[union-attr]
