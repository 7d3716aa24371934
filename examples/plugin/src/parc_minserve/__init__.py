"""Minserve: one script that starts Minserve, an invented serving engine, on each host."""

from parc.backends.declaration import Declaration

DECLARATION = Declaration(
    name="minserve",
    package=__name__,
    serving=".backend",
    binds_layout=True,
    verifier=".verify",
    linter=".lint",
    importers=(".read",),
    # Only what the script contains: PARC warns about other fields of section launch (E13).
    launch_fields=("args", "env", "network_interface", "port"),
)
"""Roles of the backend, and the modules that implement them; each is loaded on first use."""
