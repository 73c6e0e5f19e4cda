"""``autotune profiles``: which profiles there are, which one fits, and how they get into shared registries and back."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from autotune.errors import NothingUsable, ProfileError, UsageError
from autotune.knobs.clamp import clamp, for_this_machine
from autotune.near import did_you_mean
from autotune.probes import inventory
from autotune.probes.facts import Inventory
from autotune.profiles import file, registry
from autotune.profiles.format import Profile
from autotune.profiles.match import APPLIED, Comparison, Here, compare
from autotune.profiles.places import (
    SUFFIX,
    VARIABLE,
    Place,
    default_path,
    file_name,
    is_url,
    missing_folders,
    named_places,
    not_there,
    place,
    places,
    safe_name,
    target_of,
    user_folder,
)
from autotune.profiles.registry import Registry
from autotune.report import diff
from autotune.report import match as report

LISTED = 500
"""Profiles of each place that are listed: a wrong folder must not delay anybody."""


def list_profiles() -> None:
    """Print every profile, and every file that should be one. Of URLs the names are printed, and nothing is read."""
    registries, total = [Registry(each) for each in places()], 0
    for each in registries:
        try:
            names = each.names()
        except ProfileError as error:
            print(error, file=sys.stderr)
            continue
        total += len(names)
        for name in names[:LISTED]:
            print(f"{each.source(name)}  {target_of(name)}" if each.url else _line(each.path(name)))
        if len(names) > LISTED:
            print(f"{each.shown}: at most {LISTED} profiles are listed", file=sys.stderr)
    where = [each.shown for each in registries if registry.protocol(each.url) != "http"]
    if not total:
        print(f"no profiles in {' or '.join(where)}; make one: autotune tune train.py", file=sys.stderr)


def match(target: str | None, explain: bool = False) -> bool:
    """Print which profile `autotune.load()` would take here, or how well the file ``target`` fits.

    Returns:
        True if it would be applied.
    """
    machine = inventory.probe()
    if target and target.endswith((SUFFIX, ".yml")):
        profile = file.read(target)
        return _print_match(target, profile, compare(profile, Here.on(machine)), machine, explain)
    here = Here.on(machine, target)
    found = registry.search(here)
    best = found.match or found.similar
    if best is None:
        others = set(registry.targets(here)) - {target}
        wanted = f" and {target}{did_you_mean(target, others)}" if target else ""
        print(f"no profile fits {here.machine.key}{wanted}; make one: autotune tune train.py")
    applied = best is not None and _print_match(best.source, best.profile, best.comparison, machine, explain)
    for note in (*found.notes, *(() if found.match else not_there(os.environ))):
        print(f"  {note}")
    return applied


def push(path: Path, to: str | None, replace: bool) -> None:
    """Copy a profile into a registry, and print where it is now.

    Args:
        path: the profile.
        to: a folder or URL; the first entry of ``AUTOTUNE_PROFILES`` if None.
        replace: take the place of another profile of the same machine and target.

    Raises:
        UsageError: no registry, an interrupted run's profile, one with an impossible gain, or another is there.
        ProfileError: no valid profile, or the registry cannot be read or written.
    """
    profile = file.read(path)
    if profile.evidence.partial:
        raise UsageError(f"{path}: comes from an interrupted run and nothing in it is proven: tune again")
    if profile.doubts():
        raise UsageError(f"{path}: {'; '.join(profile.doubts())}")
    own = file_name(profile.target.name)
    name, text, there = f"{safe_name(profile.key)}/{own}", file.dump(profile, own), Registry(_registries(to, "--to")[0])
    there.check_writable()
    before = there.read(name)
    if before == text.encode():
        print(f"{there.source(name)}: is there already")
        return
    if before is not None and not replace:
        raise UsageError(
            f"{there.source(name)}: {_age(before)} is there. Compare them (autotune diff), or give --replace"
        )
    there.write(name, text)
    print(there.source(name))


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
    content, shown = _fetched(what) if what and is_url(what) else _best(what, source)
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and sha256.lower() != digest:
        raise UsageError(f"{shown}: has the sha256 {digest}, not {sha256[:80]}: nothing was written")
    profile = file.parse(content, shown)
    path = default_path(profile.key, profile.target.name, to or user_folder())
    print(f"{shown}: {profile.target.name} on {profile.key}, sha256 {digest}", file=sys.stderr)
    if path.exists():
        print(diff.text(file.read(path), profile, ("here", "pulled")), file=sys.stderr)
    _ask(f"Write {path}?", yes)
    try:
        print(file.write(path, profile))
    except ProfileError as error:
        raise ProfileError(f"{error}. Choose another place: --to FOLDER") from error


def remove(what: str, source: str | None, yes: bool) -> None:
    """Remove a profile from a registry.

    Args:
        what: a profile's file, or ``<machine key>/<target>`` in the registry ``source``.
        source: a folder or URL; the first entry of ``AUTOTUNE_PROFILES`` if None.
        yes: do not ask.

    Raises:
        UsageError: ``what`` is none of them, or there is nobody to ask.
        ProfileError: it is not there, or cannot be removed.
    """
    path = Path(what)
    if source is None and path.suffix == SUFFIX:
        there = Registry(path.parent.parent)
    elif len(path.parts) == 2 and not (source is None and path.is_file()):
        there = Registry(_registries(source, "--from")[0])
    else:
        raise UsageError(f"{what}: is no profile. Name a {SUFFIX} file, or MACHINE-KEY/TARGET and --from REGISTRY")
    key, own = path.parent.name, path.name.removesuffix(SUFFIX) + SUFFIX
    if not key or safe_name(key) != key or own.startswith("."):
        raise UsageError(f"{what}: is no profile of a registry: those are called MACHINE-KEY/TARGET{SUFFIX}")
    if there.read(f"{key}/{own}") is None:
        raise ProfileError(f"{there.source(f'{key}/{own}')}: no such profile")
    _ask(f"Remove {key}/{own} from {there.shown}?", yes)
    there.remove(f"{key}/{own}")


def _line(path: Path) -> str:
    """Describe the profile in the file ``path`` in one line, or the problem that keeps it from being read."""
    try:
        profile = file.read(path)
    except ProfileError as error:
        return str(error).splitlines()[0]
    written = f", {profile.written.date}, torch-autotune {profile.written.tool}" if profile.written else ""
    return f"{path}  {profile.target.name} on {profile.key}{written}"


def _print_match(source: str, profile: Profile, comparison: Comparison, machine: Inventory, explain: bool) -> bool:
    applied = comparison.verdict in APPLIED
    wanted, grown = for_this_machine(profile, profile.recommended, machine)
    clamped = clamp(wanted, machine)[1] if applied else ()
    print(f"{source} ({comparison.verdict})")
    if explain:
        print(report.text(comparison, clamped))
    else:
        for line in (*filter(None, [comparison.sentence]), *(f"clamped {line}" for line in clamped)):
            print(f"  {line}")
    for line in grown if applied else ():
        print(f"  {line}")
    return applied


def _registries(text: str | None, option: str) -> tuple[Place, ...]:
    """Return the registry ``text``; all that the environment names if None; an empty ``text`` names none."""
    found = named_places(os.environ) if text is None else (place(text),) if text.strip() else ()
    if not found:
        raise UsageError(f"no registry: give {option} FOLDER-OR-URL, or set {VARIABLE}")
    return found


def _fetched(url: str) -> tuple[bytes, str]:
    """Read what is at ``url``. Returns it, and the URL for people."""
    content = registry.read_url(url)
    if content is None:
        raise UsageError(f"{registry.shown(url)}: no such file")
    return content, registry.shown(url)


def _best(target: str | None, source: str | None) -> tuple[bytes, str]:
    """Find the profile that fits best. Returns it, and where it comes from."""
    if target is None:
        raise UsageError("name the target, or the URL of a profile: autotune profiles pull train")
    roots = _registries(source, "--from")
    missing = [f"{folder}: no such folder" for folder in missing_folders(roots)]
    if len(missing) == len(roots):
        raise UsageError("; ".join(missing))
    here = Here.on(inventory.probe(), target)
    found = registry.search(here, roots)
    best, notes = found.match or found.similar, (*missing, *found.notes)
    if best is None:
        raise NothingUsable("; ".join([f"no profile of {target} fits {here.machine.key}", *notes]))
    for note in (*filter(None, [best.comparison.sentence]), *notes):
        print(note, file=sys.stderr)
    return file.read_plain(best.path), best.source


def _ask(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is nobody to ask: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed")


def _age(content: bytes) -> str:
    try:
        written = file.parse(content, "").written
    except ProfileError:
        return "a file that is no profile"
    return f"another profile, of {written.date}," if written else "another profile"
