"""Bad spec of each diagnostic code, with its exact text, and fixes that work; entries; sections."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.codes import all_codes, code_title
from parc.compiler.diagnostics.render import render
from parc.compiler.pipeline import plan_spec
from parc.compiler.report.text.diagnostics_page import FAMILIES, diagnostics_page
from parc.compiler.spec.fixes import overrides_of_fix
from parc.compiler.spec.override import apply_overrides
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.spec.reading.yaml_tree import read_tree
from tests.samples import sample_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CODES = {info.code: info for info in all_codes()}
FOLDERS = sorted(path.name for path in HERE.iterdir() if (path / "spec.yaml").is_file())

WITHOUT_SOURCES = "AGHIKOQX"
"""Families whose rules are PARC's own, so that no external page can be cited."""
ELSEWHERE: dict[str, str] = {
    **{f"A{number:02d}": "tests/verify/test_verify_plan.py" for number in range(1, 10)},
    **dict.fromkeys(("A10", "A11", "A12"), "tests/verify/test_verify_checksums.py"),
    "A13": "tests/verify/test_verify_plugins.py",
    "A14": "tests/verify/test_emitted_settings.py",
    "A18": "tests/verify/edited/test_edits_kubernetes.py",
    "A19": "tests/verify/edited/test_edits_kubernetes.py",
    **{f"O{number:02d}": "tests/cli/test_compile.py" for number in range(1, 4)},
    "O04": "tests/cli/test_replan.py",
    "O05": "tests/cli/test_compile.py",
    **{f"Q{number:02d}": "tests/cli/test_calibrate.py" for number in range(1, 7)},
    **dict.fromkeys(("Q09", "Q10"), "tests/cli/test_calibrate_service.py"),
    "D15": "tests/diagnostics/test_second_nets.py",
    "I12": "tests/diagnostics/test_many_findings.py",
    **dict.fromkeys(("V32", "V33"), "tests/resolve/test_resolve_engine.py"),
    "X21": "tests/resolve/test_resolve_targets.py",
    "X23": "tests/backends/test_plugins.py",
    "I08": "tests/cli/test_import_output.py",
    **dict.fromkeys(("I09", "I10"), "tests/lint/test_nothing_silent.py"),
    "L11": "tests/backends/test_launch_rules.py",
    **dict.fromkeys(
        (
            "B02",
            "B03",
            "F04",
            "F07",
            "F08",
            "L01",
            "L02",
            "L04",
            "L05",
            "L08",
            "L34",
            "L35",
            "R06",
            "R13",
            "S14",
        ),
        "tests/lint/scripts.py",
    ),
    "L36": "tests/lint/test_launch_sizes.py",
    **dict.fromkeys(("L41", "L42"), "tests/lint/test_manifests.py"),
    "X30": "tests/backends/deepspeed/test_import_older_keys.py",
    "L44": "tests/topology/test_slurm_options.py",
    "L43": "tests/lint/test_stray_lines.py",
    "V03": "tests/lint/test_several_servers.py",
    "R16": "tests/lint/test_lint_text.py",
}
"""Codes that no spec causes -> the test that causes them.

Codes A need files that were edited, O an output directory, Q measurements; D15 is a second check
behind an earlier one; V32, V33 and X23 need a faulty plugin; X21 is tested in its pass. The
remaining codes are mistakes in external scripts, which PARC does not write.
"""


NEVER_LOWERED = (
    *("job.global_batch", "job.sequence_length", "job.steps", "job.max_model_len"),
    *("cluster.nodes", "launch.slurm.time_limit"),
)
"""Spec paths of what the user asked for. A fix may raise it, but not lower it."""
REVEALED = {
    "I05": "the contents of the file are only read when its format is clear",
}
"""Code -> reason why an error with another code may appear after its fix."""
BY_HAND = {
    **dict.fromkeys(
        ("E01", "E02", "E03", "E04", "E05", "E06", "K06"), "the model is another one then"
    ),
    **dict.fromkeys(("F01", "F02", "F03"), "an edit inside launch.args, as lint offers it"),
    **dict.fromkeys(("H04", "H05", "K03", "X08", "X19"), "only the user has the value"),
    **dict.fromkeys(("L22", "L24", "L27"), "the user's name of an image or a queue"),
    **dict.fromkeys(("L16", "M10"), "a choice of the user"),
}
"""Code of a bad spec whose fixes cannot be applied mechanically -> reason."""


@cache
def reported(code: str, *edits: str) -> Sink:
    """Return what the bad spec of ``code`` causes after ``edits``."""
    sink = Sink()
    plan_spec(bad_spec(code), [*overrides(code), *edits], sink)
    return sink


def bad_spec(code: str) -> SpecSource:
    text = (HERE / code / "spec.yaml").read_bytes().decode("utf-8", "replace")
    return SpecSource("spec.yaml", text, HERE / code)


