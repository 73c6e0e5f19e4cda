"""The command line in this process where that is enough, in a fresh one where imports or signals matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune import cli
from autotune.commands import check
from autotune.commands.init import TASK
from autotune.errors import Interrupted, NothingUsable, UsageError, UserCodeError
from autotune.knobs.settings import Settings
from autotune.probes.facts import Inventory
from autotune.profiles import file as profiles
from autotune.profiles.machine import machine_type
from autotune.trial.target import started_script
from autotune.tuning import run
from benchmarks.simulation.simulator import inventory
from tests.profiles.records import BASELINE, MACHINE, TUNED, profile

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Said:
    """What one call answered."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, as no rank of anything."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "AUTOTUNE_PROFILE", "AUTOTUNE_LEVEL", "AUTOTUNE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def saved(elsewhere: Path) -> Path:
    """A profile in the working folder."""
    return profiles.write(elsewhere / "tuned.yaml", profile())


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """A machine of eight cores, already probed."""
    found = inventory(8, 8)
    monkeypatch.setattr("autotune.probes.inventory.probe", lambda *_: found)
    monkeypatch.setattr("autotune.commands.run.probe", lambda *_: found)
    monkeypatch.setattr("autotune.commands.export.probe", lambda *_: found)
    return found


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run ``autotune ARGUMENTS`` here."""

    def run(*arguments: str | Path) -> Said:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Said(int(ended.value.code or 0), out, err)

    return run


def fresh(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python ``code`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["tune", "nowhere.py"], "nowhere.py: no such file"),
            (["tune", "."], "not a file"),
            (["tune", "empty.py"], "empty.py: neither a training script, for nothing happens in it, nor a task file"),
            (
                ["tune", "whole.py", "--", "some", "words"],
                "whole.py is a task file, which takes no arguments: some words",
            ),
            (["tune", "whole.py", "some", "words"], "whole.py is a task file, which takes no arguments: some words"),
            (["tune", "whole.py", "--only", ""], "--only: name at least one knob, such as threads"),
            (["tune", "whole.py", "--fix", "=3"], "--fix '=3': write knob=value"),
            (["tune", "whole.py", "--fix", "threads="], "--fix 'threads=': write knob=value"),
            (["tune", "half.py"], "lacks build_dataset and compute_loss"),
            (["tune", "broken.py"], "broken.py:1: not valid Python"),
            (
                ["tune", "whole.py", "--budget", "soon"],
                "--budget 'soon': write a duration such as 90s, 5m, 1h30m or 10h",
            ),
            (["tune", "whole.py", "--budget", "0"], "--budget '0': must be a positive duration"),
            (["tune", "whole.py", "--budget", "1s"], "--budget 1s is too short: give at least 5s"),
            (["tune", "whole.py", "--train-time", "forever"], "--train-time 'forever'"),
            (["tune", "whole.py", "--level", "fast"], "--level fast: levels are safe, amp, max"),
            (["tune", "whole.py", "--only", "workers"], "--only workers: no such knob; did you mean num_workers?"),
            (["tune", "whole.py", "--only", "zzz"], "--only zzz: no such knob; knobs are: processes, threads"),
            (["tune", "whole.py", "--only", "threads,procesess"], "--only procesess: no such knob; did you mean proc"),
            (["tune", "whole.py", "--fix", "processes=0"], "--fix processes=0: must be a whole number from 1 to 1024"),
            (["tune", "whole.py", "--fix", "threads=two"], "--fix threads=two: must be a whole number from 1"),
            (["tune", "whole.py", "--fix", "num_workers=2.5"], "--fix num_workers=2.5: must be a whole number from 0"),
            (["tune", "whole.py", "--fix", "num_workers=-3"], "--fix num_workers=-3: must be a whole number from 0"),
            (["tune", "whole.py", "--fix", "compile=maybe"], "--fix compile=maybe: must be"),
            (["tune", "whole.py", "--fix", "thread=2"], "--fix thread: no such knob; did you mean threads?"),
            (
                ["tune", "whole.py", "--fix", "precision=bf61"],
                "--fix precision=bf61: must be one of fp32, tf32, bf16, fp16; did you mean bf16?",
            ),
            (["tune", "whole.py", "--fix", "threads=4000"], "threads exceed the CPU budget of"),
            (["tune", "whole.py", "--fix", "num_workers=1000"], "nothing would be left to search"),
            (["tune", "whole.py", "--profile", "."], ".: is a folder. Name the profile's file: --profile OUT.yaml"),
            (
                ["tune", "whole.py", "--profile", "/dev/null"],
                "it is a device or pipe, and only plain files",
            ),
            (
                ["tune", "whole.py", "--profile", "link.yaml"],
                "it is a symbolic link, and only plain files",
            ),
            (["tune", "whole.py", "--fix", "num_workers"], "--fix 'num_workers': write knob=value"),
            (["init", "whole.py"], "whole.py exists already; name another file"),
            (["init", "no/such/folder.py"], "cannot be written: No such file"),
            (["show", "nowhere.yaml"], "nowhere.yaml"),
            (["show", "/bin/ls"], "autotune: /bin/ls: is a binary file, not a profile."),
            (["tune", "/bin/ls"], "autotune: /bin/ls: not a Python source file. Give a training script"),
            (["validate", "empty.py"], "is empty"),
            (["run", "nowhere.py"], "nowhere.py: no such script"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_mistakes_exit_2_and_quote_what_was_written(
        self, say: Any, elsewhere: Path, arguments: list[str], words: str
    ) -> None:
        (elsewhere / "empty.py").touch()
        (elsewhere / "half.py").write_text("def build_model(): ...")
        (elsewhere / "broken.py").write_text("def :")
        (elsewhere / "whole.py").write_text(TASK)
        (elsewhere / "link.yaml").symlink_to("whole.py")
        said = say(*arguments)
        assert said.code == 2
        assert words in " ".join(said.err.split())
        assert said.out == ""
        assert "Traceback" not in said.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["tune"],
            ["tune", "a.py", "--no-such-option"],
            ["tune", "a.py", "--seed", "x"],
            ["tune", "a.py", "--seed", "-1"],
            ["tuna"],
            ["profiles", "burn"],
            ["diff", "one.yaml"],
        ],
        ids=" ".join,
    )
    def test_what_typer_refuses_exits_2_too(self, say: Any, arguments: list[str]) -> None:
        said = say(*arguments)
        assert said.code == 2
        assert "Usage: " in said.err
        assert said.out == ""

    def test_version(self, say: Any) -> None:
        assert say("--version") == Said(0, f"torch-autotune {autotune.__version__}\n", "")

    @pytest.mark.parametrize("command", [[], ["tune"], ["run"], ["profiles", "match"]], ids=" ".join)
    def test_h_is_help(self, say: Any, command: list[str]) -> None:
        said = say(*command, "-h")
        assert said.code == 0
        assert "Usage: " in said.out

    @pytest.mark.parametrize("option", ["--help", "-h"])
    def test_help_is_no_error(self, say: Any, option: str) -> None:
        said = say(option)
        assert said.code == 0
        assert all(
            name in said.out for name in ("tune", "probe", "run", "show", "validate", "diff", "init", "profiles")
        )

    @pytest.mark.parametrize(
        "variables", [{"RANK": "1"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"WORLD_SIZE": "2"}], ids=str
    )
    def test_tune_refuses_to_start_as_a_rank(
        self, say: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
    ) -> None:
        """H06: every rank would run a study of its own."""
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        (elsewhere / "model.py").write_text(TASK)
        said = say("tune", "model.py")
        assert said.code == 2
        assert "one rank of a distributed job" in said.err
        assert "without torchrun" in said.err
        assert not (elsewhere / "profiles").exists()


class TestTune:
    """What happens around the run itself, which a stub stands for."""

    @pytest.fixture
    def asked(self, plain: Inventory, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """The options that the run was given."""
        asked: list[Any] = []

        def tune(task: Path, options: Any, observe: Any, started: float) -> run.Result:
            asked.append((task, options))
            return run.Result(profile(machine_type(plain)), elsewhere / "out.yaml", plain)

        monkeypatch.setattr(run, "run", tune)
        (elsewhere / "model.py").write_text(TASK)
        return asked

    def test_options_arrive(self, say: Any, asked: list[Any]) -> None:
        options = (
            "--budget 2m --level safe --seed 7 --resume --train-time 10h --only threads,num_workers --only compile"
        )
        said = say("tune", "model.py", *options.split(), "--fix", "precision=bf16", "--fix", "num_workers=2")
        assert said.code == 0
        task, found = asked[0]
        assert task.path == Path("model.py").resolve()
        assert (found.budget, found.level, found.seed, found.resume) == (120.0, "safe", 7, True)
        assert found.train_seconds == 36000.0
        assert found.only == ("threads", "num_workers", "compile")
        assert found.fix == {"precision": "bf16", "num_workers": 2}

    def test_json_is_one_object_on_stdout_and_people_read_stderr(self, say: Any, asked: list[Any]) -> None:
        said = say("tune", "model.py", "--json")
        data = json.loads(said.out)
        assert Path(data["path"]).name == "out.yaml"
        assert data["levels"]["amp"]["speedup"]["value"] == profile().levels["amp"].speedup.value
        assert said.err.strip()

    def test_without_json_stdout_is_empty(self, say: Any, asked: list[Any]) -> None:
        said = say("tune", "model.py")
        assert said.out == ""
        assert "resnet" in said.err

    @pytest.mark.parametrize(
        ("error", "code", "words"),
        [
            (UsageError("--budget what"), 2, ["autotune: --budget what"]),
            (
                UserCodeError("the task failed", "Traceback\nNameError: x\n"),
                3,
                ["Traceback\nNameError: x\n\nthe task failed"],
            ),
            (UserCodeError("the task failed"), 3, ["the task failed"]),
            (NothingUsable("nothing fits"), 4, ["autotune: nothing fits"]),
            (Interrupted(2), 130, ["SIGINT", "--resume"]),
            (Interrupted(15), 130, ["SIGTERM", "--resume"]),
            (
                Interrupted(2, Path("p/m.partial.yaml")),
                130,
                ["SIGINT; the best so far, not proven, is in p/m.partial.yaml;"],
            ),
        ],
        ids=repr,
    )
    def test_every_end_has_its_exit_code(
        self,
        say: Any,
        elsewhere: Path,
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        code: int,
        words: list[str],
    ) -> None:
        def run(*_: Any) -> None:
            raise error

        (elsewhere / "model.py").write_text(TASK)
        monkeypatch.setattr("autotune.tuning.run.run", run)
        said = say("tune", "model.py")
        assert said.code == code
        assert all(word in said.err for word in words)
        assert said.out == ""

    def test_a_bug_of_ours_is_a_traceback(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def run(*_: Any) -> None:
            raise ZeroDivisionError

        Path("model.py").write_text(TASK)
        monkeypatch.setattr("autotune.tuning.run.run", run)
        with pytest.raises(ZeroDivisionError):
            cli.main(["tune", "model.py"])


class TestInit:
    def test_writes_a_task_file_and_says_what_is_next(self, say: Any, elsewhere: Path) -> None:
        said = say("init")
        assert said.code == 0
        assert (elsewhere / "model.py").read_text() == TASK
        assert "autotune tune model.py" in said.out

    def test_never_overwrites(self, say: Any, elsewhere: Path) -> None:
        (elsewhere / "mine.py").write_text("precious")
        assert say("init", "mine.py").code == 2
        assert (elsewhere / "mine.py").read_text() == "precious"


class TestProfiles:
    def test_validate_names_schema_machine_and_target(self, say: Any, saved: Path) -> None:
        said = say("validate", saved)
        assert said.code == 0
        assert said.out.strip() == f"{saved}: valid autotune.profile for {MACHINE.key}, target resnet"

    def test_a_spoiled_profile_names_the_key(self, say: Any, saved: Path) -> None:
        saved.write_text(saved.read_text().replace("num_workers: 2", "num_workers: many"))
        said = say("validate", saved)
        assert said.code == 2
        assert "num_workers" in said.err

    def test_a_misspelt_key_names_line_and_key(self, say: Any, saved: Path) -> None:
        lines = saved.read_text().replace("    threads: 8", "    threds: 8").splitlines()
        saved.write_text("\n".join(lines))
        number = next(k for k, line in enumerate(lines, 1) if "threds" in line)
        said = say("show", saved)
        assert said.code == 2
        assert f"{saved}: line {number}: " in said.err
        assert ".threds: is no key of this format; did you mean threads?" in said.err

    def test_show(self, say: Any, saved: Path) -> None:
        said = say("show", saved)
        assert said.code == 0
        assert all(word in said.out for word in (MACHINE.key, "resnet", "1.62", "bf16"))

    def test_diff_shows_what_differs_and_nothing_else(self, say: Any, saved: Path, elsewhere: Path) -> None:
        level = profile().levels["amp"]
        changed = {
            name: type(level)(TUNED.but(num_workers=3), 2500.0, level.speedup, True) for name in profile().levels
        }
        other = profiles.write(elsewhere / "other.yaml", profile(levels=changed))
        said = say("diff", saved, other)
        assert said.code == 0
        assert "num_workers" in said.out
        assert "prefetch_factor" not in said.out
        assert "tuned.yaml" in said.out
        assert "other.yaml" in said.out

    def test_list_of_nothing_and_of_one(self, say: Any, saved: Path, elsewhere: Path) -> None:
        nothing = say("profiles", "list")
        assert (nothing.code, nothing.out) == (0, "")
        assert nothing.err.startswith("no profiles in profiles or ")
        assert nothing.err.endswith("make one: autotune tune train.py\n")
        path = elsewhere / "profiles" / MACHINE.key / "resnet.yaml"
        path.parent.mkdir(parents=True)
        saved.rename(path)
        (path.parent / "broken.yaml").touch()
        said = say("profiles", "list")
        assert said.code == 0
        own = f"profiles/{MACHINE.key}"
        lines = said.out.splitlines()
        assert lines[0].startswith(f"{own}/broken.yaml: is empty")
        assert lines[1] == f"{own}/resnet.yaml  resnet on {MACHINE.key}"

    def test_match_names_a_folder_that_is_gone(
        self, say: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AUTOTUNE_PROFILES", f"{elsewhere}/gone")
        assert f"AUTOTUNE_PROFILES names {elsewhere}/gone, which is no folder" in say("profiles", "match", "resnet").out

    def test_match(self, say: Any, plain: Inventory, elsewhere: Path) -> None:
        machine = machine_type(plain)
        said = say("profiles", "match")
        assert said.code == 4
        assert f"no profile fits {machine.key}" in said.out
        profiles.write(elsewhere / "profiles" / machine.key / "resnet.yaml", profile(machine))
        said = say("profiles", "match")
        assert said.code == 4
        assert "this machine has profiles for: resnet" in said.out
        said = say("profiles", "match", "resnet")
        assert said.code == 0
        assert said.out.startswith(f"profiles/{machine.key}/resnet.yaml (exact)")
        said = say("profiles", "match", "resent")
        assert said.code == 4
        assert f"no profile fits {machine.key} and resent; did you mean resnet?" in said.out


def _profile_of(settings: Settings, folder: Path, machine: Inventory) -> Path:
    """A profile that has ``settings`` at every level."""
    level = profile().levels["amp"]
    levels = {name: type(level)(settings, 2500.0, level.speedup, True) for name in profile().levels}
    made = profile(machine_type(machine), levels=levels, baseline=BASELINE)
    return profiles.write(folder / "bound.yaml", made)


class TestCheck:
    @pytest.mark.parametrize("file", ["resnet.py", "other.py"])
    def test_a_profile_of_another_task_or_machine_is_refused(
        self, say: Any, saved: Path, elsewhere: Path, file: str
    ) -> None:
        (elsewhere / file).write_text(TASK)
        said = say("check", saved, file)
        assert said.code == 2
        assert f"is for resnet on {MACHINE.key}, this is {file[:-3]} on " in said.err
        assert "--force measures it all the same" in said.err

    @pytest.mark.parametrize(("file", "options"), [("resnet.py", []), ("other.py", ["--force"])])
    def test_a_fitting_or_forced_one_is_measured(
        self,
        say: Any,
        plain: Inventory,
        elsewhere: Path,
        monkeypatch: pytest.MonkeyPatch,
        file: str,
        options: list[str],
    ) -> None:
        monkeypatch.setattr("autotune.commands.check.probe", lambda: plain)
        claim = profile().levels["amp"].speedup
        wide = replace(claim, low=0.37, high=184.61)
        monkeypatch.setattr("autotune.commands.check.measure_claim", lambda *_: check.CheckResult("amp", claim, wide))
        (elsewhere / file).write_text(TASK)
        saved = profiles.write(elsewhere / "own.yaml", profile(machine_type(plain)))
        said = say("check", *options, saved, file)
        assert said.code == 5
        assert "inconclusive" in said.out


class TestRun:
    @pytest.fixture
    def script(self, elsewhere: Path, plain: Inventory) -> Path:
        """A script, beside the profile of the task ``model`` for this machine."""
        machine = machine_type(plain)
        profiles.write(elsewhere / "profiles" / machine.key / "model.yaml", profile(machine, "model"))
        (elsewhere / "train.py").touch()
        return elsewhere / "train.py"

    def test_without_a_profile_of_its_own_others_are_listed(self, say: Any, script: Path) -> None:
        said = say("run", "--dry-run", "train.py")
        assert said.code == 2
        assert "no profile fits this machine and train; --target NAME takes another task's: model;" in said.err
        assert "make one: autotune tune train.py" in said.err
        said = say("run", "--dry-run", "--target", "modle", "train.py")
        assert said.code == 2
        assert "did you mean model?" in said.err

    def test_target_names_the_profile(self, say: Any, script: Path) -> None:
        said = say("run", "--dry-run", "--target", "model", "train.py")
        assert said.code == 0
        assert "model.yaml" in said.out

    def test_the_environment_names_profile_and_level(
        self, say: Any, script: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AUTOTUNE_PROFILE", str(saved))
        monkeypatch.setenv("AUTOTUNE_LEVEL", "safe")
        out = say("run", "--dry-run", "train.py").out
        assert f"AUTOTUNE_PROFILE={saved}" in out
        assert "AUTOTUNE_LEVEL=safe" in out
        assert "AUTOTUNE_LEVEL=max" in say("run", "--dry-run", "--level", "max", "train.py").out
        monkeypatch.setenv("AUTOTUNE_LEVEL", "maxi")
        said = say("run", "--dry-run", "train.py")
        assert said.code == 2
        assert "AUTOTUNE_LEVEL maxi: the profile has safe, amp, max; did you mean max?" in said.err

    def test_disabled_starts_the_script_as_it_is(self, say: Any, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AUTOTUNE_DISABLE", "yes")
        said = say("run", "--dry-run", "train.py", "--lr", "1")
        assert (said.code, said.out) == (0, f"{sys.executable} train.py --lr 1\n")
        assert "AUTOTUNE_DISABLE is set" in said.err
        monkeypatch.setenv("AUTOTUNE_DISABLE", "false")
        assert say("run", "--dry-run", "train.py").code == 2

    def test_a_profile_of_other_machines_together_is_not_applied(
        self, say: Any, script: Path, plain: Inventory, elsewhere: Path
    ) -> None:
        made = profile(machine_type(plain))
        saved = profiles.write(elsewhere / "many.yaml", replace(made, target=replace(made.target, nnodes=1_000_000)))
        said = say("run", "--dry-run", "--profile", saved, "train.py")
        assert (said.code, "AUTOTUNE_PROFILE" in said.out) == (0, False)
        assert "the script starts as it is: the profile was measured on" in said.err
        assert "nnodes: profile 1000000, here 1" in said.err

    def test_a_profile_of_another_machine_is_named(self, say: Any, script: Path, saved: Path) -> None:
        said = say("run", "--dry-run", "--profile", saved, "train.py")
        assert said.code == 0
        assert f"the profile was measured on {MACHINE.key}, which is only similar" in said.err

    def test_dry_run_prints_the_command_and_starts_nothing(self, say: Any, plain: Inventory, elsewhere: Path) -> None:
        canary = elsewhere / "canary"
        (elsewhere / "train it.py").write_text(f"open({str(canary)!r}, 'w')")
        saved = profiles.write(elsewhere / "tuned.yaml", profile(machine_type(plain)))
        said = say("run", "--profile", saved, "--dry-run", "train it.py", "--lr", "1e-3", "--name", "a b")
        assert said.code == 0
        assert said.out.count("\n") == 1
        assert "'train it.py' --lr 1e-3 --name 'a b'" in said.out
        assert f"AUTOTUNE_PROFILE={saved}" in said.out
        assert "OMP_NUM_THREADS=8" in said.out
        assert not canary.exists()

    def test_level_is_passed_on_and_checked(self, say: Any, plain: Inventory, elsewhere: Path) -> None:
        (elsewhere / "train.py").touch()
        saved = profiles.write(elsewhere / "tuned.yaml", profile(machine_type(plain)))
        assert "AUTOTUNE_LEVEL=safe" in say("run", "--profile", saved, "--level", "safe", "--dry-run", "train.py").out
        said = say("run", "--profile", saved, "--level", "fast", "--dry-run", "train.py")
        assert said.code == 2
        assert "--level fast: the profile has" in said.err

    def test_several_processes_need_a_launcher(self, say: Any, plain: Inventory, elsewhere: Path) -> None:
        (elsewhere / "train.py").touch()
        saved = _profile_of(Settings(processes=2, threads=4, batch_size=32), elsewhere, plain)
        out = say("run", "--profile", saved, "--dry-run", "train.py").out
        assert "torch.distributed.run" in out or "torchrun" in out
        assert "=2" in out or " 2 " in out

    def test_several_machines_meet_at_an_endpoint(self, say: Any, plain: Inventory, elsewhere: Path) -> None:
        (elsewhere / "train.py").touch()
        saved = _profile_of(Settings(processes=2, threads=4, batch_size=32), elsewhere, plain)
        options = ("run", "--profile", saved, "--dry-run", "--nnodes", "2", "--rdzv-endpoint")
        said = say(*options, "127.0.0.1:1234", "train.py")
        assert "--nnodes=2" in said.out
        assert "--rdzv-endpoint=127.0.0.1:1234" in said.out
        assert "--rdzv-conf=is_host=1" in said.out
        assert "2 machines x 2 processes share the global batch of 64 (16 samples each)" in said.err
        lost = say(*options, "nobody.invalid", "train.py")
        assert (lost.code, lost.out) == (2, "")
        assert "nobody.invalid: this machine has no route there" in lost.err

    def test_mpi_and_torchrun_start_machines_in_their_own_ways(
        self, say: Any, plain: Inventory, elsewhere: Path
    ) -> None:
        (elsewhere / "train.py").touch()
        saved = _profile_of(Settings(processes=2, threads=4, batch_size=32), elsewhere, plain)
        said = say("run", "--profile", saved, "--dry-run", "--hosts", "a,b", "train.py")
        assert said.code == 2
        assert "--nnodes and --rdzv-endpoint" in said.err

    def test_a_slurm_step_says_how_many_machines(
        self, say: Any, plain: Inventory, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (elsewhere / "train.py").touch()
        step = {"NUM_NODES": "2", "NUM_TASKS": "2", "NODELIST": "127.0.0.[1-2]"}
        for name, value in step.items():
            monkeypatch.setenv(f"SLURM_STEP_{name}", value)
        saved = _profile_of(Settings(threads=8, batch_size=64), elsewhere, plain)
        out = say("run", "--profile", saved, "--dry-run", "train.py").out
        assert "--nnodes=2" in out
        assert "--nproc-per-node=1" in out

    def test_processes_are_bound(self, say: Any, plain: Inventory, elsewhere: Path) -> None:
        """What is printed needs no more than taskset; what is started binds by itself."""
        from autotune.commands.run import prepare

        (elsewhere / "train.py").touch()
        two = Settings(processes=2, threads=2, batch_size=32, binding="cores")
        saved = _profile_of(two, elsewhere, plain)
        out = say("run", "--profile", saved, "--dry-run", "train.py").out
        assert "AUTOTUNE_BINDING='0-7 0-1/2-3 4-5/6-7' " in out
        assert "0) set -- taskset -c 0-1" in out
        assert "1) set -- taskset -c 4-5" in out
        assert "autotune.knobs.cpu_binding" not in out
        launch = prepare(started_script("train.py", []), saved, None)
        assert launch.environment["AUTOTUNE_BINDING"] == "0-7 0-1/2-3 4-5/6-7"
        assert "autotune.knobs.cpu_binding" in launch.command

    def test_the_users_own_threads_are_not_squeezed_onto_planned_cpus(
        self, say: Any, plain: Inventory, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "8")
        (elsewhere / "train.py").touch()
        saved = _profile_of(Settings(threads=2, batch_size=64, binding="cores"), elsewhere, plain)
        said = say("run", "--profile", saved, "--dry-run", "train.py")
        assert "binding: asked cores, applied none (OMP_NUM_THREADS is yours)" in said.err
        assert "taskset" not in said.out
        assert "AUTOTUNE_BINDING" not in said.out

    def test_notes_of_what_does_not_fit_go_to_stderr(
        self, say: Any, plain: Inventory, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("autotune.commands.run.probe", lambda *_: inventory(1, 1))
        (elsewhere / "train.py").touch()
        saved = profiles.write(elsewhere / "tuned.yaml", profile())
        said = say("run", "--profile", saved, "--dry-run", "train.py")
        assert said.code == 0
        assert "threads: asked 8, applied 1" in said.err
        assert "asked" not in said.out

    def test_without_a_profile_it_says_how_to_make_one(self, say: Any, plain: Inventory, elsewhere: Path) -> None:
        (elsewhere / "train.py").touch()
        said = say("run", "--dry-run", "train.py")
        assert said.code == 2
        assert "autotune tune" in said.err

    def test_starts_exactly_what_it_printed(
        self, say: Any, plain: Inventory, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[Any] = []
        monkeypatch.setattr(os, "execvpe", lambda *arguments: started.append(arguments))
        (elsewhere / "train.py").touch()
        saved = profiles.write(elsewhere / "tuned.yaml", profile(machine_type(plain)))
        said = say("run", "--profile", saved, "train.py", "--dry-run")
        assert said.code == 0
        assert "what follows the script belongs to it: --dry-run." in said.err
        ((program, command, environment),) = started
        assert program == command[0]
        assert command[-2:] == ["train.py", "--dry-run"], "options after the script are the script's"
        assert environment["AUTOTUNE_PROFILE"] == str(saved)
        assert environment["PATH"] == os.environ["PATH"]


class TestProbe:
    def test_json_is_one_object_with_the_key(self, say: Any, plain: Inventory) -> None:
        said = say("probe", "--json")
        data = json.loads(said.out)
        assert (said.code, said.err) == (0, "")
        assert data["key"] == machine_type(plain).key
        assert data["budget"]["threads"] == 8

    def test_for_people(self, say: Any, plain: Inventory) -> None:
        said = say("probe")
        assert said.code == 0
        assert "8 online CPUs" in said.out


class TestImports:
    """B07: the parent of trials imports neither torch nor Optuna by chance."""

    HEAVY = "print(sorted(name for name in ('torch', 'optuna', 'numpy') if name in sys.modules))"

    @pytest.mark.parametrize("module", ["autotune", "autotune.cli", "autotune.knobs.space", "autotune.profiles.registry"])
    def test_are_light(self, module: str) -> None:
        done = fresh(f"import sys, {module}; {self.HEAVY}")
        assert done.stdout.strip() == "[]", done.stderr

    @pytest.mark.torch
    def test_probe_asks_torch_in_a_child_only(self) -> None:
        done = fresh(
            "import sys, contextlib, autotune.cli as cli\n"
            "with contextlib.suppress(SystemExit): cli.main(['probe', '--json'])\n"
            "assert 'torch' not in sys.modules and 'optuna' not in sys.modules, 'imported'"
        )
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        assert data["key"]
        assert data["software"]["torch"]

    def test_as_a_rank_nothing_heavy_was_imported_before_the_refusal(self, elsewhere: Path) -> None:
        (elsewhere / "model.py").write_text(TASK)
        code = (
            "import sys, autotune.cli as cli\n"
            "try: cli.main(['tune', 'model.py'])\n"
            "except SystemExit as end: code = end.code\n"
            f"{self.HEAVY}; sys.exit(code)"
        )
        done = fresh(code, RANK="1")
        assert done.returncode == 2
        assert done.stdout.strip() == "[]"
        assert "one rank" in done.stderr


class TestExport:
    def test_a_level_is_printed_for_a_target(self, say: Any, saved: Path, plain: Inventory) -> None:
        said = say("export", saved, "--to", "env", "--level", "safe")
        assert said.code == 0
        assert said.out.startswith(f"# level safe of {saved} (resnet): variables of a shell\n")
        assert "\nexport OMP_NUM_THREADS=8\n" in said.out
        assert "#   num_workers=2: DataLoader(..., num_workers=2)" in said.out

    def test_what_does_not_fit_here_is_said(self, say: Any, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("autotune.commands.export.probe", lambda: inventory(2, 2))
        said = say("export", saved, "--to", "lightning")
        assert "# threads: asked 8, applied 2" in said.out
        assert "\ntorch.set_num_threads(2)\n" in said.out

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [(["--to", "torchun"], "did you mean torchrun?"), (["--to", "env", "--level", "fast"], "the profile has safe")],
    )
    def test_one_line_says_what_is_wrong(self, arguments: list[str], words: str, say: Any, saved: Path) -> None:
        said = say("export", saved, *arguments)
        assert said.code == 2
        assert words in said.err
        assert said.err.count("\n") == 1


@pytest.mark.parametrize(("words", "resumable"), [(["tune", "x.py"], True), (["run", "x.py"], False)])
def test_resume_is_named_where_the_command_has_it(
    words: list[str], resumable: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**_: Any) -> None:
        raise Interrupted(2)

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    error = capsys.readouterr().err
    assert (ended.value.code, "--resume" in error) == (130, resumable)
    assert error.startswith("autotune: interrupted by SIGINT")
