from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import autotune
from autotune.core.knobs.table import KNOBS
from autotune.runtime import APPLIERS


def test_every_knob_has_an_applier_and_no_applier_lacks_a_knob() -> None:
    assert list(APPLIERS) == [knob.name for knob in KNOBS]


@pytest.mark.parametrize("where", sorted(set(APPLIERS.values())))
def test_appliers_exist(where: str) -> None:
    module, function = where.split(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, autotune; dir(autotune); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names() -> None:
    assert set(autotune.__all__) == {"__version__", "load", "tune"}
    assert autotune.load.__module__ == "autotune.runtime.session"
    with pytest.raises(AttributeError, match="laod"):
        autotune.laod  # noqa: B018
