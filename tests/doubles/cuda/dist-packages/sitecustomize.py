"""Puts cards under PyTorch in every process that imports it, if ``CUDA_DOUBLE`` names the file that they share."""

import importlib.util
import os
import sys


class Finder:
    """Lets the double in once PyTorch is there."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, self)
        execute = spec.loader.exec_module

        def then_install(module):
            execute(module)
            importlib.import_module("fake_cuda").install()

        spec.loader.exec_module = then_install
        return spec


if "CUDA_DOUBLE" in os.environ:
    sys.meta_path.insert(0, Finder())
