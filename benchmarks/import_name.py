"""In which ways is `autotune.probes` found, whose files lie in ``probes/`` behind the link ``autotune/probes``?

    python -m benchmarks.import_name

Takes what is committed; installs it in fresh environments; mypy checks it. Needs git, mypy, and the network for pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORT = ["-c", "import autotune.probes.inventory, autotune.probes.torch_facts"]
PREFIX = "source/"


def works(command: list[str], cwd: Path) -> bool:
    """Return True if the command ends well in a folder, without this project's own path."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, check=False).returncode == 0


def installed(scratch: Path, *what: str) -> bool:
    """Return True if the probes are found in a fresh environment after ``pip install``."""
    environment = Path(tempfile.mkdtemp(dir=scratch))
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", *what]
    return works(pip, scratch) and works([python, *IMPORT], scratch)


def built(scratch: Path, source: Path) -> dict[str, Path]:
    """Build a wheel and an sdist, by setuptools' own functions in an environment of their own."""
    environment = scratch / "build"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "setuptools>=68", "wheel"], check=True)
    code = "from setuptools import build_meta as b; print(b.build_wheel('..')); print(b.build_sdist('..'))"
    done = subprocess.run([python, "-c", code], cwd=source, check=True, capture_output=True, text=True)
    names = [line for line in done.stdout.splitlines() if line.endswith((".whl", ".tar.gz"))]
    return {name: scratch / file for name, file in zip(("wheel", "sdist"), names[-2:], strict=True)}


def main() -> None:
    """Print one line for each way."""
    with tempfile.TemporaryDirectory() as folder:
        scratch, source = Path(folder), Path(folder, PREFIX)
        for suffix in ("tar", "zip"):
            command = ["git", "archive", f"--prefix={PREFIX}", f"--output={scratch / 'archive'}.{suffix}", "HEAD"]
            subprocess.run(command, cwd=ROOT, check=True)
        subprocess.run(["tar", "-xf", "archive.tar"], cwd=scratch, check=True)
        found = {"checkout": works([sys.executable, *IMPORT], source)}
        found["mypy"] = works([sys.executable, "-m", "mypy", "--strict", "-p", "autotune.probes"], source)
        found |= {name: installed(scratch, str(path)) for name, path in built(scratch, source).items()}
        found["editable"] = installed(scratch, "--editable", str(source))
        found["zip archive"] = installed(scratch, str(scratch / "archive.zip"))
    for way, found_there in found.items():
        print(f"{way}: {'yes' if found_there else 'no'}")


if __name__ == "__main__":
    main()
