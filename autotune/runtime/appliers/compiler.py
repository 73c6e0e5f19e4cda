"""What is asked of PyTorch's compiler itself: how much it has compiled, and what its errors say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

LAST_LINES = 3
"""Of what a C++ compiler wrote, the last lines name the error."""
MOST_LETTERS = 300


def graphs() -> int:
    """Graphs that were compiled in this process so far."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def errors() -> tuple[type[BaseException], ...]:
    """What the compiler raises where it fails, and the model does not."""
    return (torch._dynamo.exc.TorchDynamoException,) if "torch._dynamo.exc" in sys.modules else ()


def forget() -> None:
    """Drop what was compiled, and do without precompiled headers, which a process may have left half written."""
    torch._dynamo.reset()
    config: Any = sys.modules.get("torch._inductor.config")
    if hasattr(config, "cpp_cache_precompile_headers"):
        config.cpp_cache_precompile_headers = False


def drop_headers(folder: str) -> None:
    """Remove precompiled C++ headers from a cache ``folder``: one that is half written fails every compile after it."""
    for path in Path(folder).glob("torchinductor_*/precompiled_headers/*.gch"):
        path.unlink(missing_ok=True)


def words(error: BaseException) -> str:
    """The first line of ``error``, and the last lines of the compiler behind it."""
    first = " ".join(str(error).split("\n\n")[0].split())
    text = f"{type(error).__name__}: {first[: MOST_LETTERS - 100]}"
    output = next(filter(None, (getattr(each, "output", None) for each in _chain(error))), None)
    if isinstance(output, str):
        lines = [line.strip() for line in output.strip().splitlines() if line.strip()]
        text += f"; the compiler's last lines: {' | '.join(lines[-LAST_LINES:])[-MOST_LETTERS:]}"
    return text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """``error`` and what it was raised for, as far as that is known."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
