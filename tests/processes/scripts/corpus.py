"""Training scripts as people write them, one per style and one per hard case, and what tuning should make of each.

The scripts know nothing of autotune. Most are one of two common scripts with a few lines changed. `place` writes one
into a folder and gives the arguments that start it there.
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Replace each old part of ``text``, which must be there once, by its new one."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def added(line: str, lines: str) -> tuple[str, str]:
    """Put ``lines`` before ``line``, indented as it is: one of the changes of `changed`."""
    indentation = line[: len(line) - len(line.lstrip())]
    return line, textwrap.indent(textwrap.dedent(lines).strip("\n") + "\n", indentation) + line


PLAIN = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def make_dataset(samples):
    inputs = torch.randn(samples, 20)
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())

@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    print("correct", sum(int((model(inputs).argmax(dim=1) == targets).sum()) for inputs, targets in loader))
    model.train()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    training = DataLoader(make_dataset(1024), batch_size=32, shuffle=True)
    validation = DataLoader(make_dataset(128), batch_size=64)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < arguments.steps:
        for inputs, targets in training:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == arguments.steps:
                break
        evaluate(model, validation)

if __name__ == "__main__":
    main()
"""
SMALL = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn({samples}, 4), batch_size=4)
for epoch in range({epochs}):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
"""
TORCHRUN = """
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main():
    steps, world = int(sys.argv[1]), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if world > 1 else 0
    torch.manual_seed(0)
    inputs = torch.randn(1024, 20)
    dataset = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    sampler = DistributedSampler(dataset) if world > 1 else None
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, shuffle=sampler is None)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    model = DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, epoch = 0, 0
    while step < steps:
        if sampler is not None:
            sampler.set_epoch(epoch)
        epoch += 1
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == steps:
                break
    if world > 1:
        dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
WRAPPED = "    model = DistributedDataParallel(model) if world > 1 else model\n"

# Styles and frameworks ------------------------------------------------------------------------------------------------

FLAT = """
import sys
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

steps = int(sys.argv[1])
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
train_loader = DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=50, num_workers=1)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
step = 0
while step < steps:
    for x, y in train_loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1
"""
HF_TRAINER = """
import argparse
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Sentences(Dataset):
    def __init__(self, samples):
        self.tokens = torch.randint(5, 200, (samples, 16))
        self.labels = (self.tokens[:, 0] > 100).long()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--mean-per-process", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    settings = TrainingArguments(
        "trainer_output",
        max_steps=arguments.steps,
        per_device_train_batch_size=16,
        use_cpu=True,
        average_tokens_across_devices=not arguments.mean_per_process,
    )
    settings = settings.set_logging(strategy="steps", steps=1).set_save(strategy="steps", steps=50)
    sizes = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForSequenceClassification(BertConfig(**sizes, intermediate_size=64))
    Trainer(model=model, args=settings, train_dataset=Sentences(512), eval_dataset=Sentences(64)).train()

if __name__ == "__main__":
    main()
"""
LIGHTNING = """
import sys
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))

    def training_step(self, batch, index):  # not `forward`
        loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("validation_loss", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

def make_loader(samples, shuffle):
    inputs = torch.randn(samples, 20)
    return DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=32, shuffle=shuffle)

lightning.seed_everything(0)
trainer = lightning.Trainer(max_steps=int(sys.argv[1]), accelerator="cpu", log_every_n_steps=10)
trainer.fit(Classifier(), make_loader(1024, shuffle=True), make_loader(128, shuffle=False))
"""
ACCELERATE = """
import sys
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
inputs = torch.randn(1024, 20)
loader = DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
step = 0
while step < int(sys.argv[1]):
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        step += accelerator.sync_gradients
accelerator.save_state("accelerate_state")
"""

# Hard cases -----------------------------------------------------------------------------------------------------------

OPTIMIZER_FREE = """
import sys
import torch
from torch import nn

network = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 5), nn.LogSoftmax(dim=1))
words = nn.functional.one_hot(torch.randint(20, (200, 6)), 20).float()
categories = torch.randint(5, (200,))
for step in range(int(sys.argv[1])):
    index = int(torch.randint(200, ()))
    network.zero_grad()
    output = sum(network(letter.unsqueeze(0)) for letter in words[index])
    nn.functional.nll_loss(output, categories[index : index + 1]).backward()
    for p in network.parameters():
        p.data.add_(p.grad.data, alpha=-0.005)
"""
LBFGS = """
import sys
import torch
from torch import nn

times = torch.linspace(0, 20, 400).unsqueeze(1)
waves = torch.sin(times) + 0.5 * torch.sin(3 * times)
model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=20)

def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(times), waves)
    loss.backward()
    return loss

for step in range(int(sys.argv[1])):
    optimizer.step(closure)
"""
LOADER = "    training = DataLoader"
LOOP = "    while step < arguments.steps:\n"
STEPPED = "            step += 1\n"
UPDATE = "            optimizer.step()\n"
"""Lines of the common scripts before which others add their own."""
SAVES_WHEN_INTERRUPTED = changed(
    PLAIN,
    added("import torch\n", "import atexit\nfrom pathlib import Path"),
    (
        '__main__":\n    main()\n',
        """__main__":
    atexit.register(lambda: Path("exited.txt").write_text("exited"))
    try:
        main()
    except KeyboardInterrupt:
        torch.save(1, "interrupted.pt")
    finally:
        torch.save(1, "best.pt")
""",
    ),
)
HOGWILD = """
import sys
import torch
import torch.multiprocessing as mp
from torch import nn

def train(rank, model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 20)).square().mean().backward()
        optimizer.step()

if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2)).share_memory()
    processes = [mp.Process(target=train, args=(rank, model, int(sys.argv[1]))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
"""
DOWNLOAD = "import urllib.request\nurllib.request.urlopen('http://datasets.invalid/train.npy', timeout=5)"
WAITS = "import time\ntime.sleep(0.2)"