def overrides(code: str) -> list[str]:
    """Return the ``--set`` arguments in set.txt."""
    extra = HERE / code / "set.txt"
    return extra.read_text("utf-8").splitlines() if extra.is_file() else []


@pytest.mark.parametrize("code", FOLDERS)
def test_a_bad_spec_gives_exactly_the_expected_text(
    code: str, request: pytest.FixtureRequest
) -> None:
    sink = reported(code)
    text = render([sink])
    assert f"PARC-{code}" in {found.code for found in sink.diagnostics}
    golden = HERE / code / "expected.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(text, encoding="utf-8", newline="\n")
    assert text == golden.read_text("utf-8")


@cache
def tree_after(code: str, *edits: str) -> Any:
    """Return the values of the bad spec of ``code`` after ``edits``; None if it is not YAML."""
    source = bad_spec(code)
    tree = read_tree(source.text, source.name, Sink())
    if tree is None:
        return None
    return apply_overrides(tree, [*overrides(code), *edits], Sink()).value


def value_after(code: str, path: str, *edits: str) -> Any:
    """Return the value at ``path`` in the bad spec of ``code`` after ``edits``; None if absent."""
    node = tree_after(code, *edits)
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    return node


def lowered(code: str, *edits: str) -> list[str]:
    """Return the paths whose number, or presence, the fix lowers."""
    paths = []
    for path in NEVER_LOWERED:
        before, after = value_after(code, path), value_after(code, path, *edits)
        shrinks = isinstance(before, int) and isinstance(after, int) and after < before
        if shrinks or (before is not None and after is None):
            paths.append(path)
    return paths


@pytest.mark.parametrize("code", sample_of(FOLDERS, len(FOLDERS) // 3))
def test_each_fix_was_tried_and_lowers_nothing(code: str) -> None:
    before = reported(code).diagnostics
    offered = [found for found in before if found.finding.fix]
    by_hand = [found.finding.fix for found in offered if not overrides_of_fix(found.finding.fix)]
    assert bool(by_hand) == (code in BY_HAND), by_hand
    for found in offered:
        edits = overrides_of_fix(found.finding.fix)
        if not edits:
            continue
        after = reported(code, *edits).diagnostics
        assert (found.code, found.path) not in {(one.code, one.path) for one in after}, edits
        errors = {one.code for one in after if one.severity == "error"}
        new = errors - {one.code for one in before}
        assert bool(new) == (code in REVEALED), (edits, new)
        assert not lowered(code, *edits), edits


def test_every_exception_has_its_case() -> None:
    assert {*REVEALED, *BY_HAND} <= {*FOLDERS}


@pytest.mark.parametrize("code", ["D01", "D09", "D10", "S07", "T11"])
def test_one_edit_of_the_layout_removes_all_errors(code: str) -> None:
    (edits, *_) = [
        overrides_of_fix(one.finding.fix) for one in reported(code).diagnostics if one.finding.fix
    ]
    assert edits
    assert not [one for one in reported(code, *edits).diagnostics if one.severity == "error"]


def test_the_title_of_a_code_equals_that_of_its_full_entry() -> None:
    assert {code: code_title(code) for code in CODES} == {
        code: info.title for code, info in CODES.items()
    }


def test_codes_and_folders_are_the_same_set() -> None:
    assert sorted(CODES) == sorted({*FOLDERS, *ELSEWHERE})
    assert not set(FOLDERS) & set(ELSEWHERE)


@pytest.mark.parametrize("code", ELSEWHERE)
def test_a_code_without_a_spec_is_tested_in_the_listed_file(code: str) -> None:
    assert f'"{code}"' in (ROOT / ELSEWHERE[code]).read_text("utf-8").replace("PARC-", "")


def test_the_page_of_the_diagnostics_is_current() -> None:
    assert (ROOT / "docs" / "diagnostics.md").read_text("utf-8") == diagnostics_page(), (
        "run make docs"
    )


def test_every_code_has_a_section_and_every_family_a_name() -> None:
    text = diagnostics_page()
    for code in CODES:
        assert f"\n### PARC-{code}\n" in text
    assert {code[0] for code in CODES} <= FAMILIES.keys()


@pytest.mark.parametrize("code", CODES)
def test_an_entry_has_a_reason_a_fix_an_example_and_sources(code: str) -> None:
    info = CODES[code]
    assert info.severity in ("error", "warning", "advice")
    for text in (info.title, info.rule, info.why, info.fix, info.bad):
        assert text.strip()
    assert info.sources or code[0] in WITHOUT_SOURCES


def test_every_reported_code_has_an_entry() -> None:
    import re

    used = {
        code
        for package in ("compiler", "backends")
        for path in (ROOT / package).rglob("*.py")
        for code in re.findall(r'"([A-Z]\d\d)"', path.read_text("utf-8"))
    }
    assert sorted(used - CODES.keys()) == []
