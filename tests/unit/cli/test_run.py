"""``autotune run`` and ``autotune check``: from a profile to what is started or measured."""

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.knobs.settings import Settings
from autotune.launch.command import OUR_TORCHRUN
from autotune.launch.prepare import UNSEEN, StartOptions, prepare
from autotune.probes.facts import Inventory
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.stats.whole_run import WholeRun
from autotune.trial.target import NEW_TASK, started_script
from tests.doubles.profiles import MACHINE, profile
from tests.unit.cli.conftest import USES_US, Said, Say, profile_of

TWO = Settings(processes=2, threads=4, batch_size=32)
Dry = Callable[..., Said]


@pytest.fixture(autouse=True)
def script(elsewhere: Path) -> Path:
    """A script that applies its profile itself."""
    path = elsewhere / "train.py"
    path.write_text(USES_US)
    return path


@pytest.fixture
def model(elsewhere: Path, machine: Inventory) -> None:
    """A profile of the task ``model`` for this machine."""
    kind = machine_type(machine)
    profiles.write(elsewhere / "profiles" / kind.key / "model.yaml", profile(kind, "model"))


@pytest.fixture
def dry(say: Say, machine: Inventory, elsewhere: Path) -> Dry:
    """Run ``autotune run --dry-run`` with a profile of these settings, options and the script."""

    def run(settings: Settings, *options: str) -> Said:
        saved = profile_of(settings, elsewhere, machine)
        return say("run", "--profile", saved, "--dry-run", *options, "train.py")

    return run


TRAINS: dict[str, tuple[list[str], dict[str, str], str]] = {
    "none": ([], {}, "; this machine has profiles for: model; make one with autotune tune train.py"),
    "of another machine": (["--name", "bert"], {}, "no profile fits"),
    "disabled": (["--profile", "gone.yaml"], {"AUTOTUNE_DISABLE": "yes"}, "AUTOTUNE_DISABLE is set"),
    "several": (["--nproc", "3"], {}, "; --nproc 3 needs a profile"),
    "gone": ([], {"AUTOTUNE_PROFILE": "gone.yaml"}, "gone.yaml: no such file"),
    "a registry that is down": ([], {"AUTOTUNE_PROFILES": "http://127.0.0.1:9"}, "http://127.0.0.1:9"),
    "a task of many": ([], {"SLURM_STEP_NUM_TASKS": "2"}, "srun started 2 tasks on 1 machine(s)"),
    "a probe that fails": ([], {"PROBE": "fails"}, "'probe' is not defined"),
}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("case", TRAINS)
def test_without_a_profile_that_fits_the_script_starts_as_it_is(say, elsewhere, monkeypatch, case) -> None:
    """One line says why; `--require-profile` exits with it."""
    options, variables, words = TRAINS[case]
    profiles.write(elsewhere / "profiles" / "other" / "bert.yaml", profile())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if "PROBE" in variables:
        monkeypatch.delattr("autotune.launch.prepare.probe")
    said = say("run", *options, "--dry-run", "train.py", "--lr", "1")
    assert (said.code, said.out) == (0, f"{sys.executable} train.py --lr 1\n")
    assert said.err.startswith("autotune: the script starts as it is: ")
    assert (words in said.err, said.err.count("\n")) == (True, 1)
    said = say("run", "--require-profile", *options, "--dry-run", "train.py")
    assert (said.code, said.out, words in said.err) == (4, "", True)


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--profile", "gone.yaml", "train.py"], "--profile gone.yaml: no such file"),
        (["--profile", "train.py", "train.py"], "train.py: is a script, not a profile"),
        (["--profile", "http://127.0.0.1:9/a.yaml", "train.py"], "--profile http://127.0.0.1:9/a.yaml: "),
        (["--name", "modle", "train.py"], "did you mean model?"),
        (["--level", "maxi", "train.py"], "--level maxi: levels are safe, amp, max; did you mean max?"),
        (["--profile", "own.ipynb", "--name", "a", "train.py"], "give one of the two"),
        (["torchrun", "--nproc-per-node=two", "train.py"], "torchrun --nproc-per-node two: give a number"),
        (["--name", "model", "--nproc", "99", "train.py"], "at most 8 processes (8 online CPUs)"),
        (["gone.py"], "gone.py: no such script. Give a script, or a line of python,"),
        (["secret.py"], "secret.py: cannot be read (Permission denied)"),
        (["accelerate", "launch", "--config-file", "gone", "train.py"], "gone: cannot be read: No such file or dir"),
    ],
)
def test_what_the_user_names_must_be_there(say, elsewhere, monkeypatch, words, why) -> None:
    (elsewhere / "secret.py").touch()
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != "secret.py")  # root may read all
    said = say("run", "--dry-run", *words)
    assert (said.code, said.out, why in said.err) == (2, "", True)


