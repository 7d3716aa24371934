"""Rules of the project itself: import directions, no cycles, sizes, no machine-specific text."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import median

import pytest

from tests.project_files import (
    PACKAGE_FOLDERS,
    ROOT,
    TEXT_FOLDERS,
    files,
    functions,
    imported,
    module,
    python_files,
    syntax_tree,
)

IR = "parc.compiler.ir"
DIAGNOSTICS = "parc.compiler.diagnostics"
REGISTRY = "parc.backends.registry"
BUILT_IN = "parc.backends.built_in"
BASE = "parc.backends.base"
DECLARATION = "parc.backends.declaration"
VERIFIER = "parc.backends.verifier"
PLUGIN_ERROR = "parc.backends.plugin_error"
VERIFY = "parc.compiler.verify"
SPEC_FIELDS = "parc.backends.spec_fields"
STRATEGIES = "parc.backends.shared.strategies"
COST = "parc.compiler.cost"
SPEC = "parc.compiler.spec"
TOPOLOGY = "parc.compiler.topology"
CATALOG = "parc.compiler.catalog"
RESOLVE = "parc.compiler.resolve"
SEARCH = "parc.compiler.search"
EVALUATE = "parc.compiler.evaluate"
PLACEMENT = "parc.compiler.placement"
LINT = "parc.compiler.tools.lint"
IMPORTERS = "parc.compiler.tools.importers"
SHELL = "parc.compiler.tools.shell"
DIFF = "parc.compiler.report.diff"
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    IR: (),
    DIAGNOSTICS: (IR,),
    TOPOLOGY: (
        *(IR, DIAGNOSTICS),
        *("parc.compiler.spec.reading", "parc.compiler.catalog.instance_types"),
    ),
    COST: (IR, TOPOLOGY, BASE),
    SPEC: (IR, DIAGNOSTICS),
    CATALOG: (SPEC, DIAGNOSTICS, IR),
    RESOLVE: (
        *(IR, DIAGNOSTICS, CATALOG, COST, SPEC, TOPOLOGY),
        *(BASE, DECLARATION, REGISTRY, STRATEGIES),
    ),
    EVALUATE: (IR, DIAGNOSTICS, COST, TOPOLOGY, RESOLVE, BASE, STRATEGIES),
    PLACEMENT: (IR, DIAGNOSTICS, COST, TOPOLOGY, RESOLVE, EVALUATE, BASE),
    SEARCH: (
        *(IR, DIAGNOSTICS, COST, TOPOLOGY, RESOLVE, EVALUATE, PLACEMENT),
        *(BASE, REGISTRY, SPEC_FIELDS, STRATEGIES, PLUGIN_ERROR),
    ),
    "parc.compiler.checks": (
        *(IR, DIAGNOSTICS, SPEC, COST, TOPOLOGY, RESOLVE, EVALUATE, PLACEMENT, SEARCH),
        *(BASE, REGISTRY, SPEC_FIELDS),
    ),
    VERIFY: (IR, DIAGNOSTICS, BUILT_IN, DECLARATION, REGISTRY, SPEC_FIELDS, VERIFIER, PLUGIN_ERROR),
    "parc.compiler.writer": (IR, DIAGNOSTICS, BUILT_IN, REGISTRY),
    "parc.backends": (IR, DIAGNOSTICS, TOPOLOGY, VERIFY, LINT, IMPORTERS, SHELL, DIFF),
    "parc.templates": (),
    "parc.schemas": (),
}
"""Package -> packages that it may import besides itself. The front packages (pipeline, api, report,
cli) may import all packages behind them."""


def within(name: str, package: str) -> bool:
    """Return True if ``name`` is ``package`` or lies in it."""
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_the_packages_behind_it(package: str) -> None:
    allowed = (package, "parc.__version__", *MAY_IMPORT[package])
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in python_files(*PACKAGE_FOLDERS)
        if within(module(path), package)
        for name in sorted(imported(path))
        if not any(within(name, one) for one in allowed)
    ]
    assert not wrong


def test_every_package_of_the_table_exists() -> None:
    modules = {module(path) for path in python_files(*PACKAGE_FOLDERS)}
    assert set(MAY_IMPORT) <= modules


def test_no_module_imports_the_command_line() -> None:
    wrong = [
        path.name
        for path in python_files(*PACKAGE_FOLDERS)
        if not within(module(path), "parc.compiler.cli")
        and any(within(name, "parc.compiler.cli") for name in imported(path))
    ]
    assert not wrong


def import_graph() -> dict[str, set[str]]:
    """Return installed module -> installed modules that it imports, at any place in the file."""
    modules = {module(path): path for path in python_files(*PACKAGE_FOLDERS)}
    return {
        name: {found for one in imported(path) if (found := owner(one, modules)) not in ("", name)}
        for name, path in modules.items()
    }


def owner(name: str, modules: Collection[str]) -> str:
    """Return the module that ``name`` is, or is defined in; empty for other packages."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def grouped(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the graph of packages.

    A package without sub-packages is one node. Modules that lie next to sub-packages are nodes of
    their own, because a package may hold both the base and the front of its sub-packages.
    """
    parents = {name.rpartition(".")[0] for name in graph}
    with_children = {one.rpartition(".")[0] for one in parents}

    def node(name: str) -> str:
        parent = name.rpartition(".")[0]
        return name if parent in with_children or name in parents else parent

    found: dict[str, set[str]] = {}
    for name, used in graph.items():
        found.setdefault(node(name), set()).update(node(one) for one in used)
    return {name: used - {name} for name, used in found.items()}


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes that lie on or behind a cycle; empty if there is none."""
    left = {name: set(used) for name, used in graph.items()}
    while ready := [name for name, used in left.items() if not used & left.keys()]:
        for name in ready:
            del left[name]
    return sorted(left)


