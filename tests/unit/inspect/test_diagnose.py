"""Which trials a diagnosis runs, and that all of them end by its deadline."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import MachineChanged, NothingUsable
from autotune.inspect import diagnose as module
from autotune.inspect.diagnose import candidates, diagnose
from autotune.inspect.verdict import STEP, Part
from autotune.knobs.settings import Settings
from autotune.probes.cpu_time import QUIET
from autotune.probes.system import System
from autotune.stats.measurement import Measurement
from autotune.stats.outcome import BUDGET_OVER, Completed, Outcome, TimedOut
from autotune.stats.proof import Round
from autotune.trial.messages import Without
from autotune.trial.target import TaskFile
from tests.doubles.inspections import facts, inspection
from tests.doubles.results import inventory

OWN = Settings(threads=2, batch_size=10)
SHARES = dict.fromkeys(Part, 0.0) | {Part.PASSES: 0.8, Part.LOADER: 0.15, Part.LOOP: 0.05}


class TestContenders:
    @pytest.mark.parametrize(
        ("changes", "names"),
        [
            ({}, [STEP, "loader"]),
            ({"script": "batches", "unit": "steps"}, [STEP, "loader"]),
            ({"script": "backward passes"}, [STEP]),
        ],
        ids=["a task", "a script", "no batch shows steps"],
    )
    def test_parts_that_can_be_left_out_and_are_worth_it_run(self, changes: dict[str, Any], names: list[str]) -> None:
        assert list(candidates(OWN, facts(**changes), SHARES, 2.0)) == names

    def test_several_processes_also_run_without_gradient_sync(self) -> None:
        own = OWN.but(processes=2, threads=1, backend="gloo")
        assert candidates(own, facts(), SHARES, 2.0)["gradient_sync"] == (own, Without.GRADIENT_SYNC)

    @pytest.mark.parametrize(
        ("own", "threads", "fewer"),
        [
            (OWN.but(threads=16), 2.0, 2),
            (OWN.but(num_workers=1), 2.0, 1),
            (OWN.but(processes=4, threads=4), 8.0, 2),
            (OWN, 1.2, 1),
            (OWN, -3.0, 1),
            (OWN, 2.0, None),
            (OWN.but(threads=1, num_workers=8), 2.0, None),
        ],
    )
    def test_fewer_threads_run_if_more_are_busy_than_fit(self, own, threads, fewer) -> None:
        found = candidates(own, facts(), SHARES, threads)
        assert (found["threads"][0].threads if "threads" in found else None) == fewer
        assert len(found) == 2, "one beside the step, since steps are slow then"


class World:
    """A machine on a clock of its own, on which everything takes as long as the test says, or to the given deadline."""

    def __init__(self, patch: pytest.MonkeyPatch, **seconds: float) -> None:
        self.seconds = {"probe": 0.1, "start": 1.0, "inspect": 3.0, "contest": 2.0, "noise": 0.5} | seconds
        self.now, self.replicates = 0.0, 0
        self.stages: list[tuple[float, str]] = []
        patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        patch.setattr(module, "same_cpus", self.same_cpus)
        patch.setattr(module, "Neighbours", lambda: SimpleNamespace(load=lambda threads: QUIET))
        for name, fake in (("probe", self.probe), ("open_runner", self.open_runner), ("TrialBench", self.bench)):
            patch.setattr(module, name, fake)

    def diagnose(self, budget: float = 20.0) -> None:
        diagnose(TaskFile(Path("model.py")), budget, self.observe)

    def takes(self, what: str, deadline: float) -> bool:
        """Let the time pass; False if the deadline came first."""
        over = self.now + self.seconds[what]
        self.now = max(self.now, min(over, deadline))
        return over <= deadline

    @contextlib.contextmanager
    def same_cpus(self, _inventory: Any) -> Iterator[None]:
        yield
        if self.seconds.get("taken away"):
            raise MachineChanged("fewer CPUs")

    def observe(self, **changes: Any) -> None:
        if "stage" in changes:
            self.stages.append((self.now, changes["stage"]))

    def probe(self, system: System) -> Any:
        self.takes("probe", system.deadline)
        return inventory()

    @contextlib.contextmanager
    def open_runner(self, target: Any, found: Any, seed: int, patience: float, observe: Any) -> Iterator[Any]:
        self.runner = runner = SimpleNamespace(deadline=float("inf"))

        def describe(*, steps: bool) -> Any:
            assert not steps
            if not self.takes("start", runner.deadline):
                raise NothingUsable("the budget ended before it was imported")
            return facts()

        runner.describe = describe
        yield runner

    def bench(self, runner: Any, baseline: Settings) -> Any:
        return SimpleNamespace(
            baseline=baseline, inspect=self.inspect, start_replicate=self.start_replicate, remember=lambda _: None
        )

    def inspect(self, settings: Settings, function: str, seconds: float) -> tuple[Outcome, Any]:
        if not self.takes("inspect", self.runner.deadline):
            return TimedOut("no progress", phase=BUDGET_OVER), {}
        return Completed(Measurement(()), (), 1.0, 0.1), asdict(inspection())

    @contextlib.contextmanager
    def start_replicate(self, settings: Mapping[str, Any], without: Mapping[str, Without]) -> Iterator[Any]:
        finished = self.takes("contest", self.runner.deadline)
        self.replicates += 1
        rates = dict.fromkeys(settings, 100.0 * (1 + self.seconds["noise"] * (self.replicates % 2)))
        rates = (rates | {STEP: 100.0}) if finished else {}
        yield SimpleNamespace(rounds=lambda replicate, number, seconds: [Round(replicate, rates)] * number)


def test_cpus_taken_away_are_not_blamed_on_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MachineChanged):
        World(monkeypatch, **{"taken away": 1.0}).diagnose()


class TestBudget:
    @pytest.mark.parametrize("budget", [10.0, 20.0, 60.0])
    @pytest.mark.parametrize(
        "slow",
        [{}, *({each: 1e3} for each in ("probe", "start", "inspect", "contest")), {"inspect": 4.9, "probe": 4.0}],
    )
    def test_is_a_hard_bound(self, slow: dict[str, float], budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Seen: ``--budget 30s`` ended after 1:34 to 4:20, in a fresh home beside a load."""
        world = World(monkeypatch, **slow)
        with contextlib.suppress(NothingUsable):
            world.diagnose(budget)
        assert world.now <= budget

    @pytest.mark.parametrize(("noise", "replicates"), [(0.5, 7), (0.0, 4)], ids=["fill the time", "until it is told"])
    def test_replicates(self, noise: float, replicates: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of 2 s each, after 4.1 s, with 1.5 s for the end. The first line comes before anything takes long."""
        world = World(monkeypatch, noise=noise)
        world.diagnose()
        assert world.replicates == replicates
        assert world.stages[0][0] == 0.0
        assert [words.split()[0] for _, words in world.stages] == ["probing", "loading", "the", "the"]
