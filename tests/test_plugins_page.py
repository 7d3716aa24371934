"""The framework in ``docs/plugins.md`` is compiled and verified, and the page is complete."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from parc.backends.plain_engine import PlainEngine
from parc.backends.plain_framework import PlainFramework
from parc.backends.shared.strategies import STRATEGIES
from parc.compiler.cli import main
from tests.backends.minitrain import BACKEND, PAGE, VERIFIER, files_of_page, install_minitrain
from tests.backends.plugin_distributions import scanned
from tests.project_files import ROOT, imported

CONFIG = "minitrain/config.yaml"
TEXT = PAGE.read_text("utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` for distributions."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def parc(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [one.format(folder=folder) for one in words])


COMPILE = ("compile", "{folder}/spec.yaml", "-o", "{folder}/out")
VERIFY = ("verify", "{folder}/out")


@pytest.mark.parametrize(
    "layout", [(), ("tp=2", "pp=2"), ("tp=8", "pp=1"), ("zero_stage=0",), ("recompute=full",)]
)
def test_the_framework_is_compiled_and_verified(folder: Path, layout: tuple[str, ...]) -> None:
    install_minitrain(folder)
    assert parc(folder, "backends").exit_code == 0
    done = parc(folder, *COMPILE, *(word for one in layout for word in ("--set", f"layout.{one}")))
    assert done.exit_code == 0, done.output
    assert "error[" not in done.output
    assert "PARC-A13" not in done.output
    assert parc(folder, *VERIFY).output.startswith("OK:")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("seed: 1234", "seed: 7", "A14"),
        ("hidden: 4096", "hidden: 999", "A14"),
        ("micro_batch: 2", "micro_batch: 4", "A14"),
        ("shard_optimizer: true", "shard_optimizer: false", "A14"),
        ("  tp: 2", "  tp: 4", "A05"),
        ("steps: 500", "steps: 500\nwarmup: 3", "A14"),
    ],
)
def test_an_edit_of_its_file_is_reported(folder: Path, old: str, new: str, found: str) -> None:
    install_minitrain(folder)
    assert parc(folder, *COMPILE, "--set", "layout.tp=2").exit_code == 0
    file = folder / "out" / CONFIG
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    done = parc(folder, *VERIFY)
    assert done.exit_code == 1
    assert f"PARC-{found}" in done.output


def test_settings_that_its_verifier_does_not_read_are_listed(folder: Path) -> None:
    row = '    "problem.job.seed": ("seed", 0),\n'
    ending = "        yield from found.unread_settings()\n"
    install_minitrain(folder, (VERIFIER, row, ""), (VERIFIER, ending, ""))
    done = parc(folder, *COMPILE)
    assert done.exit_code == 0
    assert "PARC-A13" in done.output
    assert re.search(r"reads (\d+) of (\d+) settings; not job\.seed\n", done.output)
    assert parc(folder, *VERIFY).exit_code == 1


def test_a_setting_with_a_reason_is_not_listed(folder: Path) -> None:
    row = '    "problem.job.seed": ("seed", 0),\n'
    ending = "        yield from found.unread_settings()\n"
    reason = (
        'class MinitrainVerifier(RankOrderVerifier):\n    not_in_files = {"problem.job.seed": "-"}'
    )
    edits = ((VERIFIER, row, ""), (VERIFIER, ending, ""))
    install_minitrain(
        folder, *edits, (VERIFIER, "class MinitrainVerifier(RankOrderVerifier):", reason)
    )
    assert "PARC-A13" not in parc(folder, *COMPILE).output


def test_another_rank_order_than_that_of_the_verifier_is_found(folder: Path) -> None:
    install_minitrain(folder, (BACKEND, '"tp-cp-ep-dp-pp"', '"tp-cp-ep-pp-dp"'))
    done = parc(folder, *COMPILE, "--set", "layout.pp=2")
    assert done.exit_code == 1
    assert "PARC-A01" in done.output


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("vpp=2", "pp=2"), "minitrain has one model chunk per stage"),
        (("first_stage_layers=10", "pp=2"), "minitrain always splits the layers evenly"),
        (("pp=64",), "fewer than pp 64 stages"),
    ],
)
def test_splits_that_the_default_framework_lacks_are_refused(
    folder: Path, settings: tuple[str, ...], message: str
) -> None:
    install_minitrain(folder)
    words = [word for one in settings for word in ("--set", f"layout.{one}")]
    nodes = ("--set", "cluster.nodes=8") if "pp=64" in settings else ()
    done = parc(folder, "check", "{folder}/spec.yaml", *words, *nodes)
    assert done.exit_code == 1
    assert message in done.output


def test_its_verifier_imports_no_other_module_of_the_package() -> None:
    tree = ast.parse(files_of_page()[VERIFIER])
    names = [one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
    assert [name for name in names if name.startswith("parc_minitrain")] == []


def listed_modules() -> set[str]:
    """Return the modules in the last table of the page."""
    table = TEXT[TEXT.index("## Modules that a plugin may import") :]
    modules: set[str] = set()
    for cell in re.findall(r"^\| (`parc[^|]*)", table, re.MULTILINE):
        first, *others = re.findall(r"`([\w.]+)`", cell)
        modules |= {first, *(f"{first.rpartition('.')[0]}{name}" for name in others)}
    return modules


def test_listed_modules_exist() -> None:
    assert [name for name in listed_modules() if find_spec(name) is None] == []


def test_the_examples_import_only_listed_modules() -> None:
    used = set[str]()
    for path in (ROOT / "examples" / "plugin" / "src").rglob("*.py"):
        used |= {name.rpartition(".")[0] for name in imported(path) if name.startswith("parc.")}
    for text in files_of_page().values():
        used |= set(re.findall(r"^from (parc\.[\w.]+) import", text, re.MULTILINE))
    readme = (ROOT / "backends" / "README.md").read_text("utf-8")
    used |= set(re.findall(r"^from (parc\.[\w.]+) import", readme, re.MULTILINE))
    listed = listed_modules()
    wrong = {name for name in used if name not in listed and name.count(".") > 1}
    assert {one for one in wrong if not one.startswith("parc.compiler.ir")} == set()


def test_the_page_names_every_default_and_every_strategy() -> None:
    both = {**vars(PlainFramework), **vars(PlainEngine)}
    members = {name for name in both if not name.startswith("_")}
    assert [name for name in members if f"`{name}`" not in TEXT] == []
    assert [one.name for one in STRATEGIES if f"`{one.name}`" not in TEXT] == []


def test_the_spec_of_the_page_sets_only_declared_fields(folder: Path) -> None:
    install_minitrain(folder)
    done = parc(folder, "check", "{folder}/spec.yaml", "--format", "json")
    found = json.loads(done.output)["diagnostics"]
    assert [one["code"] for one in found if one["severity"] == "error"] == []