def test_the_start_is_said_once(say: Say, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    title = f"autotune: {saved}, level amp: num_workers=2, prefetch_factor=2, precision=bf16\n"
    words = ["run", "--profile", saved, "--dry-run", "train.py"]
    assert say(*words).err == title
    assert say("run", "--quiet", *words[1:]).err == ""
    for rank, said in (("0", title), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        assert say(*words).err == said


def test_the_environment_names_profile_and_level(say: Say, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_PROFILE", str(saved))
    monkeypatch.setenv("AUTOTUNE_LEVEL", "safe")
    out = say("run", "--dry-run", "train.py").out
    assert f"AUTOTUNE_PROFILE={saved}" in out
    assert "AUTOTUNE_LEVEL=safe" in out
    assert "AUTOTUNE_LEVEL=max" in say("run", "--dry-run", "--level", "max", "train.py").out
    monkeypatch.setenv("AUTOTUNE_LEVEL", "maxi")
    said = say("run", "--dry-run", "train.py")
    assert "AUTOTUNE_LEVEL=amp" in said.out
    assert "AUTOTUNE_LEVEL=maxi: the profile has safe, amp, max" in said.err


def test_several_processes_need_a_launcher(dry: Dry, script: Path) -> None:
    out = dry(TWO).out
    assert all(words in out for words in (OUR_TORCHRUN, "--nproc-per-node=2", "OMP_NUM_THREADS=4"))
    script.write_text("")
    alone = dry(TWO)
    assert f"train is started as one process: {UNSEEN}" in alone.err
    assert OUR_TORCHRUN not in alone.out


def test_torchruns_own_line_for_several_machines_is_started_tuned(say, elsewhere, machine) -> None:
    options = ("--nnodes=2", "--rdzv-endpoint", "h:1", "--max-restarts=3")
    line = ("torchrun", *options, "--nproc-per-node=2", "train.py")
    said = say("run", "--profile", profile_of(TWO, elsewhere, machine), "--dry-run", *line)
    assert "--nnodes 2 --rdzv-endpoint h:1 --max-restarts 3 --nproc-per-node=2" in said.out
    assert "OMP_NUM_THREADS=4" in said.out
    assert "GLOO_SOCKET_IFNAME" not in said.out
    assert "2 machines x 2 processes share the global batch of 64 (16 samples each)" in said.err


def test_one_script_is_started_without_an_interpreter_in_between(elsewhere: Path, machine: Inventory) -> None:
    saved = written_for_torchrun(Settings(threads=1, batch_size=64, binding="cores"), elsewhere, machine)
    launch = prepare(started_script("train.py", ["--lr", "1"]), StartOptions(profile=saved))
    assert launch.command == [sys.executable, "-m", "autotune.scripts.entry", "gloo", "train.py", "--lr", "1"]
    assert launch.binds
    assert f"-m autotune.knobs.binding {sys.executable} -m autotune.scripts.entry gloo train.py" in launch.shell()
    assert launch.environment == {**os.environ, **launch.added}


def test_the_users_own_threads_are_not_squeezed_onto_planned_cpus(dry: Dry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    said = dry(Settings(threads=2, batch_size=64, binding="cores"))
    assert "OMP_NUM_THREADS=8 is kept; the profile would use 2 threads" in said.err
    assert "AUTOTUNE_BINDING='0-7 0-7/0-7' " in said.out


def test_a_script_whose_name_begins_with_a_dash_is_no_option(say: Say, script: Path) -> None:
    script.rename("-train.py")
    said = say("run", "--dry-run", "--", "-train.py")
    assert said.out == f"{sys.executable} ./-train.py\n"
    assert "autotune tune ./-train.py" in said.err


def test_starts_exactly_what_a_dry_run_prints(say, saved, elsewhere, monkeypatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(os, "execvpe", lambda *arguments: started.append(arguments))
    (elsewhere / "train it.py").write_text(USES_US)
    words = ("--profile", saved, "train it.py", "--lr", "1e-3", "--name", "a b", "--dry-run")
    printed = say("run", "--dry-run", *words)
    assert (printed.code, printed.out.count("\n"), started) == (0, 1, [])
    assert printed.out.endswith(" 'train it.py' --lr 1e-3 --name 'a b' --dry-run\n")
    assert f"AUTOTUNE_PROFILE={saved}" in printed.out
    said = say("run", *words)
    assert said.code == 0
    assert "what follows the script belongs to it: --name --dry-run." in said.err
    ((program, command, environment),) = started
    assert program == command[0]
    assert shlex.join(command) in printed.out, "options after the script are the script's"
    assert environment["AUTOTUNE_PROFILE"] == str(saved)
    assert environment["PATH"] == os.environ["PATH"]


def test_variables_before_a_line_are_set(say: Say, monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    said = say("run", "--profile", saved, "--dry-run", "OMP_NUM_THREADS=3", "uv", "run", "python", "train.py")
    assert "OMP_NUM_THREADS=3 is kept" in said.err


def test_a_launcher_that_is_not_there(say: Say, saved: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    (elsewhere / "train.py").write_text("")
    monkeypatch.setenv("PATH", str(elsewhere))
    monkeypatch.setenv("AUTOTUNE_DISABLE", "1")
    said = say("run", "--profile", saved, "torchrun", "--nproc-per-node=2", "train.py")
    assert (said.code, "torchrun: No such file or directory. Is its environment active?" in said.err) == (2, True)


LINE = ("torchrun", "--standalone", "--nproc-per-node=2", "train.py", "--level", "3")


def written_for_torchrun(baseline: Settings, folder: Path, machine: Inventory) -> Path:
    """A profile of an unmodified script that was tuned as torchrun starts it, with ``baseline``, and gains threads."""
    saved = profiles.read(profile_of(baseline.but(threads=3), folder, machine))
    target = replace(saved.target, name="train", script="batches", ranked=True)
    return profiles.write(folder / "ranked.yaml", replace(saved, target=target, baseline=baseline))


def test_the_launch_line_of_a_tuned_script_is_started_tuned(say: Say, elsewhere: Path, machine: Inventory) -> None:
    two = Settings(processes=2, threads=1, batch_size=32, backend="gloo")
    said = say("run", "--profile", written_for_torchrun(two, elsewhere, machine), "--dry-run", *LINE)
    assert said.code == 0
    assert all(words in said.out for words in ("--nproc-per-node=2", "OMP_NUM_THREADS=3"))
    assert said.out.endswith("train.py --level 3\n")
    assert "what follows the script belongs to it: --level." in said.err


def test_a_launch_line_of_another_number_starts_as_it_is(say: Say, elsewhere: Path, machine: Inventory) -> None:
    one = Settings(threads=1, batch_size=64)
    saved = written_for_torchrun(one, elsewhere, machine)
    said = say("run", "--profile", saved, "--dry-run", *LINE)
    assert (said.code, said.out) == (0, " ".join(LINE) + "\n")
    assert "your launch line starts 2 process(es), and the profile is for 1" in said.err
    assert OUR_TORCHRUN not in say("run", "--profile", saved, "--dry-run", "--nproc", "1", *LINE).out


def test_one_process_finds_what_torchrun_sets(say: Say, elsewhere: Path, machine: Inventory) -> None:
    one = Settings(threads=1, batch_size=64)
    said = say("run", "--profile", written_for_torchrun(one, elsewhere, machine), "--dry-run", "train.py")
    assert said.code == 0
    for words in ("RANK=0 ", "WORLD_SIZE=1 ", "LOCAL_RANK=0 ", "MASTER_ADDR=127.0.0.1 ", "MASTER_PORT="):
        assert words in said.out
    assert "OMP_NUM_THREADS" not in said.out
    assert "it is started as torchrun starts one process" in said.err


def test_unproven_settings_are_applied_by_name_only(say: Say, elsewhere: Path, machine: Inventory) -> None:
    saved = profiles.read(written_for_torchrun(Settings(threads=1, batch_size=64), elsewhere, machine))
    levels = {name: replace(level, proven=False) for name, level in saved.levels.items()}
    partial = replace(saved, levels=levels, evidence=replace(saved.evidence, partial=True))
    words = ["run", "--profile", profiles.write(elsewhere / "partial.yaml", partial), "--dry-run", "other.py"]
    (elsewhere / "other.py").write_text("")
    said = say(*words)
    assert ("the profile is of train, not of other" in said.err, "AUTOTUNE_SCRIPT" in said.out) == (True, False)
    assert "was proven; autotune tune --resume" in said.err
    assert "AUTOTUNE_SCRIPT" in say(*words[:1], "--level", "safe", *words[1:]).out


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_gain_that_is_not_felt_is_applied_if_the_user_names_the_level(
    say: Say, elsewhere: Path, machine: Inventory, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    saved = profiles.read(written_for_torchrun(Settings(threads=1, batch_size=64), elsewhere, machine))
    target, run = replace(saved.target, ranked=False), WholeRun(20.0, 0.001, None, 10)
    short = replace(saved, target=target, evidence=replace(saved.evidence, run=run))
    words = ["run", "--profile", profiles.write(elsewhere / "short.yaml", short), "--dry-run", "train.py"]
    said = say(*words)
    assert (said.out, "save too little to feel" in said.err) == (f"{sys.executable} train.py\n", True)
    if how == "option":
        words[1:1] = ["--level", "amp"]
    else:
        monkeypatch.setenv("AUTOTUNE_LEVEL", "amp")
    assert "autotune.scripts.entry" in say(*words).out


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("file", ["resnet.py", "other.py"])
def test_the_profile_of_another_task_or_machine_is_not_checked(say: Say, foreign: Path, elsewhere: Path, file) -> None:
    (elsewhere / file).write_text(NEW_TASK)
    said = say("check", foreign, file)
    assert said.code == 2
    assert f"is for resnet on {MACHINE.key}, this is {file[:-3]} on " in said.err
    assert "--force measures it all the same" in said.err


@pytest.mark.parametrize(("file", "options"), [("resnet.py", []), ("other.py", ["--force"])])
def test_a_fitting_or_forced_one_is_checked(say, saved, elsewhere, monkeypatch, file, options) -> None:
    wide = replace(profile().levels["amp"].speedup, low=0.37, high=184.61)
    monkeypatch.setattr("autotune.tuning.check.measure_claim", lambda *_: wide)
    (elsewhere / file).write_text(NEW_TASK)
    said = say("check", *options, saved, file)
    assert (said.code, "inconclusive" in said.out) == (5, True)
