"""`load` where profiles of registries need a signature: it applies what a trusted key signed, and always goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import autotune
from autotune.store.signatures import VARIABLE

from ..store.signing import Key, make_key
from .records import quiet
from .test_choice import for_this_machine

TUNED = quiet(batch_size=32)


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Key:
    """The key that is trusted; the working folder has no profiles."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = make_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, found.public)
    return found


@pytest.fixture
def file(tmp_path: Path, key: Key, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed profile of this machine in a shared folder."""
    path = for_this_machine(tmp_path, "bert", TUNED)
    path.with_name("bert.yaml.minisig").write_text(key.signature(path.read_bytes(), "bert.yaml"))
    monkeypatch.setenv("AUTOTUNE_PROFILES", str(tmp_path / "profiles"))
    return path


def test_what_a_trusted_key_signed_is_applied(file: Path) -> None:
    with autotune.load(target="bert") as tuned:
        assert tuned.settings == TUNED
        assert tuned.origin == f"found: {file}"
        assert not any("skipped" in note for note in tuned.notes)


def test_what_was_changed_is_not_applied_and_named_and_training_goes_on(file: Path) -> None:
    file.write_text(f"{file.read_text()}# all is well\n")
    with autotune.load(target="bert") as tuned:
        assert tuned.settings is None
        assert any(f"skipped {file}: does not fit its signature" in note for note in tuned.notes)


def test_ones_own_profiles_need_no_signature(tmp_path: Path, file: Path) -> None:
    os.rename(tmp_path / "profiles", "profiles")
    file = Path("profiles", file.parent.name, file.name)
    file.with_name("bert.yaml.minisig").unlink()
    with autotune.load(target="bert") as tuned:
        assert tuned.settings == TUNED
    with autotune.load(file) as tuned:
        assert tuned.settings == TUNED


@pytest.mark.parametrize("keys", ["", " :", "nothing", "/proc/self/mem", "/dev/zero", "\udcff", "x" * 100_000])
def test_training_starts_whatever_is_named_as_a_key(keys: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, keys)
    with autotune.load(target="bert") as tuned:
        assert tuned.settings is None
        assert any("names no key that can be used" in note for note in tuned.notes)


@pytest.mark.parametrize(
    "signature", [b"", b"\xff" * 300, b"\n" * 50_000, b"untrusted comment: \x1b]0;owned\x07\n\n\n"]
)
def test_training_starts_whatever_is_beside_a_profile(signature: bytes, file: Path) -> None:
    file.with_name("bert.yaml.minisig").write_bytes(signature)
    with autotune.load(target="bert") as tuned:
        assert tuned.settings is None
        assert any("has a signature that cannot be read" in note for note in tuned.notes)
        assert "owned" not in "".join(tuned.notes)
