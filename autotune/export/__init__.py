"""A profile in the words of other launchers and trainers: one file a target. Data in, text out."""
