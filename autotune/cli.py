"""The command line: parse, call, print. The only catcher of `AutotuneError`; exit codes are those of `autotune.errors`.

Commands import what only they need themselves: ``autotune run`` starts within 0.3 s of Python.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from autotune import cli_profiles, project
from autotune.cli_parsing import (
    TARGET_SETTINGS,
    Command,
    JsonOption,
    LevelOption,
    ModuleOption,
    NetworkOption,
    TargetArgument,
    TargetCommand,
    answer,
    optional_bytes,
    prepare_streams,
    project_defaults,
    say,
    where_stated,
)
from autotune.durations import check_budget, optional_seconds, seconds
from autotune.environment import is_first
from autotune.errors import AutotuneError, Interrupted, UsageError, UserCodeError, cut
from autotune.knobs.level import LEVELS
from autotune.knobs.stated import read_fixed
from autotune.launch import line
from autotune.launch.command import slurm_tasks
from autotune.launch.prepare import StartOptions, prepare
from autotune.probes import inventory
from autotune.profiles import places
from autotune.profiles.file import to_data
from autotune.profiles.format import machine_type
from autotune.trial.target import Script, Target, write_task
from autotune.version import VERSION

if TYPE_CHECKING:
    from autotune.tuning.options import Options

NARROW = max(30, columns) if (columns := shutil.get_terminal_size().columns) < 60 else None
"""The columns of a terminal on which the tables of help would cut words; None if they fit."""
app = typer.Typer(
    name="autotune",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None if NARROW else "rich",
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": NARROW},
)
BUDGET_HELP = "Hard upper bound on the whole run: 90s, 5m, 1h30m."
CHECK_HELP = "About how long: 30s, 2m. At least one comparison of fresh processes is finished."
BUDGET_DEFAULT = "60s to 150s by the step; more with --train-time"
TRAIN_TIME_HELP = "How long you will train, such as 10h: on CPUs, lets compile be tried."
NAME_HELP = "The target's name; else the script's in its project. Take it with autotune run --name."
ONLY_HELP = "Vary only these knobs: --only threads,num_workers. Repeatable."
SAMPLER_HELP = "Search with another Optuna sampler: tpe, random or module:Class, such as optuna.samplers:GPSampler."
SCRIPT_HELP = (
    "Your training script; arguments after it are its own. Or your own launch line, which then sets how many processes"
    " there are: torchrun --nproc-per-node=2 train.py."
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"torch-autotune {VERSION}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Hardware-aware auto-tuner for PyTorch training."""


