"""Real processes: settings change inside a running training, and trials are the script to its own eyes."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.inspect import noise_scale
from autotune.knobs.settings import Settings
from autotune.knobs.stated import baseline_settings
from autotune.stats.outcome import Compared, Completed
from autotune.trial.child.measured_loop import READ_ELSEWHERE
from autotune.trial.child.measuring import OWN_STATE
from autotune.trial.messages import Without
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import TrialBench
from tests.processes.scripts.corpus import place
from tests.processes.trial.running_scripts import SCRIPTS, here, running, running_task

pytestmark = pytest.mark.torch
Begin = Callable[[str], tuple[Runner, TrialBench, Settings]]

TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node=2")

THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
TRAINS = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.randn({samples}, 64), batch_size=16, shuffle=True)
history = torch.zeros(100_000, len(loader))
for epoch in range(100_000):
    for number, batch in enumerate(passing := iter(loader)):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        {noise}
        optimizer.step()
        history[epoch, number] = loss.item()
"""
NOISE = "[p.grad.mul_(1 + 1e-7 * torch.rand(p.shape, generator=noise)) for p in model.parameters()]"
NOISY = "import os, torch\nnoise = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), 'big'))\n"


def bench(runner: Runner) -> tuple[Runner, TrialBench, Settings]:
    own = baseline_settings(runner.describe(steps=False), here())
    return runner, TrialBench(runner, own, 0, 60.0), own


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Start a script, and make a bench of its own settings."""
    with contextlib.ExitStack() as stack:
        yield lambda script: bench(stack.enter_context(running(script, tmp_path, monkeypatch)))


def test_one_training_serves_many_settings(begin: Begin) -> None:
    """A thread forbids forks: the script is started once for the search, and goes on to train."""
    runner, found, own = begin(THREAD + TRAINS.format(samples=640, noise=""))
    assert found.is_live
    others = (own.but(num_workers=1), own.but(optimizer_impl="fused"), own.but(precision="bf16"))
    for settings in (own, *others, own.but(batch_size=32)):
        outcome = found.measure(settings, 0.0, runner.deadline)
        assert isinstance(outcome, Completed), outcome.reason
        assert found.compare(settings) == Compared(draws=False)
    assert runner.started == 1
    assert isinstance(found.compare(own.but(omp_wait_policy="passive")), Compared), "it needs a start of its own"
    with found.start_replicate({"baseline": own, "safe": others[0], "amp": others[2]}) as replicate:
        assert set(replicate.round(0.1)) == {"baseline", "safe", "amp"}
    assert runner.started == 4, "the replicate is one process more"
    for left in (0.1, 1.1):
        runner.deadline = time.monotonic() + left
        outcome = found.measure(own.but(omp_wait_policy="passive"), 0.0, runner.deadline)
        assert outcome.reason == "its share of the budget ended before it was measured", "and ends nothing"


STARTED_HERE = "import os\nbegun = os.getpid()\n"
ONCE = "\nassert os.getpid() != begun, 'all of the script is run again'\n"


@pytest.mark.parametrize("before", ["", "list(torch.utils.data.DataLoader(range(4)))"], ids=["", "a loader before"])
def test_what_comes_before_the_thread_is_run_once(before: str, begin: Begin) -> None:
    first = f"import torch\nlayer = torch.nn.Linear(1, 1)\nearly = torch.optim.SGD(layer.parameters())\n{before}\n"
    script = STARTED_HERE + first + THREAD + ONCE + TRAINS.format(samples=640, noise="")
    runner, found, own = begin(script)
    lines = script[: script.index("threading.Thread")].count("\n") + 1
    assert str(runner.no_fork_reason).endswith(f"run before training (train.py:{lines})")
    assert found.measure(own, 0.0, runner.deadline).measured
    assert found.compare(own.but(num_workers=1)) == Compared(draws=False)
    with found.start_replicate({"baseline": own, "safe": own.but(num_workers=1)}) as replicate:
        assert set(replicate.round(0.1)) == {"baseline", "safe"}


def test_a_thread_that_has_ended_forbids_nothing(begin: Begin) -> None:
    ended = "import threading\nthread = threading.Thread(target=int)\nthread.start()\nthread.join()\n"
    runner, found, own = begin(ended + TRAINS.format(samples=640, noise=""))
    assert runner.no_fork_reason is None
    assert found.measure(own, 0.0, runner.deadline).measured
    for _ in range(2):  # a fork server for it is not ready in time, twice
        runner.deadline = time.monotonic() + 0.2
        outcome = found.measure(own.but(omp_wait_policy="passive"), 0.0, runner.deadline)
        assert outcome.reason == "its share of the budget ended before it was measured"


def test_a_setting_that_ends_the_training_costs_a_start_and_a_visit_ends_at_its_deadline(begin: Begin) -> None:
    fails = """workers = passing._num_workers
        if workers == 2: raise MemoryError("too large")
        if workers == 3: time.sleep(1000)"""
    runner, found, own = begin("import time\n" + THREAD + TRAINS.format(samples=640, noise=fails))
    assert found.measure(own, 0.0, runner.deadline).measured
    assert found.measure(own.but(num_workers=2), 0.0, runner.deadline).kind == "out-of-memory"
    assert found.measure(own.but(num_workers=1), 0.0, runner.deadline).measured
    assert runner.started == 2
    outcome = found.measure(own.but(num_workers=3), 0.0, time.monotonic() + 4)
    assert outcome.reason == "its share of the budget ended before it was measured"
    assert found.measure(own, 0.0, runner.deadline).measured


ENDS = {"trains no longer": "if epoch == 60: break\nraise SystemExit", "exits": "if epoch == 60: os._exit(0)"}


@pytest.mark.parametrize("how", ENDS)
def test_the_end_of_the_script_is_no_fault_of_settings(how: str, begin: Begin) -> None:
    """It trains for some seconds: another one takes its place, in the search and in the proof."""
    script = "import os\n" + THREAD + TRAINS.format(samples=640, noise="import time; time.sleep(0.001)")
    last, *rest = ENDS[how].split("\n")
    script += "\n".join([f"    {last}", *rest])
    runner, found, own = begin(script)
    others = [own.but(optimizer_impl="fused"), own.but(num_workers=1)]
    for settings in itertools.cycle((own, *others)):
        outcome = found.measure(settings, 0.0, runner.deadline)
        assert outcome.measured, outcome.reason
        if (before := runner.started) > 1:
            break
    with found.start_replicate({"baseline": own, "safe": others[0]}) as replicate:
        while runner.started < before + 2:
            assert set(replicate.round(0.3)) == {"baseline", "safe"}


@pytest.mark.parametrize("start", ["", THREAD], ids=["forked", "live"])
def test_the_same_is_within_the_spread_of_the_own_settings(start: str, begin: Begin) -> None:
    """Gradients have noise of 1e-7: bits differ. A fault is larger, and found."""
    fault = NOISE + "\n        if passing._num_workers == 2: model[0].weight.grad.mul_(1.01)"
    script = NOISY + start + TRAINS.format(samples=640, noise=fault)
    _, found, own = begin(script)
    repeated = [found.compare(own) for _ in range(3)]
    assert all(isinstance(each, Compared) for each in repeated)
    with found.start_replicate({"baseline": own}):  # ends the training that was compared: another begins
        pass
    outcome = found.compare(own.but(num_workers=1))
    assert isinstance(outcome, Compared)
    assert outcome.differences == ()
    faulty = found.compare(own.but(num_workers=2))
    assert isinstance(faulty, Compared)
    assert faulty.differences


TWO_LOADERS = """
import torch
from torch.utils.data import DataLoader, Dataset
class Counting(Dataset):
    read = 0
    def __len__(self):
        return 320
    def __getitem__(self, index):
        {counts}
        return torch.tensor([float(index)])
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(100_000):
    for batch, other in zip(DataLoader(torch.randn(320, 1), 16, shuffle=True), {second}):
        optimizer.zero_grad()
        (model(batch).square().mean() + model(other).mean()).backward()
        optimizer.step()
