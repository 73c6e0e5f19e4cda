"""What is private in a trial, and folders that look like the user's."""

import os
from pathlib import Path

import pytest

from autotune.trial.isolation.private import Mount, Treatment, below, visible_mounts
from autotune.trial.isolation.redirected import MIRROR_ENTRIES, MIRROR_FILE_BYTES, mirror
from autotune.trial.paths import StudyPaths
from tests.processes.trial.users_world import tree_hash


@pytest.mark.parametrize(
    ("mount", "treatment"),
    [
        (Mount("/", "ext4", True), Treatment.PRIVATE),
        (Mount("/mnt/my data", "nfs4", True), Treatment.PRIVATE),
        (Mount("/mnt/archive", "squashfs", False), Treatment.READ_ONLY),
        (Mount("/run", "tmpfs", True), Treatment.READ_ONLY),
        (Mount("/run/user/1000", "tmpfs", True), Treatment.READ_ONLY),
        (Mount("/proc", "proc", True), Treatment.REAL),
        (Mount("/dev", "devtmpfs", True), Treatment.REAL),
        (Mount("/dev/shm", "tmpfs", True), Treatment.SHARED_MEMORY),
    ],
)
def test_what_happens_to_each_mount(mount: Mount, treatment: Treatment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda _: True)
    assert mount.treatment is treatment


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
devtmpfs /dev devtmpfs rw,relatime 0 0
devpts /dev/pts devpts rw,relatime 0 0
tmpfs /dev/shm tmpfs rw,relatime 0 0
tmpfs /dev/shm tmpfs ro,relatime 0 0
server:/data /mnt/my\\040data nfs4 rw,vers=4.2 0 0
"""


def test_the_last_of_several_mounts_at_a_place_hides_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _path, **_options: MOUNTS)
    found = visible_mounts()
    assert found["/dev/shm"] == Mount("/dev/shm", "tmpfs", False)
    assert found["/mnt/my data"] == Mount("/mnt/my data", "nfs4", True)
    assert "/dev/pts" not in found, "it is used as it is, as all of /dev"


@pytest.mark.parametrize(
    ("path", "folders", "inside"),
    [("/a/b", ("/a",), True), ("/a", ("/a",), True), ("/ab", ("/a",), False), ("/a", ("/",), True), ("/a", (), False)],
)
def test_a_path_is_below_a_folder(path: str, folders: tuple[str, ...], inside: bool) -> None:
    assert below(path, folders) is inside


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A user's project under an awkward name."""
    folder = tmp_path / 'it\'s "my"\nproject'
    for name in ("data", "out/runs", ".git/objects", "a/b/c/d/e"):
        (folder / name).mkdir(parents=True)
    (folder / "data.csv").write_text("1,2,3")
    (folder / "empty").touch()
    (folder / "large.bin").write_bytes(bytes(MIRROR_FILE_BYTES + 1))
    (folder / "out" / "old.txt").write_text("kept")
    (folder / "a" / "b" / "c" / "d" / "deep.txt").write_text("deep")
    (folder / ".git" / "HEAD").write_text("ref")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "elsewhere").symlink_to(tmp_path)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "scratch" / "t1"


def test_folders_are_real_down_to_a_depth_and_the_rest_are_links(source: Path, target: Path) -> None:
    mirror(source, target)
    real = ("data.csv", "empty", "data", "out", "out/runs", "out/old.txt", "a", "a/b", "a/b/c")
    links = ("large.bin", ".git", "a/b/c/d", "dangling", "elsewhere")
    assert not any((target / name).is_symlink() for name in real)
    assert {name: os.readlink(target / name) for name in links} == {name: str(source / name) for name in links}


def test_past_the_number_of_entries_everything_is_still_readable(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "many"
    for number in range(MIRROR_ENTRIES + 50):
        (source / f"{number:04}").mkdir(parents=True)
        (source / f"{number:04}" / "label").write_text(str(number))
    mirror(source, target)
    last = f"{MIRROR_ENTRIES + 49:04}"
    assert not (target / "0000").is_symlink()
    assert (target / last).is_symlink()
    assert (target / last / "label").read_text() == str(MIRROR_ENTRIES + 49)


def test_a_folder_that_may_not_be_read_is_empty(source: Path, target: Path) -> None:
    mirror(source / "no such folder", target)
    assert list(target.iterdir()) == []


def test_what_is_already_there_stays(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    (target / "data.csv").write_text("own")
    mirror(source, target)
    assert (target / "data.csv").read_text() == "own"


@pytest.mark.parametrize("scratch", ["autotune-x1", "nested/autotune-x1"])
def test_a_scratch_folder_below_the_source_is_not_mirrored_into_itself(tmp_path: Path, scratch: str) -> None:
    (tmp_path / "model.py").write_text("x = 1")
    before = tree_hash(tmp_path)
    paths = StudyPaths(tmp_path / scratch)
    mirror(tmp_path, paths.trial(1))
    assert os.listdir(paths.trial(1)) == ["model.py"]
    paths.remove()
    if "/" not in scratch:
        assert tree_hash(tmp_path) == before
