"""The framework Minitrain of ``docs/plugins.md``, installed in a folder of ``sys.path``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.project_files import ROOT

PAGE = ROOT / "docs" / "plugins.md"
_BLOCK = re.compile(r"^`([\w./]+)`[^\n]*:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
BACKEND = "parc_minitrain/backend.py"
DECLARATION = "parc_minitrain/__init__.py"
VERIFIER = "parc_minitrain/verify.py"
SPEC: dict[str, Any] = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "hgx-h100", "nodes": 4},
    "job": {"sequence_length": 4096, "global_batch": 256},
    "emit": ["minitrain", "rankmap"],
}


def files_of_page() -> dict[str, str]:
    """Return path -> text of each file that the page shows."""
    return dict(_BLOCK.findall(PAGE.read_text("utf-8")))


def install_minitrain(folder: Path, *edits: tuple[str, str, str]) -> None:
    """Write the package and its metadata to ``folder``.

    Each edit is (file, old text, new text); the old text must occur in the file.
    """
    texts = files_of_page()
    for file, old, new in edits:
        assert old in texts[file], f"{file} has no {old!r}"
        texts[file] = texts[file].replace(old, new)
    for file, text in texts.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    info = folder / "parc_minitrain-1.0.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: parc-minitrain\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entry = "[parc.backends]\nminitrain = parc_minitrain:DECLARATION\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")


def spec(**sections: Any) -> dict[str, Any]:
    """Return a spec for Minitrain; ``job`` is merged, other sections are replaced."""
    return SPEC | sections | {"job": SPEC["job"] | sections.get("job", {})}
