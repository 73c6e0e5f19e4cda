"""The command line of ``autotune profiles``: options in; `commands` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

profiles_app = typer.Typer(help="Profiles of this machine and of shared registries.", no_args_is_help=True)

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@profiles_app.command("list")
def list_profiles() -> None:
    """List the profiles on this machine."""
    from autotune.commands import profiles as command

    command.list_profiles()


@profiles_app.command("match")
def match(
    target: Annotated[str | None, typer.Argument(help="The task's name, or a profile (.yaml).")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every field: the profile's, this machine's.")
    ] = False,
) -> None:
    """Say which profile `autotune.load()` would take here, and how well it fits."""
    from autotune.commands import profiles as command

    if not command.match(target, explain):
        raise typer.Exit(4)


@profiles_app.command("push")
def push(
    profile: Annotated[Path, typer.Argument(help="A profile (.yaml).")],
    to: Annotated[str | None, typer.Option(help="Folder or URL; else the first of AUTOTUNE_PROFILES.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another profile that is there.")] = False,
) -> None:
    """Copy a profile into a registry that others read."""
    from autotune.commands import profiles as command

    command.push(profile, to, replace)


@profiles_app.command("pull")
def pull(
    what: Annotated[str | None, typer.Argument(help="The task's name, or the URL of a profile.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="Folder or URL; else AUTOTUNE_PROFILES.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to write to; else the user's own.")] = None,
    sha256: Annotated[str | None, typer.Option(help="Digest that the file must have.")] = None,
    yes: YesOption = False,
) -> None:
    """Copy the profile that fits this machine best from a registry, after showing what it is."""
    from autotune.commands import profiles as command

    command.pull(what, source, to, sha256, yes)


@profiles_app.command("rm")
def rm(
    what: Annotated[str, typer.Argument(help="A profile (.yaml), or MACHINE-KEY/TARGET.")],
    source: Annotated[str | None, typer.Option("--from", help="Folder or URL of the registry.")] = None,
    yes: YesOption = False,
) -> None:
    """Remove a profile from a registry."""
    from autotune.commands import profiles as command

    command.remove(what, source, yes)
