"""A whole run, from the request to the written profile, on a machine whose trials are fakes."""

from __future__ import annotations

import inspect
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autotune
from autotune.errors import Interrupted, LaunchError, NothingUsable, UsageError, UserCodeError
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import MemoryUse
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.stats.outcome import Compared, Completed, Crashed, Outcome
from autotune.trial.parent.fork_servers import TrialSetup
from autotune.trial.target import NEW_TASK, Script, Target, TaskFile, started_script
from autotune.tuning import run, runner
from autotune.tuning.events import Observer, RunProgress, ignore
from autotune.tuning.options import Options
from tests.doubles.fake_bench import FakeBench, completed
from tests.doubles.simulation.simulator import context, inventory

MACHINE = inventory(4, 4)
CONTEXT = context(MACHINE, 32)
OWN = CONTEXT.baseline

TARGET = TaskFile(Path("model.py"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, as no rank of anything."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_one_process_that_a_launcher_counted_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setattr(run, "probe", lambda **_: pytest.fail("it began"))
    with pytest.raises(pytest.fail.Exception, match="it began"):
        run.run(TARGET, Options())


def test_waiting_for_another_run_costs_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]

    @contextmanager
    def open_runner(*_: Any) -> Iterator[None]:
        now[0] += 100.0
        yield

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(run, "open_runner", open_runner)
    monkeypatch.setattr(run, "probe", lambda **_: inventory(2, 2))
    monkeypatch.setattr(run, "_run_phases", lambda host: host.schedule)
    schedule: Any = run.run(Script(tmp_path / "train.py"), Options(budget=60.0), started=990.0)
    assert schedule.elapsed == pytest.approx(10.0)
    assert schedule.total == 160.0, "what the user sees pass"
    assert 40.0 < schedule.left <= 50.0


@pytest.fixture
def world(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose machine, lock and trials are fakes; files are real."""

    class Runner:
        """Knows one task; every trial's fate is the test's."""

        fate: Any = staticmethod(lambda settings: completed(100.0))
        closed = 0
        no_fork_reason = None

        def __init__(self, setup: TrialSetup) -> None:
            self.setup = setup

        def __enter__(self) -> Runner:
            return self

        def __exit__(self, *_: object) -> None:
            type(self).closed += 1
            self.setup.paths.remove()

        def describe(self) -> Any:
            return CONTEXT.task

    class Bench(FakeBench):
        timeouts = SimpleNamespace(starting=1.0)

        def __init__(self, runner: Any, baseline: Settings, seed: int, patience: float) -> None:
            super().__init__(lambda _: 100.0, seed, lambda settings: Runner.fate(settings), noise=(0.0, 0.0, 0.0))
            self.baseline = baseline

        def compare(self, settings: Settings) -> Outcome:
            return Compared()

        def inspect(self, *_: object) -> tuple[Outcome, dict[str, float]]:
            return Completed(), {"noise_scale": 4.0}

    @contextmanager
    def unlocked(*_: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(run, "probe", lambda **_: MACHINE)
    monkeypatch.setattr(runner.budget, "probe", lambda *_: MACHINE.budget)
    monkeypatch.setattr(runner, "Runner", Runner)
    monkeypatch.setattr(run, "TrialBench", Bench)
    monkeypatch.setattr(runner, "acquire", unlocked)
    (elsewhere / "model.py").write_text(NEW_TASK)
    return Runner


class TestRun:
    OPTIONS = Options(budget=50.0, only=("optimizer_impl", "interop_threads", "malloc"))

    @pytest.mark.parametrize(
        ("least_steps", "only", "found"), [(1, "batch_size", 4.0), (100, "batch_size", None), (1, "malloc", None)]
    )
    def test_the_noise_scale_is_measured_where_it_fits_and_decides(
        self, world: Any, monkeypatch: pytest.MonkeyPatch, least_steps: int, only: str, found: float | None
    ) -> None:
        """Before, 18 of 40 seconds went for it before anything was tried, and nothing was."""
        monkeypatch.setattr(run, "NOISE_STEPS", least_steps)
        stages: list[str] = []
        options = replace(self.OPTIONS, only=(*self.OPTIONS.only, only))
        tuned = run.run(TARGET, options, lambda **changes: stages.append(changes.get("stage", "")))
        assert tuned.profile.evidence.noise_scale == found
        noise = [at for at, stage in enumerate(stages) if "noise scale" in stage]
        assert (len(noise), noise == [] or stages.index("searching: amp") < noise[0]) == (found is not None, True)

    def test_writes_the_profile_where_it_belongs(self, world: Any, elsewhere: Path) -> None:
        seen = [RunProgress(stage="", baseline=OWN, unit="samples")]

        def observe(**changes: Any) -> None:
            seen.append(replace(seen[-1], **changes))

        found = run.run(TARGET, self.OPTIONS, observe)
        assert found.path == Path("profiles") / machine_type(MACHINE).key / "model.yaml"
        assert profiles.read(found.path).baseline == found.profile.baseline
        assert not found.profile.evidence.partial
        assert list(dict.fromkeys(each.stage for each in seen))[:6] == [
            "",
            "loading the task",
            "baseline",
            "comparing first steps",
            "searching: safe",
            "searching: amp",
        ]
        assert world.closed == 1

    def test_what_changes_training_is_left_out_once(self, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def compare(settings: Settings) -> Outcome:
            return Compared(differences=(("weights", "differ"),) if settings.optimizer_impl != "default" else ())

        monkeypatch.setattr(run.TrialBench, "compare", staticmethod(compare))
        found = run.run(TARGET, self.OPTIONS).profile.evidence.not_offered
        assert [item.reason for item in found if item.knob == "optimizer_impl"] == ["differ"]

    @pytest.mark.parametrize("ending", [Interrupted(signal.SIGINT), LaunchError("the trial server ended")], ids=repr)
    def test_an_interrupted_run_keeps_the_proven_profile_and_says_where_its_own_is(
        self, world: Any, elsewhere: Path, ending: BaseException
    ) -> None:
        options = replace(self.OPTIONS, profile=elsewhere / "out.yaml")
        run.run(TARGET, options)
        proven = (elsewhere / "out.yaml").read_text()

        def fate(settings: Settings) -> Outcome:
            if settings != OWN:
                raise ending
            return completed(100.0)

        world.fate = staticmethod(fate)
        with pytest.raises(type(ending)) as ended:
            run.run(TARGET, options)
        assert (elsewhere / "out.yaml").read_text() == proven
        beside = elsewhere / "out.partial.yaml"
        assert profiles.read(beside).evidence.partial
        assert getattr(ended.value, "saved", None) == beside or str(beside) in str(ended.value)

    def test_a_fork_server_that_is_not_ready_in_time_ends_the_search_not_the_run(self, world, elsewhere) -> None:
        def fate(settings: Settings) -> Outcome:
            if settings != OWN:
                raise NothingUsable("the budget ended before it was imported")
            return completed(100.0)

        world.fate = staticmethod(fate)
        found = run.run(TARGET, replace(self.OPTIONS, profile=elsewhere / "out.yaml"))
        assert profiles.read(found.path).level("safe").settings == OWN
        assert not found.profile.evidence.partial

    @pytest.mark.parametrize("sampler", [None, "random"])
    def test_resumes_without_repeating(self, world: Any, elsewhere: Path, sampler: str | None) -> None:
        seen: list[Settings] = []

        def fate(settings: Settings) -> Outcome:
            seen.append(settings)
            if len(seen) == 3:
                raise Interrupted(signal.SIGINT)
            return completed(100.0)

        world.fate = staticmethod(fate)
        options = replace(self.OPTIONS, profile=elsewhere / "out.yaml", sampler=sampler)
        with pytest.raises(Interrupted):
            run.run(TARGET, options)
        finished, seen[:] = seen[:2], []
        world.fate = staticmethod(lambda settings: seen.append(settings) or completed(100.0))
        found = run.run(TARGET, replace(options, resume=True))
        assert set(finished) & set(seen) <= {finished[0]}, "only the baseline is repeated, on purpose"
        assert found.profile.evidence.trials == len(finished) + len(seen)
        assert not found.profile.evidence.partial

    def test_a_project_that_is_read_only_has_its_profile_in_the_users_folder(
        self, world: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(elsewhere / "data"))
        (elsewhere / "profiles").write_text("a file, where root too can make no folder")
        found = run.run(TARGET, self.OPTIONS)
        assert found.path.is_relative_to(elsewhere / "data")
        assert profiles.read(found.path).baseline == found.profile.baseline

    def test_a_trial_above_todays_limit_is_not_resumed(self, world: Any, elsewhere: Path) -> None:
        def held(settings: Settings) -> Outcome:
            done = completed(100.0)
            assert done.measurement is not None
            memory = MemoryUse(peak=2**31 if settings.num_workers else 2**28)
            return replace(done, measurement=replace(done.measurement, memory=memory))

        world.fate = staticmethod(held)
        options = replace(self.OPTIONS, profile=elsewhere / "out.yaml", only=("num_workers",))
        assert not run.run(TARGET, options).profile.evidence.failures
        found = run.run(TARGET, replace(options, resume=True, max_memory=2**30)).profile
        assert {failure.kind for failure in found.evidence.failures} == {"out-of-memory"}
        assert not run.run(TARGET, replace(options, resume=True)).profile.evidence.failures
        with pytest.raises(NothingUsable, match="do not fit: held 256 MiB of memory; --max-memory is 1 MiB"):
            run.run(TARGET, replace(options, max_memory=2**20))

    def test_another_text_of_the_task_cannot_be_resumed(self, world: Any, elsewhere: Path) -> None:
        options = replace(self.OPTIONS, profile=elsewhere / "out.yaml", resume=True)
        run.run(TARGET, options)
        (elsewhere / "model.py").write_text(NEW_TASK + "\n# another model\n")
        with pytest.raises(UsageError, match="nothing to resume"):
            run.run(TARGET, options)

    def test_a_broken_task_leaves_no_profile(self, world: Any, elsewhere: Path) -> None:
        world.fate = staticmethod(lambda _: Crashed("NameError: x", "Traceback"))
        with pytest.raises(UserCodeError):
            run.run(TARGET, replace(self.OPTIONS, profile=elsewhere / "out.yaml"))
        assert not (elsewhere / "out.yaml").exists()
        assert world.closed == 1

    def test_cpus_that_were_taken_away_end_the_run_and_no_proven_profile(self, world, monkeypatch) -> None:
        proven = run.run(TARGET, self.OPTIONS).path
        before = proven.read_text()
        fewer = replace(MACHINE.budget, cpus=(0,), limit="affinity mask (1 of 4 CPUs)")

        def taken_in_the_search(**changes: Any) -> None:
            if "trials" in changes:
                monkeypatch.setattr(runner.budget, "probe", lambda *_: fewer)

        with pytest.raises(LaunchError, match=r"affinity mask \(1 of 4 CPUs\) now[^$]*not proven, is in"):
            run.run(TARGET, self.OPTIONS, taken_in_the_search)
        assert proven.read_text() == before
        assert profiles.read(proven.with_suffix(".partial.yaml")).evidence.partial


TRACEBACK = 'Traceback (most recent call last):\n  File "model.py", line 2, in build_model\nValueError: mine\n'


def test_names_are_those_exported() -> None:
    names = ["AutotuneError", "Profile", "Session", "UserCodeError", "__version__", "load", "tune"]
    assert dir(autotune) == sorted(autotune.__all__) == names
    assert inspect.unwrap(autotune.tune) is run.tune


def test_tune_passes_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    found = SimpleNamespace(profile="found")
    monkeypatch.setattr("autotune.tuning.run.run", lambda *given: runs.append(given) or found)
    Path("model.py").write_text(NEW_TASK)
    Path("train.py").write_text("print('trains')")
    wished: Any = {"budget": 30.0, "profile": "out.yaml", "level": "amp", "only": ("threads",)}
    assert autotune.tune("model.py", **wished, observe=ignore) == "found"
    autotune.tune("train.py", arguments=["--epochs", "3"], budget="5m", observe=ignore)
    wishes = Options(budget=30.0, profile=Path("out.yaml"), level="amp", only=("threads",))
    script = started_script("train.py", ["--epochs", "3"])
    task = TaskFile(Path("model.py").resolve())
    assert runs == [(task, wishes, ignore), (script, Options(budget=300.0), ignore)]
    with pytest.raises(UsageError, match="budget 'soon': write a duration"):
        autotune.tune("model.py", budget="soon")


def test_errors_of_the_users_code_show_their_own_traceback(tmp_path, monkeypatch, capsys) -> None:
    def fake(target: Target, options: Options, observe: Observer) -> Any:
        observe(stage="loading the task")
        raise UserCodeError(f"{target.name}: ValueError: mine", TRACEBACK)

    (tmp_path / "model.py").write_text(NEW_TASK)
    monkeypatch.setattr("autotune.tuning.run.run", fake)
    with pytest.raises(UserCodeError) as caught:
        autotune.tune(tmp_path / "model.py")
    assert capsys.readouterr().err == "[0 s] loading the task\n", "progress is shown as by the command"
    assert str(caught.value) == "model: ValueError: mine"
    assert caught.value.traceback == TRACEBACK
    assert TRACEBACK in "".join(traceback.format_exception(caught.value))


def test_python_has_every_option() -> None:
    asked = set(inspect.signature(autotune.tune).parameters) - {"target", "arguments", "observe"}
    assert asked == {each.name for each in fields(Options)}
