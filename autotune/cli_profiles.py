"""Commands on profiles: one of them (show, validate, diff, report, export), or all of them (``autotune profiles``)."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli_parsing import LevelOption, ProfileArgument, confirm, say
from autotune.errors import ProfileError, UsageError

if TYPE_CHECKING:
    from autotune.profiles.format import Profile

profiles_app = typer.Typer(help="Profiles of this machine and of shared registries.", no_args_is_help=True)

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
REPORT = re.compile(rb"\A\s*<")
"""The start of every report."""
NO_PLOTLY = "an HTML report is drawn by plotly, which is not installed: pip install 'torch-autotune[report]'"


def show(profile: ProfileArgument) -> None:
    """Print a profile for people."""
    from autotune.profiles.file import read
    from autotune.report import profile as words

    print(words.show(read(profile)))


def validate(profile: ProfileArgument) -> None:
    """Check a profile against the schema."""
    from autotune.profiles.file import read

    found = read(profile)
    print(f"{profile}: valid {found.schema} for {found.key}, target {found.target.name}")


def diff(left: ProfileArgument, right: ProfileArgument) -> None:
    """Compare two profiles knob by knob."""
    from autotune.profiles.file import read
    from autotune.report import profile as words

    print(words.diff(read(left), read(right), (left.name, right.name)))


def export(
    profile: ProfileArgument,
    to: Annotated[str, typer.Option(help="env, torchrun, accelerate, lightning or transformers.")],
    level: LevelOption = None,
) -> None:
    """Print what to paste into other launchers and trainers."""
    from autotune.export import exported

    print(exported(profile, level, to))


def report(
    profile: ProfileArgument,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
) -> None:
    """Write one HTML file that shows a tuning run; it opens offline."""
    from autotune.profiles.file import read

    check_report(out)
    print(write_report(read(profile), profile, out))


def check_report(out: Path) -> None:
    """Raise `UsageError` if no report can be drawn, or ``out`` is no place for it: before a run, not after it."""
    from autotune.profiles.places import check_kind

    if importlib.util.find_spec("plotly") is None:
        raise UsageError(NO_PLOTLY)
    if out.is_dir():
        raise UsageError(f"{out}: is a folder. Name the report's file, such as {out / 'report.html'}")
    check_kind(out, "report", REPORT)


def write_report(profile: Profile, path: Path, out: Path, *, script: str | None = None) -> str:
    """Write the report of ``profile`` to ``out``. Returns what to say.

    Args:
        profile: the result.
        path: of the profile; its journal lies beside it.
        out: the file to write.
        script: how the user's script is started, without Python; by the target's name if None.

    Raises:
        UsageError: the journal cannot be read, or ``out`` is one of the two or cannot be written.
    """
    from autotune.report.page import html
    from autotune.search.study import read_history  # imports optuna

    journal = path.with_suffix(".journal")
    for source in (path, journal):
        if os.path.realpath(out) == os.path.realpath(source):
            raise UsageError(f"{out}: the report would replace {source}. Choose another place: --out report.html")
    try:
        history = read_history(journal)
    except ValueError as error:
        raise UsageError(f"{journal}: the journal cannot be read ({error}). Move it away to do without.") from error
    try:
        out.write_text(html(profile, history, path, script), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: the report cannot be written ({error.strerror})") from error
    without = "" if history.trials else f"; without its journal {journal.name} there are no trials to draw"
    return f"{out}: report of {profile.target.name}{without}"


@profiles_app.command("list")
def list_profiles() -> None:
    """List the profiles on this machine."""
    from autotune.profiles.exchange import listings
    from autotune.profiles.places import places
    from autotune.report import profile as words

    found = list(listings())
    for where, profile in found:
        if where:
            print(words.listed(where, profile))
        else:
            say(str(profile))
    if not any(where for where, _ in found):
        folders = " or ".join(str(each) for each in places() if isinstance(each, Path))
        say(f"no profiles in {folders}; make one: autotune tune train.py")


@profiles_app.command("match")
def match(
    target: Annotated[str | None, typer.Argument(help="The task's name, or a profile (.yaml).")] = None,
) -> None:
    """Say which profile `autotune.load()` would take here, and how well it fits."""
    from autotune.profiles import exchange
    from autotune.report import profile as words

    found = exchange.fit(target)
    print(words.matched(found))
    if found.match is None:
        raise typer.Exit(4)


@profiles_app.command("push")
def push(
    profile: Annotated[Path, typer.Argument(help="A profile (.yaml).")],
    to: Annotated[str | None, typer.Option(help="Folder or URL; else the first of AUTOTUNE_PROFILES.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another profile that is there.")] = False,
) -> None:
    """Copy a profile into a registry that others read."""
    from autotune.profiles import exchange

    where, already = exchange.push(profile, to, replace)
    print(f"{where}: is there already" if already else where)


@profiles_app.command("pull")
def pull(
    what: Annotated[str | None, typer.Argument(help="The task's name, or the URL of a profile.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="Folder or URL; else AUTOTUNE_PROFILES.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to write to; else the user's own.")] = None,
    sha256: Annotated[str | None, typer.Option(help="Digest that the file must have.")] = None,
    yes: YesOption = False,
) -> None:
    """Copy the profile that fits this machine best from a registry, after showing what it is."""
    from autotune.profiles import exchange, file
    from autotune.report import profile as words

    found = exchange.offer(what, source, to, sha256)
    for note in found.notes:
        say(note)
    say(f"{found.source}: {found.profile.target.name} on {found.profile.key}, sha256 {found.digest}")
    if found.path.exists():
        say(words.diff(file.read(found.path), found.profile, ("here", "pulled")))
    confirm(f"Write {found.path}?", yes)
    try:
        print(file.write(found.path, found.profile))
    except ProfileError as error:
        raise ProfileError(f"{error}. Choose another place: --to FOLDER") from error
