"""Constants of the serving model that do not depend on the engine, with their sources.

Byte sizes follow from number formats. The shares of data-sheet rates are facts of GPU generations
(``Generation.serving``), the other constants are declared by engines.
"""

from __future__ import annotations

WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0 + 4 / 128**2,
    "int4": 0.5 + 2.5 / 128,
    "nvfp4": 0.5 + 1 / 16,
}
"""Bytes per weight with its scales: fp8 blocks of 128 x 128 (fp32 scale), int4 groups of 128 (fp16
scale, 4-bit zero), nvfp4 blocks of 16 (fp8 scale)."""
KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes per element of the key-value cache."""
