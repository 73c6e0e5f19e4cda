"""What costs speed on this machine, and the command that mends it. Pure."""
