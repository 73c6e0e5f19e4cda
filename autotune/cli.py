"""The command line: arguments in, text out, exit codes. The only catcher of `AutotuneError`."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from autotune.core.errors import AutotuneError, Interrupted, UsageError, UserCodeError

app = typer.Typer(
    name="autotune",
    help="Hardware-aware auto-tuner for PyTorch training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
profiles_app = typer.Typer(help="Profiles on this machine.", no_args_is_help=True)
app.add_typer(profiles_app, name="profiles")

ProfileArgument = Annotated[Path, typer.Argument(help="A profile (.yaml).")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@app.command()
def tune(
    task: Annotated[Path, typer.Argument(help="The task file: build_model, build_dataset, compute_loss.")],
    profile: Annotated[Path | None, typer.Option(help="Where to write the profile.")] = None,
    level: Annotated[str | None, typer.Option(help="The level to recommend: safe, amp or max.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Hard upper bound on the whole run: 90s, 5m.",
            show_default="60s to 150s by the step; more with --train-time",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of data order, weights and search.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from an interrupted run.")] = False,
    train_time: Annotated[str | None, typer.Option(help="How long you will train: lets compile pay back. 10h")] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Pin a knob: --fix num_workers=2. Repeatable.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Let only this knob move. Repeatable.")] = None,
    nnodes: Annotated[int | None, typer.Option(help="Machines that train together; start this on each.")] = None,
    rdzv_endpoint: Annotated[str | None, typer.Option(help="HOST:PORT where they meet, the same on all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Find, prove and write the fastest settings for a task on this machine."""
    started = time.monotonic()
    from autotune.cluster import agent
    from autotune.cluster import listener as gathering
    from autotune.commands.live_view import View
    from autotune.core.cluster import given, slurm
    from autotune.report import final
    from autotune.store.profiles import to_data
    from autotune.tuning import run as api

    options = api.Options(
        profile=profile,
        level=level,
        budget=None if budget is None else seconds(budget, "--budget"),
        seed=seed,
        resume=resume,
        train_seconds=seconds(train_time, "--train-time") if train_time else None,
        fix=dict(_pin(text) for text in fix or ()),
        only=tuple(only or ()),
    )
    cluster = given(nnodes, rdzv_endpoint, None) or slurm(os.environ)
    way = gathering.way(cluster) if cluster else None
    door = gathering.listen(way, cluster.nodes) if cluster and way else None
    with View(options.seconds(), started) as view:
        if way is not None and door is None:
            agent.serve(task, way, api.GATHER_SECONDS, view.update)
            return
        answer = api.run(task, options, view.update, started, door)
    _say(final.text(answer.profile, answer.inventory, answer.path))
    if as_json:
        print(json.dumps({"path": str(answer.path.resolve()), **to_data(answer.profile)}))


@app.command()
def probe(as_json: JsonOption = False) -> None:
    """Show what this machine is, which limit won, what is missing and why it matters."""
    from autotune.core.machine import machine_type
    from autotune.report import machine
    from probes import inventory

    facts = inventory.probe()
    if as_json:
        print(json.dumps({"key": machine_type(facts).key, **inventory.to_json(facts)}))
    else:
        print(machine.text(facts))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)
def run(
    script: Annotated[Path, typer.Argument(help="Your training script; arguments after it are the script's.")],
    context: typer.Context,
    profile: Annotated[Path | None, typer.Option(help="The profile; by default the best for this machine.")] = None,
    level: Annotated[str | None, typer.Option(help="safe, amp or max; by default the recommended one.")] = None,
    nproc: Annotated[int | None, typer.Option(help="Processes on each machine, in place of the profile's.")] = None,
    nnodes: Annotated[int | None, typer.Option(help="Machines that train together; start this on each.")] = None,
    rdzv_endpoint: Annotated[str | None, typer.Option(help="HOST:PORT where they meet, the same on all.")] = None,
    hosts: Annotated[str | None, typer.Option(help="For mpi, on one machine: names of all, with commas.")] = None,
    timeout: Annotated[
        str | None, typer.Option(help="End everything where a process takes no optimizer step for so long: 10m.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print environment and command; start nothing.")] = False,
) -> None:
    """Start training the way the profile wants it: processes, threads, CPUs, backend, allocator."""
    from autotune.commands.run import prepare
    from autotune.core.cluster import given, slurm

    cluster = given(nnodes, rdzv_endpoint, hosts) or slurm(os.environ)
    patience = seconds(timeout, "--timeout") if timeout else None
    launch = prepare(script, list(context.args), profile, level, nproc, cluster, patience)
    for note in launch.notes:
        _say(note)
    if dry_run:
        print(launch.shell())
        return
    os.execvpe(launch.command[0], launch.command, launch.environment)


