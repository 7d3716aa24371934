"""Write a Llama with random weights in the format of Hugging Face, in bf16.

    python tiny_pretrained.py FOLDER [SIZES]

SIZES is a JSON object with keys of the config that replace those of a tiny model. Imports neither
PARC nor pytest.
"""

from __future__ import annotations

import json
import sys

TINY = {
    **{"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 128},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256},
    "tie_word_embeddings": False,
}


def main() -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    sizes = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    model = LlamaForCausalLM(LlamaConfig(**TINY | sizes))
    model.to(torch.bfloat16).save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
