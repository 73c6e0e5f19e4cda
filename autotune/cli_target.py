"""How a command line names what is trained: a task file with our options, or a script with its own."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from autotune.errors import UsageError
from autotune.trial.target import is_script


class ScriptCommand(TyperCommand):
    """A command on a script. All that follows the script belongs to it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Click's own. Names our own options that stand after the script."""
        left = super().parse_args(ctx, args)
        _name_options_of_ours(ctx)
        return left


class TargetCommand(ScriptCommand):
    """A command on a script or a task file. A task file takes no arguments, so that our own options may follow it."""

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


def _name_options_of_ours(context: typer.Context) -> None:
    """Our own options that stand after the script are the script's."""
    ours = {option for parameter in context.command.params for option in parameter.opts if option.startswith("--")}
    taken = [word for word in context.args if word.partition("=")[0] in ours]
    if taken:
        words = " ".join(taken)
        print(
            f"autotune: what follows the script belongs to it: {words}. Our own options stand before it",
            file=sys.stderr,
        )
