"""Signatures by minisign: whether a key that the user trusts signed exactly these bytes.

Comments of keys and signatures are never shown: whoever wrote them is not known. The library is imported where a key is
named, not before. Checking never raises: training must start, without the profile.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.errors import UsageError
from autotune.store import plain_file
from autotune.store.validation import quote

VARIABLE = "AUTOTUNE_TRUSTED_KEYS"
MAX_BYTES = 16 * 1024
"""minisign's longest comments take 9 KB."""
KEY_BYTES = 4096
"""No file with a key is larger."""
MISSING = "signatures need py-minisign: pip install 'torch-autotune[sign]'"
_PUBLIC = re.compile(r"[A-Za-z0-9+/]{56}")
_COMMENT = "untrusted comment:"


@dataclass(frozen=True)
class Keys:
    """Public keys whose signatures count.

    Attributes:
        source: what names them: the variable or an option.
        public: the keys, as minisign prints them.
        problems: what is named and is no key. Where no key is left, nothing is trusted.
    """

    source: str
    public: tuple[str, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Signature:
    """A signature file's text, and the public key that checks it."""

    text: str
    public: str


def trusted(environment: Mapping[str, str]) -> Keys | None:
    """The keys of ``AUTOTUNE_TRUSTED_KEYS``; None where it is not set, so that no signature is asked for."""
    text = environment.get(VARIABLE)
    return None if text is None else named(text, VARIABLE)


def named(text: str, source: str) -> Keys:
    """The keys in ``text``: public keys and files that hold one, with ``:``, ``;`` or line ends between them."""
    public, problems = [], []
    for entry in _entries(text):
        try:
            public.append(_public(entry))
        except UsageError as error:
            problems.append(f"{source}: {error}")
    if not public:
        problems.append(f"{source} names no key that can be used: nothing is trusted")
    return Keys(source, tuple(dict.fromkeys(public)), tuple(problems))


def refusal(content: bytes, signature: bytes | None, keys: Keys) -> str:
    """Why ``content`` is not to be used, and what to do; empty where one of ``keys`` signed exactly these bytes."""
    if not keys.public:
        return f"cannot be checked, as {keys.source} names no key that can be used"
    if signature is None:
        return f"is not signed, and {keys.source} asks for it. Have it pushed again with --sign"
    try:
        parsed = _parsed(signature)
        signer, ours = _identity(bytes(parsed).splitlines()[1]), map(_library().PublicKey.from_base64, keys.public)
        same = [key for key in ours if _identity(key.to_base64()) == signer]
        if any(_fits(key, content, parsed) for key in same):
            return ""
    except Exception:  # of whatever kind: what cannot be checked is not trusted
        return "has a signature that cannot be read. Have it pushed again with --sign"
    if same:
        return f"does not fit its signature by the key {signer}: it was changed. Have it pushed again with --sign"
    return f"is signed by the key {signer}, which {keys.source} does not name. Name it if you trust it"


def sign(content: bytes, name: str, secret_key: Path, ask: Callable[[Path], str]) -> Signature:
    """Sign ``content``, as the program minisign does.

    Args:
        content: what is signed.
        name: of its file, for the signature's comment.
        secret_key: the file with the key.
        ask: gives the password of the file. Called only where it has one.

    Raises:
        UsageError: no secret key of minisign, or not its password.
    """
    with _secret(secret_key) as key:
        _unlock(key, secret_key, ask)
        comment = f"timestamp:{int(time.time())}\tfile:{name}\thashed"
        made, public = key.sign(content, trusted_comment=comment), key.get_public_key()
        if not _fits(public, content, made):
            raise UsageError(f"{secret_key}: is damaged: its public part does not fit what it signs")
        return Signature(bytes(made).decode() + "\n", public.to_base64().decode())


def _entries(text: str) -> Iterator[str]:
    """Entries of a list of keys. The first line of a key's file, where somebody pastes the whole, is none."""
    lines = (line.strip() for line in text.splitlines())
    for line in lines:
        if not line.startswith(_COMMENT):
            yield from filter(None, (entry.strip() for entry in re.split("[:;]", line)))


def _public(entry: str) -> str:
    """The public key that ``entry`` is, or whose file it names.

    Raises:
        UsageError: neither.
    """
    text, library = entry if _PUBLIC.fullmatch(entry) else _key_in(entry), _library()
    try:
        return str(library.PublicKey.from_base64(text).to_base64().decode())
    except ValueError:
        raise UsageError(f"{quote(entry)} is no public key of minisign") from None


def _key_in(path: str) -> str:
    """The line of a key's file that is no comment."""
    try:
        text = plain_file.read(Path(path).expanduser(), KEY_BYTES).decode("ascii", "replace")
    except (OSError, RuntimeError, ValueError):
        raise UsageError(f"{quote(path)} is neither a public key of minisign nor a file that can be read") from None
    lines = (line.strip() for line in text.splitlines() if not line.startswith(_COMMENT))
    return next(filter(None, lines), "")


def _parsed(signature: bytes) -> Any:
    if len(signature) > MAX_BYTES:
        raise ValueError("too large")
    return _library().Signature.from_bytes(signature)


def _fits(key: Any, content: bytes, signature: Any) -> bool:
    try:
        key.verify(content, signature)
    except ValueError:
        return False
    return True


def _identity(line: bytes) -> str:
    """The key's number that a key or signature begins with, as minisign prints it."""
    return base64.b64decode(line)[2:10][::-1].hex().upper()


def _secret(path: Path) -> Any:
    library = _library()
    try:
        return library.SecretKey.from_bytes(plain_file.read(path, KEY_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError:
        raise UsageError(f"{path}: is no secret key of minisign (minisign -G makes one)") from None


def _unlock(key: Any, path: Path, ask: Callable[[Path], str]) -> None:
    if not key.is_encrypted():
        return
    try:
        key.decrypt(ask(path))
    except MemoryError:
        raise UsageError(f"{path}: there is not enough memory to check its password, which takes about 1 GB") from None
    except ValueError as error:
        raise UsageError(f"{path}: cannot be unlocked ({error})") from None


def _library() -> Any:
    """py-minisign.

    Raises:
        UsageError: it is missing, or does not work here.
    """
    try:
        import minisign
    except Exception as error:
        raise UsageError(MISSING) from error
    return minisign
