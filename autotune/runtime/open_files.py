"""The limit of open files: every batch that loader workers have in flight holds one descriptor per tensor."""

from __future__ import annotations

from collections.abc import Callable


def raise_limit() -> Callable[[], None] | None:
    """Raise the soft limit to the hard one. Returns how to undo it; None where nothing was changed."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft in (hard, resource.RLIM_INFINITY):
            return None
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ImportError, ValueError, OSError):  # training may go on well with the limit that there is
        return None
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
