"""Settings that a plugin does not declare are refused, and advice does not recommend them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parc.backends.built_in import BUILT_IN
from parc.backends.registry import backend_declaration
from parc.backends.spec_fields import declared_spec_fields, spec_field, uses_spec_field
from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.backends.plugin_distributions import scanned, write_distribution
from tests.compiled import yaml_text

FRAMEWORK = '''\
"""A framework with the rules of Megatron-LM, and files with only some settings of the spec."""

from parc.backends.declaration import Declaration
from parc.backends.registry import framework

SIZES = "hidden layers heads kv_heads ffn vocab norm_epsilon position.base".split()
JOB = "sequence_length global_batch seed learning_rate warmup_steps".split()


class Backend:
    name = "{name}"
    versions = framework("megatron").versions

    def check(self, plan, sink):
        pass

    def emit(self, plan):
        return ()

    def __getattr__(self, name):
        return getattr(framework("megatron"), name)


BACKEND = Backend()
DECLARATION = Declaration(
    name="{name}",
    package=__name__,
    training=__name__,
    binds_layout=True,
    spec_fields=DECLARED,
)
'''
OWN = '(*(f"job.{{one}}" for one in JOB), *(f"model.{{one}}" for one in SIZES))'
"""Expression for the fields that the framework declares, with braces for ``str.format``."""
TRAIN: dict[str, Any] = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "hgx-h100", "nodes": 4},
    "job": {"sequence_length": 4096, "global_batch": 256},
    "emit": ["mylab", "rankmap"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` for distributions."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def findings(tree: dict[str, Any]) -> list[Diagnostic]:
    sink = Sink()
    plan_spec(SpecSource.from_text(yaml_text(tree)), (), sink)
    return sink.diagnostics


def with_job(**job: Any) -> dict[str, Any]:
    return TRAIN | {"job": {**TRAIN["job"], **job}}


def write_framework(folder: Path, declared: str = OWN) -> None:
    write_distribution(folder, "mylab", FRAMEWORK.replace("DECLARED", declared))
