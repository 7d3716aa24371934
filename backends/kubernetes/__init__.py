"""Kubernetes: a JobSet, or a LeaderWorkerSet of engines, whose pod index is the node rank."""
