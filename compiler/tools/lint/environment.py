"""Environment variables that a script exports, checked if the cluster is known."""

from __future__ import annotations

import re
from functools import partial

from parc.backends.shared.launch_rules import check_connections, check_fabric
from parc.compiler.diagnostics import Span
from parc.compiler.ir import Layout, Plan, Problem
from parc.compiler.tools.lint.partial_ir import build_partial, find_missing_fact, with_values
from parc.compiler.tools.lint.script import Script
from parc.compiler.tools.lint.script_sink import ScriptSink

_VARIABLE = re.compile(r"((?:NCCL|GLOO|CUDA)_[A-Z0-9_]+)=(.*)")


def lint_environment(script: Script, problem: Problem, layout: Layout, sink: ScriptSink) -> None:
    """Report N04, N06, N08 and N09 at the exports of ``script``."""
    env: dict[str, str] = {}
    spans: dict[str, Span] = {}
    for word in script.words:
        match = _VARIABLE.fullmatch(word.text)
        if match and not word.dynamic and word.span.line not in script.branches:
            env[match[1]] = match[2]
            spans[f"launch.env.{match[1]}"] = word.span
    env.setdefault("GLOO_SOCKET_IFNAME", "")  # ``lint_launch`` has reported N02 already
    sink.locate(spans, {}, Span(script.name, 1, 1))
    launch = with_values(problem.launch, env=tuple(env.items()))
    plan = build_partial(Plan, problem=with_values(problem, launch=launch), layout=layout)
    for check in (check_fabric, check_connections):
        find_missing_fact(partial(check, plan, sink))
