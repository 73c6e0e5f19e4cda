"""Tasks that are bound by one thing each, and the same without it."""
