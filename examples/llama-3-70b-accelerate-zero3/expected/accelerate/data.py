"""Training sequences of the job in job.json, the same for every number of ranks.

`data` lists the files: .npy or int32 token ids (any other suffix), or text (.txt, .jsonl with the key
"text"), which needs the library datasets and a `tokenizer`. Weights may precede the files. Without
files, the tokens are random.
"""

import json
import os
from collections import Counter
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
    path, earlier = file_of(step)
    index = earlier * PLAN["global_batch"] + place
    if path.endswith(TEXT):
        rows = text_rows(path)
        return torch.tensor(rows[index % len(rows)]["ids"])
    tokens = tokens_of(path)
    place = index * LENGTH % (len(tokens) - LENGTH + 1)
    return tokens[place : place + LENGTH].long()


TURNS: list[tuple[str, int]] = []  # step -> its file, and the number of earlier steps with it
READ: Counter[int] = Counter()  # position of a file -> number of steps in TURNS with it


def file_of(step: int) -> tuple[str, int]:
    """Return the file that a step reads, and the number of earlier steps that read it.

    The next file is the one that lacks most of its share of the steps: without weights, the files
    take turns.
    """
    files, shares = shares_of_files()
    while len(TURNS) <= step:
        lacks = [share * (len(TURNS) + 1) - READ[file] for file, share in enumerate(shares)]
        file = lacks.index(max(lacks))
        TURNS.append((files[file], READ[file]))
        READ[file] += 1
    return TURNS[step]


@cache
def shares_of_files() -> tuple[list[str], list[float]]:
    """Return the files, and the share of the steps that reads each of them."""
    words = PLAN["data"]
    try:
        weights, files = [float(one) for one in words[::2]], words[1::2]
    except ValueError:  # no weights
        weights, files = [1.0] * len(words), words
    return files, [weight / sum(weights) for weight in weights]


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
