"""The command line: options in, exit codes out. `commands` does the work. The only catcher of `AutotuneError`."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from autotune import __version__
from autotune.cli_profiles import profiles_app
from autotune.cli_streams import prepare_streams
from autotune.cli_target import ScriptCommand, TargetCommand
from autotune.durations import seconds
from autotune.errors import AutotuneError, Interrupted, UsageError, UserCodeError
from autotune.knobs.pins import read_pin
from autotune.launch.cluster import check_one_machine, from_options, from_slurm
from autotune.trial.target import recognise_target, started_script

app = typer.Typer(
    name="autotune",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(profiles_app, name="profiles")

ProfileArgument = Annotated[Path, typer.Argument(help="A profile (.yaml).")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


BUDGET_HELP = "Hard upper bound on the whole run: 90s, 5m, 1h30m."
USUAL_BUDGET = "60s to 150s by the step; more with --train-time"
TARGET_SETTINGS = {"allow_extra_args": True, "allow_interspersed_args": False}
TargetArgument = Annotated[
    str, typer.Argument(help="A training script, whose arguments follow, or a task file.", metavar="TARGET [ARGS]...")
]
NetworkOption = Annotated[bool, typer.Option("--allow-network", help="Trials of a script may reach other machines.")]
ModuleOption = Annotated[bool, typer.Option("-m", help="TARGET is a module, as in python -m package.module.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"torch-autotune {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Hardware-aware auto-tuner for PyTorch training."""


@app.command(cls=TargetCommand, context_settings=TARGET_SETTINGS)
def tune(
    target: TargetArgument,
    context: typer.Context,
    module: ModuleOption = False,
    profile: Annotated[Path | None, typer.Option(help="Where to write the profile.")] = None,
    level: Annotated[str | None, typer.Option(help="The level to recommend: safe, amp or max.")] = None,
    budget: Annotated[str | None, typer.Option(help=BUDGET_HELP, show_default=USUAL_BUDGET)] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of data order, weights and search.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from an interrupted run.")] = False,
    train_time: Annotated[
        str | None, typer.Option(help="How long you will train: on CPUs, lets compile compete. 10h")
    ] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Pin a knob: --fix num_workers=2. Repeatable.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Let only these knobs move: --only threads,num_workers. Repeatable.")
    ] = None,
    allow_network: NetworkOption = False,
    as_json: JsonOption = False,
    report: Annotated[Path | None, typer.Option(help="Also write an HTML report there.")] = None,
) -> None:
    """Find, prove and write the fastest settings for a training script or a task file on this machine."""
    started = time.monotonic()
    from autotune.commands import tune as command
    from autotune.tuning.options import Options

    options = Options(
        profile=profile,
        level=level,
        budget=None if budget is None else seconds(budget, "--budget"),
        seed=seed,
        resume=resume,
        train_seconds=seconds(train_time, "--train-time") if train_time else None,
        fix=dict(read_pin(text) for text in fix or ()),
        only=tuple(name.strip() for text in only or () for name in text.split(",")),
    )
    check_one_machine(os.environ)
    found = recognise_target(target, context.args, module=module, network=allow_network)
    command.tune(found, options, started, as_json, report)


@app.command(cls=TargetCommand, context_settings=TARGET_SETTINGS)
def diagnose(
    target: TargetArgument,
    context: typer.Context,
    module: ModuleOption = False,
    allow_network: NetworkOption = False,
    budget: Annotated[str, typer.Option(help="Hard upper bound on the whole run: 15s, 1m.")] = "15s",
    as_json: JsonOption = False,
) -> None:
    """Say why a training step is as slow as it is: each part is measured, none is guessed."""
    started = time.monotonic()
    from autotune.commands.live_view import live_view
    from autotune.inspect.diagnose import diagnose
    from autotune.report import diagnosis as words

    recognised = recognise_target(target, context.args, module=module, network=allow_network)
    limit = seconds(budget, "--budget")
    with live_view(limit, started) as observe:
        found = diagnose(recognised, started + limit, observe)
    name = recognised.name
    print(words.as_json(name, found) if as_json else words.text(name, found, time.monotonic() - started))


