"""Slurm: a batch script that pins every rank to its host."""
