"""What a session has to say: things that did not take effect, and notes for people. Each is said once."""

from __future__ import annotations

import logging
from collections.abc import Iterable

_LOG = logging.getLogger("autotune")


class Notes:
    """Collects notes and refusals; prints them through the ``autotune`` logger where ``announce`` is set.

    Without logging set up, Python itself writes warnings to stderr; the main process alone speaks.
    """

    def __init__(self, notes: Iterable[str] = (), *, announce: bool = False) -> None:
        self.announce = announce
        self.texts: list[str] = list(notes)
        self.reasons: dict[str, str] = {}

    def say(self, text: str) -> None:
        """One note, once."""
        if text not in self.texts:
            self.texts.append(text)
            if self.announce:
                _LOG.warning("autotune: %s", text)

    def say_together(self, texts: Iterable[str]) -> None:
        """Several notes in one message."""
        fresh = [text for text in texts if text not in self.texts]
        self.texts += fresh
        if fresh and self.announce:
            _LOG.warning("autotune: %s", "; ".join(fresh))

    def not_applied(self, knob: str, reason: str | None) -> None:
        """``knob`` did not take effect because of ``reason``; nothing where that is None."""
        if reason is not None and self.reasons.get(knob) != reason:
            self.reasons[knob] = reason
            self.say(f"{knob} not applied: {reason}")
