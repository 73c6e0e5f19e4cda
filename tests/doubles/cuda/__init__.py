"""A machine with NVIDIA cards, for processes of tests: see `dist-packages/fake_cards.py`.

The folder is called as those of installed packages, so that nothing takes the double for the user's own code. What is
simulated too kindly: a tensor of a card that is saved comes back on the CPU; streams beside the current one, graphs,
NCCL and Triton are missing; no card is throttled; a `torch.Generator` of a card cannot be made.
"""

import os
from pathlib import Path

PACKAGES = Path(__file__).parent / "dist-packages"


def variables(folder: Path, *, cards: int = 1, memory: int = 16 << 30, without: str = "") -> dict[str, str]:
    """Return what a process needs in its environment to see ``cards``, which others with the same ``folder`` share."""
    paths = filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH")))
    found = {"CUDA_DOUBLE": str(folder / "cards"), "CUDA_DOUBLE_CARDS": str(cards), "CUDA_DOUBLE_MEMORY": str(memory)}
    return found | {"CUDA_DOUBLE_WITHOUT": without, "PYTHONPATH": os.pathsep.join(paths)}
