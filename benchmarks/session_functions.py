"""How functions of a Python session reach another process: their source text, or cloudpickle?

    python -m benchmarks.session_functions

Each kind of session runs in a process of its own. What it defines is written there and called in a second process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

SESSIONS = {
    "function of globals": "word = 'built'\ndef build(): return word",
    "lambda": "build = lambda: 'built'",
    "closure": "def make(word):\n    return lambda: word\nbuild = make('built')",
    "class in __main__": "class Net:\n    def __str__(self): return 'built'\nbuild = Net",
}
CELL = """
import linecache
linecache.cache['<cell>'] = (len({text!r}), None, {text!r}.splitlines(True), '<cell>')
exec(compile({text!r}, '<cell>', 'exec'))
"""
WRITERS = {
    "source": """
import inspect, sys, textwrap
text = textwrap.dedent(inspect.getsource(build))
open(sys.argv[1], 'w').write(text if 'build' in text else text + 'build = ' + build.__name__)
""",
    "cloudpickle": """
import cloudpickle, sys
open(sys.argv[1], 'wb').write(cloudpickle.dumps(build))
""",
}
READERS = {
    "source": "import runpy, sys; print(runpy.run_path(sys.argv[1])['build']())",
    "cloudpickle": "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))())",
}
PARAMETERS = 1_000_000
TIMED = f"""
import time
import cloudpickle, pickle
data = bytes(4 * {PARAMETERS})
class Net: pass
parts = dict(build_model=lambda: Net(), build_dataset=lambda: data, compute_loss=lambda model, batch: 0)
started = time.perf_counter()
text = cloudpickle.dumps(parts)
written = time.perf_counter()
pickle.loads(text)
print(written - started, time.perf_counter() - written, len(text) - len(data))
"""


def works(session: str, method: str) -> bool:
    """Whether what ``session`` defines can be called in another process."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "part.py")
        wrote = _python(session + WRITERS[method], path)
        return wrote.returncode == 0 and _python(READERS[method], path).stdout.strip() == "built"


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def main() -> None:
    """Print both tables."""
    print(f"{'session':<22}{'source, -c':>12}{'source, cell':>14}{'cloudpickle':>13}")
    for name, session in SESSIONS.items():
        found = (works(session, "source"), works(CELL.format(text=session), "source"), works(session, "cloudpickle"))
        words = ["works" if one else "fails" for one in found]
        print(f"{name:<22}{words[0]:>12}{words[1]:>14}{words[2]:>13}")
    runs = [[float(word) for word in _python(TIMED).stdout.split()] for _ in range(5)]
    written, read, size = (statistics.median(column) for column in zip(*runs, strict=True))
    print(f"with 4 MB of data: written in {written * 1e3:.1f} ms, read in {read * 1e3:.1f} ms, {size:.0f} bytes more")


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"({time.perf_counter() - started:.0f} s)")
