"""Published measurements of services, and the errors of their predictions."""