"""
RECORDS = "num_workers: the data set records something while it is read, which stays in a worker"
PAIR = "DataLoader(Counting(), 16, shuffle=True)"
INSIDE = f"(next(iter({PAIR})) for _ in range(20))"


STREAM = (
    "DataLoader(type('S', (torch.utils.data.IterableDataset,), {'__iter__': lambda _: iter(torch.ones(320, 1))})())"
)


@pytest.mark.parametrize(("second", "known"), [(PAIR, 2), (INSIDE, 2), (STREAM, 1)], ids=["beside", "inside", "stream"])
def test_loaders_that_are_read_in_one_step_are_tuned_together(second: str, known: int, begin: Begin) -> None:
    """`INSIDE` makes a loader for each batch of the training loader; a stream may have no two workers."""
    runner, found, own = begin(TWO_LOADERS.format(second=second, counts="assert index >= 0"))
    facts = runner.describe(steps=False)
    assert len(facts.compared.loaders) == known
    outcome = found.measure(own.but(num_workers=2), 0.0, runner.deadline)
    assert outcome.measured, outcome.reason
    assert found.compare(own.but(num_workers=2)) == Compared(draws=False)


@pytest.mark.parametrize("start", ["", THREAD], ids=["forked", "live"])
def test_what_the_second_data_set_keeps_is_compared(start: str, begin: Begin) -> None:
    runner, found, own = begin(start + TWO_LOADERS.format(second=PAIR, counts="self.read += 1"))
    outcome = found.compare(own.but(num_workers=1))
    assert outcome.reason == ("" if start else RECORDS), "a running training leaves it alone"
    assert len(runner.describe(steps=False).compared.loaders) == (1 if start else 2)
    assert found.measure(own, 0.0, runner.deadline).measured


SECOND = """other = other if number or epoch else torch.nn.Linear(64, 3)
        second = second if number or epoch else torch.optim.SGD(other.parameters(), lr=0.01)
        if number % 5 == 4: other(batch).sum().backward(); second.step()"""


@pytest.mark.parametrize("start", ["", THREAD], ids=["forked", "live"])
def test_a_model_that_trains_later_is_passed_over(start: str, begin: Begin) -> None:
    """The run leaves it alone, and says so: a generator that steps with every fifth batch."""
    script = "other = second = None\n" + start + TRAINS.format(samples=640, noise=SECOND)
    runner, found, own = begin(script)
    outcome = found.measure(own.but(precision="bf16", optimizer_impl="fused"), 0.0, runner.deadline)
    assert outcome.measured, outcome.reason


SETUP = (
    THREAD
    + """
import torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

class Data(torch.utils.data.Dataset):
    rows = torch.randn(640, 64)

    def __len__(self):
        return {samples}

    def __getitem__(self, index):
        return self.rows[index % 640]

data = Data()
loader = DataLoader(data, batch_size=16, shuffle=True{options})

def step(batch, more=0.0, every=1, count=[0]):
    loss = model(batch).square().mean() + more
    loss.backward()
    count[0] += 1
    if count[0] % every == 0:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()

"""
)
COUNTS = """
for epoch in range(100_000):
    losses = [step(batch) for batch in loader]
    assert len(losses) == len(loader)
"""
PASSES = {
    "counted": ("", COUNTS),
    "one batch": ("", "for batch in iter(lambda: next(iter(loader)), None):\n    step(batch)"),
    "next": ("", "while True:\n    it = iter(loader)\n    for _ in range(len(loader)):\n        step(next(it))"),
    "drawn between": (
        "",
        "while True:\n    it = iter(loader)\n    noise = 0.1 * torch.randn(64)\n"
        "    for batch in it:\n        step(batch + noise)",
    ),
    "zipped": (
        "",
        "other = DataLoader(range(len(data)), batch_size=16, shuffle=True)\nwhile True:\n"
        "    for batch, more in zip(loader, other):\n        step(batch, 1e-6 * more.float().mean())",
    ),
    "accumulated": ("", "while True:\n    for batch in loader:\n        step(batch, every=4)"),
    "persistent": (", num_workers=1, persistent_workers=True", COUNTS),
}
"""Options of the loader, and how the script passes over it."""


@pytest.mark.parametrize(("name", "samples"), [*((name, 640) for name in PASSES), ("zipped", 640_000)])
def test_passes_end_as_in_the_script(name: str, samples: int, begin: Begin) -> None:
    """First steps are compared without cutting a pass short: one of a moment from its beginning, a long one inside."""
    options, loop = PASSES[name]
    runner, found, own = begin(SETUP.format(samples=samples, options=options) + loop)
    for settings in (own, own.but(optimizer_impl="foreach"), own.but(num_workers=2), own):
        assert found.compare(settings) == Compared(draws=False)
    assert runner.started == 1


MOVES = """
average = [p.detach().clone() for p in model.parameters()]
while True:
    for batch in loader:
        step(batch, sum((p - q).square().sum() for p, q in zip(model.parameters(), average)))
        for p, q in zip(model.parameters(), average):
            q.lerp_(p.detach(), 0.01)
