"""Commands on profiles: one of them (show, validate, diff, report, export), or all of them (``autotune profiles``)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune import project
from autotune.cli_parsing import Command, JsonOption, LevelOption, ProfileArgument, answer, confirm, say
from autotune.decoding import quote
from autotune.errors import NothingUsable, ProfileError, UsageError
from autotune.probes import inventory
from autotune.profiles import file, places, registry
from autotune.profiles.clamp import clamp, for_this_machine
from autotune.profiles.format import Profile
from autotune.profiles.match import APPLIED, Here, Match
from autotune.trial.target import started_script

profiles_app = typer.Typer(help="Profiles of this machine and of shared registries.", no_args_is_help=True)


def show(profile: ProfileArgument, as_json: JsonOption = False) -> None:
    """Print a profile for people."""
    from autotune.report import profile as words

    found = registry.read(_named_file(profile))
    answer(words.show(found), file.to_data(found), as_json=as_json)


def validate(profile: ProfileArgument, as_json: JsonOption = False) -> None:
    """Check a profile against the schema."""
    path = _named_file(profile)
    found = registry.read(path)
    data = {"path": path, "schema": found.schema, "key": found.key, "target": found.target.name}
    answer("{path}: valid {schema} for {key}, target {target}".format(**data), data, as_json=as_json)


def diff(left: ProfileArgument, right: ProfileArgument, as_json: JsonOption = False) -> None:
    """Compare two profiles knob by knob."""
    from autotune.report import profile as words

    one, other = (registry.read(_named_file(each)) for each in (left, right))
    text = words.diff(one, other, (Path(left).name, Path(right).name))
    answer(text, words.differences(one, other), as_json=as_json)


def export(
    profile: ProfileArgument,
    to: Annotated[str, typer.Option(help="A launcher or trainer, such as lightning; any other word lists all.")],
    level: LevelOption = None,
) -> None:
    """Print what to paste into other launchers and trainers."""
    from autotune.export import exported

    answer(exported(_named_file(profile), level, to))


def report(
    profile: ProfileArgument, out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html")
) -> None:
    """Write one HTML file that shows a tuning run; it opens offline."""
    path = _named_file(profile)
    answer(write_report(registry.read(path), Path(path), out))


def _named_file(named: str) -> str:
    """Return the profile that ``named`` is; of a script or task file the one that fits it best here."""
    if Path(named).suffix != ".py":
        return str(named)
    names, script = _named(named)
    found = registry.search(Here.on(inventory.probe(quick=True), *names), script=script)
    if found.best is None:
        raise NothingUsable("; ".join([f"{found.reason} {named}", *found.notes]))
    return str(registry.local(found.best))


def write_report(profile: Profile, path: Path, out: Path, *, script: str | None = None) -> str:
    """Write the report of ``profile``, which is in the file ``path``, to ``out``. Returns a sentence for people.

    ``script`` is how the user's script is started, without Python; by the target's name if None.
    """
    from autotune.report.page import html
    from autotune.search.study import read_history  # imports optuna

    places.checked_place(out, "report")
    journal = places.journal_of(path)
    try:
        history = read_history(journal)
    except ValueError as error:
        raise UsageError(f"{journal}: the journal cannot be read ({error}). Move it away to go without.") from error
    places.write_whole(out, html(profile, history, path, script))
    without = "" if history else f"; without its journal ({journal}) there are no trials to draw"
    return f"{out}: report of {profile.target.name}{without}"


@profiles_app.command("list", cls=Command)
def list_profiles(as_json: JsonOption = False) -> None:
    """List the profiles on this machine."""
    looked = places.places()
    rows = registry.at_once([*map(registry.Registry, looked)], lambda there: [*_listed(there)])
    lines, data = [line for line, _ in rows], [found for _, found in rows]
    if lines or as_json:
        answer("\n".join(lines), {"profiles": data}, as_json=as_json)
    else:
        folders = " or ".join(str(each) for each in looked if isinstance(each, Path))
        say(f"no profiles in {folders}; make one: autotune tune train.py")


def _listed(there: registry.Registry) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the line of each profile in a registry, and what ``--json`` has of it."""
    from autotune.report import profile as words

    try:
        names = there.names()
    except ProfileError as error:  # a web server is not listed
        say(str(error))
        return
    for name in names:
        own = {"source": there.source(name), "target": places.target_of(name)}
        try:
            content = None if there.url else there.read(name)  # files at URLs are not read
            found = file.parse(content, own["source"]) if content is not None else None
        except ProfileError as error:
            line = str(error).splitlines()[0]
            yield line, own | {"error": line}
            continue
        line = f"{own['source']}  {words.listed(found) if found else own['target']}"
        yield line, own | ({"target": found.target.name, "key": found.key} if found else {})


