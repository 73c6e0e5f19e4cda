"""Who signed what: keys as users name them, signatures as others write them, hostile ones too."""

from __future__ import annotations

import builtins
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.core.errors import UsageError
from autotune.store import signatures
from autotune.store.signatures import Keys, named, refusal, sign, trusted

from .hostile import canary, hostile_signatures
from .signing import make_key, minisign

CONTENT = b"hello\n"
PROGRAM = "RWTYej0jYc9wOrJr6vBLyShjYQsxJ2v5I+Vay8RyU5O7gD9nH+mjHOEl"
"""A public key that the program minisign 0.11 made, and what it made of CONTENT: as usual, and with -l."""
HASHED = b"""untrusted comment: signature from minisign secret key
RUTYej0jYc9wOvDTHO80joPM7AEzl+rDKPm0zYZZl9m6haDrjEgLKVaPp27Fiz8dikyHLz8o2E3H9nI++Dt50bLi78GK1Jh/xQo=
trusted comment: timestamp:1795370952\tfile:f\thashed
2093X1ccVniaAhbnxUHg2Lef+Tz0F9WaP3BtMcRosZC6S5jndu8wk4Gm1W/ZZSlt1WIyzqZ+WLghyU2IDX1iAQ==
"""
LEGACY = b"""untrusted comment: signature from minisign secret key
RWTYej0jYc9wOimTtTICivOFb5HRt1Xv9pQ23GULGqZm83UJBgCq5AQRo88kXx+HDyVyT8bXafou2RRd2KnHc4RYdLXeu6k7OAU=
trusted comment: timestamp:1795370952\tfile:f
SBlHmfxLUpcuS3xdPJzrMzW3TcoCuXoFi2Q8LZ4fQwOPV7gZ2gZ8GlGN7ujrI1K4bIBykVcHWnTKSpDjN1a3Dg==
"""
KEYS = Keys("KEYS", (PROGRAM,))


def nobody(_path: Path) -> str:
    pytest.fail("nobody is asked for a password")


@pytest.mark.parametrize("signature", [HASHED, LEGACY, HASHED.replace(b"\n", b"\r\n")])
def test_what_the_program_signed_is_trusted(signature: bytes) -> None:
    assert refusal(CONTENT, signature, KEYS) == ""
    assert "was changed" in refusal(CONTENT + b" ", signature, KEYS)
    assert refusal(CONTENT, None, KEYS).startswith("is not signed, and KEYS asks for it")


def test_another_key_is_named_by_its_number(tmp_path: Path) -> None:
    other = make_key(tmp_path)
    assert refusal(CONTENT, HASHED, other.keys).startswith("is signed by the key 3A70CF61233D7AD8, which")
    assert refusal(CONTENT, HASHED, named(f"{other.public}:{PROGRAM}", "KEYS")) == ""


def test_a_key_that_only_has_the_same_number(tmp_path: Path) -> None:
    pair = minisign.KeyPair.generate()
    number = minisign.PublicKey.from_base64(PROGRAM)._keynum_pk.key_id
    pair.secret_key._keynum_sk.key_id[:] = number
    forged = bytes(pair.secret_key.sign(CONTENT))
    assert "3A70CF61233D7AD8: it was changed" in refusal(CONTENT, forged, KEYS)


@pytest.mark.parametrize("name", hostile_signatures(HASHED, LEGACY))
def test_a_hostile_signature_is_refused_in_plain_words_and_runs_nothing(name: str) -> None:
    signature, start = hostile_signatures(HASHED, LEGACY)[name], time.process_time()
    with canary() as events:
        said = refusal(CONTENT, signature, KEYS)
    assert time.process_time() - start < 2.0
    assert said
    assert said.isascii()
    assert said.isprintable()
    assert [event for event in events if event != "import"] == []


@given(st.binary(max_size=400), st.integers(0, len(HASHED)))
@settings(max_examples=200, deadline=None)
def test_bytes_of_any_kind_are_no_signature(noise: bytes, place: int) -> None:
    assert refusal(CONTENT, noise, KEYS)
    changed = HASHED[:place] + noise + HASHED[place + len(noise) :]
    first = HASHED.index(b"\n")  # what stands in the first line is not signed
    assert refusal(CONTENT, changed, KEYS) or changed[-first:] == HASHED[-first:]


def test_comments_are_never_shown() -> None:
    evil = HASHED.replace(b"signature from", b"\x1b]0;owned\x07 from")
    assert refusal(CONTENT, evil, KEYS) == ""  # that line is not signed
    assert "owned" not in refusal(CONTENT + b"x", evil, KEYS)


