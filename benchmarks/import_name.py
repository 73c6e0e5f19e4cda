"""A subpackage that lies in another folder (setuptools' `package-dir`) beside one in its own: where can it be imported?

    python -m benchmarks.import_name

Builds a package of two files both ways and imports it from a clone, a wheel and an editable install; mypy checks it.
Needs the network, for pip.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = """
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"
[project]
name = "import-name"
version = "1"
[tool.setuptools]
packages = ["outer", "outer.inner"]
[tool.setuptools.package-dir]
outer = "outer"
"outer.inner" = "{folder}"
"""
FOLDERS = {"mapped": "inner", "moved": "outer/inner"}
IMPORT = ["-c", "import outer.inner.module"]


def works(command: list[str], cwd: Path, path: Path | None = None) -> bool:
    """Whether the command ends well; ``path`` is where Python looks beside its own folders."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(path or ""), "HOME": str(cwd)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, check=False).returncode == 0


def project(root: Path, folder: str) -> Path:
    """A package ``outer`` whose subpackage ``outer.inner`` lies in ``folder``."""
    for name in ("outer", folder):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
    (root / folder / "module.py").write_text("VALUE: int = 1\n")
    (root / "outer" / "user.py").write_text("from outer.inner.module import VALUE\n\nDOUBLE: int = 2 * VALUE\n")
    (root / "pyproject.toml").write_text(PROJECT.format(folder=folder))
    return root


def measure(scratch: Path, name: str) -> dict[str, bool]:
    """In which ways the subpackage is found."""
    root = project(scratch / name, FOLDERS[name])
    elsewhere, wheel, venv = scratch / "elsewhere", scratch / f"{name}-wheel", scratch / f"{name}-venv"
    elsewhere.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip, python = [str(venv / "bin" / "pip"), "install", "--quiet"], str(venv / "bin" / "python")
    checked = works([sys.executable, "-m", "mypy", "-p", "outer"], root)
    found = {"clone": works([python, *IMPORT], root), "mypy": checked}
    subprocess.run([*pip, "--target", str(wheel), str(root)], check=True)
    found["wheel"] = works([python, *IMPORT], elsewhere, wheel)
    subprocess.run([*pip, "--editable", str(root)], check=True)
    return found | {"editable": works([python, *IMPORT], elsewhere)}


def main() -> None:
    """Print one line for each layout."""
    with tempfile.TemporaryDirectory() as folder:
        for name in FOLDERS:
            found = measure(Path(folder), name)
            words = [f"{way} {'yes' if works_there else 'no'}" for way, works_there in sorted(found.items())]
            print(f"{name}: {', '.join(words)}")


if __name__ == "__main__":
    main()
