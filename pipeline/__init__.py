"""How a run is started: flags, graphs, sub-commands."""
