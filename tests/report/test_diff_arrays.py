"""``parc diff`` of a launch script whose arrays contain only flags that PARC does not import."""

from __future__ import annotations

from parc.backends.megatron.launch_files.settings import read_settings

SCRIPT = """\
SIZES=(--num-layers 4 --hidden-size 512)
LOGGING=(
    --log-progress
    --main-grads-dtype bf16
)
torchrun --nproc_per_node 8 pretrain_gpt.py ${SIZES[@]} ${LOGGING[@]}
"""


def test_flags_of_all_arrays_are_settings() -> None:
    assert dict(read_settings(SCRIPT, "train.sh")) == {
        **{"--num-layers": "4", "--hidden-size": "512"},
        **{"--log-progress": "", "--main-grads-dtype": "bf16"},
    }
