"""Real keys and signatures of minisign."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotune.store import signatures
from autotune.store.signatures import Keys

minisign: Any = pytest.importorskip("minisign")
CHEAP = {"opslimit": 32768, "memlimit": 1 << 20}
"""A password that a test can check quickly."""


@dataclass(frozen=True)
class Key:
    """A pair of keys: the file of the secret one, and the public one as minisign prints it."""

    secret: Path
    public: str

    def signature(self, content: bytes, name: str = "resnet.yaml") -> str:
        """The text of a signature of ``content``."""
        return signatures.sign(content, name, self.secret, lambda _path: "").text

    @property
    def keys(self) -> Keys:
        """As the environment would name it."""
        return signatures.named(self.public, signatures.VARIABLE)


def make_key(folder: Path, name: str = "team", password: str | None = None) -> Key:
    """A new pair of keys; the public one is also in the file ``<name>.pub``."""
    pair = minisign.KeyPair.generate()
    if password is not None:
        pair.secret_key.encrypt(password, **CHEAP)
    folder.mkdir(exist_ok=True)
    for suffix, key in (("key", pair.secret_key), ("pub", pair.public_key)):
        (folder / f"{name}.{suffix}").write_bytes(bytes(key) + b"\n")
    return Key(folder / f"{name}.key", pair.public_key.to_base64().decode())
