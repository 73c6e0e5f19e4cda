"""The knobs, one file each: values on this machine, what is expected of them, how each is applied, read back and undone."""
