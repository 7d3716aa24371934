"""Event simulation of serving engines with continuous batching."""
