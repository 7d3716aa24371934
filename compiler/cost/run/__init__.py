"""Length of a training run: checkpoints, failures, restarts and spare hosts."""
