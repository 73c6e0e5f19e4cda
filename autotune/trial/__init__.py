"""One `Settings`, one process tree. The parent side never imports torch."""