def test_keys_as_users_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = make_key(tmp_path, "one"), make_key(tmp_path, "two")
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in (
        f"{one.public}:{two.public}",
        f" {one.public} ; {two.public};",
        f"{one.public}\n{two.public}\n",
        f"{tmp_path}/one.pub:{two.public}",
        f"~/one.pub;{tmp_path / 'two.pub'}",
        (tmp_path / "one.pub").read_text() + (tmp_path / "two.pub").read_text(),
        f"{one.public}:{one.public}:{two.public}",
    ):
        assert named(text, "KEYS") == Keys("KEYS", (one.public, two.public)), text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "KEYS: 'nothing' is neither a public key of minisign nor a file that can be read"),
        ("team.key", "KEYS: 'team.key' is no public key of minisign"),
        ("/", "KEYS: '/' is neither"),
        ("pipe", "KEYS: 'pipe' is neither"),
        ("~nobody-here/x.pub", "is neither"),
        ("empty", "KEYS: 'empty' is no public key"),
        ("A" * 56, "is no public key of minisign"),
        (PROGRAM[:-1], "is neither"),
        ("\u202e\x1b", "KEYS: '\\u202e\\x1b' is neither"),
        ("x" * 5000, "is neither"),
    ],
)
def test_what_is_no_key_is_said_and_the_others_count(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_key(tmp_path)
    os.mkfifo("pipe")
    Path("empty").touch()
    alone, beside = named(text, "KEYS"), named(f"{text};{PROGRAM}", "KEYS")
    assert said in alone.problems[0]
    assert alone.problems[0].isascii()
    assert alone.problems[1] == "KEYS names no key that can be used: nothing is trusted"
    assert "cannot be checked, as KEYS names no key" in refusal(CONTENT, HASHED, alone)
    assert (beside.public, beside.problems) == ((PROGRAM,), alone.problems[:1])


def test_only_where_the_variable_is_not_set_nothing_is_asked_for() -> None:
    assert trusted({}) is None
    for blank in ("", " ", ":", "untrusted comment: RW"):
        keys = trusted({signatures.VARIABLE: blank})
        assert keys is not None
        assert "AUTOTUNE_TRUSTED_KEYS names no key that can be used" in keys.problems[0]
        assert refusal(CONTENT, HASHED, keys)


def test_without_the_library_nothing_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "minisign":
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    keys = named(PROGRAM, "KEYS")
    assert keys.problems[0] == "KEYS: signatures need py-minisign: pip install 'torch-autotune[sign]'"
    assert refusal(CONTENT, HASHED, keys)
    assert refusal(CONTENT, HASHED, KEYS)
    with pytest.raises(UsageError, match="py-minisign"):
        sign(CONTENT, "x", Path("x"), nobody)


def test_what_is_signed_is_checked_and_names_nobody(tmp_path: Path) -> None:
    key = make_key(tmp_path)
    made = sign(CONTENT, "resnet.yaml", key.secret, nobody)
    assert made.public == key.public
    assert refusal(CONTENT, made.text.encode(), key.keys) == ""
    parsed = minisign.Signature.from_bytes(made.text.encode())
    assert parsed.is_prehashed()
    stamp, rest = parsed.trusted_comment.split("\t", 1)
    assert stamp.removeprefix("timestamp:").isdecimal()
    assert rest == "file:resnet.yaml\thashed"


def test_a_password_is_asked_for_where_the_key_has_one(tmp_path: Path) -> None:
    key = make_key(tmp_path, password="secret-word")
    made = sign(CONTENT, "x", key.secret, lambda _path: "secret-word")
    assert refusal(CONTENT, made.text.encode(), key.keys) == ""
    with pytest.raises(UsageError, match=r"team\.key: cannot be unlocked \(wrong password") as caught:
        sign(CONTENT, "x", key.secret, lambda _path: "secret-w0rd")
    assert "secret" not in str(caught.value).partition(": ")[2]


def test_a_key_that_needs_more_memory_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_words: Any, **_options: Any) -> None:
        raise MemoryError

    key = make_key(tmp_path, password="x")
    monkeypatch.setattr(minisign.SecretKey, "decrypt", full)
    with pytest.raises(UsageError, match="not enough memory"):
        sign(CONTENT, "x", key.secret, lambda _path: "x")


@pytest.mark.parametrize("damage", ["missing", "folder", "public", "empty", "short", "huge", "swapped"])
def test_what_is_no_secret_key_is_refused(damage: str, tmp_path: Path) -> None:
    key, other = make_key(tmp_path), make_key(tmp_path, "other")
    path = tmp_path / damage
    text = key.secret.read_bytes()
    if damage == "folder":
        path.mkdir()
    elif damage == "swapped":  # the public part of another key: what it signs would fit no public key
        mixed = minisign.SecretKey.from_file(key.secret)
        mixed._keynum_sk.public_key[:] = minisign.SecretKey.from_file(other.secret)._keynum_sk.public_key
        path.write_bytes(bytes(mixed))
    elif damage != "missing":
        contents = {"public": (tmp_path / "team.pub").read_bytes(), "short": text[:-9], "huge": text + b"\n" * 9000}
        path.write_bytes(contents.get(damage, b""))
    with pytest.raises(UsageError, match=rf"{damage}: (cannot be read|is no secret key of minisign|is damaged)"):
        sign(CONTENT, "x", path, nobody)
