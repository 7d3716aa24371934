"""Least-squares fits of cost-model parameters to measurements."""
