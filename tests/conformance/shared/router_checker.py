"""Parse commands of routers between two pools with the parsers of vllm-router and sglang_router.

    python router_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "module": "vllm_router" or "sglang_router", "words": [...]}. A verdict adds
"prefill": [[url, bootstrap port or null], ...], "decode": [url, ...], "port", and "pools": true if
the router serves two pools.

Runs under a Python that has both packages; imports neither PARC nor pytest.
"""

from __future__ import annotations

import sys
from importlib import import_module

from case_lines import Case, Rejected, Verdict, answer_cases

FLAGS = {"vllm_router": "vllm_pd_disaggregation", "sglang_router": "pd_disaggregation"}


def check(case: Case, verdict: Verdict) -> None:
    """Add what the router of a case would start."""
    try:
        found = import_module(f"{case['module']}.launch_router").parse_router_args(case["words"])
    except SystemExit as error:
        raise Rejected("the parser exits") from error
    verdict["prefill"] = [list(one) for one in found.prefill_urls]
    verdict["decode"] = list(found.decode_urls)
    verdict["port"] = found.port
    verdict["pools"] = getattr(found, FLAGS[case["module"]])


if __name__ == "__main__":
    sys.exit(answer_cases(check))
