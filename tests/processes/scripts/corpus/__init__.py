"""Training scripts as people write them, one per style and one per hard case, and what tuning should make of each.

The scripts know nothing of autotune. `place` puts one into a folder and gives the arguments that start it there.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
STEPS = "--steps {steps}"


@dataclass(frozen=True)
class Script:
    """One script of this folder.

    - ``arguments``: ``{steps}`` stands for the number of optimizer steps.
    - ``tunes``: on a machine without CUDA, without a network and with nobody at the keyboard.
    - ``why_not``: words of the message if it does not tune. ``ends``: the exit code of plain Python.
    - ``fork_safe``: it can be forked at its fork point. None if the script does not reach it.
    - ``processes``: two processes started as torchrun does train together at the same global batch, once their loaders
      have their share of it.
    - ``apart``: what the reason says where they do not, though the script or its library knows of process groups.
    - ``order_kept``: another number of loader workers gives the same samples in the same order.
    - ``needs``: a library that must be installed.
    - ``writes``: files that it leaves, below the folder that holds ``project``, ``home`` (HOME) and ``temp`` (TMPDIR).
    - ``known_by``: what a training step is known by, see `autotune.trial.child.script_facts`.
    - ``gains``: knobs that make it faster on a machine with two cores.
    """

    name: str
    arguments: str = STEPS
    tunes: bool = True
    why_not: str | None = None
    ends: int = 0
    fork_safe: bool | None = True
    processes: bool = False
    apart: str | None = None
    order_kept: bool = True
    needs: str | None = None
    writes: tuple[str, ...] = ()
    gains: tuple[str, ...] = ()
    known_by: str = "batches"

    @property
    def module(self) -> bool:
        """True where it is started with ``-m``."""
        return "." in self.name

    def arguments_for(self, steps: int) -> list[str]:
        """Its own arguments for ``steps`` optimizer steps."""
        return self.arguments.format(steps=steps).split()


# fmt: off
STYLES = (
    Script("plain_loop"),
    Script("flat_script", "{steps}"),
    Script("hf_trainer", apart="gradients are 2", needs="transformers",
           writes=("project/trainer_output/checkpoint-20/model.safetensors",)),
    Script("lightning_fit", apart="Trainer(devices=...)", needs="lightning",
           writes=("project/lightning_logs/version_0/metrics.csv",)),
    Script("accelerate_loop", processes=True, needs="accelerate",
           writes=("project/accelerate_state/model.safetensors",)),
    Script("ignite_engine", apart="no process group", needs="ignite"),
    Script("torchrun_style", processes=True),
    Script("trainer_package.train"),
)
HARD_CASES = (
    Script("optimizer_free", "{steps}", known_by="backward passes"),
    Script("lbfgs", known_by="steps"),
    Script("two_models"),
    Script("iterator_in_constructor", known_by="steps"),
    Script("evaluates_training_loader"),
    Script("batches_as_items"),
    Script("memory_mapped", writes=("project/data/tokens.bin",), known_by="steps"),
    Script("iterable_dataset", order_kept=False),
    Script("reinforcement", known_by="steps"),
    Script("loss_as_attribute"),
    Script("sparse_gradients"),
    Script("float64_cells", known_by="steps"),
    Script("compiles_itself", f"{STEPS} --backend aot_eager"),
    Script("autocasts_itself"),
    Script("sets_own_threads", "{steps}", known_by="steps"),
    Script("exec_globals", "steps={steps}", writes=("project/checkpoint.pt",), known_by="steps"),
    Script("arguments_as_files", "--steps={steps}"),
    Script("spawned_children", tunes=False, why_not="trains in processes of its own", fork_safe=None),
    Script("own_processes", tunes=False, why_not="trains in processes of its own", fork_safe=None),
    Script("evaluation_first", f"{STEPS} --evaluate-seconds 0.2"),
    Script("long_prologue", f"{STEPS} --prologue-seconds 0.2"),
    Script("no_main_guard"),
    Script("saves_whole_model", writes=("project/model.pt", "project/state.pt")),
    Script("saves_when_interrupted", writes=("project/best.pt", "project/exited.txt")),
    Script("writes_everywhere", writes=("project/training.log", "project/checkpoints/last.pt", "corpus_results.pt",
                                        "home/.cache/corpus/weights.pt", "temp/corpus_scratch.pt")),
    Script("background_writer", fork_safe=False, writes=("project/runs/events.txt",)),
    Script("wants_input", tunes=False, fork_safe=None, why_not="input", ends=1),
    Script("missing_dataset", tunes=False, fork_safe=None, why_not="train.csv", ends=1),
    Script("wants_network", tunes=False, fork_safe=None, why_not="network", ends=1),
    Script("wants_cuda", tunes=False, fork_safe=None, why_not="CUDA", ends=1),
)
WRITTEN_FOR_TORCHRUN = (
    Script("ddp_shares_batch", processes=True),
    Script("ddp_scales_rate", apart="lr 0.002, not 0.001"),
    Script("ddp_whole_epochs", apart="an epoch of a rank has 64 batches, and that of one process has 32"),
    Script("adds_gradients", apart="gradients are 2 times as large"),
    Script("group_without_exchange", apart="the weights of the ranks differ", writes=("project/runs/model.pt",)),
    Script("ddp_shorter_samples", "{steps}", apart="samples of a rank are 0.5 times as large"),
    Script("ddp_parts_later", "{steps}", processes=True),
    Script("two_copies", apart="makes no process group"),
    Script("wants_nccl", apart="NCCL"),
)
BOUND = (
    Script("input_bound", gains=("num_workers",)),
    Script("compute_bound", gains=("channels_last", "precision")),
)
# fmt: on
CORPUS = STYLES + HARD_CASES + WRITTEN_FOR_TORCHRUN + BOUND


def place(script: Script, folder: Path, steps: int = 20) -> list[str]:
    """Copy ``script`` into ``folder`` and return what follows ``python`` to start it there."""
    top, *inside = script.name.split(".")
    if inside:
        shutil.copytree(HERE / top, folder / top, ignore=shutil.ignore_patterns("__pycache__"))
        return ["-m", script.name, *script.arguments_for(steps)]
    shutil.copy(HERE / f"{top}.py", folder)
    return [f"{top}.py", *script.arguments_for(steps)]