"""
SEEDS = """
loader = DataLoader(data, batch_size=16, sampler=(order := torch.randperm(640).tolist()))
while True:
    order.append(order.pop(0))
    for batch in loader:
        step(batch)
"""


@pytest.mark.parametrize(("loop", "reason"), [(MOVES, ""), (SEEDS, OWN_STATE)], ids=["model", "order"])
def test_no_knob_is_blamed_for_state_of_the_script(loop: str, reason: str, begin: Begin) -> None:
    """It goes on from one recording to the next: what it computes may differ as far, and its order cannot be shown."""
    _, found, own = begin(SETUP.format(samples=640, options="") + loop)
    for settings in (own, own.but(optimizer_impl="foreach"), own.but(threads=1)):
        outcome = found.compare(settings)
        assert outcome.reason == reason
        assert not getattr(outcome, "differences", ())


def test_memory_is_that_of_each_settings(begin: Begin) -> None:
    """What a large batch needed is not held against the settings that come after it."""
    larger = "    torch.ones(4_000_000 if len(batch) > 16 else 4).exp()\n    step(batch)"
    loop = f"while True:\n  for batch in loader:\n{larger}"
    runner, found, own = begin(SETUP.format(samples=640, options="") + loop)
    peaks = []
    for settings in (own, own.but(batch_size=32), own.but(threads=1)):
        outcome = found.measure(settings, 0.0, runner.deadline)
        assert outcome.measurement is not None
        peaks.append(outcome.measurement.memory.peak >> 20)
    assert peaks[1] > peaks[0] + 16 > peaks[2]


AHEAD = """
import itertools
import queue

class Ahead(DataLoader):
    def __iter__(self):
        batches, waiting = itertools.chain(super().__iter__(), [None]), queue.Queue(4)
        threading.Thread(target=lambda: [waiting.put(batch) for batch in batches], daemon=True).start()
        return iter(waiting.get, None)

loader = Ahead(data, batch_size=16, shuffle=True)
while True:
    for batch in loader:
        step(batch)
"""


@pytest.mark.parametrize("idle", [True, False], ids=["live", "forked"])
def test_batches_that_another_thread_reads(idle: bool, begin: Begin) -> None:
    """Steps are made where the script trains. Which batches they take is not known, so that nothing is compared."""
    setup = SETUP if idle else SETUP.replace(THREAD, "\nimport threading\n")
    runner, found, own = begin(setup.format(samples=640, options="") + AHEAD)
    assert found.is_live == idle
    for settings in (own, own.but(threads=1), own.but(optimizer_impl="foreach")):
        outcome = found.measure(settings, 0.0, runner.deadline)
        assert isinstance(outcome, Completed), outcome.reason
        assert outcome.measurement is not None
        assert all(block.items == 16 * block.steps for block in outcome.measurement.blocks)
        assert found.compare(settings).reason == READ_ELSEWHERE


def test_a_script_may_train_in_a_thread(begin: Begin) -> None:
    trains = "def train():\n    while True:\n        for batch in loader:\n            step(batch)\n\n"
    started = trains + "(it := threading.Thread(target=train)).start()\nit.join()\n"
    runner, found, own = begin(SETUP.format(samples=640, options="") + started)
    assert found.measure(own.but(threads=1), 0.0, runner.deadline).measured
    for settings in (own.but(threads=1), own.but(omp_wait_policy="passive")):
        assert found.compare(settings) == Compared(draws=False)


EVALUATES = """
import torch, time
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=4)
for epoch in range(100_000):
    for number, batch in enumerate(passing := iter(loader)):
        time.sleep(0.002)
        model(batch).mean().backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    for batch in loader:
        time.sleep(0.02)
