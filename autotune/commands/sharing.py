"""``autotune profiles push``, ``pull`` and ``rm``: profiles in shared folders and at URLs."""

from __future__ import annotations

import getpass
import hashlib
import os
import sys
from pathlib import Path

from autotune.core.errors import NothingUsable, ProfileError, UsageError
from autotune.core.match import Here
from autotune.probes import inventory
from autotune.report import diff
from autotune.store import fetch, files, layout, plain_file, profiles, registry, signatures, signed_files
from autotune.store.places import (
    VARIABLE,
    Location,
    is_url,
    location_of,
    missing_folders,
    named_places,
    place,
    user_folder,
    with_keys,
)
from autotune.store.signatures import Keys, Signature


def push(path: Path, to: str | None, replace: bool, secret_key: Path | None = None) -> None:
    """Copy a profile into a registry, and print where it is now.

    Args:
        path: the profile.
        to: a folder or URL; the first entry of ``AUTOTUNE_PROFILES`` if None.
        replace: take the place of another profile of the same machine and target, or of another signature.
        secret_key: a file of minisign, to sign with; there is no signature if None.

    Raises:
        UsageError: no registry, an interrupted run's profile, another one is there, or the key cannot be used.
        ProfileError: no valid profile, or the registry cannot be read or written.
    """
    profile = profiles.read(path)
    if profile.evidence.partial:
        raise UsageError(f"{path}: comes from an interrupted run and nothing in it is proven: tune again")
    file = layout.file_name(profile.target.name, profile.target.nnodes)
    text, place = profiles.dump(profile, file), _registries(to, "--to")[0]
    signature = signatures.sign(text.encode(), file, secret_key, _password) if secret_key is not None else None
    if isinstance(place, str):
        fetch.check_writable(place)
    target = registry.registry_at(place)
    there = signed_files.look(target.stored, layout.in_registry(profile.key, file), profiles.MAX_BYTES)
    where = f"{target.shown}/{layout.in_registry(profile.key, file)}"
    if there is not None and there.content == text.encode():
        if signature is None or _by_the_same_key(there, signature):
            print(f"{where}: is there already")
            return
        if there.signature is not None and not replace:
            raise UsageError(f"{where}: another signature is there. Give --replace to put yours in its place")
    elif there is not None and not replace:
        raise UsageError(f"{where}: {_age(there.content)} is there. Compare them (autotune diff), or give --replace")
    print(target.put(profile.key, file, text, signature.text if signature else None))
    _say_who_trusts(signature)


def pull(
    what: str | None, source: str | None, to: Path | None, sha256: str | None, yes: bool, key: str | None = None
) -> None:
    """Copy a profile from a registry to this user's own, after showing what it is.

    Args:
        what: the target's name, or the URL of one profile.
        source: a folder or URL; all entries of ``AUTOTUNE_PROFILES`` if None.
        to: the folder to write to; the user's own if None.
        sha256: what the file must have, in hexadecimal digits.
        yes: do not ask.
        key: the public key that must have signed it, or its file; those of ``AUTOTUNE_TRUSTED_KEYS`` if None.

    Raises:
        UsageError: no such registry or key, the digest differs, or there is nobody to ask.
        NothingUsable: no profile fits.
        ProfileError: no valid profile, not signed by such a key, or it cannot be written.
    """
    keys = signatures.named(key, "--key") if key is not None else signatures.trusted(os.environ)
    if key is not None and keys is not None and keys.problems:
        raise UsageError("; ".join(keys.problems))
    content, shown = _fetched(what, keys) if what and is_url(what) else _matched(what, source, keys)
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and sha256.lower() != digest:
        raise UsageError(f"{shown}: has the sha256 {digest}, not {sha256[:80]}: nothing was written")
    profile = profiles.parse(profiles.decoded(content, shown), shown)
    path = layout.default_path(profile.key, profile.target.name, to or user_folder(), profile.target.nnodes)
    signed = f", signed by a key of {keys.source}" if keys is not None else ""
    print(f"{shown}: {profile.target.name} on {profile.key}, sha256 {digest}{signed}", file=sys.stderr)
    if path.exists():
        print(diff.text(profiles.read(path), profile, ("here", "pulled")), file=sys.stderr)
    _ask(f"Write {path}?", yes)
    try:
        print(profiles.write(path, profile))
    except ProfileError as error:
        raise ProfileError(f"{error}. Choose another place: --to FOLDER") from error


