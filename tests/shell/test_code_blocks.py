"""Commands in the code blocks of a text: README files, and recipes in YAML."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import import_files
from parc.compiler.tools.shell.code_blocks import keep_shell_blocks
from tests.lint.scripts import codes

SERVER = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
TEXT = """\
Don't forget the weights.

{indent}```{language}
{indent}{prompt}{command} \\
{indent}  --speculative-config '{{"method": "ngram", "num_speculative_tokens": 3}}'
{indent}```

It's enough.
"""
BLOCKS = [
    {"language": "bash", "prompt": "", "indent": ""},
    {"language": "shell", "prompt": "", "indent": "  "},
    {"language": "console", "prompt": "$ ", "indent": ""},
]


@pytest.mark.parametrize("block", BLOCKS)
def test_commands_of_code_blocks_are_linted_and_imported(block: dict[str, str]) -> None:
    assert codes(TEXT.format(command=f"{SERVER} -tp 2", **block)) == []
    assert "D01" in codes(TEXT.format(command=f"{SERVER} -tp 3", **block))
    found = import_files(
        "auto", [(TEXT.format(command=f"{SERVER} -tp 2", **block), "README.md")], Sink()
    )
    assert found is not None
    assert found.fragment.spec["layout"]["tp"] == 2


def test_lines_and_columns_are_kept() -> None:
    text = TEXT.format(command=SERVER, **BLOCKS[2]) + "```console\n$ ls\nfile's\n```\n"
    kept = keep_shell_blocks(text).split("\n")
    assert len(kept) == len(text.split("\n"))
    shown = [(number, line) for number, line in enumerate(kept) if line]
    assert [number for number, _ in shown] == [3, 4, 9]
    assert kept[3].index("vllm") == text.split("\n")[3].index("vllm")
    assert "file's" not in "\n".join(kept)


@pytest.mark.parametrize(
    "text",
    [
        "Use ``` here.\n",
        "```python\nrun('--tp 3')\n```\n",
        "#!/bin/bash\ncat > README.md <<E\n```bash\nls\n```\nE\ntorchrun train.py\n",
        "#SBATCH --nodes 1\n: '\n```bash\nls\n```\n'\n",
    ],
)
def test_other_texts_are_unchanged(text: str) -> None:
    assert keep_shell_blocks(text) == text


def test_a_block_in_a_longer_fence_is_a_part_of_it() -> None:
    text = "````markdown\n```bash\nls\n```\n````\n```sh\npwd\n```\n"
    assert keep_shell_blocks(text).split() == ["pwd"]
