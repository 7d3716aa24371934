"""Communication inside a layer: context parallelism and expert dispatch."""
