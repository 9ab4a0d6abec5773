"""One file per node of the diagnosis graph: fetch, call the pure core, return an update."""
