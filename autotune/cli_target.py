"""How a command line names what is trained: a task file with our options, or a script with its own."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from autotune.core.errors import UsageError
from autotune.trial.script import is_script


class TargetCommand(TyperCommand):
    """A command on a target. All that follows a script belongs to the script; a task file takes no arguments, so that
    our own options may follow it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Click's own. Options may also follow a task file."""
        found, _rest, _ = self.make_parser(ctx).parse_args(list(args))
        target = found.get("target")
        ctx.allow_interspersed_args = bool(target and not found.get("module") and not _is_script(target))
        return super().parse_args(ctx, args)


def _is_script(target: str) -> bool:
    with contextlib.suppress(UsageError):  # the command will say so
        return is_script(Path(target))
    return False


def name_options_of_ours(context: typer.Context) -> None:
    """Say which of our own options stand after the script, where they are its own."""
    ours = {option for parameter in context.command.params for option in parameter.opts if option.startswith("--")}
    taken = [word for word in context.args if word.partition("=")[0] in ours]
    if taken:
        words = " ".join(taken)
        print(
            f"autotune: what follows the script belongs to it: {words}. Our own options stand before it",
            file=sys.stderr,
        )