@app.command()
def probe(as_json: JsonOption = False) -> None:
    """Show what this machine is, which limit won, what is missing and why it matters."""
    from autotune.commands import probe as command

    command.probe(as_json)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Name what costs speed on this machine, with the command that mends it. Exit code 6 if something does."""
    from autotune.inspect.doctor import examine
    from autotune.report import diagnosis as words

    found = examine()
    print(json.dumps([vars(each) for each in found]) if as_json else words.doctor(found))
    raise typer.Exit(6 if found else 0)


@app.command(cls=ScriptCommand, context_settings=TARGET_SETTINGS)
def run(
    script: Annotated[
        str, typer.Argument(help="Your training script; arguments after it are its own.", metavar="SCRIPT [ARGS]...")
    ],
    context: typer.Context,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as in python -m package.module.")] = False,
    profile: Annotated[Path | None, typer.Option(help="The profile; by default the best for this machine.")] = None,
    level: Annotated[str | None, typer.Option(help="safe, amp or max; by default the recommended one.")] = None,
    name: Annotated[
        str | None, typer.Option("--target", help="Take the profile of this task, such as model, not the script's own.")
    ] = None,
    nproc: Annotated[int | None, typer.Option(help="Processes on each machine, in place of the profile's.")] = None,
    nnodes: Annotated[int | None, typer.Option(help="Machines that train together; start this on each.")] = None,
    rdzv_endpoint: Annotated[str | None, typer.Option(help="HOST:PORT where they meet, the same on all.")] = None,
    hosts: Annotated[str | None, typer.Option(help="For mpi, on one machine: names of all, with commas.")] = None,
    timeout: Annotated[
        str | None, typer.Option(help="End everything where a process takes no optimizer step for so long: 10m.")
    ] = None,
    tune_if_missing: Annotated[
        bool, typer.Option("--tune-if-missing", help="Tune first where no profile fits; others that start wait.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print environment and command; start nothing.")] = False,
) -> None:
    """Start training the way the profile wants it: processes, threads, CPUs, backend, allocator."""
    from autotune.commands import run as command

    cluster = from_options(nnodes, rdzv_endpoint, hosts) or from_slurm(os.environ)
    patience = seconds(timeout, "--timeout") if timeout else None
    target = started_script(script, context.args, module=module)
    if tune_if_missing and (profile or name or cluster or dry_run):
        raise UsageError("--tune-if-missing: give no --profile, --target, --dry-run or machines with it")
    why_not = None
    if tune_if_missing:
        from autotune.commands.tune_if_missing import tune_if_missing as tuned

        why_not = tuned(target)
    prepared = command.prepare(target, profile, level, name, nproc, cluster, patience, why_not)
    command.run(prepared, dry_run)


@app.command()
def show(profile: ProfileArgument) -> None:
    """Print a profile for people."""
    from autotune.commands import show as command

    command.show(profile)


@app.command(cls=TargetCommand, context_settings=TARGET_SETTINGS)
def check(
    profile: ProfileArgument,
    target: TargetArgument,
    context: typer.Context,
    module: ModuleOption = False,
    allow_network: NetworkOption = False,
    level: Annotated[str | None, typer.Option(help="safe, amp or max; by default the recommended one.")] = None,
    budget: Annotated[str, typer.Option(help="About how long: 30s, 2m.")] = "30s",
    force: Annotated[bool, typer.Option("--force", help="Also with the profile of another task or machine.")] = False,
) -> None:
    """Measure a profile's claim again, in seconds. Exit code 4 where it no longer holds, 5 where that is open."""
    from autotune.commands import check as command

    found = recognise_target(target, context.args, module=module, network=allow_network)
    verdict = command.check(profile, found, level, seconds(budget, "--budget"), force=force)
    raise typer.Exit(command.EXIT_CODES[verdict])


@app.command()
def export(
    profile: ProfileArgument,
    to: Annotated[str, typer.Option(help="env, torchrun, accelerate, lightning or transformers.")],
    level: Annotated[str | None, typer.Option(help="safe, amp or max; by default the recommended one.")] = None,
) -> None:
    """Print what to paste into other launchers and trainers."""
    from autotune.commands import export as command

    command.export(profile, level, to)


@app.command()
def report(
    profile: ProfileArgument,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
) -> None:
    """Write one HTML file that shows a tuning run; it opens offline."""
    from autotune.commands import report as command

    command.report(profile, out)


@app.command()
def validate(profile: ProfileArgument) -> None:
    """Check a profile against the schema."""
    from autotune.commands import show as command

    command.validate(profile)


@app.command()
def diff(left: ProfileArgument, right: ProfileArgument) -> None:
    """Compare two profiles knob by knob."""
    from autotune.commands import diff as command

    command.diff(left, right)


@app.command()
def init(path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("model.py")) -> None:
    """Write a commented task file to start from."""
    from autotune.commands import init as command

    command.init(path)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code. Usage errors are shown by typer itself (exit 2)."""
    prepare_streams()
    try:
        try:
            app(args=arguments)
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _say(f"autotune: the output cannot be written ({error.strerror})")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries once more at its end
        sys.exit(2)
    except UserCodeError as error:
        _say(f"{error.traceback.rstrip()}\n\n{error}" if error.traceback else str(error))
        sys.exit(error.exit_code)
    except AutotuneError as error:
        _say(f"autotune: {error}")
        sys.exit(error.exit_code)
    except Interrupted as interruption:
        name = signal.Signals(interruption.signal).name
        saved = f" the best so far, not proven, is in {interruption.saved};" if interruption.saved else ""
        given = sys.argv[1:] if arguments is None else arguments
        more = " --resume goes on from here" if given[:1] == ["tune"] else ""
        _say(f"autotune: interrupted by {name};{saved}{more}".rstrip(";"))
        sys.exit(interruption.exit_code)
    sys.exit(0)


if __name__ == "__main__":
    main()
