"""Dependencies between the files of the rank map.

``compiler.verify`` itself compares the rank map with the files of all other targets.
"""

from __future__ import annotations

from parc.backends.verifier import FileDependencies, Verifier

FILES = ("rankmap.csv", "rankmap.json", "rankmap.md")


class RankmapVerifier(Verifier):
    """Declares that the CSV table, the JSON document and the Markdown page belong together."""

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
