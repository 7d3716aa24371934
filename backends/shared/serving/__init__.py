"""Script that starts the processes of an engine on every host, and its verifier."""
