"""List the keys of ds_config.json that the real DeepSpeed reads or rejects, as JSON lines.

    DS_ACCELERATOR=cpu python deepspeed_keys.py > keys.jsonl

A line: {"key": "zero_optimization.sub_group_size", "minimum": 0}, with the bounds of the value if
the key has any; "closed" if a section rejects unknown keys, "rejected" for a key that stops
the parser because it was removed. DeepSpeedConfig runs on configs that record which keys are looked
up. For a section that pydantic reads, the keys are the fields of the model that rejects an unknown
key.

Runs under the Python that has DeepSpeed; imports neither PARC nor pytest.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any, get_args

READ_BY_INITIALIZE = ("data_parallel_size", "sequence_parallel_size")
"""Keys that deepspeed/__init__.py, initialize, turns into the mesh that it passes to
DeepSpeedConfig.
"""
PROBE = "parc_probe"
"""Key that is unknown to DeepSpeed."""
Row = dict[str, Any]


class LookupTrace(dict[str, Any]):
    """Config that records which keys are looked up, whether or not it contains them."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.keys_looked_up: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.keys_looked_up.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_looked_up.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.keys_looked_up.add(str(key))
        return super().__contains__(key)

    def keys(self) -> Any:
        return self  # for "x in config.keys()"

    def __copy__(self) -> LookupTrace:
        return self

    def __deepcopy__(self, memory: dict[int, Any]) -> LookupTrace:
        return self


def top_keys() -> set[str]:
    """Return the top-level keys."""
    from deepspeed.runtime.config import DeepSpeedConfig

    config = LookupTrace({"train_batch_size": 1})
    DeepSpeedConfig(config)
    return {*config.keys_looked_up, *READ_BY_INITIALIZE}


def rows_of(key: str) -> Iterator[Row]:
    """Yield the row of a top-level key, and those of its section if it is one."""
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel
    from pydantic import ValidationError

    section = LookupTrace({PROBE: 1, "type": "Adam"})  # "params" is read only with a type
    try:
        DeepSpeedConfig({"train_batch_size": 1, key: section})
    except ValidationError as rejection:
        path = next(e["loc"] for e in rejection.errors() if e["type"] == "extra_forbidden")
        named = {model.__name__: model for model in _models(DeepSpeedConfigModel)}
        yield from _fields(key, _inner(named[rejection.title], path[:-1]))
    except Exception as rejection:
        removed = type(rejection).__name__ == "DeepSpeedConfigError" and "removed" in str(rejection)
        yield {"key": key, "rejected": True} if removed else {"key": key}
    else:
        yield {"key": key}
        yield from ({"key": f"{key}.{name}"} for name in section.keys_looked_up)


def _models(base: Any) -> Iterator[Any]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _inner(model: Any, path: tuple[Any, ...]) -> Any:
    """Return the model of the section at ``path`` below ``model``."""
    for name in path:
        model = _model_of(model.model_fields[name])
    return model


def _model_of(field: Any) -> Any:
    """Return the model class of a field, or None."""
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    kinds = (field.annotation, *get_args(field.annotation))
    models = (one for one in kinds if isinstance(one, type))
    return next((one for one in models if issubclass(one, DeepSpeedConfigModel)), None)


def _fields(key: str, model: Any) -> Iterator[Row]:
    """Yield the rows of a section that pydantic reads, by the names and aliases of its fields."""
    yield {"key": key, "closed": True}
    for name, field in model.model_fields.items():
        inner = _model_of(field)
        for spelling in {name, field.alias or name}:
            below = f"{key}.{spelling}"
            yield from _fields(below, inner) if inner else ({"key": below} | _bounds(field),)


def _bounds(field: Any) -> Row:
    """Return the bounds of a pydantic field, as columns of known_keys.json."""
    columns = {
        "ge": "minimum",
        "gt": "exclusive_minimum",
        "le": "maximum",
        "lt": "exclusive_maximum",
    }
    found = {
        column: getattr(limit, name)
        for limit in field.metadata
        for name, column in columns.items()
        if getattr(limit, name, None) is not None
    }
    # 0.0 and 0 are the same bound.
    return {key: int(value) if value == int(value) else value for key, value in found.items()}


def removed_of_zero(key: str) -> Row:
    """Return the row of a removed key of the ZeRO section, from DeepSpeed's own list."""
    return {"key": f"zero_optimization.{key}", "rejected": True}


def main() -> int:
    os.environ["DS_ACCELERATOR"] = "cpu"
    with redirect_stdout(sys.stderr):
        from deepspeed.runtime import config

        rows = [row for key in top_keys() for row in rows_of(key)]
        rows += map(removed_of_zero, getattr(config, "_REMOVED_ZERO_CONFIG_KEYS", ()))
        pipeline = config.get_pipeline_config({})  # copied whole; these keys are used
        rows += [{"key": f"pipeline.{name}"} for name in pipeline]
    for row in sorted(rows, key=lambda row: str(row["key"])):
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
