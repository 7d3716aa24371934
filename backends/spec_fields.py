"""Fields of a spec that a plugin declares to use.

The tests of PARC compare the tables of its own backends with all fields of a plan. They do not
cover plugins, so PARC rejects each field that a plugin does not declare. A plugin declares fields
in ``Declaration.spec_fields``, and in the tables ``fields.yaml`` and ``flags.yaml`` of its package.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from typing import Any

from parc.backends.declaration import Declaration
from parc.backends.registry import backend_declaration, is_built_in
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir.field_paths import is_path_in_fields
from parc.compiler.ir.frozen import frozen

TABLES = ("fields.yaml", "flags.yaml")
ROOTS = ("job.", "model.", "layout.", "limits.", "service.", "goals.", "problem.pins.")
"""Beginnings of the plan fields that a spec sets."""
SERVING_SETTINGS = (
    *("job.quantize", "job.kv_precision", "job.checkpoint", "job.block_tokens"),
    *("job.max_model_len", "job.max_num_seqs", "job.max_num_batched_tokens"),
    *("job.prefix_caching", "layout.all2all", "layout.redundant_experts", "layout.stage_layers"),
)
"""Fields of a serving spec that the files of an engine contain; its rules, its strategies and the
ranks cover others."""
RENAMED = {
    "job.tokenizer_type": "job.tokenizer",
    "job.warmup_fraction": "job.warmup_steps",
    "layout.stages": "layout.stage_layers",
    "limits.gpu_memory_utilization": "goals.memory_headroom",
    "model.attention.output_bias": "model.attention_output_bias",
    "model.attention.gate": "model.attention_gate",
    "model.attention.chunked": "model.window_chunks",
    "model.experts.pattern": "model.experts.first_dense_layers",
    "model.ffn.size": "model.ffn",
    "model.ffn.bias": "model.mlp_bias",
    "model.linear": "model.linear_attention",
    "model.variants": "model.layer_variants",
    "problem.pins.stages": "layout.stage_layers",
    "service.setup.host_cache_bytes": "job.kv_offload",
    "service.setup.kv": "job.kv_precision",
    "service.setup.max_batched_tokens": "job.max_num_batched_tokens",
    "service.setup.max_running": "job.max_num_seqs",
    "service.setup.weights": "job.precision",
}
"""Plan field -> spec field, if they differ in more than the beginning of the path."""
BEGINNINGS = (
    *(("problem.pins.", "layout."), ("service.setup.", "job."), ("service.", "job.")),
    *(("limits.", "job."), ("model.attention.", "model."), ("model.ffn.", "model.")),
)
"""(beginning of a plan field, beginning of the spec field that sets it); the first that fits."""


@frozen
class SpecFields:
    """Spec fields that the files of a plugin contain, and fields that its table ignores."""

    used: frozenset[str]
    """Paths of fields and sections of a spec."""
    ignored: dict[str, str]
    """Spec field -> why the plugin has no setting for it."""

    def uses(self, path: str) -> bool:
        """Return True if the plugin declares the field, a section above, or a field below it."""
        below = (one for one in self.used if one.startswith(f"{path}."))
        return is_path_in_fields(path, self.used) or any(below)


def declared_spec_fields(name: str) -> SpecFields | None:
    """Return the spec fields that the plugin ``name`` declares; None for a backend of PARC.

    Raises:
        KeyError: no usable backend has that name.
    """
    if is_built_in(name):
        return None
    found = backend_declaration(name)
    used, ignored = set(found.spec_fields), dict[str, str]()
    for tree in _tables(found):
        used.update(_fields_of_rows(tree))
        used.update(map(spec_field, tree.get("elsewhere", ())))
        ignored |= {spec_field(path): str(why) for path, why in tree.get("ignored", {}).items()}
    return SpecFields(frozenset(used), ignored)


def uses_spec_field(name: str, path: str) -> bool:
    """Return True if the files of the backend ``name`` may depend on the spec field ``path``.

    Rules of PARC's own backends reject values that these cannot express, so that the result is True
    for them.
    """
    declared = declared_spec_fields(name)
    return declared is None or declared.uses(path)


def spec_field(path: str) -> str:
    """Return the spec field that sets the plan field ``path``, such as ``model.ffn``.

    A path that is a spec field already is returned unchanged.
    """
    for plan, spec in RENAMED.items():
        if path == plan or path.startswith(f"{plan}."):
            return spec + path.removeprefix(plan)
    for plan, spec in BEGINNINGS:
        if path.startswith(plan):
            return spec + path.removeprefix(plan)
    return path


def _tables(declared: Declaration) -> Iterator[dict[str, Any]]:
    """Yield the parsed tables in the package of a plugin."""
    package = import_module(declared.package)
    if not hasattr(package, "__path__"):  # a single module has no data files
        return
    for table in TABLES:
        file = files(package) / table
        if file.is_file():
            tree = parse_table(file.read_text("utf-8"))
            yield tree if isinstance(tree, dict) else {}


def _fields_of_rows(tree: dict[str, Any]) -> Iterator[str]:
    """Yield the spec fields in the rows of a table, with or without groups of rows."""
    for name, row in tree.items():
        if name in ("elsewhere", "ignored") or not isinstance(row, dict):
            continue
        if not {"from", "import", "spec", "set", "value"} & row.keys():
            yield from _fields_of_rows(row)
            continue
        sources = (*_as_list(row.get("from")), *_as_list(row.get("spec")))
        for path in (*sources, *_as_list(row.get("import"))):
            plain = path if path.startswith("problem.pins.") else path.removeprefix("problem.")
            if plain.startswith(ROOTS):
                yield spec_field(plain)


def _as_list(value: Any) -> list[str]:
    """Return the paths in a value of a table: one path, a list, or the keys of a mapping."""
    return [value] if isinstance(value, str) else [str(one) for one in value or ()]
