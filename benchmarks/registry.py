"""How long a match takes in generated registries, and how many files it reads.

    python -m benchmarks.registry [--local 10000] [--remote 1000000]

The local registry is a folder with ``--local`` profiles: machines x targets. The remote one is a web server that stands
for ``--remote`` profiles: it makes each file when it is asked for, and counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from autotune.core.machine import MachineType
from autotune.core.match import Here
from autotune.knobs.settings import Settings
from autotune.store import layout, profiles, registry
from autotune.store.remote import Remote
from benchmarks.simulation.profiles import MACHINE, profile

REPEATS = 5
DESIGNS = ("epyc-zen2", "epyc-zen3", "epyc-zen4", "epyc-zen5")
SOFTWARE = {"torch": "2.9.0", "cuda": None}


def machines(count: int) -> list[MachineType]:
    """So many types of machines."""
    sizes = itertools.product(range(1, count + 1), DESIGNS, (8, 32, 128, 512))
    return [_machine(cores, design, gib) for cores, design, gib in itertools.islice(sizes, count)]


def _machine(cores: int, family: str, gib: int) -> MachineType:
    key = f"amd-{family}-{cores}c-{gib}g"
    return replace(MACHINE, key=key, family=family, threads=cores, cores=cores, memory_gib=gib)


def text_of(machine: MachineType, target: str) -> str:
    """The text of a profile of ``target``."""
    made = profile(Settings(threads=machine.threads, batch_size=64), machine=machine)
    return profiles.dump(replace(made, target=replace(made.target, name=target)), f"{target}.yaml")


def local(root: Path, count: int) -> dict[str, Any]:
    """Figures of a folder with ``count`` profiles of as many machines as targets."""
    side = int(count**0.5)
    kinds = machines(side)
    for machine in kinds:
        (root / machine.key).mkdir()
        text = text_of(machine, "TARGET")
        for number in range(side):
            (root / machine.key / f"target{number}.yaml").write_text(text.replace("TARGET", f"target{number}"))
    return _cases(kinds[side // 2], "target7", [root]) | {"profiles": side * side}


class _Served(BaseHTTPRequestHandler):
    """Answers for a registry of any size."""

    kinds: dict[str, MachineType]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        folder, _, file = self.path.strip("/").partition("/")
        if folder == layout.INDEX and file.startswith("target"):
            self._answer(layout.index_text(set(self.kinds)))
        elif folder in self.kinds and file.startswith("target"):
            self._answer(text_of(self.kinds[folder], layout.target_of(file)))
        else:
            self.send_error(404)

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments: Any) -> None:
        """Nothing."""


def remote(cache: Path, count: int) -> dict[str, Any]:
    """Figures of a web server that stands for ``count`` profiles: a thousand machines, the rest targets."""
    kinds = machines(min(1000, count))
    asked: list[str] = []
    handler = type("Handler", (_Served,), {"kinds": {machine.key: machine for machine in kinds}, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    registry.registry_at = lambda _place: Remote(url, cache)  # type: ignore[assignment]
    Remote(url, cache).files("none", ("none.yaml",))  # imports are not counted
    found = _cases(kinds[len(kinds) // 2], "target7", [url], asked)
    server.shutdown()
    return found | {"profiles": count}


def _cases(own: MachineType, target: str, roots: list[Any], asked: list[str] | None = None) -> dict[str, Any]:
    near = replace(own, key=own.key.replace("c-", "c-1"), memory_gib=own.memory_gib * 10)
    return {
        "same machine": _figures(lambda: Here(own, SOFTWARE, target), roots, asked),
        "another machine": _figures(lambda: Here(near, SOFTWARE, target), roots, asked),
        "no such target": _figures(lambda: Here(own, SOFTWARE, "nothing"), roots, asked),
    }


def _figures(here: Callable[[], Here], roots: list[Any], asked: list[str] | None) -> dict[str, Any]:
    seconds, found = [], registry.Lookup(None)
    for _ in range(REPEATS):
        if asked is not None:
            asked.clear()
        start = time.perf_counter()
        found = registry.search(here(), roots)
        seconds.append(time.perf_counter() - start)
    verdict = found.match.verdict if found.match else found.similar.verdict if found.similar else "none"
    figures = {"verdict": verdict, "seconds": round(sorted(seconds)[REPEATS // 2], 3), "files read": found.read}
    return figures | ({"requests": len(asked)} if asked is not None else {})


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", type=int, default=10_000)
    parser.add_argument("--remote", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "registry", Path(folder) / "cache"
        root.mkdir()
        print(json.dumps({"local": local(root, options.local)}, indent=2))
        print(json.dumps({"remote": remote(cache, options.remote)}, indent=2))


if __name__ == "__main__":
    main()
