"""Isolates trials: the user's files stay as they are, and other machines are not reached.

`isolate` is called once, in the process that runs the script up to the fork; `Isolation.nest` in each forked trial.
"""