# Written for torchrun -------------------------------------------------------------------------------------------------

ADDS = """
if world > 1:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
"""
PARTS_LATER = changed(
    TORCHRUN,
    (WRAPPED, ""),
    added(
        UPDATE,
        """
        if world > 1 and step < 10:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        """,
    ),
    ("AdamW(model.parameters(), lr=1e-3)", "SGD(model.parameters(), lr=1e-2)"),
)


@dataclass(frozen=True)
class Script:
    """A script.

    - ``text``: of the script.
    - ``arguments``: ``{steps}`` stands for the number of optimizer steps.
    - ``why_not``: words of the message if it does not tune on a machine without CUDA, without a network and with nobody
      at the keyboard. It does not reach its fork point then.
    - ``processes``: two processes started as torchrun does train together at the same global batch, once their loaders
      have their share of it.
    - ``apart``: what the reason says where they do not, though the script or its library knows of process groups.
    - ``needs``: a library that must be installed.
    - ``known_by``: what a training step is known by, see `autotune.trial.child.script_facts`.
    - ``package``: it is started with ``-m``, as a module of a package of this name.
    - ``daily``: one of a kind; `tests/slow/scripts` brings the others to their training.
    """

    name: str
    text: str
    arguments: str = "{steps}"
    why_not: str | None = None
    processes: bool = False
    apart: str | None = None
    needs: str | None = None
    known_by: str = "batches"
    package: str = ""
    daily: bool = False


def plain(name: str, *changes: tuple[str, str], **facts: object) -> Script:
    """Change a few lines of the plain script."""
    return Script(name, changed(PLAIN, *changes), "--steps {steps}", **facts)  # type: ignore[arg-type]


def torchrun(name: str, *changes: tuple[str, str], **facts: object) -> Script:
    """Change a few lines of the script that is written for torchrun."""
    return Script(name, changed(TORCHRUN, *changes), **facts)  # type: ignore[arg-type]


# fmt: off
CORPUS = (
    plain("plain_loop"),
    Script("flat_script", FLAT, daily=True),
    Script("hf_trainer", HF_TRAINER, "--steps {steps}", apart="gradients are 2", needs="transformers"),
    Script("lightning_fit", LIGHTNING, apart="Trainer(devices=...)", needs="lightning"),
    Script("hf_trainer_mean", HF_TRAINER, "--steps {steps} --mean-per-process", processes=True, needs="transformers"),
    Script("accelerate_loop", ACCELERATE, processes=True, needs="accelerate"),
    plain("package", ("from torch.utils.data import", "from .data import TensorDataset\nfrom torch.utils.data import"),
          ("import DataLoader, TensorDataset", "import DataLoader"), package="trainer_package", daily=True),
    Script("optimizer_free", OPTIMIZER_FREE, known_by="backward passes", daily=True),
    Script("lbfgs", LBFGS, known_by="steps", daily=True),
    plain("evaluates_training_loader", added(LOOP, "evaluate(model, training)")),
    plain("compiles_itself", added("    optimizer = ", "model = torch.compile(model, backend='aot_eager')")),
    Script("own_processes", HOGWILD, why_not="trains in processes of its own", daily=True),
    plain("evaluation_first", added(LOOP, WAITS + "\nevaluate(model, validation)")),
    Script("saves_when_interrupted", SAVES_WHEN_INTERRUPTED, "--steps {steps}", daily=True),
    plain("wants_input", added(LOADER, "input('Overwrite the old run? [y/n]')"), why_not="asks for input", daily=True),
    plain("missing_dataset", added(LOADER, "open('data/train.csv')"), why_not="train.csv"),
    plain("wants_network", added(LOADER, DOWNLOAD), why_not="--allow-network", daily=True),
    torchrun("torchrun_style", processes=True),
    torchrun("ddp_shares_batch", ("batch_size=32", "batch_size=32 // world"), processes=True),
    torchrun("ddp_scales_rate", ("lr=1e-3", "lr=1e-3 * world"), apart="lr 0.002, not 0.001"),
    torchrun("adds_gradients", (WRAPPED, ""), added(UPDATE, ADDS), apart="gradients are 2 times as large"),
    torchrun("group_without_exchange", (WRAPPED, ""), added("    step, epoch", "os.makedirs('runs', exist_ok=True)"),
             apart="the weights of the ranks differ"),
    Script("ddp_parts_later", PARTS_LATER, processes=True),
    torchrun("wants_nccl", ('"gloo"', '"nccl"'), apart="NCCL"),
)
# fmt: on
DATA = "from torch.utils.data import TensorDataset\n"
"""The other module of a package."""


def place(script: Script, folder: Path, steps: int) -> list[str]:
    """Write ``script`` into ``folder`` and return what follows ``python`` to start it there."""
    words = script.arguments.format(steps=steps).split()
    if not script.package:
        (folder / f"{script.name}.py").write_text(script.text)
        return [f"{script.name}.py", *words]
    inside = folder / script.package
    inside.mkdir()
    for name, text in {"__init__": "", "data": DATA, "train": script.text}.items():
        (inside / f"{name}.py").write_text(text)
    return ["-m", f"{script.package}.train", *words]
