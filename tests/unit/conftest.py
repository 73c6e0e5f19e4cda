"""Unit tests run in seconds: properties are tried with fewer examples than hypothesis takes by itself."""

from hypothesis import settings

settings.register_profile("unit", max_examples=40, deadline=None)
settings.load_profile("unit")
