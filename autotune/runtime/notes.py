"""Notes of a session: settings that did not take effect, and notes for people. Each is reported once."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from dataclasses import dataclass, field


def tell(text: str) -> None:
    """Say ``text`` on standard error, if that is open: a training goes on without it."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(f"autotune: {text}", file=sys.stderr)


@dataclass
class Notes:
    """Collects notes and refusals, and says them if ``announce`` is set: through the ``autotune`` logger, or, for a
    script that knows nothing of it and may log to a file of its own, on standard error."""

    announce: bool = False
    of_script: bool = False
    texts: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, *texts: str) -> None:
        """Add notes, each once, in one message."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self.texts]
        self.texts += fresh
        if fresh and self.announce:
            text = "; ".join(fresh)
            if self.of_script:
                tell(text)
            else:
                logging.getLogger("autotune").warning("autotune: %s", text)

    def not_applied(self, knob: str, reason: str | None) -> None:
        """Note that ``knob`` did not take effect because of ``reason``; nothing if that is None."""
        if reason is not None and self.reasons.get(knob) != reason:
            self.reasons[knob] = reason
            self.add(f"{knob} not applied: {reason}")