def remove(what: str, source: str | None, yes: bool) -> None:
    """Remove a profile from a registry.

    Args:
        what: a file, or ``<machine key>/<target>`` in the registry ``source``.
        source: a folder or URL; where ``what`` is a file, its own folder if None.
        yes: do not ask.

    Raises:
        UsageError: ``what`` is none of them, or there is nobody to ask.
        ProfileError: it is not there, or cannot be removed.
    """
    path = Path(what)
    if source is None and path.suffix == layout.SUFFIX:
        root: Location = path.parent.parent
        path = Path(path.parent.name, path.name)
    else:
        root = _registries(source, "--from")[0]
        path = Path(what.removesuffix(layout.SUFFIX) + layout.SUFFIX)
    key, file = path.parent.name, path.name
    if not key or len(path.parts) != 2 or layout.safe_name(key) != key or file.startswith("."):
        raise UsageError(f"{what}: is no profile. Name a file, or MACHINE-KEY/TARGET and --from REGISTRY")
    found = registry.registry_at(root)
    found.check_there(key, file)
    _ask(f"Remove {key}/{file} from {found.shown}?", yes)
    found.take_away(key, file)


def _registries(text: str | None, option: str) -> tuple[Location, ...]:
    """The registry ``text``; all that the environment names if None; an empty ``text`` names none."""
    named = map(location_of, named_places(os.environ))
    found = tuple(named) if text is None else (place(text),) if text.strip() else ()
    if not found:
        raise UsageError(f"no registry: give {option} FOLDER-OR-URL, or set {VARIABLE}")
    return found


def _fetched(url: str, keys: Keys | None) -> tuple[bytes, str]:
    """What is at ``url``, and how it is shown."""
    (there, name), shown = files.at_url(url), fetch.shown(url)
    found = signed_files.read(there, name, profiles.MAX_BYTES, keys, shown)
    if found is None:
        raise UsageError(f"{shown}: no such file")
    return found.content, shown


def _matched(target: str | None, source: str | None, keys: Keys | None) -> tuple[bytes, str]:
    """The profile that fits best, and where it comes from."""
    if target is None:
        raise UsageError("name the target, or the URL of a profile: autotune profiles pull train")
    roots = _registries(source, "--from")
    missing = [f"{folder}: no such folder" for folder in missing_folders(roots)]
    if len(missing) == len(roots):
        raise UsageError("; ".join(missing))
    here = Here.on(inventory.probe(), target)
    found = registry.search(here, [with_keys(root, keys) for root in roots])
    best, notes = found.match or found.similar, (*missing, *found.notes)
    if best is None:
        raise NothingUsable("; ".join([f"no profile of {target} fits {here.machine.key}", *notes]))
    for note in (*filter(None, [best.comparison.sentence]), *notes):
        print(note, file=sys.stderr)
    return plain_file.read(best.path, profiles.MAX_BYTES), best.source


def _ask(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is nobody to ask: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed")


def _password(secret_key: Path) -> str:
    """The password of the file ``secret_key``, without echo."""
    if not sys.stdin.isatty():
        raise UsageError(f"{secret_key}: has a password and there is nobody to ask: sign in a terminal")
    try:
        return getpass.getpass(f"Password of {secret_key}: ")
    except EOFError:
        raise UsageError("without the password nothing was signed") from None


def _by_the_same_key(there: signed_files.Stored, signature: Signature) -> bool:
    """Whether the signature that is there is good, and of the key that made ``signature``."""
    return not signatures.refusal(there.content, there.signature, Keys("--sign", (signature.public,)))


def _say_who_trusts(signature: Signature | None) -> None:
    """Which key checks the new signature, or who skips a profile without one."""
    if signature is not None:
        print(f"signed; others check it with {signatures.VARIABLE}={signature.public}", file=sys.stderr)
    elif signatures.trusted(os.environ) is not None:
        print(f"not signed (--sign): who sets {signatures.VARIABLE} skips it", file=sys.stderr)


def _age(content: bytes) -> str:
    try:
        written = profiles.parse(profiles.decoded(content, ""), "").written
    except ProfileError:
        return "a file that is no profile"
    return f"another profile, of {written.date}," if written else "another profile"
