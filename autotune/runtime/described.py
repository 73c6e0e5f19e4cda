"""A session in words: level, source, what is applied, what is not and why."""

from __future__ import annotations

from autotune.core.settings import Settings


class Described:
    """Base of `Session`: its ``repr``."""

    settings: Settings | None
    level: str | None
    origin: str

    @property
    def not_applied(self) -> tuple[tuple[str, str], ...]:
        """``(knob, reason)`` for whatever was asked and is not in force."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """On one line, for prompts and logs."""
        if self.settings is None:
            return f"<Session without a profile ({self.origin})>"
        missing = dict(self.not_applied)
        changed = {name: mine for name, (mine, _) in self.settings.difference(Settings()).items()}
        applied = [f"{name}={value}" for name, value in changed.items() if name not in missing]
        parts = [f"level {self.level}", self.origin, f"applied: {', '.join(applied) or 'nothing'}"]
        parts += [f"not applied: {'; '.join(f'{name} ({why})' for name, why in missing.items())}"] * bool(missing)
        return f"<Session {'; '.join(filter(None, parts))}>"