@profiles_app.command("match", cls=Command)
def match(
    target: Annotated[str, typer.Argument(help="A script, a task's name, or a profile (.yaml).")],
    as_json: JsonOption = False,
) -> None:
    """Show which profile `autotune.load()` would take here, and how well it fits."""
    from autotune.report import profile as words

    machine = inventory.probe()
    if target.endswith((".yaml", ".yml")):
        found = registry.Lookup(registry.of_file(target, Here.on(machine)))
    else:
        names, script = _named(target)
        found = registry.search(Here.on(machine, *names), script=script)
    best, notes = found.best, list(found.notes)
    if best is None:
        notes.insert(0, f"{found.reason} {target if target.endswith('.py') else ''}".rstrip())
    elif best.verdict in APPLIED:
        wanted, grown = for_this_machine(best.profile, best.profile.default_level, machine)
        notes = [*(f"clamped {line}" for line in clamp(wanted, machine)[1]), *grown, *notes]
    data = {"source": best and best.source, "verdict": best.verdict if best else "none", "notes": notes}
    answer(words.matched(best, notes), data, as_json=as_json)
    if best is None or best.verdict not in APPLIED:
        raise typer.Exit(4)


@profiles_app.command("push", cls=Command)
def push(
    profile: ProfileArgument,
    to: Annotated[str | None, typer.Option(help="Folder or URL; else the first of AUTOTUNE_PROFILES.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another profile that is there.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also one that was measured on a busy machine.")] = False,
) -> None:
    """Copy a profile into a registry that others read."""
    path = _named_file(profile)
    found = registry.read(path)
    _check_shareable(found, path, force=force)
    there = registry.Registry(_registries(to, "--to")[0])
    there.check_writable()
    if gone := places.missing_folders([] if there.url else [Path(there.shown)]):
        if gone[0].exists():
            raise UsageError(f"{gone[0]}: is no folder. Name the registry's: --to FOLDER-OR-URL")
        say(f"{gone[0]}: there is no such folder yet: it is made")
    own = places.file_names(found.target.name)[0]
    name, text = f"{found.key}/{own}", file.dump(found, own)
    where = there.source(name)
    before = there.read(name)
    if before == text.encode():
        answer(f"{where}: is there already")
        return
    if before is not None and not replace:
        raise UsageError(f"{where}: another is there. Compare them (autotune diff), or give --replace")
    there.write(name, text)
    answer(where)


def _check_shareable(profile: Profile, path: str, *, force: bool) -> None:
    """Raise `UsageError` if others cannot rely on ``profile``, which is in the file ``path``.

    With ``force`` one of a busy machine is shared: `show` says what it was measured beside.
    """
    if profile.evidence.partial:
        raise UsageError(f"{path}: comes from an interrupted run and nothing in it is proven: tune again")
    if profile.evidence.busy and not force:
        raise UsageError(f"{path}: was measured on a busy machine: tune again when it is quiet, or give --force")


@profiles_app.command("pull", cls=Command)
def pull(
    what: Annotated[str | None, typer.Argument(help="The task's name, or the URL of a profile.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="Folder or URL; else AUTOTUNE_PROFILES.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to write to; else profiles/ of the project.")] = None,
    sha256: Annotated[str | None, typer.Option(help="Digest that the file must have.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Copy the profile that fits this machine best from a registry, after showing what it is."""
    from autotune.report import profile as words

    if what and places.is_url(what):
        shown, content = registry.shown(what), registry.read_named(what)
    else:
        best = _best(what, source)
        shown, content = best.source, best.content
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and sha256.lower() != digest:
        raise UsageError(f"{shown}: has the sha256 {digest}, not {sha256[:80]}: nothing was written")
    found = file.parse(content, shown)
    if to is None:
        path = places.own_place(found.key, found.target.name, Path("x"))
    else:
        path = places.default_path(found.key, found.target.name, to)
    what = f"{quote(found.target.name)} on {found.key}: {found.recommended}, up to {found.gain:.2f}x proven"
    say(f"{shown}: {what}, sha256 {digest}")
    if path.exists():
        say(words.diff(file.read(path), found, ("here", "pulled")))
    if not yes:
        confirm(f"Write {path}?")
    try:
        answer(str(file.write(path, found)))
    except ProfileError as error:
        raise ProfileError(f"{error}. Choose another place: --to FOLDER") from error


def _named(target: str) -> tuple[tuple[str, ...], Path | None]:
    """Return the names of the task that ``target`` is, and its script if it is one."""
    script = started_script(target, ()).path if target.endswith(".py") else None
    return (target,) if script is None else project.names_of(script), script


def _best(target: str | None, source: str | None) -> Match:
    """Return the profile of ``target`` in the registry ``source`` that fits this machine best; print notes on it."""
    if target is None:
        raise UsageError("name the target, or the URL of a profile: autotune profiles pull train")
    roots = _registries(source, "--from")
    missing = [f"{folder}: no such folder" for folder in places.missing_folders(roots)]
    if len(missing) == len(roots):
        raise UsageError("; ".join(missing))
    found = registry.search(Here.on(inventory.probe(), *_named(target)[0]), roots)
    notes = [*missing, *found.notes]
    if found.best is None:
        raise NothingUsable("; ".join([found.reason, *notes]))
    for note in filter(None, [found.best.sentence, *notes]):
        say(note)
    return found.best


def _registries(text: str | None, option: str) -> tuple[Path | str, ...]:
    """Return the registry ``text``, or all that the environment names if None."""
    found = places.named_places() if text is None else (places.place(text),)
    if not found:
        raise UsageError(f"no registry: give {option} FOLDER-OR-URL, or set {places.VARIABLE}")
    return found