"""


def test_a_step_is_one_of_the_optimizer(begin: Begin) -> None:
    """Two batches make a step; a pass in which none is made is other work, and so is what lies between epochs."""
    runner, found, own = begin(EVALUATES)
    outcome = found.measure(own, 0.0, runner.deadline)
    assert isinstance(outcome, Completed), outcome.reason
    assert outcome.measurement is not None
    blocks = outcome.measurement.blocks
    assert all(block.items == 8 * block.steps for block in blocks)


SHARES = {"multiprocessing.Value('i', 0)": True, "torch.zeros(1).share_memory_()": True, "None": False}


@pytest.mark.parametrize("shares", SHARES)
def test_memory_that_trials_would_share_forbids_forks_and_a_lock_does_not(shares: str, begin: Begin) -> None:
    script = f"import multiprocessing, torch\nlock, counter = multiprocessing.Lock(), {shares}\n"
    runner, found, own = begin(script + TRAINS.format(samples=640, noise=""))
    assert ("shared memory" in str(runner.no_fork_reason)) == SHARES[shares]
    assert found.measure(own, 0.0, runner.deadline).measured


def test_what_takes_the_place_of_steps_counts_as_one(begin: Begin) -> None:
    """The noise scale is measured at fixed weights, and an update that is left out ends a step all the same."""
    _, found, own = begin(TRAINS.format(samples=640, noise=""))
    measure = f"{noise_scale.__name__}:{noise_scale.noise_scale.__name__}"
    assert found.inspect(own, measure, 1.0)[1]["noise_scale"] > 0
    with found.start_replicate({"all": own, "no update": own}, {"no update": Without.UPDATE}) as replicate:
        assert set(replicate.round(0.1)) == {"all", "no update"}


COUNTED = """
import multiprocessing
import torch
from torch.utils.data import TensorDataset

COUNTER = multiprocessing.Value("i", 0)
CURRENT = dict(batch_size=16)

def build_model():
    assert COUNTER.value == 0, "another trial has counted here"
    return torch.nn.Linear(8, 1)

def build_dataset():
    return TensorDataset(torch.randn(256, 8))

def compute_loss(model, batch):
    COUNTER.value += 1
    return model(batch[0]).square().mean()
"""


def test_trials_of_a_task_file_do_not_see_each_others_counts(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(COUNTED)
    with running_task(tmp_path / "model.py") as runner:
        _, found, own = bench(runner)
        assert "shared memory" in (runner.no_fork_reason or "")
        assert found.measure(own, 0.0, runner.deadline).measured
        with found.start_replicate({"baseline": own}) as replicate:
            assert set(replicate.round(0.1)) == {"baseline"}


def test_ranks_share_no_memory_that_was_made_before_they_are_known(tmp_path, monkeypatch) -> None:
    place(SCRIPTS["torchrun_style"], tmp_path, 100_000)
    text = (tmp_path / "torchrun_style.py").read_text()
    counts = "import multiprocessing\nCOUNTER = multiprocessing.Value('i', 0)\n"
    known = 'int(os.environ.get("WORLD_SIZE", "1"))\n'
    assert known in text
    checked = text.replace(known, f"{known}    COUNTER.value += 1\n    assert COUNTER.value == 1\n", 1)
    with running(counts + checked, tmp_path, monkeypatch, "100000", launcher=TORCHRUN) as runner:
        facts = runner.describe()
        assert facts.warnings == ()
        assert baseline_settings(facts, here()).processes == 2
