"""Flags belong to the command that starts the server, in ``parc import`` and ``parc lint``."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import ImportResult, import_files
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions

VLLM = "vllm serve Qwen/Qwen3-8B"
SGLANG = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B"
TRTLLM = "trtllm-serve Qwen/Qwen3-8B"
CLIENT = "python3 bench.py --backend vllm --tensor-parallel-size 4 --port 9000 --no-such-flag 1\n"


def imported(script: str, name: str = "run.sh") -> ImportResult:
    sink = Sink()
    found = import_files("auto", [(script, name)], sink)
    assert found is not None, [one.finding.message for one in sink.diagnostics]
    return found


def spec(script: str, name: str = "run.sh") -> dict[str, Any]:
    return dict(imported(script, name).fragment.spec)


def notes(script: str) -> str:
    return "\n".join(imported(script).fragment.notes)


def codes(script: str) -> list[str]:
    sink, _ = lint_text(script, "run.sh", LintOptions(allow_unknown=True))
    return [one.code.removeprefix("PARC-") for one in sink.diagnostics]


@pytest.mark.parametrize(
    ("server", "kind", "flag"),
    [
        (VLLM, "vllm-args", "--tensor-parallel-size"),
        (SGLANG, "sglang-args", "--tp-size"),
        (TRTLLM, "trtllm-args", "--tp_size"),
    ],
)
@pytest.mark.parametrize("after", [CLIENT, f"wait_for_server --server-log x\n{CLIENT}"])
def test_flags_of_a_client_are_not_those_of_the_server(
    server: str, kind: str, flag: str, after: str
) -> None:
    script = f"{server} {flag} 2 &\n{after}"
    found = imported(script)
    assert found.kinds == kind
    assert found.fragment.spec["layout"]["tp"] == 2
    assert "port" not in found.fragment.spec.get("launch", {})
    assert codes(script) == []
    assert "--no-such-flag 1" in notes(script)


@pytest.mark.parametrize(
    "script",
    [
        'ARGS=(--tensor-parallel-size 4)\nvllm serve Qwen/Qwen3-8B "${ARGS[@]}"\n',
        'ARGS="--tensor-parallel-size 4"\nvllm serve Qwen/Qwen3-8B $ARGS\n',
        'BASE="--tensor-parallel-size 4"\nARGS="$BASE --seed 1"\nvllm serve Qwen/Qwen3-8B $ARGS\n',
        'CMD="vllm serve Qwen/Qwen3-8B --tensor-parallel-size 4"\n$CMD\n',
        'CMD="vllm serve Qwen/Qwen3-8B --seed 1"\nnohup $CMD --tensor-parallel-size 4 > log &\n',
        'CMD=(vllm serve Qwen/Qwen3-8B)\n"${CMD[@]}" --tensor-parallel-size 4\n',
        'srun --nodes 1 bash -c "vllm serve Qwen/Qwen3-8B --tensor-parallel-size 4"\n',
        "exec vllm serve Qwen/Qwen3-8B \\\n  --tensor-parallel-size 4\n",
        "docker run --gpus all vllm/vllm-openai:v1 --model Qwen/Qwen3-8B -tp 4\n",
        "serve() {\n  vllm serve Qwen/Qwen3-8B --tensor-parallel-size 4\n}\nserve\n",
        "python3 vllm/entrypoints/openai/api_server.py --model Qwen/Qwen3-8B -tp 4\n",
    ],
)
def test_variables_and_launchers_of_the_server_are_read(script: str) -> None:
    found = spec(script + 'OTHER=(--tensor-parallel-size 2)\npython3 eval.py "${OTHER[@]}"\n')
    assert found["layout"]["tp"] == 4
    assert found["job"]["checkpoint"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    "script",
    [
        CLIENT,
        "bash train.sh\npython3 evaluate.py --tensor-parallel-size 2\n",
        'ATOM=(python3 -m atom.server --tensor-parallel-size 2)\n"${ATOM[@]}" &\n'
        "vllm bench serve --port 80\n",
        "docker pull vllm/vllm-openai:v1 -q\npython3 train.py --tensor-parallel-size 2\n",
    ],
)
def test_a_script_without_a_server_is_refused(script: str) -> None:
    sink = Sink()
    assert import_files("auto", [(script, "run.sh")], sink) is None
    assert [one.code for one in sink.diagnostics] == ["PARC-I05"]
    assert "starts a program that PARC cannot import" in sink.diagnostics[0].finding.message


@pytest.mark.parametrize(
    "text",
    [
        "--tensor-parallel-size 4 --max-num-seqs 8\n",
        "ARGS=(--tensor-parallel-size 4 --max-num-seqs 8)\n",
        "extraArgs:\n  - --tensor-parallel-size=4\n",
    ],
)
def test_a_file_with_arguments_only_is_still_read(text: str) -> None:
    found = imported(text, "values.yaml")
    assert found.kinds == "vllm-args"
    assert found.fragment.spec["layout"]["tp"] == 4


def test_a_command_that_is_only_printed_is_no_second_server() -> None:
    command = "CMD=(vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2)\n"
    start = '"${CMD[@]}" --seed 1 > log 2>&1 &\n'
    for printed in ('write_command out.txt "${CMD[@]}"\n', 'echo "${CMD[@]}" --x 1\n'):
        assert "servers" not in notes(command + printed + start)
        assert spec(command + printed + start)["launch"]["args"] == ["--seed", "1"]
    # If nothing else starts the command, a function of the script does.
    assert spec(f'{command}run_server "${{CMD[@]}}" --seed 1\n')["launch"]["args"] == [
        "--seed",
        "1",
    ]


def test_commands_after_the_server_prepare_nothing() -> None:
    before = "module load cuda\nexport NCCL_DEBUG=INFO\n"
    after = f"sleep 5\nmodule load python\nexport OMP_NUM_THREADS=1\nvllm bench serve\n{CLIENT}"
    script = f"{before}{VLLM} --seed 1 &\n{after}"
    assert spec(script)["launch"]["setup"] == ["module load cuda"]
    assert spec(script)["launch"]["env"] == {"NCCL_DEBUG": "INFO"}
    shown = notes(script)
    assert "not carried over, line 3" not in shown
    for line, text in (
        (5, "module load python"),
        (6, "export OMP"),
        (7, "vllm bench"),
        (8, "python3"),
    ):
        assert f"not carried over, line {line}: {text}" in shown
    # A function can be called after the variables are set.
    called = f"run() {{\n  {VLLM}\n}}\nexport NCCL_DEBUG=INFO\nrun\n"
    assert spec(called)["launch"]["env"] == {"NCCL_DEBUG": "INFO"}


def test_two_servers_have_their_own_ports() -> None:
    one, two = (f"CUDA_VISIBLE_DEVICES={n} {VLLM} --port 8{n + 1}00 &\n" for n in (0, 1))
    client = "python3 bench.py --model m --port 8000\n"
    assert codes(one + two + client) == []
    assert spec(one + two + client)["launch"]["port"] == 8100
    assert "the script starts 2 servers: this is the first one" in notes(one + two + client)
    assert codes(one + one.replace("=0", "=1")) == ["L10"]


def test_ports_in_arrays_belong_to_their_server() -> None:
    arrays = "A=(--port 8100)\nB=(--port 8200)\n"
    servers = "".join(
        f'CUDA_VISIBLE_DEVICES={n} {VLLM} "${{{name}[@]}}" &\n' for n, name in enumerate("AB")
    )
    assert codes(arrays + servers) == []
    assert codes(arrays.replace("8200", "8100") + servers) == ["L10"]
    # A variable that the script does not set may contain a port.
    assert codes(servers) == []


def test_a_further_server_is_reported() -> None:
    script = f"{VLLM} --max-model-len 4096 &\n{VLLM} --max-model-len 8192 --port 8001 &\n"
    assert spec(script)["job"]["max_model_len"] == 4096
    assert "not carried over, line 2: --max-model-len 8192" in notes(script)
    assert "2 servers" in notes(script)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "$PWD/mine"])
@pytest.mark.parametrize(
    "command",
    [
        "vllm serve --tensor-parallel-size 8 {} --host 0.0.0.0",
        "vllm serve --enable-expert-parallel -tp=8 {}",
        "trtllm-serve --tp_size 8 {}",
    ],
)
def test_the_model_can_follow_flags(command: str, model: str) -> None:
    script = command.format(model) + "\n"
    if model.startswith("$"):
        assert model in notes(script)
        assert "checkpoint" not in spec(script)["job"]
    else:
        assert spec(script)["job"]["checkpoint"] == model


def test_a_redirection_without_a_blank_is_no_part_of_a_flag() -> None:
    assert codes(f"{SGLANG} --disable-radix-cache>log 2>&1 &\n") == []


@pytest.mark.parametrize(("size", "kept"), [(256, True), (48, False)])
@pytest.mark.parametrize("server", [f"{VLLM} --block-size", f"{SGLANG} --page-size"])
def test_a_block_size_that_no_spec_can_contain_is_reported(
    server: str, size: int, kept: bool
) -> None:
    job = spec(f"{server} {size}\n")["job"]
    assert job.get("block_tokens") == (size if kept else None)
    assert (f"{size}" in notes(f"{server} {size}\n")) is not kept
