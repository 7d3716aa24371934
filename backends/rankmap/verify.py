"""Files of the rank map. ``compiler.verify`` compares its contents with all other files."""

from __future__ import annotations

from parc.backends.verifier import FileDependencies, Verifier

FILES = ("rankmap.csv", "rankmap.json", "rankmap.md")


class RankmapVerifier(Verifier):
    """Declares that the table, the JSON document and the page belong together."""

    files = FileDependencies(
        always=FILES,
        always_serving=FILES,
        required_by=(
            ("rankmap.json", "rankmap.csv"),
            ("rankmap.csv", "rankmap.json"),
            ("rankmap.csv", "rankmap.md"),
        ),
    )


VERIFIER = RankmapVerifier()
