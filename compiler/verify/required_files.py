"""Find files that are missing because a script, another file or the lock refers to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from parc.backends.verifier import Verifier

LOCK = "parc.lock"


def promised_files(
    lock: Mapping[str, Any], verifiers: Mapping[str, Verifier], serving: bool
) -> list[str]:
    """Return the files that ``lock`` lists, and those that its targets always emit.

    Locks of old versions list no files. The framework is in the versions of each lock, emitted or
    not, so that its verifier has no such files.
    """
    versions = lock["decisions"].get("versions")
    names = versions if isinstance(versions, dict) else {}
    files = [one.files for name, one in verifiers.items() if name in names]
    always = (one.always_serving if serving else one.always for one in files)
    return [*(file for some in always for file in some), *lock.get("files", ())]


def missing_files(
    artifacts: Mapping[str, str], verifiers: Iterable[Verifier]
) -> list[tuple[str, str]]:
    """Return (missing file, file that needs it)."""
    files = [one.files for one in verifiers]
    references = {file: text for one in files for file, text in one.references.items()}
    scripts = [
        (name, script)
        for one in files
        for script in one.scripts
        for name, text in references.items()
        if text in artifacts.get(script, "")
        and (not text.startswith("$here/") or _folder(name) == _folder(script))
    ]
    needs = (*scripts, *(pair for one in files for pair in one.required_by))
    return [(name, user) for name, user in needs if user in artifacts and name not in artifacts]


def _folder(path: str) -> str:
    return path.partition("/")[0]
