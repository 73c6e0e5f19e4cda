"""Puts cards under PyTorch in every process that imports it, if `CUDA_DOUBLE` names the file that they share."""

import importlib.util
import os
import sys


class Finder:
    """Lets the double in once PyTorch is there."""

    looking = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.looking:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking = False
        execute = spec.loader.exec_module

        def then_install(module):
            execute(module)
            import fake_cuda

            fake_cuda.install()

        spec.loader.exec_module = then_install
        return spec


if "CUDA_DOUBLE" in os.environ:
    sys.meta_path.insert(0, Finder())
