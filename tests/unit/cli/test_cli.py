"""The command line in this process: usage, `tune`, `init`, `probe`, and how each command ends."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from autotune import cli
from autotune.errors import Interrupted, NothingUsable, UsageError, UserCodeError
from autotune.probes.facts import Inventory
from autotune.profiles.format import machine_type
from autotune.trial.target import NEW_TASK
from autotune.tuning import run
from tests.doubles.profiles import profile
from tests.unit.cli.conftest import Say


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune", "nowhere.py"], "nowhere.py: no such file"),
        (["tune", "."], "not a file"),
        (["tune", "empty.py"], "empty.py: neither a training script, for it only imports and defines, nor a task file"),
        (["tune", "whole.py", "--", "some", "words"], "whole.py is a task file, which takes no arguments: some words"),
        (["tune", "whole.py", "--budget", "1s"], "--budget 1s is too short: give at least 5s"),
        (["tune", "whole.py", "--seed", "9" * 26], "must be a whole number from 0 to 4294967295"),
        (["tune", "whole.py", "--train-time", ""], "--train-time '' is empty. Is a variable of your shell not set?"),
        (["tune", "--name=", "whole.py"], "--name= is empty"),
        (["tune", "whole.py", "--report", "./new", "--profile", "new"], "--report new: is the profile's file too"),
        (["run", "-m", ""], "-m '' is empty"),
        (["run", "--profile", " ", "empty.py", ""], "--profile '' is empty"),
        (["check", "", "whole.py"], "'' is empty"),
        (["show", "https://127.0.0.1:9/p.yaml"], "https://127.0.0.1:9/p.yaml: cannot be read or written ("),
        (["check", "memory://b/p.yaml", "whole.py"], "memory://b/p.yaml: no such file"),
        (["tune", "bash", "-c", "python whole.py"], "bash: no such file"),
        (["show", "https:///p.yaml"], "https://: names no bucket, server or folder"),
        (["run", "folder"], "folder: is a folder without a __main__.py. Name the script"),
        (["check", "a.yaml", "whole.py", "--budget", "2s"], "--budget 2s is too short: give at least 5s"),
        (["diagnose", "whole.py", "--budget", "2s"], "--budget 2s is too short: give at least 5s"),
        (["tune", "whole.py", "--sampler", "no:Class"], "--sampler no:Class: No module named 'no'. Write tpe, random"),
        (["tune", "link.yaml"], "link.yaml: is a profile: autotune run --profile link.yaml"),
        (["tune", "own.ipynb"], "own.ipynb: is a notebook: jupyter nbconvert --to script own.ipynb"),
        (["profiles", "match", "nowhere.py"], "nowhere.py: no such script"),
        (["check", "whole.py", "link.yaml"], "the profile comes first: autotune check link.yaml whole.py"),
        (["tune", "whole.py", "--level", "fast"], "--level fast: levels are safe, amp, max"),
        (["tune", "whole.py", "--fix", "threads=4000"], "threads exceed the CPU budget of"),
        (["tune", "whole.py", "--profile", "link.yaml"], "it is a symbolic link, and only plain files"),
        (["tune", "whole.py", "--fix", "num_workers"], "--fix 'num_workers': write knob=value"),
        (["init", "whole.py"], "whole.py exists already; name another file"),
        (["init", "no/such/folder.py"], "cannot be written: No such file"),
        (["init", "task.txt"], "task.txt: the name of a task file ends with .py"),
        (["tune", "task.txt"], "task.txt: the name of a task file ends with .py"),
        (["tune", "whole.py", "--sampler", "os:system"], "--sampler os:system: is no class that implements Optuna's"),
        (["run", "python3.99", "whole.py"], "python3.99: what starts is autotune's own Python"),
        (["run", "nosuch/python", "whole.py"], "nosuch/python: what starts is autotune's own Python, "),
        (["tune", "python", "-c", "pass"], "may change the training. Leave it out, or give the script alone"),
        (["tune", "typo.py"], "typo.py: CURRENT['batchsize']: no such knob; did you mean batch_size?"),
        (["run", "-m", "a/b.py"], "-m a/b.py: is no module's name, such as package.train"),
        (["run", "-m", "pack"], "-m pack: is a package without a __main__.py. Name the module in it"),
        (["tune", "whole.py/"], "whole.py/: ends with /. Name the script's file"),
        (["run", "https://example.org/train.py"], "https://example.org/train.py: is a URL. Name the script's file"),
        (["tune", "whole.py", "--report", "-"], "-: name a file; a report is not printed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_exit_2_and_quote_what_was_written(say, elsewhere, arguments, words, machine, monkeypatch) -> None:
    monkeypatch.setattr(run, "open_runner", None)  # what is not refused must not start a run
    monkeypatch.setattr(run, "probe", lambda **_: machine)
    (elsewhere / "empty.py").touch()
    for name, text in {
        "whole.py": NEW_TASK,
        "task.txt": NEW_TASK,
        "typo.py": f"{NEW_TASK}CURRENT = dict(batchsize=1)",
    }.items():
        (elsewhere / name).write_text(text)
    (elsewhere / "link.yaml").symlink_to("whole.py")
    (elsewhere / "folder").mkdir()
    (elsewhere / "own.ipynb").touch()
    (elsewhere / "pack").mkdir()
    (elsewhere / "pack" / "__init__.py").touch()
    said = say(*arguments)
    assert said.code == 2
    assert words in " ".join(said.err.split())
    assert said.out == ""
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "arguments",
    [["tune"], ["tune", "a.py", "--no-such-option"], ["tune", "a.py", "--seed", "-1"], ["tuna"], ["diff", "one.yaml"]],
    ids=" ".join,
)
def test_what_typer_refuses_exits_2_too(say: Say, arguments: list[str]) -> None:
    said = say(*arguments)
    assert said.code == 2
    assert "Usage: " in said.err
    assert said.out == ""
    found = json.loads(say(*arguments, "--json").out)
    assert (found["exit_code"], found["error"] != "") == (2, True)


TABLE = """
[tool.torch-autotune]
buget = 3
[tool.torch-autotune.tune]
target = "train.py"
budget = "2s"
leve = "amp"
"""


@pytest.mark.parametrize(
    ("table", "typed", "words"),
    [
        (TABLE, [], "--budget 2s is too short"),
        (TABLE, [], "has buget, which nothing reads"),
        (TABLE, [], "has tune.leve, which nothing reads; did you mean tune.level?"),
        ("[tool.torch-autotune", ["train.py", "--budget", "4s"], "Its [tool.torch-autotune] is not used"),
        ("[tool]\ntorch-autotune = 1", [], "toml: it is no table. Its [tool.torch-autotune] is not used"),
        ("tool = 'torch-autotune'", [], "toml: it is no table. Its [tool.torch-autotune] is not used"),
        ("[tool.torch-autotune.tune]\ntarget = ''", [], "] tune.target is empty"),
        ("[tool.torch-autotune]\nprofiles = ['']", [], "] profiles is no list of folders and URLs"),
        ("[tool.torch-autotune]\ntune = 1", [], "] tune is no table"),
        ("\ufeff[tool.torch-autotune]\nfix = 1", [], "] has fix, which nothing reads"),
        ("[tool.torch-autotune.tune]\nlevel = 3", ["train.py"], "toml: [tool.torch-autotune.tune] level)"),
        ("[tool.torch-autotune.tune]\nseed = 'x'", ["train.py"], "toml: [tool.torch-autotune.tune] seed"),
        ("[tool.torch-autotune.tune]\ntarget = 5", [], "toml: [tool.torch-autotune.tune] target)"),
        ("pipe", [], "Missing argument"),
        ("link", [], "Too many levels of symbolic links. Its [tool.torch-autotune] is not used"),
        ("[tool.torch-autotune.tune]\nprofile = 3\nbudget = 2.5", ["train.py"], "--budget 2.5s is too short"),
        ("[tool.torch-autotune.tune]\nonly = 'workers'", ["train.py"], "--only workers: no such knob"),
        ("[tool.torch-autotune.tune]\nfix = {threads = 0}", ["train.py"], "--fix threads"),
    ],
)
def test_a_project_has_defaults_of_its_own(say, elsewhere, monkeypatch, table, typed, words) -> None:
    own = elsewhere / "pyproject.toml"
    makers = {"link": lambda: own.symlink_to(own), "pipe": lambda: os.mkfifo(own)}
    makers.get(table, lambda: own.write_text(table))()
    (elsewhere / "train.py").write_text("print(1)\n")
    (elsewhere / "deep").mkdir()
    monkeypatch.chdir("deep")
    said = say("tune", *typed)
    assert (said.code, words in " ".join(said.err.split())) == (2, True), said.err


STEERED = ("tune", "run", "run --profile", "show", "profiles match", "tune --level", "validate", "init")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("command", STEERED)
def test_what_would_steer_a_terminal_is_shown(say: Say, command: str) -> None:
    words = command.split()
    Path("model.py").write_text(NEW_TASK)
    said = say(*words, "a\x1b[31m\x9b\u202e.py", *(["model.py"] if words[-1].startswith("-") else []))
    assert (said.code != 0, "31m" in said.out + said.err) == (words != ["init"], True)
    assert not {"\x1b", "\x9b", "\u202e"} & {*said.out, *said.err}


@pytest.mark.parametrize("words", [(), ("tune",), ("profiles", "list")], ids=" ".join)
def test_help_is_what_h_shows(say: Say, words: tuple[str, ...]) -> None:
    asked, usual = say("help", *words), say(*words, "-h")
    assert (asked.code, asked.err) == (0, "")
    assert asked.out.partition("─ Options")[2] == usual.out.partition("─ Options")[2] != ""
    assert not words or say("help", *words, "run").out == asked.out


def test_a_script_may_have_an_option_json_of_its_own(say: Say, elsewhere: Path) -> None:
    assert say("run", elsewhere / "nowhere.py", "--json").out == ""


@pytest.mark.parametrize("variables", [{"RANK": "1"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"WORLD_SIZE": "2"}], ids=str)
def test_tune_refuses_to_start_as_a_rank(say: Say, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, variables) -> None:
    """H06: every rank would run a study of its own."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (elsewhere / "model.py").write_text(NEW_TASK)
    said = say("tune", "model.py")
    assert (said.code, (elsewhere / "profiles").exists()) == (2, False)
    assert all(words in said.err for words in ("job (RANK or WORLD_SIZE is set)", "without its launcher"))


