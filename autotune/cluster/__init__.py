"""Several machines that are tuned together."""
