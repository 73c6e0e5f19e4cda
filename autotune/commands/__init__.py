"""One file a command: options, work, result, words."""
