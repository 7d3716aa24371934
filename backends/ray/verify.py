"""Verifier of ``ray/serve.py``: its plan, which it reads without running the program, and its code.

The plan is the JSON document that the program assigns to ``PLAN``. The remaining code is compared
with a digest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

from parc.backends.registry import verifier_of_backend
from parc.backends.shared.verify_environment import (
    ExportedVariable,
    read_environment_settings,
    verify_required_variables,
)
from parc.backends.verifier import (
    DerivedSetting,
    EngineVerifier,
    FileDependencies,
    JobShape,
    Verifier,
)
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.program_code import (
    parse_program,
    read_program_digests,
    verify_code,
)
from parc.compiler.verify.read_emitted import MalformedFileError, read_json
from parc.compiler.verify.verify_settings import PLAN, read_plan

PROGRAM = "ray/serve.py"
PACKAGE = "parc.backends.ray"
KEYS = ("command", "engines", "environment", "hosts", "nodes", "port")
EMPTY = "PLAN = json.loads('')"
"""Assignment that replaces the plan before the digest of the code is computed."""


class RayVerifier(Verifier):
    """Compares the settings in the program with the plan, and its hosts with the rank map."""

    files = FileDependencies(always_serving=(PROGRAM,))
    not_in_files = MappingProxyType(
        {
            "problem.endpoint.load_balancer": "the program starts one API server per engine",
            "problem.launch.master_port": "Ray chooses the ports of its engines",
            "problem.launch.network_interface": "compared as a variable that the network requires",
            "layout.rank_gpus": "equal to layout.engine_gpus, because dp is 1",
        }
    )

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the settings of ``ray/serve.py``: command, environment, engines, hosts and port."""
        if PROGRAM not in artifacts or PLAN not in artifacts:
            return
        text = artifacts[PROGRAM]
        found, plan = read_document(text), read_plan(artifacts[PLAN])
        words, variables = _string_list(found, "command"), _environment_variables(found)
        engine = _engine_verifier(plan)
        if engine is not None:
            yield from engine.read_command_settings(PROGRAM, words, variables, plan)
            exports = [ExportedVariable(name, value, 1) for name, value in variables.items()]
            required = engine.required_environment(plan, variables)
            user = dict(plan["problem"]["launch"]["env"])
            yield from read_environment_settings(PROGRAM, exports, required, user)
        for key in sorted(found.keys() - set(KEYS)):
            path, line = "problem.launch.args", _line_of_key(text, key)
            yield DerivedSetting(path, f"the key {key}", PROGRAM, line, key, needed="")
        yield from _read_placement_settings(text, found)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report missing or changed environment variables that the plan's network needs (A18)."""
        if PROGRAM not in artifacts or PLAN not in artifacts:
            return
        plan, variables = (
            read_plan(artifacts[PLAN]),
            _environment_variables(read_document(artifacts[PROGRAM])),
        )
        engine = _engine_verifier(plan)
        if engine is not None:
            exports = [ExportedVariable(name, value, 1) for name, value in variables.items()]
            required = engine.required_environment(plan, variables)
            user = dict(plan["problem"]["launch"]["env"])
            verify_required_variables(PROGRAM, exports, required, user, sink)

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report changed code (A18), wrong hosts (A02) and wrong node ranks (A07).

        The hosts and node ranks are compared with the rank map.
        """
        if PROGRAM not in artifacts:
            return
        _verify_code(artifacts, sink)
        plan = read_document(artifacts[PROGRAM])
        span, hosts = Span(PROGRAM, 1, 1), plan.get("hosts")
        if hosts and hosts != job.hosts:
            message = f"the hosts of {PROGRAM} differ from those of the rank map"
            sink.report("A02", message, span=span)
        if plan.get("nodes") != len(job.hosts):
            message = f"{PROGRAM} has nodes {plan.get('nodes')!r:.40}, "
            sink.report("A07", f"{message}the rank map has {len(job.hosts)} hosts", span=span)
        pinned = [node for ranks in _node_ranks_per_engine(plan) for node in ranks]
        # Ranks fill hosts in order, engine after engine, so the concatenated lists must count up.
        expected = [node for node in range(len(job.hosts)) for _ in range(job.ranks_per_node)]
        if pinned != expected:
            message = f"{PROGRAM} pins {len(pinned)} ranks to other nodes than the rank map"
            sink.report("A07", message, span=span)


def _engine_verifier(plan: Mapping[str, Any]) -> EngineVerifier | None:
    return cast(EngineVerifier | None, verifier_of_backend(plan["problem"]["framework"]))


def _read_placement_settings(text: str, found: Mapping[str, Any]) -> Iterable[DerivedSetting]:
    """Yield the settings of the engines, the hosts and the port.

    ``found`` is the parsed plan in the program; ``text`` is the text of the program.
    """
    engines, line = _node_ranks_per_engine(found), _line_of_key(text, "engines")
    ranks = [node for engine in engines for node in engine]
    sizes = {len(engine) for engine in engines}
    each = ranks.count(ranks[0]) if ranks else 0
    # Ranks fill the hosts in order.
    in_order = ranks == [place // each for place in range(len(ranks))] if each else False
    yield DerivedSetting("layout.replicas", len(engines), PROGRAM, line)
    yield DerivedSetting("layout.gpus", len(ranks), PROGRAM, line)
    yield DerivedSetting("layout.engine_gpus", sizes.pop() if len(sizes) == 1 else 0, PROGRAM, line)
    yield DerivedSetting("placement.ranks_per_node", each if in_order else ranks, PROGRAM, line)
    nodes, hosts = found.get("nodes"), found.get("hosts")
    yield DerivedSetting(
        "placement.hosts",
        hosts or nodes,
        PROGRAM,
        _line_of_key(text, "hosts"),
        accepts=lambda names: hosts == names or (not hosts and type(hosts) is list),
    )
    yield DerivedSetting(
        "placement.hosts",
        nodes,
        PROGRAM,
        _line_of_key(text, "nodes"),
        accepts=lambda names: type(nodes) is int and nodes == len(names),
    )
    yield DerivedSetting("problem.cluster.named", bool(hosts), PROGRAM, _line_of_key(text, "hosts"))
    yield DerivedSetting(
        "problem.endpoint.port", found.get("port"), PROGRAM, _line_of_key(text, "port")
    )


def _node_ranks_per_engine(plan: Mapping[str, Any]) -> list[list[Any]]:
    """Return the node rank of every rank, as one list per engine.

    Raises:
        MalformedFileError: the value of ``engines`` in ``plan`` is not a list of lists.
    """
    engines = plan.get("engines")
    if not isinstance(engines, list) or not all(isinstance(one, list) for one in engines):
        raise MalformedFileError(
            PROGRAM, 1, "the value of 'engines' is not a list of lists of node ranks"
        )
    return engines


def _line_of_key(text: str, key: str) -> int:
    """Return the line of the program ``text`` that contains ``key``; 1 if no line does."""
    at = text.find(f'"{key}":')
    return text.count("\n", 0, at) + 1 if at >= 0 else 1


def _string_list(found: Mapping[str, Any], key: str) -> list[str]:
    value = found.get(key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedFileError(PROGRAM, 1, f"the value of {key!r} is not a list of strings")
    return value


def _environment_variables(found: Mapping[str, Any]) -> dict[str, str]:
    value = found.get("environment")
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise MalformedFileError(
            PROGRAM, 1, "the value of 'environment' is not a mapping of strings"
        )
    return value


def read_document(text: str) -> dict[str, Any]:
    """Return the plan: the JSON document that the program assigns to ``PLAN``.

    Raises:
        MalformedFileError: the program has no assignment ``PLAN = json.loads(...)`` of a literal
            text, or that text is not JSON.
    """
    _, literal = _split_plan_from_program(text)
    return read_json(PROGRAM, literal)


def _split_plan_from_program(text: str) -> tuple[ast.Module, str]:
    """Return (program with an empty plan, text of the plan).

    Raises:
        MalformedFileError: the program contains no plan.
    """
    module = parse_program(PROGRAM, text)
    for place, one in enumerate(module.body):
        if isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") == "PLAN":
            literal = _json_loads_argument(one.value)
            if literal:
                empty = ast.parse(EMPTY).body[0]
                body = [*module.body[:place], ast.copy_location(empty, one)]
                return ast.Module([*body, *module.body[place + 1 :]], []), literal
    raise MalformedFileError(PROGRAM, 1, "the assignment PLAN = json.loads('...') is missing")


def _json_loads_argument(value: ast.expr) -> str:
    """Return the text in ``json.loads(TEXT)``; empty for any other expression."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "json.loads":
        return ""
    constant = value.args[0] if len(value.args) == 1 and not value.keywords else None
    text = constant.value if isinstance(constant, ast.Constant) else ""
    return text if isinstance(text, str) else ""


def code_without_settings(text: str, entry: tuple[str, str, str]) -> ast.Module:
    """Return the code of ``ray/serve.py`` without the plan and the names of the engine.

    ``entry`` contains these names: the program, the module and the variable of the engine.
    """
    program, name, variable = entry
    general = text.replace(f'["{program}", *words]', '["PROGRAM", *words]')
    general = general.replace(f"from {name} import main", "from MODULE import main")
    return _split_plan_from_program(general.replace(f'"{variable}":', '"VARIABLE":'))[0]


def _verify_code(artifacts: Mapping[str, str], sink: Sink) -> None:
    """Report code of ``ray/serve.py`` that differs from the code that PARC emits (A18)."""
    engine = _engine_verifier(read_plan(artifacts[PLAN])) if PLAN in artifacts else None
    if engine is not None and engine.ray_entry is not None:
        code = code_without_settings(artifacts[PROGRAM], engine.ray_entry)
        verify_code(PROGRAM, code, read_program_digests(PACKAGE)[PROGRAM].code, sink)


VERIFIER = RayVerifier()