# Around the run itself, which a stub stands for ----------------------------------------------------------------------


def test_options_arrive_and_json_is_one_object_on_stdout(say, machine, elsewhere, monkeypatch) -> None:
    asked: list[Any] = []

    def tune(task: Any, options: Any, observe: Any, started: float) -> run.Result:
        asked.append((task, options))
        return run.Result(profile(machine_type(machine)), elsewhere / "out.yaml", machine)

    monkeypatch.setattr(run, "run", tune)
    (elsewhere / "model.py").write_text(NEW_TASK)
    options = "--budget 2m --level amp --seed 7 --resume --train-time 10h --only threads,num_workers --only compile"
    said = say("tune", "model.py", *options.split(), "--fix", "precision=bf16", "--fix", "malloc=keep", "--json")
    ((task, found),) = asked
    assert task.path == Path("model.py").resolve()
    assert (found.budget, found.level, found.seed, found.resume) == (120.0, "amp", 7, True)
    assert (found.train_seconds, found.only) == (36000.0, ("threads", "num_workers", "compile"))
    assert found.fix == {"precision": "bf16", "malloc": "keep"}
    data = json.loads(said.out)
    assert (said.code, Path(data["path"]).name, said.err != "") == (0, "out.yaml", True)
    assert data["levels"]["amp"]["speedup"]["value"] == profile().levels["amp"].speedup.value
    said = say("tune", "model.py")
    assert (said.out.startswith("autotune  resnet on"), said.err) == (True, ""), "the answer is no note"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("--budget what"), 2, "autotune: --budget what"),
        (UserCodeError("it failed", "Traceback\nNameError: x\n"), 3, "Traceback\nNameError: x\n\nit failed"),
        (UserCodeError("it failed"), 3, "it failed"),
        (NothingUsable("nothing fits"), 4, "autotune: nothing fits"),
        (Interrupted(2), 130, "interrupted by SIGINT; nothing was written"),
        (KeyboardInterrupt(), 130, "interrupted by SIGINT; nothing was written"),
        (Interrupted(2, Path("p/m.yaml")), 130, "SIGINT; the best so far, not proven, is in p/m.yaml; --resume"),
    ],
    ids=repr,
)
def test_every_end_has_its_exit_code(say, elsewhere, monkeypatch, error, code, words) -> None:
    def fail(*_: Any) -> None:
        raise error

    (elsewhere / "model.py").write_text(NEW_TASK)
    monkeypatch.setattr(run, "run", fail)
    said = say("tune", "model.py")
    assert (said.code, said.out) == (code, "")
    assert words in said.err
    found = json.loads(say("tune", "model.py", "--json").out)
    assert (found["exit_code"], found["error"] in said.err) == (code, True)
    assert bool(found["traceback"]) == ("NameError" in words)


def test_a_bug_of_ours_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    Path("model.py").write_text(NEW_TASK)
    monkeypatch.setattr(run, "run", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["tune", "model.py"])


def test_writes_a_task_file_and_says_what_is_next(say: Say, elsewhere: Path) -> None:
    assert "autotune tune model.py" in say("init").out
    assert (elsewhere / "model.py").read_text() == NEW_TASK


def test_json_is_one_object_with_the_key(say: Say, machine: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    said = say("probe", "--json")
    data = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert data["key"] == machine_type(machine).key
    assert data["budget"]["threads"] == 8
    monkeypatch.setattr("autotune.inspect.doctor.examine", lambda: ())
    assert say("doctor", "--json").out == '{"findings": []}\n'
