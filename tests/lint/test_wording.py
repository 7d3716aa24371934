"""Wording of lint: skipped rules, notes, numbers of findings, and fixes of single values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.cli.specs import parc
from tests.lint.scripts import MEGATRON, codes, edited

LLAMA = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 8 --port 8001\n"
OWN = "vllm serve org/model -tp 4 {}\n"
SCRIPTS = {
    "vllm": LLAMA,
    "vllm own model": OWN.format("-dp 2 --enable-expert-parallel"),
    "vllm in a job": f"#SBATCH --nodes=1 --gpus-per-node=8\nsrun {LLAMA}",
    "sglang": "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --tp 8\n",
    "tensorrt-llm": "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2\n",
    "megatron": MEGATRON,
    "open megatron": 'torchrun pretrain_gpt.py --tensor-model-parallel-size 4 "$@"\n',
    "virtual stages": MEGATRON.replace(
        "--bf16", "--bf16 --num-layers-per-virtual-pipeline-stage 4"
    ),
    "experts": MEGATRON.replace("--bf16", "--bf16 --num-experts 8 --moe-router-topk 2"),
}


@pytest.mark.parametrize("model", [None, "llama-3.1-70b"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_each_skipped_rule_is_listed_once_with_a_fact(name: str, model: str | None) -> None:
    _, skipped = lint_text(SCRIPTS[name], "run.sh", LintOptions(model=model))
    listed = [one.code for one in skipped]
    assert len(listed) == len(set(listed))
    for one in skipped:
        assert re.fullmatch(r"(the|a|an) [\w ,-]+ is unknown\.( Pass --\w+\.)?", one.reason)
        assert not re.search(r"settings is|port|search for other", one.reason)
        assert model is None or "--model" not in one.reason or "value of" in one.reason


def test_no_check_of_settings_that_only_a_spec_has_is_listed() -> None:
    for name in ("vllm", "sglang", "tensorrt-llm"):
        sink, skipped = lint_text(SCRIPTS[name], "run.sh", LintOptions())
        of_specs = {"E14", "G07", "G13", "L29", "L30", "L31", "V30"}
        assert not of_specs & {one.code for one in skipped}
        assert not of_specs & sink.checked


def test_facts_of_the_script_are_not_unknown() -> None:
    _, skipped = lint_text(SCRIPTS["vllm in a job"], "run.sh", LintOptions())
    assert not {"the number of GPUs per host", "the number of GPUs"} & {one.fact for one in skipped}
    for script in (MEGATRON, SCRIPTS["virtual stages"], SCRIPTS["experts"]):
        sink, skipped = lint_text(script, "run.sh", LintOptions())
        assert not any("vocab" in one.fact for one in skipped)
        assert "P01" in sink.checked


def test_a_quantized_type_is_not_taken_for_a_misspelled_type() -> None:
    def fix(flags: str) -> str:
        sink, _ = lint_text(OWN.format(flags), "run.sh", LintOptions())
        (found,) = [one for one in sink.diagnostics if one.code == "PARC-F03"]
        return found.finding.fix

    assert fix("--dtype float8") == "--dtype auto --quantization fp8"
    assert fix("--dtype fp8_e4m3") == "--dtype auto --quantization fp8"
    assert fix("--dtype fp8 --quantization fp8") == "--dtype auto"
    assert fix("--dtype int4") == "--dtype auto"
    assert fix("--dtype bfloat61") == ""
    assert fix("--dtype bfloat-16") == "--dtype bfloat16"
    assert codes(OWN.format("--dtype auto --quantization fp8")) == []


def test_layers_of_a_virtual_stage_get_a_fix_that_works() -> None:
    flag = "--num-layers-per-virtual-pipeline-stage"
    script = edited(MEGATRON, (("--bf16", f"--bf16 {flag} 5"),))
    sink, _ = lint_text(script, "run.sh", LintOptions())
    (found,) = [one for one in sink.diagnostics if one.code == "PARC-P02"]
    assert found.finding.fix == f"{flag} 4"
    assert "P02" not in codes(script.replace(f"{flag} 5", f"{flag} 4"))


def test_a_note_without_a_place_names_its_source(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 6\n")
    output = parc("lint", str(path)).stdout
    assert "note: :" not in output
    assert "note: vLLM reports: " in output


def test_the_number_of_findings_agrees_with_the_blocks(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(MEGATRON.replace("model-parallel-size 4", "model-parallel-size 3"))
    output = parc("lint", str(path)).stdout
    found = re.search(r"^(\d+) errors from (\d+) mistakes?$", output, re.M)
    assert found is not None
    assert output.count("\nerror[") + output.startswith("error[") == int(found[2])
    assert output.count("= also:") == int(found[1]) - int(found[2])
