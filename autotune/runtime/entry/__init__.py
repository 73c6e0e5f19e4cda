"""What `autotune run` starts: prepares this process for a backend and then runs the user's script."""
