"""Rules that a single training or serving layout must satisfy, and its full estimate."""