def test_no_modules_import_each_other_in_a_cycle_of_any_length() -> None:
    assert len(import_graph()) > 400
    assert cycle(import_graph()) == []


def test_no_packages_import_each_other_in_a_cycle_of_any_length() -> None:
    packages = grouped(import_graph())
    assert {IR, COST + ".kernels", PLACEMENT + ".order"} <= packages.keys()
    assert cycle(packages) == []


def test_a_cycle_of_three_packages_is_found() -> None:
    graph = {"a.x": {"b.y"}, "b.y": {"c.z"}, "c.z": {"a.w"}, "a.w": set(), "d.v": {"a.x"}}
    assert cycle(graph) == []
    assert cycle(grouped(graph)) == ["a", "b", "c", "d"]


def test_no_folder_of_the_packages_has_more_than_25_python_files() -> None:
    counts = Counter(path.parent for path in python_files(*PACKAGE_FOLDERS))
    assert {str(folder): count for folder, count in counts.items() if count > 25} == {}


def test_a_backend_never_reaches_into_another_backend() -> None:
    names = [path.parent.name for path in files("backends", pattern="backend.py")]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for own in names
        for path in python_files(f"backends/{own}")
        for name in sorted(imported(path))
        for other in names
        if other != own and within(name, f"parc.backends.{other}")
    ]
    assert len(names) >= 4
    assert not wrong


FRAMEWORK = re.compile(
    r"(?<![a-z0-9])"
    r"(megatron|deepspeed|fsdp2?|torchtitan|accelerate|vllm|sglang|trtllm|tensorrt)"
    r"(?![a-z0-9])",
    re.IGNORECASE,
)
MAY_NAME_FRAMEWORKS: dict[str, str] = {
    # Both tables cite the program that defines a quantity as the `source` of its formula, which
    # `parc explain` and the report show. A citation does not change any result.
    "compiler/cost/step/terms.py": "sources of formulas",
    "compiler/cost/serving/terms.py": "sources of formulas",
}
"""Module of the compiler -> reason why its strings may name a framework or engine."""


