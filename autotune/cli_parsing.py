"""Parses what the commands share: options, targets with their own arguments, usable standard streams."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from autotune import project
from autotune.decoding import as_data
from autotune.errors import UsageError, did_you_mean
from autotune.knobs.level import LEVELS
from autotune.launch import line
from autotune.trial.target import is_script

STEERS = (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
CONTROLS = {code: f"\\{'x' if code < 256 else 'u'}{code:02x}" for code in STEERS if chr(code) not in "\t\n"}
"""What would steer a terminal, and how it is shown."""


def _remember(context: typer.Context, value: bool) -> bool:
    """Note for errors that the answer is an object."""
    context.ensure_object(dict)["json"] = value
    return value


TargetArgument = Annotated[
    str,
    typer.Argument(
        help="A training script, whose arguments follow, or a task file. Or your own launch line: torchrun"
        " --nproc-per-node=2 train.py, accelerate launch train.py, mpiexec -n 2 python train.py.",
        metavar="TARGET [ARGS]...",
    ),
]
ModuleOption = Annotated[bool, typer.Option("-m", help="TARGET is a module, as in python -m package.module.")]
NetworkOption = Annotated[bool, typer.Option("--allow-network", help="Trials of a script may reach other machines.")]
JsonOption = Annotated[bool, typer.Option("--json", callback=_remember, help="One JSON object on stdout.")]
ProfileArgument = Annotated[str, typer.Argument(help="A profile (.yaml), its URL, or the script that it is for.")]
LevelOption = Annotated[str | None, typer.Option(help=f"One of {', '.join(LEVELS)}; by default the recommended one.")]
TARGET_SETTINGS = {"allow_extra_args": True, "allow_interspersed_args": False}


class Command(TyperCommand):
    """A command. No word of it is empty, as one of a shell's variable that is not set is. What follows a script is the
    script's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as Click does, and warn of our own options after the script."""
        has_script = not ctx.allow_interspersed_args
        options, before, rest = self.parted(args)
        own = [*options, *before, *rest[:1]] if has_script else args
        for option, word in zip(["", *own], own, strict=False):
            if not word.strip() or re.fullmatch("--[a-z-]+=", word):
                named = word if word.strip() else f"{option} ''".strip()
                raise UsageError(f"{named} is empty. Is a variable of your shell not set?")
        left = super().parse_args(ctx, args)
        if has_script:
            _name_options_of_ours(ctx)
        return left

    def parted(self, args: list[str]) -> tuple[list[str], list[str], list[str]]:
        """Return our own options, the arguments before the last one, and that with all that follows."""
        own = (each for each in self.params if not getattr(each, "is_flag", True))
        valued = {name for each in own for name in each.opts}
        leading = sum(each.param_type_name == "argument" for each in self.params) - 1
        options, before, rest = list[str](), list[str](), list(args)
        while rest and (rest[0].startswith("-") or len(before) < leading):
            word = rest.pop(0)
            (options if word.startswith("-") else before).append(word)
            if word in valued and rest:
                options.append(rest.pop(0))
        return options, before, rest


class TargetCommand(Command):
    """A command on a script or a task file. A task file takes no arguments, so that our own options may follow it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as Click does; options may also follow a task file."""
        options, before, rest = self.parted(args)
        is_task = bool(rest) and "-m" not in options and rest[0].endswith(".py") and not _is_script(rest[0])
        ctx.allow_interspersed_args = is_task
        return super().parse_args(ctx, [*options, *before, *rest])


def project_defaults(group: Any) -> dict[str, dict[str, Any]]:
    """Return the project's own defaults of options, by command, as Click's ``default_map`` has them.

    They stand in tables such as ``[tool.torch-autotune.tune]`` of its pyproject.toml. What nothing can be made of is
    named, and left out.
    """
    try:
        path, table = project.stated()
    except ValueError as error:
        say(f"autotune: {error}. Its [tool.{project.TABLE}] is not used")
        return {}
    found: dict[str, dict[str, Any]] = {}
    for name, stated in table.items():
        command = group.commands.get(name)
        if name == "profiles":
            if not isinstance(stated, list) or not all(isinstance(each, str) and each.strip() for each in stated):
                _note(path, f"{name} is no list of folders and URLs")
            continue
        if command is None or not isinstance(stated, Mapping):
            advice = did_you_mean(name, [*group.commands, "profiles"])
            _note(path, f"{name} is no table" if command else f"has {name}, which nothing reads{advice}")
            continue
        words = {option.lstrip("-"): each for each in command.params for option in (*each.opts, each.name)}
        found[name] = own = dict[str, Any]()
        for option, value in stated.items():
            if option not in words or value == "":
                advice = did_you_mean(f"{name}.{option}", [f"{name}.{word}" for word in words])
                unread = f"has {name}.{option}, which nothing reads{advice}"
                _note(path, f"{name}.{option} is empty" if option in words else unread)
                continue
            several = getattr(words[option], "multiple", False)
            own[words[option].name] = _as_typed(path, value, several=several)
    return found


