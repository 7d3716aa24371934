"""Snippets of the pages run and print what the pages show; ``--update-golden`` rewrites them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.spec.reading.yaml_tree import read_tree
from parc.compiler.spec.schema import all_fields
from tests.docs.snippets import BLOCK, run_page
from tests.project_files import ROOT

PAGES = (
    "README.md",
    "docs/faq.md",
    "docs/init.md",
    *(f"docs/tutorials/{name}.md" for name in ("train", "serve", "fine-tune", "review")),
)
FRAGMENTS = ("budget.md", "hyperparameters.md", "kubernetes.md", "serving.md", "torch.md")
CONFIG = {
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
"""config.json of Qwen3-8B, without keys that PARC ignores."""
NODES = "".join(
    f"NodeName=gpu00{number} Arch=x86_64 AvailableFeatures=sxm5,80gb Gres=gpu:h100:8 State=IDLE "
    "Partitions=gpu\n\n"
    for number in range(1, 9)
)
"""Output of ``scontrol show nodes``, shortened."""
TOPOLOGY = """\
SwitchName=leaf1 Nodes=gpu[001-004]
SwitchName=leaf2 Nodes=gpu[005-008]
SwitchName=spine Switches=leaf[1-2]
"""


@pytest.mark.parametrize("name", PAGES)
def test_the_snippets_of_a_page_print_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    page = ROOT / name
    text = page.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(CONFIG), "utf-8")
    Path("nodes.txt").write_text(NODES, "utf-8")
    Path("topology.txt").write_text(TOPOLOGY, "utf-8")
    Path("examples").symlink_to(ROOT / "examples")
    new = run_page(text)
    if request.config.getoption("--update-golden"):
        page.write_text(new, "utf-8")
    assert page.read_text("utf-8") == new, "run make golden"


def test_a_command_that_fails_or_prints_other_text_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = "<!-- file: a.txt -->\n```text\none\ntwo\n```\n\n```console\n"
    page += "$ cat a.txt | head -n 1\nOLD\n```\n"
    assert run_page(page) == page.replace("OLD", "one")
    with pytest.raises(AssertionError, match="no-such-command"):
        run_page("```console\n$ parc no-such-command\n```\n")
    with pytest.raises(KeyError, match="reboot"):
        run_page("```console\n$ reboot\n```\n")


@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragments_of_specs_have_fields_that_exist(name: str) -> None:
    text = (ROOT / "docs" / name).read_text("utf-8")
    blocks = [block["body"] for block in BLOCK.finditer(text) if block["kind"] == "yaml"]
    assert blocks
    unknown = []
    for block in blocks:
        tree = read_tree(block, name, sink := Sink())
        assert tree is not None, sink.diagnostics
        unknown += [path for path in _paths(tree.value) if path not in all_fields()]
    assert not unknown


def _paths(section: object, above: str = "") -> Iterator[str]:
    """Yield the paths of the keys of a spec; keys of free mappings such as launch.env are left out.

    A mapping is free if the reference lists no field below its path.
    """
    if isinstance(section, list):
        for entry in section:
            yield from _paths(entry, f"{above}[]")
    if not isinstance(section, dict):
        return
    if above and not any(path.startswith(f"{above}.") for path in all_fields()):
        return
    for key, value in section.items():
        path = f"{above}.{key}" if above else key
        yield path
        yield from _paths(value, path)


@pytest.mark.parametrize("name", PAGES)
def test_a_choice_that_the_prose_of_a_page_names_is_in_the_output_above_it(name: str) -> None:
    assert not list(_choices_without_output((ROOT / name).read_text("utf-8")))


def test_a_choice_that_the_output_does_not_show_is_noticed() -> None:
    page = "```console\n$ parc plan\ntp 1, ZeRO-2\n```\nPARC chose {}: it is fast.\n"
    assert not list(_choices_without_output(page.format("ZeRO-2")))
    assert list(_choices_without_output(page.format("ZeRO-3"))) == ["ZeRO-3"]


def _choices_without_output(page: str) -> Iterator[str]:
    """Yield the values after "PARC chose" that no console block above the sentence shows."""
    for choice in re.finditer(r"\bPARC chose ([^,:;.\n]+)", page):
        above = (block for block in BLOCK.finditer(page[: choice.start()]))
        if choice[1] not in "".join(b["body"] for b in above if b["kind"] == "console"):
            yield choice[1]


def test_every_page_with_commands_of_a_tutorial_is_run() -> None:
    pages = [*ROOT.glob("docs/tutorials/*.md"), ROOT / "docs/faq.md", ROOT / "docs/glossary.md"]
    shown = {str(page.relative_to(ROOT)) for page in pages if BLOCK.search(page.read_text("utf-8"))}
    assert shown <= set(PAGES)
    assert re.search("tutorials", " ".join(shown))
