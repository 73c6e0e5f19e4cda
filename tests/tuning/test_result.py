"""The composition root, without its trials: checks, environments, signals, and what goes into the profile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autotune
from autotune.commands.init import TASK
from autotune.core.errors import Interrupted, LaunchError, NothingUsable, UsageError, UserCodeError
from autotune.core.knobs import LEVELS, Context
from autotune.core.machine import machine_type
from autotune.core.measurement import Block, Measurement, Places
from autotune.core.outcome import Completed, Crashed, Outcome
from autotune.core.settings import KNOB_NAMES, Settings
from autotune.host import runner as bringup
from autotune.search.protocol import Observation
from autotune.store import profiles
from autotune.trial.fleet import Fleet
from autotune.trial.paths import StudyPaths
from autotune.tuning import result as answer
from autotune.tuning import run as api
from autotune.tuning.search import Tuning
from benchmarks.replay.simulator import context, inventory

MACHINE = replace(inventory(4, 4), gpus=())
CONTEXT = context(MACHINE, 32)
OWN = CONTEXT.baseline


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, as no rank of anything."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


class TestPublic:
    def test_names_are_those_exported(self) -> None:
        assert dir(autotune) == sorted(autotune.__all__) == ["__version__", "load", "tune"]
        assert autotune.tune is api.tune

    def test_others_are_attribute_errors(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'tuna'"):
            autotune.tuna  # noqa: B018

    def test_tune_passes_options_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Any] = []
        monkeypatch.setattr(api, "run", lambda *given: seen.append(given) or SimpleNamespace(profile="found"))
        assert api.tune("model.py", budget=30.0, profile="out.yaml", level="amp", only=("threads",)) == "found"
        expected = api.Options(budget=30.0, profile=Path("out.yaml"), level="amp", only=("threads",))
        assert seen == [(Path("model.py"), expected)]

    def test_unknown_options_are_refused(self) -> None:
        with pytest.raises(TypeError, match="bugdet"):
            api.tune("model.py", bugdet=3)


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"budget": 4.9}, "--budget 4.9s is too short"),
            ({"budget": -1.0}, "too short"),
            ({"level": "fast"}, "levels are safe, amp, max"),
            ({"only": ("threads", "workers")}, "--only workers: no such knob"),
        ],
    )
    def test_before_anything_is_started(
        self, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], words: str
    ) -> None:
        monkeypatch.setattr(api, "probe", lambda *_: pytest.fail("probed"))
        with pytest.raises(UsageError, match=words):
            api.run(Path("model.py"), api.Options(**options))

    @pytest.mark.parametrize("variables", [{"RANK": "0"}, {"WORLD_SIZE": "4"}], ids=str)
    def test_as_a_rank(self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(UsageError, match="without torchrun or mpiexec"):
            api.run(Path("model.py"), api.Options())

    def test_one_process_that_a_launcher_counted_is_no_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "1")
        with pytest.raises(UsageError, match="no such file"):
            api.run(Path("model.py"), api.Options())


class TestEnvironment:
    def test_of_trials_is_scrubbed_of_the_surrounding_job(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("MASTER_ADDR", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"):
            monkeypatch.setenv(name, "7")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        found = bringup.environment_by_allocator(MACHINE, StudyPaths(tmp_path))("default")
        assert not {"MASTER_ADDR", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"} & set(found)
        assert found["CUDA_VISIBLE_DEVICES"] == "1"
        assert found["TMPDIR"] == str(tmp_path)
        assert os.environ["MASTER_ADDR"] == "7", "the user's own stays"

    def test_an_allocator_that_is_not_here_is_not_preloaded(self, tmp_path: Path) -> None:
        gone = replace(MACHINE, software=replace(MACHINE.software, allocators=()))
        assert "LD_PRELOAD" not in bringup.environment_by_allocator(gone, StudyPaths(tmp_path))("jemalloc")


class TestSignals:
    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
    def test_raise_once_and_are_put_back(self, signum: signal.Signals) -> None:
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        with pytest.raises(Interrupted) as interruption, bringup.signals_raise():
            os.kill(os.getpid(), signum)
        assert interruption.value.signal == signum
        assert {each: signal.getsignal(each) for each in before} == before

    def test_a_second_one_does_not_disturb_the_cleaning_up(self) -> None:
        cleaned = []

        def interrupted() -> None:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)
                cleaned.append(True)

        with pytest.raises(Interrupted), bringup.signals_raise():
            interrupted()
        assert cleaned

    def test_are_left_alone_outside_the_main_thread(self) -> None:
        seen: list[Any] = []

        def other() -> None:
            with bringup.signals_raise():
                seen.append(signal.getsignal(signal.SIGINT))

        before = signal.getsignal(signal.SIGINT)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert seen == [before]


def session(**options: Any) -> api._Session:
    """A session of a machine that is never touched."""
    return api._Session(SimpleNamespace(fleet=Fleet()), MACHINE, api.Options(**options), lambda **_: None, 0.0)  # type: ignore[arg-type]


class TestSpaces:
    def test_one_for_each_level(self) -> None:
        spaces = session()._spaces(CONTEXT)
        assert tuple(spaces) == LEVELS
        assert [space.level for space in spaces.values()] == list(LEVELS)

    @pytest.mark.parametrize(
        ("only", "follow"),
        [
            ("optimizer_impl", set()),
            ("channels_last", set()),
            ("num_workers", {"prefetch_factor"}),
            ("processes", {"threads", "backend", "batch_size"}),
        ],
    )
    def test_only_lets_this_knob_move_and_what_follows_from_it(self, only: str, follow: set[str]) -> None:
        said = replace(CONTEXT, task=replace(CONTEXT.task, has_convolutions=True))
        space = session(only=(only,))._spaces(said)["safe"]
        moves = [set(settings.difference(OWN)) for _, settings in space.moves(OWN, far=True)]
        assert any(only in changed for changed in moves)
        assert all(changed <= {only} | follow for changed in moves)

    def test_fix_pins(self) -> None:
        space = session(fix={"num_workers": 1})._spaces(CONTEXT)["safe"]
        assert space.values["num_workers"] == (1,)


def concluded(tuning: Tuning, results: Any, context: Any, spaces: Any, run: Any, partial: bool = False) -> Any:
    return answer.profile_of(
        tuning,
        results,
        context,
        spaces["max"].left_out,
        recommended=run.options.level,
        seconds=1.0,
        warnings=run.warnings,
        partial=partial,
    )


class TestProfile:
    def made(self, history: list[Observation] = [], partial: bool = False, **options: Any) -> Any:  # noqa: B006
        tuning = Tuning(OWN)
        for observation in history:
            tuning.book(observation)
        found = session(**options)
        found.warnings.append("the baseline is your settings without loader workers")
        spaces = found._spaces(CONTEXT)
        return concluded(tuning, tuning.results(LEVELS), CONTEXT, spaces, found, partial=partial)

    def test_holds_machine_task_and_baseline(self) -> None:
        made = self.made([Observation(OWN, _completed(100.0), "safe")])
        assert made.key == machine_type(MACHINE).key
        assert made.target.name == "simulated"
        assert (made.baseline, made.baseline_rate) == (OWN, pytest.approx(100.0))
        assert tuple(made.levels) == LEVELS
        assert made.evidence.trials == 1
        assert made.evidence.warnings == ("the baseline is your settings without loader workers",)

    def test_failures_name_what_was_changed(self) -> None:
        changed = OWN.but(compile="default", num_workers=2)
        history = [
            Observation(OWN, _completed(100.0), "safe"),
            Observation(changed, Crashed("SIGSEGV", "long log"), "safe"),
        ]
        (failure,) = self.made(history).evidence.failures
        assert (failure.kind, failure.reason) == ("crashed", "SIGSEGV")
        assert failure.changed == {"compile": "default", "num_workers": 2, "prefetch_factor": 2}

    def test_what_was_not_offered_has_reasons(self) -> None:
        offered = self.made().evidence.not_offered
        assert {item.knob for item in offered} <= set(KNOB_NAMES)
        assert any(item.knob == "pin_memory" and "accelerator" in item.reason for item in offered)
        assert all(item.reason for item in offered)

    @pytest.mark.parametrize(
        ("current", "level", "recommended"),
        [
            ({}, None, "max"),
            ({"batch_size": 32}, None, "amp"),
            ({}, "safe", "safe"),
            ({"batch_size": 32}, "max", "max"),
        ],
    )
    def test_a_stated_batch_size_is_kept_unless_asked_otherwise(
        self, current: dict[str, int], level: str | None, recommended: str
    ) -> None:
        found = session(level=level)
        said = replace(CONTEXT, task=replace(CONTEXT.task, current=current))
        tuning = Tuning(OWN)
        made = concluded(tuning, tuning.results(LEVELS), said, found._spaces(said), found)
        assert made.recommended == recommended

    def test_partial_profiles_can_be_written_and_read(self, tmp_path: Path) -> None:
        """L06: infinity in an unproven interval must not spoil the file."""
        tuning = Tuning(OWN)
        tuning.book(Observation(OWN, _completed(100.0), "safe"))
        tuning.book(Observation(OWN.but(num_workers=1), _completed(150.0), "safe"))
        tuning.chosen["safe"] = OWN.but(num_workers=1)
        found = session()
        results = tuning.partial_results(LEVELS)
        made = concluded(tuning, results, CONTEXT, found._spaces(CONTEXT), found, partial=True)
        path = profiles.write(tmp_path / "partial.yaml", made)
        read = profiles.read(path)
        assert read.evidence.partial
        assert read.level("safe").settings == OWN.but(num_workers=1)
        assert not read.level("safe").proven


class TestCeiling:
    @pytest.mark.parametrize(
        ("gflops", "flops", "expected"),
        [
            ({"fp32": 100.0, "bf16": 400.0}, 1e6, (100.0, 400.0, 1e6)),
            ({"fp32": 100.0}, 1e6, (100.0, 0.0, 1e6)),
            ({"fp32": 100.0}, 0.0, None),
            ({}, 1e6, None),
        ],
    )
    def test_needs_both_the_machines_rate_and_the_tasks_work(
        self, gflops: dict[str, float], flops: float, expected: tuple[float, ...] | None
    ) -> None:
        found = answer.ceiling(gflops, flops)
        assert (None if found is None else tuple(vars(found).values())) == expected


class TestBatchNorm:
    @pytest.mark.parametrize(
        ("has", "sizes", "words"),
        [
            (True, [32, 16, 8], "BatchNorm normalises over 8 or 16 samples instead of 32"),
            (True, [32, 32], None),
            (False, [16], None),
        ],
    )
    def test_another_share_of_the_batch_is_said(self, has: bool, sizes: list[int], words: str | None) -> None:
        results = {str(k): SimpleNamespace(settings=OWN.but(batch_size=size)) for k, size in enumerate(sizes)}
        lines = list(answer._normalisation(_normalising(has), results))  # type: ignore[arg-type]
        assert [line[: len(words or "")] for line in lines] == ([words] if words else [])

    def test_replicas_share_a_batch_too(self) -> None:
        results = {"safe": SimpleNamespace(settings=OWN.but(batch_size=32, data_parallel=True))}
        (line,) = answer._normalisation(_normalising(True), results)  # type: ignore[arg-type]
        assert line.startswith("BatchNorm normalises over 8 samples instead of 32; --fix data_parallel=False")


def test_what_data_parallel_costs_is_said_against_processes_that_are_alike() -> None:
    tuning = Tuning(OWN)
    tried = {
        OWN: 100.0,
        OWN.but(processes=4, batch_size=8, backend="nccl"): 300.0,
        OWN.but(processes=4, batch_size=8, backend="nccl", precision="bf16"): 900.0,
    }
    for settings, rate in tried.items():
        tuning.book(Observation(settings, _completed(rate), "safe"))
    assert list(answer._replication(tuning)) == []
    tuning.book(Observation(OWN.but(data_parallel=True, batch_size=32), _completed(150.0), "safe"))
    (line,) = answer._replication(tuning)
    assert line.startswith("torch.nn.DataParallel reached 0.50x of the rate of 4 processes")


def test_cores_far_apart_while_it_was_proven_are_named() -> None:
    places = Places(((2, 25e-6), (2, 75e-6), (2, 75e-6), (2, 75e-6)))
    (line,) = answer.cores_apart(places, {2: 25e-6})
    assert "in 75% of race and proof" in line
    assert "3.0 times as long between them" in line
    assert answer.cores_apart(places, {2: 75e-6}) == answer.cores_apart(Places(), {}) == []


def _normalising(has_batch_norm: bool) -> Context:
    """A baseline of 32 samples on four GPUs."""
    found = context(inventory(8, 8, gpus=4), 32)
    return replace(found, task=replace(found.task, has_batch_norm=has_batch_norm))


def _completed(rate: float) -> Completed:
    return Completed(
        measurement=Measurement((Block(round(1000 * rate), 1000.0, max(1, round(1000 * rate / 64))),)), seconds=1.0
    )


class FakeRunner:
    """Knows one task; every trial's fate is the test's."""

    fate: Any = staticmethod(lambda settings: _completed(100.0))
    closed = 0

    def __init__(self, task: Path, paths: StudyPaths, *_: Any, **__: Any) -> None:
        self.task, self.paths, self.fleet = task, paths, Fleet()

    def __enter__(self) -> FakeRunner:
        return self

    def __exit__(self, *_: object) -> None:
        type(self).closed += 1
        self.paths.remove()

    def describe(self) -> Any:
        return CONTEXT.task


@pytest.fixture
def world(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeRunner]:
    """A run whose machine, lock and trials are fakes; files are real."""

    class Runner(FakeRunner):
        pass

    class Bench:
        fresh = ""
        searched: tuple[tuple[int, float], ...] = ()
        crossings: tuple[tuple[int, float], ...] = ()

        def __init__(self, runner: Any, baseline: Settings, seed: int, patience: float) -> None:
            self.baseline = baseline

        def remember(self, outcome: Outcome) -> None:
            pass

        def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
            found: Outcome = Runner.fate(settings)
            return found

        @contextmanager
        def contest(self, contenders: Any, deadline: float) -> Iterator[Any]:
            rates = dict.fromkeys(contenders, 100.0)
            yield SimpleNamespace(round=lambda seconds: rates)

    @contextmanager
    def unlocked(*_: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(api, "probe", lambda *_: MACHINE)
    monkeypatch.setattr(bringup, "Runner", Runner)
    monkeypatch.setattr(api, "TrialBench", Bench)
    monkeypatch.setattr(bringup.lock, "acquire", unlocked)
    (elsewhere / "model.py").write_text(TASK)
    return Runner


class TestRun:
    OPTIONS = api.Options(budget=50.0, only=("num_workers", "prefetch_factor", "optimizer_impl"))

    def test_writes_the_profile_where_it_belongs(self, world: type[FakeRunner], elsewhere: Path) -> None:
        stages: list[str] = []
        answer = api.run(Path("model.py"), self.OPTIONS, lambda **news: stages.append(news.get("stage", "")))
        assert answer.path == Path("profiles") / machine_type(MACHINE).key / "model.yaml"
        assert profiles.read(answer.path).baseline == answer.profile.baseline
        assert not answer.profile.evidence.partial
        assert [stage for stage in stages if stage][:3] == ["loading the task", "baseline", "searching: safe"]
        assert world.closed == 1

    @pytest.mark.parametrize(
        ("facts", "expected"),
        [({"fp32": 100.0, "bf16": 400, "error": "x"}, {"fp32": 100.0, "bf16": 400.0}), ({"error": "no torch"}, {})],
        ids=["measured", "failed"],
    )
    def test_longer_runs_know_the_machines_ceiling(
        self,
        world: type[FakeRunner],
        monkeypatch: pytest.MonkeyPatch,
        facts: dict[str, Any],
        expected: dict[str, float],
    ) -> None:
        asked: list[list[str]] = []
        monkeypatch.setattr(api, "measure", lambda system, names: asked.append(names) or {"gemm": facts})
        short = api.run(Path("model.py"), self.OPTIONS)
        assert (asked, short.profile.evidence.ceiling) == ([], None)
        ceiling = api.run(Path("model.py"), replace(self.OPTIONS, budget=api.CEILING_BUDGET)).profile.evidence.ceiling
        assert asked == [["gemm"]]
        assert (ceiling is not None) == bool(expected and CONTEXT.task.flops_per_item)
        assert answer.gflops(facts) == expected

    @pytest.mark.parametrize(
        ("facts", "message"),
        [
            ({"iterable": True, "processes_refused": "a stream"}, "several machines: a stream"),
            ({"processes_refused": "a sum"}, None),
        ],
        ids=["a stream cannot be shared", "a sum is shared already"],
    )
    def test_several_machines_need_data_that_can_be_shared(
        self,
        world: type[FakeRunner],
        monkeypatch: pytest.MonkeyPatch,
        facts: dict[str, Any],
        message: str | None,
    ) -> None:
        class Baseline(Exception):
            pass

        def wanted(*_: Any) -> Settings:
            raise Baseline

        monkeypatch.setattr(world, "describe", lambda _: replace(CONTEXT.task, **facts))
        monkeypatch.setattr(Fleet, "nnodes", 2)
        monkeypatch.setattr(api, "baseline_settings", wanted)
        with pytest.raises(UsageError if message else Baseline, match=message):
            api.run(Path("model.py"), self.OPTIONS)

    def test_writes_it_where_asked(self, world: type[FakeRunner], elsewhere: Path) -> None:
        where = elsewhere / "deep" / "mine.yaml"
        assert api.run(Path("model.py"), replace(self.OPTIONS, profile=where)).path == where
        assert where.is_file()
        assert not (elsewhere / "profiles").exists()

    def test_interrupted_saves_what_there_is_and_says_so(self, world: type[FakeRunner], elsewhere: Path) -> None:
        count = 0

        def fate(_: Settings) -> Outcome:
            nonlocal count
            count += 1
            if count == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return _completed(100.0 + count)

        world.fate = staticmethod(fate)
        with pytest.raises(Interrupted):
            api.run(Path("model.py"), replace(self.OPTIONS, profile=elsewhere / "out.yaml"))
        saved = profiles.read(elsewhere / "out.yaml")
        assert saved.evidence.partial
        assert saved.evidence.trials == 2
        assert world.closed == 1

    @pytest.mark.parametrize("ending", [Interrupted(signal.SIGINT), LaunchError("the trial server ended")], ids=repr)
    def test_an_interrupted_run_keeps_the_proven_profile_and_says_where_its_own_is(
        self, world: type[FakeRunner], elsewhere: Path, ending: BaseException
    ) -> None:
        options = replace(self.OPTIONS, profile=elsewhere / "out.yaml")
        api.run(Path("model.py"), options)
        proven = (elsewhere / "out.yaml").read_text()

        def fate(settings: Settings) -> Outcome:
            if settings != OWN:
                raise ending
            return _completed(100.0)

        world.fate = staticmethod(fate)
        with pytest.raises(type(ending)) as ended:
            api.run(Path("model.py"), options)
        assert (elsewhere / "out.yaml").read_text() == proven
        beside = elsewhere / "out.partial.yaml"
        assert profiles.read(beside).evidence.partial
        assert getattr(ended.value, "saved", None) == beside or str(beside) in str(ended.value)

    def test_resumes_without_repeating(self, world: type[FakeRunner], elsewhere: Path) -> None:
        seen: list[Settings] = []

        def fate(settings: Settings) -> Outcome:
            seen.append(settings)
            if len(seen) == 3:
                raise Interrupted(signal.SIGINT)
            return _completed(100.0)

        world.fate = staticmethod(fate)
        options = replace(self.OPTIONS, profile=elsewhere / "out.yaml")
        with pytest.raises(Interrupted):
            api.run(Path("model.py"), options)
        finished, seen[:] = seen[:2], []
        world.fate = staticmethod(lambda settings: seen.append(settings) or _completed(100.0))
        answer = api.run(Path("model.py"), replace(options, resume=True))
        assert set(finished) & set(seen) <= {finished[0]}, "only the baseline is repeated, on purpose"
        assert answer.profile.evidence.trials == len(finished) + len(seen)
        assert not answer.profile.evidence.partial

    def test_without_resume_starts_anew(self, world: type[FakeRunner], elsewhere: Path) -> None:
        seen: list[Settings] = []
        world.fate = staticmethod(lambda settings: seen.append(settings) or _completed(100.0))
        options = replace(self.OPTIONS, profile=elsewhere / "out.yaml")
        first = api.run(Path("model.py"), options).profile.evidence.trials
        second = api.run(Path("model.py"), options).profile.evidence.trials
        assert (first, len(seen)) == (second, first + second)

    def test_another_text_of_the_task_is_another_study(self, world: type[FakeRunner], elsewhere: Path) -> None:
        options = replace(self.OPTIONS, profile=elsewhere / "out.yaml", resume=True)
        api.run(Path("model.py"), options)
        seen: list[Settings] = []
        world.fate = staticmethod(lambda settings: seen.append(settings) or _completed(100.0))
        (elsewhere / "model.py").write_text(TASK + "\n# another model\n")
        api.run(Path("model.py"), options)
        assert seen, "nothing of the other text's trials counts"

    @pytest.mark.parametrize(
        ("outcome", "kind"),
        [(Crashed("NameError: x", "Traceback"), UserCodeError)],
    )
    def test_a_broken_task_leaves_no_profile(
        self, world: type[FakeRunner], elsewhere: Path, outcome: Outcome, kind: type[Exception]
    ) -> None:
        world.fate = staticmethod(lambda _: outcome)
        with pytest.raises(kind):
            api.run(Path("model.py"), replace(self.OPTIONS, profile=elsewhere / "out.yaml"))
        assert not (elsewhere / "out.yaml").exists()
        assert world.closed == 1

    def test_a_taken_machine_starts_nothing(
        self, world: type[FakeRunner], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        @contextmanager
        def taken(*_: Any) -> Iterator[None]:
            raise NothingUsable("another tuning run holds the machine")
            yield

        monkeypatch.setattr(bringup.lock, "acquire", taken)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(scratch))
        with pytest.raises(NothingUsable):
            api.run(Path("model.py"), self.OPTIONS)
        assert list(scratch.iterdir()) == []
