"""Reader of the family files of Hugging Face models (``families/*.yaml``).

A family is a ``model_type`` of transformers. Its file declares the config key of each field of
``ModelSpec``, the generic readers that interpret these keys, and the defaults of the transformers
class. A new family needs one YAML file; ``docs/import.md`` describes its sections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from parc.compiler.catalog.huggingface.family import Family, FamilyError
from parc.compiler.diagnostics.table_yaml import parse_table

# Short enough for a file name.
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_PACKAGE = "parc.compiler.catalog.huggingface"


_OWN_DESCRIPTION = (
    "describe the model with the keys of section model, and weights that no key describes with "
    "model.extra_weights"
)
"""Advice for models of most unsupported families."""


class FamilyFiles:
    """Loader of the family files in one or more folders."""

    def __init__(self, *folders: Traversable) -> None:
        """Create a loader of ``families/*.yaml`` and ``forms/*.yaml`` in ``folders``.

        If several folders contain a file of the same name, the first folder takes precedence.
        """
        self._folders = folders
        self._trees: dict[str, dict[str, Any]] = {}
        self._families: dict[str, Family] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names of all supported families, sorted."""
        files = (file for folder in self._folders for file in (folder / "families").iterdir())
        names = {file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")}
        return tuple(sorted(name for name in names if self.is_supported(name)))

    def is_supported(self, model_type: str) -> bool:
        """Return True if PARC can read configs of the family ``model_type``.

        A family is supported if its file exists and does not contain the key ``refused``.
        """
        return self._has_file(model_type) and "refused" not in self._parse_file_once(
            f"families/{model_type}"
        )

    def reason_unsupported(self, model_type: str) -> str:
        """Return the reason why PARC cannot read configs of a family; empty if none is recorded."""
        if self._has_file(model_type):
            return str(self._parse_file_once(f"families/{model_type}").get("refused", ""))
        found = self._parse_file_once("refused_families").get(model_type, "")
        return str(found["reason"] if isinstance(found, dict) else found)

    def describe_alternative(self, model_type: str) -> str:
        """Return how users can plan a model of an unsupported family in another way."""
        found = self._parse_file_once("refused_families").get(model_type, "")
        return str(found["instead"]) if isinstance(found, dict) else _OWN_DESCRIPTION

    def unsupported_parts(self, model_type: str) -> str:
        """Return a description of the computations of a family that ``ModelSpec`` cannot express.

        The text is empty if all computations can be expressed, or if the family has no file.

        Raises:
            FamilyError: the family file exists, but cannot be read.
        """
        return self._text(model_type, "unsupported_parts")

    def assumed_constants(self, model_type: str) -> str:
        """Return a description of the constants for which training frameworks assume another value.

        The text is empty if there are none, or if the family has no file.

        Raises:
            FamilyError: the family file exists, but cannot be read.
        """
        return self._text(model_type, "assumed_constants")

    def _text(self, model_type: str, section: str) -> str:
        if not self._has_file(model_type):
            return ""
        tree, _ = self._merge_with_base(f"families/{model_type}", ())
        return str(tree.get(section, ""))

    def load_family(self, model_type: str) -> Family:
        """Return the declarations in the family file of ``model_type``, which must exist.

        Raises:
            FamilyError: a section or key is missing, unknown or of the wrong type.
        """
        if model_type not in self._families:
            # Imported on first use: a compile of a catalog model needs only the texts.
            from parc.compiler.catalog.huggingface.check_family import check_family

            tree, file = self._merge_with_base(f"families/{model_type}", ())
            check_family(tree, file)
            sections = {key: _list_to_tuple(value) for key, value in tree.items()}
            self._families[model_type] = Family(file=file, **sections)
        return self._families[model_type]

    def _has_file(self, model_type: str) -> bool:
        # The pattern keeps the name inside the folder: no slash, no leading dot.
        named = _NAME.fullmatch(model_type) is not None
        return named and self._find_file(f"families/{model_type}") is not None

    def _find_file(self, name: str) -> Traversable | None:
        paths = (folder / f"{name}.yaml" for folder in self._folders)
        return next((path for path in paths if path.is_file()), None)

    def _merge_with_base(self, name: str, path: tuple[str, ...]) -> tuple[dict[str, Any], str]:
        """Return (sections including those of the base file, file name) of a family file.

        The base file is named by the key ``extends`` or ``form``. ``path`` contains the files that
        refer to this file, so that a cycle can be detected.
        """
        file = f"{name}.yaml"
        tree = dict(self._parse_file_once(name))
        bases = [(key, str(tree.pop(key))) for key in ("extends", "form") if key in tree]
        if len(bases) > 1:
            raise FamilyError(file, "form cannot be combined with extends")
        for key, base in bases:
            target = f"{'families' if key == 'extends' else 'forms'}/{base}"
            if target in path or self._find_file(target) is None:
                raise FamilyError(
                    file,
                    f"{key} is {base}, but {target}.yaml does not exist, or refers back to this "
                    "file",
                )
            below, _ = self._merge_with_base(target, (*path, name, target))
            tree = _merge_sections(below, tree)
        return tree, file

    def _parse_file_once(self, name: str) -> dict[str, Any]:
        """Return the content of a YAML file; the result is cached."""
        if name not in self._trees:
            path = self._find_file(name)
            try:
                tree = parse_table(path.read_text("utf-8")) if path else {}
            except Exception as error:  # ruamel raises many types
                reason = str(error).splitlines()[0][:100]
                raise FamilyError(f"{name}.yaml", f"the file cannot be read: {reason}") from error
            if not isinstance(tree, dict):
                raise FamilyError(f"{name}.yaml", "the file must be a mapping")
            self._trees[name] = tree
        return self._trees[name]


def _merge_sections(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of the base file ``below``, overridden key by key by ``above``.

    A null in ``above`` removes the key. Only in section ``defaults`` a null is kept, because it is
    a valid default there. The lists ``ignored_keys`` of the two files are joined.
    """
    found = dict(below)
    for section, value in above.items():
        old = found.get(section)
        if isinstance(old, dict) and isinstance(value, dict):
            merged = old | value
            keep = section == "defaults"
            found[section] = {key: v for key, v in merged.items() if keep or v is not None}
        elif section == "ignored_keys" and isinstance(old, list):
            found[section] = [*old, *value]
        elif value is None:
            found.pop(section, None)
        else:
            found[section] = value
    return found


def _list_to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@cache
def shipped_families() -> FamilyFiles:
    """Return the family files of this package; the result is cached."""
    return FamilyFiles(files(_PACKAGE))
