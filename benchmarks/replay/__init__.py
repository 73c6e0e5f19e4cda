"""Search and proof on recorded grids and modelled machines, in simulated time: hundreds of runs in seconds."""
