"""``autotune profiles push --sign`` and ``pull`` where a signature is asked for."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.machine import machine_type
from autotune.probes.facts import Inventory
from autotune.store import profiles
from autotune.store.signatures import VARIABLE

from ..store.servers import folder_server
from ..store.signing import Key, make_key
from .conftest import Say

pytestmark = pytest.mark.usefixtures("elsewhere")


class Terminal(io.StringIO):
    """A standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """A key of the team, without a password. Nothing asks for signatures yet."""
    return make_key(tmp_path / "keys")


def test_signed_pushed_checked_and_pulled(
    say: Say,
    saved: Path,
    machine: Inventory,
    key: Key,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("aiohttp")
    file = Path("shared", machine_type(machine).key, "resnet.yaml")
    code, out, err = say("push", saved, "--to", "shared", "--sign", key.secret)
    assert (code, out) == (0, f"{file}\n")
    assert f"{VARIABLE}={key.public}" in err
    assert "is there already" in say("push", saved, "--to", "shared", "--sign", key.secret)[1]
    assert "is there already" in say("push", saved, "--to", "shared")[1]
    monkeypatch.setenv(VARIABLE, key.public)
    with folder_server(Path("shared")) as (url, asked):
        for source in ("shared", url):
            code, out, err = say("pull", "resnet", "--from", source, "--yes", "--to", "own")
            assert (code, f"signed by a key of {VARIABLE}" in err) == (0, True)
        whole = f"{url}/{machine_type(machine).key}/resnet.yaml"
        code, out, err = say("pull", f"{whole}?token=secret-word", "--yes", "--to", "own")
        assert (code, "secret-word" in out + err) == (0, False)
        address = f"/{file.relative_to('shared')}"
        assert asked[-2:] == [f"{address}?token=secret-word", f"{address}.minisig?token=secret-word"]
        file.write_text(f"{file.read_text()}# all is well\n")
        code, _out, err = say("pull", whole, "--yes", "--to", "own")
        assert (code, f"{whole}: does not fit its signature" in err) == (2, True)
    code, _out, err = say("pull", "resnet", "--from", "shared", "--yes")
    assert (code, f"skipped {file}: does not fit its signature" in err) == (4, True)
    code, out, _err = say("match", "resnet")
    assert (code, "skipped" in out) == (4, False)  # nothing is named where others write
    monkeypatch.setenv("AUTOTUNE_PROFILES", "shared")
    out = say("match", "resnet")[1]
    assert f"skipped {file}: does not fit its signature" in out
    assert "did you mean" not in out
    assert f"{file}: does not fit its signature" in say("list")[1]


def test_one_pull_may_ask_for_a_key(say: Say, saved: Path, key: Key, tmp_path: Path) -> None:
    say("push", saved, "--to", "shared", "--sign", key.secret)
    other = make_key(tmp_path / "keys", "other")
    pull = ("pull", "resnet", "--from", "shared", "--yes", "--to", "own", "--key")
    code, _out, err = say(*pull, key.public)
    assert (code, "signed by a key of --key" in err) == (0, True)
    assert say(*pull, tmp_path / "keys" / "team.pub")[0] == 0
    code, _out, err = say(*pull, other.public)
    assert (code, "which --key does not name" in err) == (4, True)
    code, _out, err = say(*pull, "nothing")
    assert (code, "--key: 'nothing' is neither a public key" in err) == (2, True)
    assert say(*pull, "")[0] == 2


def test_a_key_that_is_asked_for_once_stands_before_those_of_the_environment(
    say: Say,
    saved: Path,
    key: Key,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    say("push", saved, "--to", "shared", "--sign", key.secret)
    monkeypatch.setenv(VARIABLE, make_key(tmp_path / "keys", "other").public)
    assert say("pull", "resnet", "--from", "shared", "--yes")[0] == 4
    assert say("pull", "resnet", "--from", "shared", "--yes", "--key", key.public)[0] == 0


def test_a_profile_that_is_there_is_signed_later(say: Say, saved: Path, key: Key, tmp_path: Path) -> None:
    say("push", saved, "--to", "shared")
    (file,) = Path("shared").glob("*/resnet.yaml")
    before = file.read_bytes()
    assert say("push", saved, "--to", "shared", "--sign", key.secret)[0] == 0
    assert file.read_bytes() == before
    other = make_key(tmp_path / "keys", "other")
    code, _out, err = say("push", saved, "--to", "shared", "--sign", other.secret)
    assert (code, "another signature is there. Give --replace" in err) == (2, True)
    assert say("push", saved, "--to", "shared", "--sign", other.secret, "--replace")[0] == 0
    pull = ("pull", "resnet", "--from", "shared", "--yes", "--key")
    assert [say(*pull, each.public)[0] for each in (key, other)] == [4, 0]


def test_another_profile_takes_the_signature_along(say: Say, saved: Path, key: Key, tmp_path: Path) -> None:
    say("push", saved, "--to", "shared", "--sign", key.secret)
    other = profiles.write(tmp_path / "other.yaml", replace(profiles.read(saved), recommended="safe"))
    assert say("push", other, "--to", "shared", "--replace")[0] == 0
    assert not list(Path("shared").glob("*/*.minisig"))


def test_who_asks_for_signatures_hears_that_none_is_made(
    say: Say,
    saved: Path,
    key: Key,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, key.public)
    assert f"not signed (--sign): who sets {VARIABLE} skips it" in say("push", saved, "--to", "shared")[2]


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ("secret-word", 0, "signed; others check it"),
        ("wrong", 2, "cannot be unlocked (wrong password for that key)"),
        (EOFError, 2, "without the password nothing was signed"),
        (None, 2, "locked.key: has a password and there is nobody to ask"),
    ],
)
def test_a_password_is_asked_for_in_a_terminal(
    typed: str | type[EOFError] | None,
    code: int,
    said: str,
    say: Say,
    saved: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(_question: str) -> str:
        if not isinstance(typed, str):
            raise EOFError
        return typed

    monkeypatch.setattr("sys.stdin", Terminal() if typed is not None else io.StringIO())
    monkeypatch.setattr("getpass.getpass", answer)
    locked = make_key(tmp_path / "keys", "locked", password="secret-word")
    found, _out, err = say("push", saved, "--to", "shared", "--sign", locked.secret)
    assert (found, said in err) == (code, True)
    assert Path("shared").exists() == (code == 0)


def test_a_wrong_key_file_changes_nothing(say: Say, saved: Path, key: Key, tmp_path: Path) -> None:
    for name in ("team.pub", "nothing"):
        code, _out, err = say("push", saved, "--to", "shared", "--sign", tmp_path / "keys" / name)
        assert (code, f"{name}: " in err) == (2, True)
    assert not Path("shared").exists()