def strings(path: Path) -> list[tuple[int, str]]:
    """Return (line, text) per string constant of a module that is not a docstring."""
    nodes = list(ast.walk(syntax_tree(path)))
    bodies = (body for node in nodes if isinstance(body := getattr(node, "body", None), list))
    docstrings = {id(one.value) for body in bodies for one in body if isinstance(one, ast.Expr)}
    return [
        (node.lineno, node.value)
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


def test_no_module_of_the_compiler_names_a_framework() -> None:
    named = {
        f"{path.relative_to(ROOT)}:{line}: {text:.60}"
        for path in python_files("compiler")
        for line, text in strings(path)
        if FRAMEWORK.search(text)
    }
    files_of_names = {one.partition(":")[0] for one in named}
    wrong = [one for one in sorted(named) if one.partition(":")[0] not in MAY_NAME_FRAMEWORKS]
    assert not wrong
    assert files_of_names == set(MAY_NAME_FRAMEWORKS), "remove rows that are no longer needed"


def test_names_of_frameworks_are_found_as_whole_words_in_any_case() -> None:
    for text in ("vllm/serve.sh", "Megatron-LM", "FSDP2", "accelerate_config", "TensorRT-LLM"):
        assert FRAMEWORK.search(text), text
    for text in ("accelerated", "nvllm", "accelerator"):
        assert not FRAMEWORK.search(text), text


def verifier_modules() -> list[Path]:
    """Return the modules that re-derive what backends emitted: ``backends/*/verify*.py``."""
    return list(files("backends", pattern="verify*.py"))


def test_a_verifier_shares_no_code_with_the_backend_whose_files_it_checks() -> None:
    modules = [path for path in verifier_modules() if path.parent.name != "backends"]
    own = [module(path) for path in modules]
    allowed = (IR, DIAGNOSTICS, VERIFY, VERIFIER, REGISTRY, *own)
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules
        for name in sorted(imported(path))
        if not any(within(name, one) for one in allowed)
    ]
    assert not wrong
    backends = {path.parent.name for path in files("backends", pattern="backend.py")}
    assert {path.parent.name for path in modules} - {"shared", "serving", "torch"} == backends


def test_only_verifiers_use_the_verification_of_the_compiler() -> None:
    own = set(verifier_modules())
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in python_files("backends")
        if path not in own
        for name in sorted(imported(path))
        if within(name, VERIFY) or name.rpartition(".")[2].startswith("verify_")
    ]
    assert not wrong


def test_no_file_is_longer_than_400_lines_and_half_are_under_120() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in python_files()}
    assert {path.name: lines for path, lines in lengths.items() if lines > 400} == {}
    assert median(lengths.values()) <= 120


def test_no_function_is_longer_than_60_lines_and_half_are_under_12() -> None:
    lengths = [found for path in python_files() for found in functions(path)]
    assert [(name, lines) for name, lines in lengths if lines > 60] == []
    assert median(lines for _, lines in lengths) <= 12


def test_no_module_is_named_after_nothing() -> None:
    empty_names = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
    assert [path for path in python_files() if path.stem in empty_names] == []


TEXT = (".py", ".yaml", ".yml", ".json", ".j2", ".md", ".sh", ".sbatch", ".csv", ".txt", ".conf")


def texts() -> list[tuple[Path, str]]:
    """Return path and text of each text file of the checkout."""
    top = [path for path in sorted(ROOT.iterdir()) if path.is_file() and path.suffix in TEXT]
    return [
        (path, path.read_text("utf-8")) for path in (*top, *files(*TEXT_FOLDERS)) if readable(path)
    ]


def readable(path: Path) -> bool:
    """Return True if a file is text by its name."""
    return path.suffix in TEXT or path.name in ("Makefile", "run")


def test_no_file_names_a_place_on_one_machine() -> None:
    homes = re.compile(r"(?<![\w.])/(?:home/(?!kubernetes/)|root/|Users/)\w+|[A-Z]:\\Users")
    here = f"{ROOT}/" if len(ROOT.parts) > 2 else "\0"
    wrong = [
        str(path.relative_to(ROOT)) for path, text in texts() if homes.search(text) or here in text
    ]
    assert not wrong


def test_no_file_carries_the_day_it_was_written() -> None:
    day = re.compile(r"\b20[0-3]\d-[01]\d-[0-3]\d\b")
    wrong = [
        str(path.relative_to(ROOT))
        for path, text in texts()
        if "tests" not in path.relative_to(ROOT).parts  # which give dates to the YAML reader
        and day.search(text)
    ]
    assert not wrong


def test_text_files_end_in_one_newline_and_have_no_carriage_return() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in (*files(*PACKAGE_FOLDERS, "examples", "docs"), *python_files("tests"))
        if readable(path)
        and (raw := path.read_bytes())
        and (b"\r" in raw or not raw.endswith(b"\n") or raw.endswith(b"\n\n"))
    ]
    assert not wrong
