"""Step times, memory and capacity of serving deployments."""
