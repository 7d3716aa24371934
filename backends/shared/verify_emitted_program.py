"""Verification of the programs that build models with the library transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parc.backends.verifier import DerivedSetting
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.verify_settings import EmittedSettings

HUB = "https://huggingface.co/"
EMITTED = ("", "decoder", "transformers", "trainer")
"""Values of ``launch.program`` that make the job start an emitted program."""
SIZES = {"layers": "layers", "hidden": "hidden", "vocab": "vocab"}
SIZES |= {"aux_loss_coefficient": "experts.aux_loss_coefficient"}
"""Setting in section ``model`` -> field of the model."""
COPIES = {"kimi_k2": "deepseek_v3"}
"""Family whose code is a copy of a class of transformers -> family of that class."""
PLAIN_DECODER = {
    "problem.model.norms_per_layer": 2,
    "problem.model.final_norm": True,
    "problem.model.mtp_layers": 0,
    "problem.model.left_out": "",
    "problem.model.linear": None,
    "problem.model.mamba": None,
    "problem.model.convolution": None,
    "problem.model.pattern": "",
    "problem.model.variants": [],
    "problem.model.extra_weights": [],
    "problem.model.norm_weights": True,
    "problem.model.attention.value_dim": 0,
    "problem.model.attention.chunked": False,
    "problem.model.attention.shared_kv": False,
    "problem.model.attention.keys_as_values": False,
    "problem.model.attention.joint_kv": False,
    "problem.model.attention.low_rank": None,
    "problem.model.attention.compression": None,
    "problem.model.residual_streams": 1,
    "problem.model.attention.indexer": None,
    "problem.model.attention.latent": None,
    "problem.model.attention.qk_norm": "none",
    "problem.model.attention.window": None,
    "problem.model.attention.sinks": False,
    "problem.model.attention.gate": False,
    "problem.model.attention.head_gate": False,
}
"""Path of the plan -> its value for a decoder that has only attention and MLPs in all layers."""


def users_program(plan: Mapping[str, Any]) -> str:
    """Return the path of the user's program in a plan; empty if PARC emits the program."""
    program = str(plan["problem"]["launch"]["program"])
    return "" if program in EMITTED else program


def builds_with_transformers(settings: EmittedSettings) -> bool:
    """Return True if the section ``model`` names the repository or config.json of the model."""
    return "model.source" in settings


def transformers_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the settings in the section ``model``, which transformers completes from its source."""
    source = settings.get("model.source")

    def is_source(planned: Any) -> bool:
        text = str(planned).strip()
        hub = text.removeprefix(HUB).rstrip("/") if text.startswith(HUB) else ""
        return source in (hub, "" if "://" in text else text.partition("#")[0])

    yield settings.derive("problem.model.source", source, "model.source", is_source)
    family = settings.get("model.family")

    def is_family(planned: Any) -> bool:
        return bool(COPIES.get(planned) == family)

    yield settings.derive("problem.model.family", family, "model.family", is_family)
    for name, field in SIZES.items():
        if f"model.{name}" in settings or name in ("layers", "hidden", "vocab"):
            yield settings.derive_from(f"problem.model.{field}", f"model.{name}")


def verify_imported_file(
    file: str, imported: str, artifacts: Mapping[str, str], sink: Sink
) -> None:
    """Report that ``imported``, a module that the program ``file`` imports, is missing (A03)."""
    if file in artifacts and imported not in artifacts:
        message = f"{file} needs {imported}, which is missing, or not a regular file"
        sink.report("A03", message, span=Span(imported, 1, 1))