def _as_typed(path: Path, value: Any, *, several: bool) -> Any:
    """Return the ``value`` of an option, which may be given ``several`` times, as it is typed in the working folder.

    A file beside ``path`` is found from every folder.
    """
    if several:
        values = [f"{name}={each}" for name, each in value.items()] if isinstance(value, Mapping) else value
        return [str(each) for each in values] if isinstance(values, list) else [str(values)]
    beside = path.parent / value if isinstance(value, str) else None
    if beside is not None and beside.is_file():
        return os.path.relpath(beside)
    return value if isinstance(value, bool) else str(value)


def _note(path: Path, text: str) -> None:
    say(f"autotune: {path}: [tool.{project.TABLE}] {text}")


def where_stated(text: str, words: Sequence[str]) -> str:
    """Return where in the project's file the value stands that the error ``text`` of the command ``words`` names."""
    with contextlib.suppress(ValueError, AttributeError):
        path, table = project.stated()
        command, typed = next((word for word in words if word in table), ""), [word.partition("=")[0] for word in words]
        for name, value in table.get(command, {}).items():
            option = f"--{name.replace('_', '-')}"
            if (option in text and option not in typed) or text.startswith(f"{value}:"):
                return f" ({path}: [tool.{project.TABLE}.{command}] {name})"
    return ""


def _is_script(target: str) -> bool:
    with contextlib.suppress(UsageError):  # the command reports it
        return is_script(Path(target))
    return False


def _name_options_of_ours(context: typer.Context) -> None:
    """Warn of our own options after the script: they go to the script."""
    ours = {option for parameter in context.command.params for option in parameter.opts if option.startswith("--")}
    own = context.args
    with contextlib.suppress(UsageError):  # the command reports it
        found = line.parse([context.params.get("target") or context.params.get("script") or "", *own])
        own = own if found is None else list(found.arguments)
    taken = [word for word in own if word.partition("=")[0] in ours]
    if taken:
        words = " ".join(taken)
        say(f"autotune: what follows the script belongs to it: {words}. Put our own options before the script")


def optional_bytes(text: str | None, option: str) -> int | None:
    """Return ``8g``, ``8GiB`` or ``512m`` in bytes; None for an ``option`` that was not given.
    Raise `UsageError` if it is no size."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    size = 0 if match is None else int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))
    if size < 2**20:  # nothing trains in less: the unit is missing
        raise UsageError(f"{option} {text!r}: write a size such as 8g or 512m")
    return size


def say(text: str) -> None:
    """Print for people, on standard error."""
    print(text.translate(CONTROLS), file=sys.stderr)


def answer(text: str, data: Any = None, *, as_json: bool = False) -> None:
    """Print the answer of a command on standard output: ``text``, or ``data`` as one JSON object."""
    print(json.dumps(as_data(data)) if as_json else text.translate(CONTROLS))


def confirm(question: str) -> None:
    """Ask on the terminal. Raise `UsageError` if the answer is no, or there is no terminal."""
    if sys.stdin.isatty():
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if not sys.stdin.isatty() or sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError(f"{question} Nobody confirmed (--yes does): nothing was changed")


class _Output(io.FileIO):
    """A standard stream. What a reader that went away, or a log on a full disk, does not take is dropped: nothing ends.

    An answer that does not fit on the disk is an error, once.
    """

    failed = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == 1 and error.errno != errno.EPIPE and not self.failed:
                self.failed = True
                raise UsageError(f"the output cannot be written ({error.strerror})") from error
            return len(data)


def prepare_streams() -> None:
    """Open streams that are closed, and let the others take what they can, also bytes that are no text, as of paths.

    Text for a closed stream would go to the file or socket that got its descriptor.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free: the stream's own
        if number and stream is getattr(sys, f"__{name}__"):
            taken = io.BufferedWriter(_Output(number, "w", closefd=False))
            encoding = "utf-8" if stream is None else stream.encoding
            by_line = number == 2 or stream is None or stream.line_buffering or stream.write_through
            setattr(sys, name, io.TextIOWrapper(taken, encoding, "backslashreplace", line_buffering=by_line))
