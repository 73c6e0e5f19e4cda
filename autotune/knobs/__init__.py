"""The knobs, one file each: values on this machine, their expected effect, how each is applied, read back, undone."""
