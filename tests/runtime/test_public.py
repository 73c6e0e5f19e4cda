from __future__ import annotations

import subprocess
import sys

import pytest

import autotune


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, autotune; dir(autotune); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names() -> None:
    assert set(autotune.__all__) == {"__version__", "load", "tune"}
    assert autotune.load.__module__ == "autotune.runtime.session"
    with pytest.raises(AttributeError, match="laod"):
        autotune.laod  # noqa: B018
