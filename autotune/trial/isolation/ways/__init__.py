"""The ways to keep a trial's writes inside, one file each, best first. Each has a ``NAME`` and an ``enter``."""
