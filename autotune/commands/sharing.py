"""``autotune profiles push``, ``pull`` and ``rm``: profiles in shared folders and at URLs."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from autotune.core.errors import NothingUsable, ProfileError, UsageError
from autotune.core.match import Here
from autotune.probes import inventory
from autotune.report import diff
from autotune.store import fetch, layout, profiles, registry
from autotune.store.places import VARIABLE, Place, is_url, named_places, place, user_folder


def push(path: Path, to: str | None, replace: bool) -> None:
    """Copy a profile into a registry, and print where it is now.

    Args:
        path: the profile.
        to: a folder or URL; the first entry of ``AUTOTUNE_PROFILES`` if None.
        replace: take the place of another profile of the same machine and target.

    Raises:
        UsageError: no registry, an interrupted run's profile, or another one is there.
        ProfileError: no valid profile, or the registry cannot be written.
    """
    profile = profiles.read(path)
    if profile.evidence.partial:
        raise UsageError(f"{path}: comes from an interrupted run and nothing in it is proven: tune again")
    file = layout.file_name(profile.target.name, profile.target.nnodes)
    text = profiles.dump(profile, file)
    target = registry.registry_at(_registries(to, "--to")[0])
    there = target.files(profile.key, (file,))
    if there and _same(there[0], text):
        print(f"{target.source(there[0])}: is there already")
        return
    if there and not replace:
        raise UsageError(
            f"{target.source(there[0])}: {_age(there[0])} is there. Compare them (autotune diff), or give --replace"
        )
    print(target.put(profile.key, file, text))


def pull(what: str | None, source: str | None, to: Path | None, sha256: str | None, yes: bool) -> None:
    """Copy a profile from a registry to this user's own, after showing what it is.

    Args:
        what: the target's name, or the URL of one profile.
        source: a folder or URL; all entries of ``AUTOTUNE_PROFILES`` if None.
        to: the folder to write to; the user's own if None.
        sha256: what the file must have, in hexadecimal digits.
        yes: do not ask.

    Raises:
        UsageError: no such registry, the digest differs, or there is nobody to ask.
        NothingUsable: no profile fits.
        ProfileError: no valid profile, or it cannot be written.
    """
    text, shown = _fetched(what) if what and is_url(what) else _matched(what, source)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if sha256 is not None and sha256.lower() != digest:
        raise UsageError(f"{shown}: has the sha256 {digest}, not {sha256[:80]}: nothing was written")
    profile = profiles.parse(text, shown)
    path = layout.default_path(profile.key, profile.target.name, to or user_folder(), profile.target.nnodes)
    print(f"{shown}: {profile.target.name} on {profile.key}, sha256 {digest}", file=sys.stderr)
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
        root: Place = path.parent.parent
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


def _registries(text: str | None, option: str) -> tuple[Place, ...]:
    """The registry ``text``; all that the environment names if None; an empty ``text`` names none."""
    found = named_places(os.environ) if text is None else (place(text),) if text.strip() else ()
    if not found:
        raise UsageError(f"no registry: give {option} FOLDER-OR-URL, or set {VARIABLE}")
    return found


def _fetched(url: str) -> tuple[str, str]:
    """The text at ``url``, and how it is shown."""
    raw, shown = fetch.read(url, profiles.MAX_BYTES), fetch.shown(url)
    if raw is None:
        raise UsageError(f"{shown}: no such file")
    try:
        return raw.decode("utf-8"), shown
    except UnicodeDecodeError:
        raise UsageError(f"{shown}: is not UTF-8 text") from None


def _matched(target: str | None, source: str | None) -> tuple[str, str]:
    """The text of the profile that fits best, and where it comes from."""
    if target is None:
        raise UsageError("name the target, or the URL of a profile: autotune profiles pull train")
    roots = _registries(source, "--from")
    folders = (root for root in roots if isinstance(root, Path))
    missing = [f"{folder}: no such folder" for folder in folders if not os.path.isdir(os.path.expanduser(folder))]
    if len(missing) == len(roots):
        raise UsageError("; ".join(missing))
    here = Here.on(inventory.probe(), target)
    found = registry.search(here, roots)
    best, notes = found.match or found.similar, (*missing, *found.notes)
    if best is None:
        raise NothingUsable("; ".join([f"no profile of {target} fits {here.machine.key}", *notes]))
    for note in (*filter(None, [best.comparison.sentence]), *notes):
        print(note, file=sys.stderr)
    return best.path.read_text("utf-8"), best.source


def _ask(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is nobody to ask: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed")


def _same(path: Path, text: str) -> bool:
    try:
        return path.read_text("utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def _age(path: Path) -> str:
    written = profiles.read(path).written
    return f"another profile, of {written.date}," if written else "another profile"
