"""Re-measure a profile's claims in fresh processes with plain PyTorch. Shares no code with the project, on purpose.

    python -m benchmarks.recheck PROFILE.yaml TASK.py [--rounds 6] [--seconds 4]

Each round starts fresh processes for the baseline and for every distinct level, in random order, warms them up and
counts items over the measured seconds. Printed are the claim and the re-measured ratio: geometric mean and range.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time

import yaml

CHILD = r"""
import contextlib, importlib.util, json, os, sys, time
import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

task_path, s, seconds = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(s["threads"])
torch.set_num_interop_threads(s["interop_threads"])
sys.path.insert(0, os.path.dirname(os.path.abspath(task_path)))
spec = importlib.util.spec_from_file_location("task", task_path)
task = importlib.util.module_from_spec(spec); sys.modules["task"] = task; spec.loader.exec_module(task)
world = s["processes"]
if world > 1:
    store = dict(init_method="file://" + sys.argv[4], rank=int(sys.argv[5]), world_size=world)
    torch.distributed.init_process_group("gloo", **store)
torch.manual_seed(0)
model, dataset = task.build_model(), task.build_dataset()
if s["channels_last"]:
    model = model.to(memory_format=torch.channels_last)
build = getattr(task, "build_optimizer", lambda p: torch.optim.AdamW(p, lr=1e-3))
optimizer = build(model.parameters())
for group in optimizer.param_groups:
    if s["optimizer_impl"] != "default":
        group["foreach"], group["fused"] = s["optimizer_impl"] == "foreach", s["optimizer_impl"] == "fused"
if world > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
extra = {}
if s["num_workers"]:
    extra = dict(prefetch_factor=s["prefetch_factor"], persistent_workers=s["persistent_workers"])
if not isinstance(dataset, IterableDataset):
    extra |= dict(sampler=DistributedSampler(dataset)) if world > 1 else dict(shuffle=True)
extra |= dict(num_workers=s["num_workers"], collate_fn=getattr(task, "collate_fn", None))
loader = DataLoader(dataset, s["batch_size"], **extra)
count = getattr(task, "count_items", None) or (lambda b: len(b[0]) if isinstance(b, (list, tuple)) else len(b))
def cast(batch):
    if s["channels_last"]:
        return [t.to(memory_format=torch.channels_last) if torch.is_tensor(t) and t.dim() == 4 else t for t in batch]
    return batch
def batches():
    while True:
        yield from loader
stream = batches()
half = s["precision"] == "bf16"
def step():
    items = 0
    for k in range(s["accumulation"]):
        batch = next(stream)
        last = k == s["accumulation"] - 1
        with contextlib.nullcontext() if world == 1 or last else model.no_sync():
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = task.compute_loss(model, cast(batch))
            (loss / s["accumulation"]).backward()
        items += count(batch)
    optimizer.step(); optimizer.zero_grad()
    return items
def run(duration):
    items, started, steps = 0, time.perf_counter(), 0
    going = torch.ones(1)
    while going.item():
        items += step(); steps += 1
        going[0] = time.perf_counter() - started < duration
        if world > 1:
            torch.distributed.broadcast(going, 0)
    return items / (time.perf_counter() - started)
run(max(1.0, seconds / 3))
print(json.dumps(run(seconds) * world))
sys.stdout.flush(); os._exit(0)
"""


def rate(task: str, settings: dict[str, object], seconds: float) -> float:
    """Items per second of one fresh start."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-c", CHILD, task, json.dumps(settings), str(seconds), f"{folder}/store"]
        world = int(str(settings["processes"]))
        environment = os.environ | {"OMP_NUM_THREADS": str(settings["threads"]), "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [
            subprocess.Popen([*arguments, str(rank)], stdout=subprocess.PIPE, text=True, env=environment)
            for rank in range(world)
        ]
        outputs = [rank.communicate()[0] for rank in ranks]
        return float(outputs[0])


def main() -> None:
    """Print one line per level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile")
    parser.add_argument("task")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    with open(arguments.profile) as file:
        profile = yaml.safe_load(file)
    baseline = profile["baseline"]["settings"]
    levels = {name: level for name, level in profile["levels"].items() if level["settings"] != baseline}
    logs: dict[str, list[float]] = {name: [] for name in levels}
    for turn in range(arguments.rounds):
        contenders = [("baseline", baseline), *((name, level["settings"]) for name, level in levels.items())]
        random.shuffle(contenders)
        rates = {name: rate(arguments.task, settings, arguments.seconds) for name, settings in contenders}
        for name in levels:
            logs[name].append(math.log(rates[name] / rates["baseline"]))
        print(f"round {turn + 1}", {name: round(value, 1) for name, value in rates.items()}, file=sys.stderr)
        time.sleep(0.2)
    for name, level in levels.items():
        claim, values = level["speedup"], logs[name]
        mean = math.exp(sum(values) / len(values))
        low, high = math.exp(min(values)), math.exp(max(values))
        print(
            f"{name}: claimed {claim['value']:.2f}x ({claim['low']:.2f} to {claim['high']:.2f}),"
            f" re-measured {mean:.2f}x (rounds {low:.2f} to {high:.2f})"
        )
    if not levels:
        print("no level differs from the baseline: nothing is claimed")


if __name__ == "__main__":
    main()
