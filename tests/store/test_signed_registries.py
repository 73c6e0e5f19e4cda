"""Registries whose profiles need a signature: folders, web servers, copies; replaced, tampered with, taken away."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.errors import ProfileError
from autotune.core.match import Here
from autotune.store import fetch, places, profiles, registry, signed_files
from autotune.store.cache import Cache
from autotune.store.files import FolderFiles
from autotune.store.folder import Folder
from autotune.store.places import Place, Signed
from autotune.store.signatures import VARIABLE

from .hostile import canary, hostile_signatures
from .records import MACHINE, find, profile
from .servers import folder_server
from .signing import Key, make_key, minisign

TEXT = profiles.dump(profile(), "resnet.yaml")
OTHER = profiles.dump(replace(profile(), recommended="safe"), "resnet.yaml")
HERE = Here(MACHINE, profile().software, "resnet")
NAME = f"{MACHINE.key}/resnet.yaml"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """Of the team."""
    return make_key(tmp_path / "keys")


@pytest.fixture
def root(tmp_path: Path, key: Key) -> Path:
    """A registry with one signed profile."""
    found = tmp_path / "shared"
    Folder(found).put(MACHINE.key, "resnet.yaml", TEXT, key.signature(TEXT.encode()))
    return found


def notes(place: Place, key: Key) -> tuple[str, ...]:
    """Why nothing is found."""
    found = registry.search(HERE, [place if isinstance(place, Signed) else Signed(place, key.keys)])
    assert found.match is None
    assert found.similar is None
    return found.notes


def test_what_a_trusted_key_signed_is_used_from_a_copy_of_ones_own(root: Path, key: Key, tmp_path: Path) -> None:
    found = registry.search(HERE, [Signed(root, key.keys)])
    assert found.match is not None
    assert (found.match.profile, found.match.source, found.notes) == (profile(), str(root / NAME), ())
    assert found.match.path.is_relative_to(tmp_path / "cache")
    assert stat.S_IMODE(found.match.path.stat().st_mode) == 0o600
    (root / NAME).write_text(OTHER)  # after it was checked
    assert profiles.read(found.match.path) == profile()


def test_the_program_finds_the_signature_where_it_looks(root: Path, key: Key) -> None:
    assert sorted(path.name for path in (root / MACHINE.key).iterdir()) == ["resnet.yaml", "resnet.yaml.minisig"]
    minisign.PublicKey.from_base64(key.public).verify_file(root / NAME)


Change = Callable[[Path, Key, Key], None]
CHANGES: dict[str, tuple[Change, str]] = {
    "profile": (lambda file, _key, _other: _append(file, "# all is well\n"), "does not fit its signature by the key"),
    "line ends": (
        lambda file, _key, _other: file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n")) and None,
        "does not fit its signature by the key",
    ),
    "replaced": (lambda file, _key, _other: file.write_text(OTHER) and None, "does not fit its signature by the key"),
    "missing": (lambda file, _key, _other: _signature(file).unlink(), f"is not signed, and {VARIABLE} asks for it"),
    "cut": (
        lambda file, _key, _other: _signature(file).write_text("untrusted comment: x") and None,
        "has a signature that cannot be read",
    ),
    "other key": (
        lambda file, _key, other: _signature(file).write_text(other.signature(TEXT.encode())) and None,
        f"which {VARIABLE} does not name",
    ),
    "of other content": (
        lambda file, key, _other: _signature(file).write_text(key.signature(OTHER.encode())) and None,
        "does not fit its signature by the key",
    ),
    "a folder": (lambda file, _key, _other: _folder_instead(_signature(file)), "cannot be read (Is a directory)"),
    "a pipe": (lambda file, _key, _other: _pipe_instead(_signature(file)), "cannot be read (is not a plain file)"),
    "too large": (lambda file, _key, _other: _append(file, "#" * profiles.MAX_BYTES), "is larger than 64 KB"),
}


def _signature(file: Path) -> Path:
    return file.with_name(f"{file.name}.minisig")


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


def _folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _pipe_instead(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("change", CHANGES)
def test_what_no_trusted_key_signed_as_it_is_is_skipped_in_one_sentence(
    change: str, root: Path, key: Key, tmp_path: Path
) -> None:
    work, said = CHANGES[change]
    work(root / NAME, key, make_key(tmp_path / "keys", "other"))
    (note,) = notes(root, key)
    assert note.startswith(f"skipped {root / NAME}")
    assert said in note
    assert note.isprintable()
    assert registry.search(HERE, [root]).match is not None or change == "too large"  # without keys


@pytest.mark.parametrize("change", ["profile", "replaced", "missing", "cut", "other key", "of other content"])
def test_the_same_from_a_web_server_and_from_copies(change: str, root: Path, key: Key, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    work, said = CHANGES[change]
    other = make_key(tmp_path / "keys", "other")
    with folder_server(root) as (url, asked):
        place = Signed(url, key.keys)
        assert find(HERE, [place]) is not None
        assert asked == [f"/{NAME}", f"/{NAME}.minisig"]
        work(root / NAME, key, other)
        (note,) = notes(place, key)
        assert note.startswith(f"skipped {url}/{NAME}: ")
        assert said in note
    found = registry.search(HERE, [place])  # what was refused has replaced no copy
    assert found.match is not None
    assert (found.match.profile, len(found.notes)) == (profile(), 1)
    (copy,) = (tmp_path / "cache").rglob("resnet.yaml")
    work(copy, key, other)
    assert [said in each for each in notes(place, key)] == [False, True]
    assert f"the copy of {url}/{NAME}" in notes(place, key)[1]


def test_copies_that_were_made_without_keys_are_not_trusted_later(root: Path, key: Key) -> None:
    pytest.importorskip("aiohttp")
    with folder_server(root) as (url, _asked):
        assert find(HERE, [url]) is not None
    assert "is not signed" in notes(Signed(url, key.keys), key)[1]


def test_hostile_signatures_in_a_registry(root: Path, key: Key) -> None:
    good = _signature(root / NAME).read_bytes()
    older = bytes(minisign.SecretKey.from_file(key.secret).sign(TEXT.encode(), prehash=False))
    for name, signature in hostile_signatures(good, older).items():
        _signature(root / NAME).write_bytes(signature)
        with canary() as events:
            (note,) = notes(root, key)
        assert note.startswith(f"skipped {root / NAME}: "), name
        assert note.isascii(), name
        assert [event for event in events if event not in ("import", "open")] == [], name
    _signature(root / NAME).write_bytes(older)
    assert find(HERE, [Signed(root, key.keys)]) is not None


class Interrupted(FolderFiles):
    """Files of a folder, where writing ends after so many steps."""

    def __init__(self, root: Path, steps: int) -> None:
        super().__init__(root)
        self.left = steps

    def _step(self) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1

    def write(self, name: str, text: str) -> None:
        self._step()
        super().write(name, text)

    def remove(self, name: str) -> None:
        self._step()
        super().remove(name)


@pytest.mark.parametrize("steps", range(5))
def test_at_every_moment_of_a_signed_push_there_is_a_signature_that_fits(steps: int, root: Path, key: Key) -> None:
    try:
        signed_files.put(Interrupted(root, steps), NAME, OTHER, key.signature(OTHER.encode()))
    except KeyboardInterrupt:
        assert steps < 4
    match = find(HERE, [Signed(root, key.keys)])
    assert match is not None
    assert match.profile.recommended == ("amp" if steps < 2 else "safe")
    Folder(root).put(MACHINE.key, "resnet.yaml", TEXT, key.signature(TEXT.encode()))
    assert len(list((root / MACHINE.key).iterdir())) == 2


class Replaced(FolderFiles):
    """Files of a folder that are replaced by ``change`` before a certain read."""

    def __init__(self, root: Path, turn: int, change: Callable[[], object]) -> None:
        super().__init__(root)
        self.turn, self.change = turn, change

    def read(self, name: str, most: int) -> bytes | None:
        if self.turn == 0:
            self.change()
        self.turn -= 1
        return super().read(name, most)


@pytest.mark.parametrize("turn", range(4))
def test_a_reader_in_the_midst_of_a_push_reads_again(turn: int, root: Path, key: Key) -> None:
    def push() -> None:
        signed_files.put(FolderFiles(root), NAME, OTHER, key.signature(OTHER.encode()))

    found = signed_files.read(Replaced(root, turn, push), NAME, profiles.MAX_BYTES, key.keys, "x")
    assert found is not None
    assert found.content.decode() == (OTHER if turn < 2 else TEXT)


def test_of_a_registry_without_signatures_no_more_is_read_than_of_another(root: Path, key: Key) -> None:
    for number in range(30):
        Folder(root).put(f"amd-epyc-zen{number}-8c-32g", "resnet.yaml", TEXT)
    assert len(notes(root, make_key(root / "keys", "other"))) == 1 + registry.NEIGHBOURS
    found = registry.search(replace(HERE, target="none"), [Signed(root, key.keys)])
    assert (found.match, found.notes) == (None, ())


def test_a_push_without_a_signature_leaves_no_old_one(root: Path, key: Key) -> None:
    Folder(root).put(MACHINE.key, "resnet.yaml", OTHER)
    assert [path.name for path in (root / MACHINE.key).iterdir()] == ["resnet.yaml"]
    assert "is not signed" in notes(root, key)[0]
    assert find(HERE, [root]) is not None


def test_what_is_removed_takes_its_signature_along(root: Path) -> None:
    Folder(root).take_away(MACHINE.key, "resnet.yaml")
    assert not (root / MACHINE.key).exists()


def test_a_signed_profile_of_another_target_or_machine_is_not_moved(root: Path, key: Key) -> None:
    """Whoever may write to a registry can put a signed file under another name: what it was made for is signed, too."""
    for suffix in ("", ".minisig"):
        (root / f"{NAME}{suffix}").rename(root / MACHINE.key / f"bert.yaml{suffix}")
    found = registry.search(replace(HERE, target="bert"), [Signed(root, key.keys)])
    assert found.match is None
    assert "was made for the target 'resnet'" in found.notes[0]


def test_without_a_folder_for_copies_it_works(
    root: Path, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("autotune.store.places.cache_folder", lambda: None)
    assert find(HERE, [Signed(root, key.keys)]) is not None
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    assert "no folder for a copy can be written" in notes(root, key)[0]


def test_only_what_the_variable_names_needs_a_signature(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {VARIABLE: key.public, "AUTOTUNE_PROFILES": "/shared;https://example.org/p;profiles"}
    found = places.places(environment, tmp_path / "elsewhere" / "train.py")
    signed = [place.location for place in found if isinstance(place, Signed)]
    assert signed == [Path("profiles"), Path("/shared"), "https://example.org/p"]
    assert len(found) == 6
    del environment["AUTOTUNE_PROFILES"]
    assert not [place for place in places.places(environment) if isinstance(place, Signed)]


def test_a_list_says_what_is_not_signed(root: Path, key: Key) -> None:
    pytest.importorskip("aiohttp")
    Folder(root).put("other-8c-8g", "resnet.yaml", TEXT)
    with folder_server(root) as (url, _asked):
        assert find(HERE, [Signed(url, key.keys)]) is not None
    for place in (root, url):
        listed = registry.list_profiles([Signed(place, key.keys)])
        assert [item.profile is not None for item in listed] == ([True, False] if place == root else [True])
        assert [item.profile is not None for item in registry.list_profiles([place])] == [True] * len(listed)
    other = make_key(root / "keys", "other")
    assert "does not name" in registry.list_profiles([Signed(url, other.keys)])[0].problem


def test_a_registry_that_goes_down_between_profile_and_signature(
    root: Path, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"http://x/" + NAME: TEXT.encode(), f"http://x/{NAME}.minisig": _signature(root / NAME).read_bytes()}
    monkeypatch.setattr(fetch, "read", lambda url, _most=0: answers.get(url))
    place = Signed("http://x", key.keys)
    assert find(HERE, [place]) is not None

    def down(url: str, _most: int = 0) -> bytes | None:
        if url.endswith(".minisig"):
            raise fetch.Unreachable("down")
        return OTHER.encode()

    monkeypatch.setattr(fetch, "read", down)
    found = registry.search(HERE, [place])
    assert found.match is not None
    assert (found.match.profile, found.notes) == (profile(), ("down: copies of what was read before are used",))


def test_a_copy_is_written_once(tmp_path: Path, key: Key) -> None:
    cache, found = Cache("x", tmp_path), signed_files.Stored(TEXT.encode(), key.signature(TEXT.encode()).encode())
    before = cache.keep(NAME, found, "x").stat()
    after = cache.keep(NAME, found, "x").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    with pytest.raises(ProfileError):
        cache.keep(NAME, signed_files.Stored(b"no profile"), "x")
    assert cache.read(NAME, profiles.MAX_BYTES) == TEXT.encode()
