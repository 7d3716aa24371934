"""Training sequences of the job in job.json, the same for every number of ranks.

`data` lists the files: .npy or int32 token ids (any other suffix), or text (.txt, .jsonl with the key
"text"), which needs the library datasets and a `tokenizer`. Without files, the tokens are random.
"""

import json
import os
from functools import cache
from pathlib import Path

import torch

PLAN = json.loads(Path(__file__).with_name("job.json").read_text("utf-8"))
LENGTH = PLAN["sequence_length"] + 1  # one more token, because labels are shifted by one
TEXT = (".txt", ".json", ".jsonl")


def announce() -> None:
    """Print where the tokens come from; call this on one rank."""
    if PLAN["data"]:
        print(f"data: {', '.join(PLAN['data'])}", flush=True)
    else:
        print("NO DATA: this run trains on random tokens. Set job.data in the spec.", flush=True)


def sequence(number: int, vocab: int) -> torch.Tensor:
    """Return training sequence ``number`` with one more token for the labels."""
    if not PLAN["data"]:
        generator = torch.Generator().manual_seed(PLAN["seed"] + number)
        return torch.randint(vocab, (LENGTH,), generator=generator)
    step, place = divmod(number, PLAN["global_batch"])
    turn, file = divmod(step, len(PLAN["data"]))  # each step reads the next file
    path, index = PLAN["data"][file], turn * PLAN["global_batch"] + place
    if path.endswith(TEXT):
        rows = text_rows(path)
        return torch.tensor(rows[index % len(rows)]["ids"])
    tokens = tokens_of(path)
    place = index * LENGTH % (len(tokens) - LENGTH + 1)
    return tokens[place : place + LENGTH].long()


@cache
def tokens_of(path: str) -> torch.Tensor:
    """Return the token ids in a file without reading the whole file into memory."""
    if path.endswith(".npy"):
        import numpy

        return torch.from_numpy(numpy.load(path, mmap_mode="c"))
    return torch.from_file(path, size=os.path.getsize(path) // 4, dtype=torch.int32)


@cache
def text_rows(path: str):
    """Return the text of a file as rows of LENGTH token ids, cached on disk by datasets."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    if not PLAN["tokenizer"]:
        raise SystemExit(f"{path} is text: set job.tokenizer_model in the spec")
    tokenizer = AutoTokenizer.from_pretrained(PLAN["tokenizer"])

    def pack(batch: dict) -> dict:
        ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        ids = [one for text in batch["text"] for one in (*tokenizer(text)["input_ids"], *ends)]
        return {"ids": [ids[at : at + LENGTH] for at in range(0, len(ids) - LENGTH + 1, LENGTH)]}

    rows = load_dataset("text" if path.endswith(".txt") else "json", data_files=path, split="train")
    rows = rows.map(pack, batched=True, batch_size=10_000, remove_columns=rows.column_names)
    if not len(rows):
        raise SystemExit(f"{path} has fewer than {LENGTH} tokens")
    return rows