@app.command()
def show(profile: ProfileArgument) -> None:
    """Print a profile for people."""
    from autotune.report import show as view
    from autotune.store.profiles import read

    print(view.text(read(profile)))


@app.command()
def check(
    profile: ProfileArgument,
    task: Annotated[Path, typer.Argument(help="The task file that the profile was made from.")],
    level: Annotated[str | None, typer.Option(help="safe, amp or max; by default the recommended one.")] = None,
    budget: Annotated[str, typer.Option(help="About how long: 30s, 2m.")] = "30s",
) -> None:
    """Measure a profile's claim again, in seconds. Exit code 4 where it no longer holds."""
    from autotune.commands import check as checking
    from autotune.commands.live_view import View

    allowed = seconds(budget, "--budget")
    with View(allowed, time.monotonic()) as view:
        verdict = checking.check(profile, task, level, allowed, view.update)
    print(verdict.text)
    if not verdict.holds:
        raise typer.Exit(4)


@app.command()
def validate(profile: ProfileArgument) -> None:
    """Check a profile against the schema."""
    from autotune.store.profiles import read

    found = read(profile)
    print(f"{profile}: valid {found.schema} for {found.key}, target {found.target.name}")


@app.command()
def diff(left: ProfileArgument, right: ProfileArgument) -> None:
    """Compare two profiles knob by knob."""
    from autotune.report import diff as view
    from autotune.store.profiles import read

    print(view.text(read(left), read(right), (left.name, right.name)))


@app.command()
def init(path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("model.py")) -> None:
    """Write a commented task file to start from."""
    from autotune.commands.init import TASK

    try:
        with path.open("x") as file:
            file.write(TASK)
    except FileExistsError:
        raise UsageError(f"{path} exists already; name another file: autotune init my_model.py") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    print(f"wrote {path}; next: autotune tune {path}")


@profiles_app.command("list")
def list_profiles() -> None:
    """List the profiles on this machine."""
    from autotune.store.registry import list_profiles as found

    for item in found():
        profile = item.profile
        print(f"{item.path}  {profile.target.name} on {profile.key}" if profile else item.problem)


@profiles_app.command("match")
def match(target: Annotated[str | None, typer.Argument(help="The task's name.")] = None) -> None:
    """Say which profile `autotune.load()` would take here, and how well it fits."""
    from autotune.core.machine import machine_type
    from autotune.store.registry import search
    from probes.inventory import probe as probe_machine

    machine = machine_type(probe_machine())
    found = search(machine, target)
    best = found.match
    if best is None:
        print(f"no profile fits {machine.key}; make one: autotune tune model.py")
        for note in found.notes:
            print(f"  {note}")
        raise typer.Exit(4)
    print(f"{best.path} ({'exact' if best.exact else 'compatible'})")
    for note in best.notes:
        print(f"  {note}")


def seconds(text: str, option: str) -> float:
    """``90``, ``90s``, ``5m``, ``10h`` in seconds.

    Raises:
        UsageError: not a duration.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text and text[-1] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        raise UsageError(f"{option} {text!r}: write a duration such as 90s, 5m or 10h") from None
    if not 0 < value < float("inf"):
        raise UsageError(f"{option} {text!r}: must be a positive duration")
    return value


def _pin(text: str) -> tuple[str, Any]:
    """``knob=value`` with the value read as Python would: whole number, true/false, else a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--fix {text!r}: write knob=value, for example --fix num_workers=2")
    words = {"true": True, "false": False, "none": None}
    return name, words.get(value.lower(), int(value) if re.fullmatch(r"-?[0-9]+", value) else value)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code. Usage errors are shown by typer itself (exit 2)."""
    try:
        app(args=arguments)
    except UserCodeError as error:
        _say(f"{error.traceback.rstrip()}\n\n{error}" if error.traceback else str(error))
        sys.exit(error.exit_code)
    except AutotuneError as error:
        _say(f"autotune: {error}")
        sys.exit(error.exit_code)
    except Interrupted as interruption:
        name = signal.Signals(interruption.signal).name
        saved = f" the best so far, not proven, is in {interruption.saved};" if interruption.saved else ""
        _say(f"autotune: interrupted by {name};{saved} --resume goes on from here")
        sys.exit(interruption.exit_code)
    sys.exit(0)


if __name__ == "__main__":
    main()
