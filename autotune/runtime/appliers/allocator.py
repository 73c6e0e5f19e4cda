"""Host allocators, which are preloaded at launch (see `autotune.launch.allocators`) or not at all."""

from __future__ import annotations

from pathlib import Path

from autotune.runtime.applier import Applier

MAPS = Path("/proc/self/maps")


class Allocator(Applier):
    """Looks whether the library is there."""

    def start(self) -> str | None:
        """Nothing can be done any more: read back."""
        return self.why_not()

    def why_not(self) -> str | None:
        """Why this process runs without it, or None."""
        if self.value == "default":
            return None
        try:
            mapped = f"lib{self.value}" in MAPS.read_text(errors="replace")
        except OSError:
            return "cannot tell: this system has no /proc/self/maps"
        return None if mapped else f"lib{self.value} is not loaded; only autotune run can preload it"
