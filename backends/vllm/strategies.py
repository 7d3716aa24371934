"""What vLLM's command line can express (names of ``backends/strategies``), for the matrix."""

from __future__ import annotations

STRATEGIES: dict[str, str] = {
    "dp": "--data-parallel-size; replicas of engines",
    "tp": "--tensor-parallel-size",
    "cp-all-gather": "--prefill-context-parallel-size, --decode-context-parallel-size",
    "1f1b": "stages: --pipeline-parallel-size",
    "ep": "--enable-expert-parallel",
    "etp": "experts split by tp x dp, without --enable-expert-parallel",
}
