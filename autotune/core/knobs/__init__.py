"""The knobs: one object each, in the file of what they act on; `table` lists them.

Its other half, one class in `autotune.runtime.appliers`, puts its value in force. A new knob is these two.
"""
