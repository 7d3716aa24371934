"""Values that look like secrets are in no comment, fragment or argument of an import."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.secret_values import hide_secrets, is_secret
from parc.compiler.tools.importers.import_files import import_files

SECRET = "my-own-secret"
TOKEN = "hf_" + "a1B2" * 8


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--api-key", SECRET),
        ("--admin-api-key", SECRET),
        ("--hf-token", SECRET),
        ("--ssl-keyfile-password", SECRET),
        ("HF_TOKEN", SECRET),
        ("WANDB_API_KEY", SECRET),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("ANYTHING", TOKEN),
    ],
)
def test_secrets_are_recognized(name: str, value: str) -> None:
    assert is_secret(name, value)
    assert value not in hide_secrets(f"run {name}={value} more")
    assert value not in hide_secrets(f"{name}: '{value}'") or name.startswith("-")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--max-num-batched-tokens", "8192"),
        ("--tokenizer", "org/model"),
        ("--pad-token", "end"),
        ("--max-prompt-adapter-token", "4"),
        ("--api-key", "EMPTY"),
        ("--api-key", "$VLLM_API_KEY"),
        ("HF_TOKEN", "<your token>"),
        ("MODEL", "org/model"),
    ],
)
def test_other_values_are_shown(name: str, value: str) -> None:
    assert not is_secret(name, value)
    assert hide_secrets(f"run {name}={value} more") == f"run {name}={value} more"


@pytest.mark.parametrize(
    "script",
    [
        f"vllm serve org/model --api-key {SECRET}\n",
        f"vllm serve org/model --api-key={SECRET} --seed 1\n",
        f"KEY={SECRET}\nvllm serve org/model --api-key $KEY\n",
        f"export VLLM_API_KEY={SECRET}\nvllm serve org/model\n",
        f"huggingface-cli login --token {SECRET}\nvllm serve org/model\n",
        f"docker run -e HF_TOKEN={SECRET} vllm/vllm-openai:v1 --model m --api-key {SECRET}\n",
        f"python3 -m sglang.launch_server --model-path m --api-key {SECRET}\n",
        f"python3 -m sglang.launch_server --model-path m\ncurl --api-key {SECRET} localhost\n",
    ],
)
def test_an_import_repeats_no_secret(script: str) -> None:
    sink = Sink()
    found = import_files("auto", [(script, "run.sh")], sink)
    assert found is not None
    shown = [*found.fragment.notes, str(found.fragment.spec)]
    shown += [f"{one.finding}" for one in sink.diagnostics]
    assert SECRET not in "\n".join(shown)


MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v1
      args: [--model, org/model, --api-key, SECRET]
      env:
        - {name: HF_TOKEN, value: SECRET}
      resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_a_manifest_repeats_no_secret() -> None:
    sink = Sink()
    found = import_files("auto", [(MANIFEST.replace("SECRET", SECRET), "pod.yaml")], sink)
    assert found is not None
    assert found.fragment.spec["launch"]["env"]["HF_TOKEN"] == {"from": "environment"}
    shown = [*found.fragment.notes, str(found.fragment.spec), *map(str, sink.diagnostics)]
    assert SECRET not in "\n".join(shown)


def test_a_variable_with_a_secret_comes_from_the_environment() -> None:
    script = f"export HF_TOKEN={SECRET} OMP_NUM_THREADS=8\nvllm serve org/model\n"
    found = import_files("auto", [(script, "run.sh")], Sink())
    assert found is not None
    env = found.fragment.spec["launch"]["env"]
    assert env["HF_TOKEN"] == {"from": "environment"}
    assert env["OMP_NUM_THREADS"] == "8"


def test_the_finding_names_the_field_that_replaces_an_argument() -> None:
    sink = Sink()
    import_files("auto", [(f"vllm serve org/model --api-key {SECRET}\n", "run.sh")], sink)
    (finding,) = (one.finding for one in sink.diagnostics if "--api-key" in one.finding.message)
    assert "launch.env.NAME: {from: environment}" in finding.help
