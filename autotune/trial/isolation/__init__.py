"""Nothing happens to the user's world in a trial: what a script writes and whom it calls stays inside.

`isolate` is called once, in the process that runs the script up to the fork; `Isolation.nest` in each forked trial.
"""
