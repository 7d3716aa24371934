"""The verifier's table of torchtitan's registered models equals the table of the emitter."""

from __future__ import annotations

from typing import Any

from parc.backends.torchtitan.flavors import _flavor_table
from parc.backends.torchtitan.verify_module import DENSE_FLAVORS, EXPERT_FLAVORS, TIED


def test_both_tables_of_flavors_have_the_same_models_and_sizes() -> None:
    checked = set()
    for entry in _flavor_table().values():
        for name, sizes in entry["flavors"].items():
            key = (entry["module"], name)
            checked.add(key)
            common = tuple(_size(sizes, one) for one in ("layers", "hidden", "heads", "kv_heads"))
            common += (sizes.get("ffn", 0), sizes["vocab"])
            experts = tuple(sizes.get(one) for one in ("experts", "top_k", "expert", "shared"))
            if "experts" in sizes:
                assert EXPERT_FLAVORS[key] == common + experts, key
            else:
                assert DENSE_FLAVORS[key] == common, key
                assert (name in TIED) is sizes["tied"], key
    assert checked == DENSE_FLAVORS.keys() | EXPERT_FLAVORS.keys()


def _size(sizes: dict[str, Any], name: str) -> int | None:
    found: int | None = sizes.get(name)
    return found
