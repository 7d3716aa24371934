"""Fit of cost-model parameters to measurements of the user."""
