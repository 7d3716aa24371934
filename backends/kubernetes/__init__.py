"""Kubernetes: a JobSet whose pod index is the node rank, and the files that its pods run."""