@app.command("help", hidden=True)
def show_help(command: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Show this help, or that of a command: what -h does."""
    words = command or []
    own = words[: 2 if words[:1] == ["profiles"] else 1]
    typer.main.get_command(app)(args=[*own, "--help"], prog_name="autotune")


@app.command(cls=TargetCommand, context_settings=TARGET_SETTINGS)
def tune(
    target: TargetArgument,
    context: typer.Context,
    profile: Annotated[Path | None, typer.Option(help="Where to write the profile.")] = None,
    name: Annotated[str | None, typer.Option(help=NAME_HELP)] = None,
    level: Annotated[str | None, typer.Option(help=f"The level to recommend: {', '.join(LEVELS)}.")] = None,
    budget: Annotated[str | None, typer.Option(help=BUDGET_HELP, show_default=BUDGET_DEFAULT)] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of data order, weights and search.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from an interrupted run.")] = False,
    train_time: Annotated[str | None, typer.Option(help=TRAIN_TIME_HELP)] = None,
    max_memory: Annotated[str | None, typer.Option(help="Memory that training steps may hold, such as 8g.")] = None,
    max_gpu_memory: Annotated[
        str | None, typer.Option(help="Largest GPU memory that training may use, for each GPU: 20g.")
    ] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Fix a knob: --fix num_workers=2. Repeatable.")] = None,
    only: Annotated[list[str] | None, typer.Option(help=ONLY_HELP)] = None,
    sampler: Annotated[str | None, typer.Option(help=SAMPLER_HELP)] = None,
    as_json: JsonOption = False,
    report: Annotated[Path | None, typer.Option(help="Also write an HTML report there.")] = None,
    module: ModuleOption = False,
    allow_network: NetworkOption = False,
) -> None:
    """Find, prove and write the fastest settings for a training script or a task file on this machine."""
    started = time.monotonic()
    from autotune.tuning.options import Options

    options = Options(
        profile=profile,
        name=name,
        level=level,
        budget=optional_seconds(budget, "--budget"),
        seed=seed,
        resume=resume,
        train_seconds=optional_seconds(train_time, "--train-time"),
        max_memory=optional_bytes(max_memory, "--max-memory"),
        max_gpu_memory=optional_bytes(max_gpu_memory, "--max-gpu-memory"),
        fix=read_fixed(fix or ()),
        only=tuple(name.strip() for text in only or () for name in text.split(",")),
        sampler=sampler,
    )
    if reason := slurm_tasks(os.environ):
        raise UsageError(reason)
    found = line.target(target, context.args, module=module, network=allow_network)
    _tune(found, options, started, report, as_json)


def _tune(target: Target, options: Options, started: float, report: Path | None, as_json: bool) -> None:
    """Run, and print the result. ``report`` is the HTML file to write; None for none."""
    from autotune.tuning.runner import check_not_a_rank, interrupt_on_signals

    check_not_a_rank()  # before NumPy is imported: a job may start thousands
    if report is not None:
        places.checked_place(report, "report")
        if options.profile is not None and os.path.realpath(report) == os.path.realpath(options.profile):
            raise UsageError(f"--report {report}: is the profile's file too. Name another")
    from autotune.report import result as words
    from autotune.report.live import live_view
    from autotune.tuning import run

    with interrupt_on_signals(), live_view(options.budget or 0.0, started) as observe:
        result = run.run(target, options, observe, started)
    script = words.OWN_SCRIPT
    if isinstance(target, Script):  # the user's own line if its processes were tuned
        own = target.line if target.processes == result.profile.baseline.processes else ()
        script = shlex.join(own or target.words)
    text = words.text(result.profile, result.inventory, result.path, result.load, script=script)
    if as_json:
        say(text)
    answer(text, {"path": str(result.path.resolve()), **to_data(result.profile)}, as_json=as_json)
    if result.note:
        say(f"{result.note}\nThe profile is in {result.path}.")
    if report is not None:
        say(cli_profiles.write_report(result.profile, result.path, report, script=script))


@app.command(cls=TargetCommand, context_settings=TARGET_SETTINGS)
def diagnose(
    target: TargetArgument,
    context: typer.Context,
    budget: Annotated[str, typer.Option(help="Hard upper bound on the whole run: 15s, 1m.")] = "15s",
    as_json: JsonOption = False,
    module: ModuleOption = False,
    allow_network: NetworkOption = False,
) -> None:
    """Show why a training step is slow: each part is measured."""
    started = time.monotonic()
    limit = seconds(budget, "--budget")
    check_budget(limit)
    recognised = line.target(target, context.args, module=module, network=allow_network)
    from autotune.inspect.diagnose import diagnose
    from autotune.report import diagnosis as words
    from autotune.report.live import live_view

    with live_view(limit, started) as observe:
        found = diagnose(recognised, started + limit, observe)
    name = recognised.name
    answer(words.text(name, found, time.monotonic() - started), words.as_data(name, found), as_json=as_json)


@app.command(cls=Command)
def probe(as_json: JsonOption = False) -> None:
    """Show what this machine is, which limit counts, what is missing and why it matters."""
    from autotune.report import machine

    facts = inventory.probe()
    answer(machine.text(facts), {"key": machine_type(facts).key, **asdict(facts)}, as_json=as_json)


@app.command(cls=Command)
def doctor(as_json: JsonOption = False) -> None:
    """List what costs speed on this machine, with the command that fixes it. Exit code 6 if it finds something."""
    from autotune.inspect.doctor import examine
    from autotune.report import diagnosis as words

    found = examine()
    answer(words.doctor(found), {"findings": [vars(each) for each in found]}, as_json=as_json)
    raise typer.Exit(6 if found else 0)


@app.command(cls=Command, context_settings=TARGET_SETTINGS)
def run(
    script: Annotated[str, typer.Argument(help=SCRIPT_HELP, metavar="SCRIPT [ARGS]...")],
    context: typer.Context,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as in python -m package.module.")] = False,
    profile: Annotated[
        str | None, typer.Option(help="The profile, or its URL; else the best for this machine.")
    ] = None,
    level: LevelOption = None,
    task: Annotated[
        str | None,
        typer.Option("--target", "--name", help="Take the profile of this task, such as model, not the script's own."),
    ] = None,
    nproc: Annotated[int | None, typer.Option(min=1, help="Processes on each machine; else the profile's.")] = None,
    required: Annotated[
        bool,
        typer.Option("--require-profile", help="Exit with 4 if no profile can be applied; else the script trains."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also say at the end how fast it was.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing at the start.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print environment and command; start nothing.")] = False,
) -> None:
    """Start training with the profile's processes, threads, CPUs, backend and allocator. It always trains."""
    found = line.script(script, context.args, module=module)
    options = StartOptions(profile=profile, level=level, task=task, processes=nproc, required=required, verbose=verbose)
    launch = prepare(found, options)
    if is_first(os.environ):
        for text in filter(None, () if quiet else (launch.title, *launch.notes)):
            say(f"autotune: {text}")
    if dry_run:
        print(launch.shell())
    else:
        launch.start()


@app.command(cls=TargetCommand, context_settings=TARGET_SETTINGS)
def check(
    profile: Annotated[str, typer.Argument(help="A profile (.yaml), or its URL.")],
    target: TargetArgument,
    context: typer.Context,
    level: LevelOption = None,
    budget: Annotated[str, typer.Option(help=CHECK_HELP)] = "30s",
    force: Annotated[bool, typer.Option("--force", help="Also with the profile of another task or machine.")] = False,
    as_json: JsonOption = False,
    module: ModuleOption = False,
    allow_network: NetworkOption = False,
) -> None:
    """Measure a profile's claim again, in seconds. Exit code 4 if it no longer holds, 5 if it cannot tell."""
    started = time.monotonic()
    if profile.endswith(".py") and target.endswith((".yaml", ".yml")):
        raise UsageError(f"the profile comes first: autotune check {target} {profile}")
    limit = seconds(budget, "--budget")
    check_budget(limit)
    found = line.target(target, context.args, module=module, network=allow_network)
    from autotune.report import profile as words
    from autotune.report.live import live_view
    from autotune.tuning import check as claims

    with live_view(limit, started) as observe:
        result = claims.check(profile, found, level, limit, observe, force=force)
    answer(words.checked(result), {**asdict(result), "verdict": result.verdict.value}, as_json=as_json)
    raise typer.Exit(claims.EXIT_CODES[result.verdict])


@app.command(cls=Command)
def init(path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("model.py")) -> None:
    """Write a commented task file to start from."""
    write_task(path)
    answer(f"wrote {path}; next: autotune tune {shlex.quote(str(path))}")


for command in (cli_profiles.show, cli_profiles.validate, cli_profiles.diff, cli_profiles.report, cli_profiles.export):
    app.command(cls=Command)(command)
app.add_typer(cli_profiles.profiles_app, name="profiles")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code. What cannot be parsed is shown by typer itself (exit 2)."""
    prepare_streams()
    words = sys.argv[1:] if arguments is None else arguments
    asked = {"json": "--json" in words and words[0] != "run"}  # whose script may have it
    try:
        if project.working_folder() is None and words[:1] != ["run"]:
            raise UsageError("the working folder was deleted: change to another")
        _run(words, asked)
    except (AutotuneError, Interrupted) as error:
        text, traceback = str(error), getattr(error, "traceback", "")
        text += where_stated(text, words) if error.exit_code == UsageError.exit_code else ""
        if traceback:
            print(f"{traceback.rstrip()}\n", file=sys.stderr)
        say(text if isinstance(error, UserCodeError) else f"autotune: {text}")
        if asked["json"]:
            _answer_error(text, error.exit_code, traceback or None)
        sys.exit(error.exit_code)
    sys.exit(0)


def _answer_error(text: str, code: int, traceback: str | None = None) -> None:
    with contextlib.suppress(UsageError):  # of a full disk
        answer("", {"error": text, "exit_code": code, "traceback": traceback}, as_json=True)
        sys.stdout.flush()


def _run(words: list[str], asked: dict[str, bool]) -> None:
    """Run the command. What the system refuses it is a `UsageError`; ``asked`` gets whether ``json`` is wanted."""
    try:
        try:
            command = typer.main.get_command(app)
            command(args=words, obj=asked, default_map=project_defaults(command))
        except SystemExit as ended:
            if ended.code == Interrupted.exit_code:  # typer's, for Ctrl-C outside the part that handles signals itself
                raise Interrupted(signal.SIGINT) from None
            refused = getattr(ended.__context__, "format_message", None)  # typer has shown it to people
            if refused is not None:
                if where := where_stated(refused(), words):
                    say(f"autotune: it stands in {where.strip(' ()')}")
                if asked["json"]:
                    _answer_error(f"{refused()}{where}", UsageError.exit_code)
            raise
        finally:
            sys.stdout.flush()
    except OSError as error:
        if "temporary directory" in str(error):
            raise UsageError("no folder for temporary files can be written to: set TMPDIR to one") from error
        if error.filename is None:
            raise
        raise UsageError(f"{cut(ascii(str(error.filename))[1:-1], 80)}: {error.strerror}") from error
