"""Megatron's own argument parser, for the flags of a plan, as an oracle of the verification.

``megatron_parser.json`` is a dump of the parser of Megatron-LM (``add_megatron_arguments``);
tests/conformance/megatron/test_edits.py compares it with the installed package.
"""

from __future__ import annotations

import argparse
import json
import shlex
from functools import cache
from pathlib import Path

DUMP = Path(__file__).with_suffix(".json")
_TYPES = {"int": int, "float": float}


class _Rejected(Exception):
    """The parser rejects the arguments."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise _Rejected(message)


@cache
def megatron_parser() -> argparse.ArgumentParser:
    """Return a parser with the rows of the dump."""
    parser = _Parser(allow_abbrev=False, add_help=False)
    for flag, row in json.loads(DUMP.read_text("utf-8")).items():
        options = {**row, "type": _TYPES[row["type"]]} if "type" in row else row
        parser.add_argument(flag, **options)
    return parser


def megatron_behavior(text: str) -> object:
    """Return the values that Megatron gets from ``megatron/args.sh``.

    Words are those of the array as shlex reads them, and comments are left out.
    """
    try:
        words = shlex.split(text, comments=True)
        if words[0] != "MEGATRON_ARGS=(" or words[-1] != ")":
            return ("not the array", text)
        found = vars(megatron_parser().parse_args(words[1:-1]))
        # ModelParallelConfig: the default of this size is tp.
        if found["expert_tensor_parallel_size"] is None:
            found["expert_tensor_parallel_size"] = found["tensor_model_parallel_size"]
        # A flag of several values has a list, its default is one word.
        values = {name: one if isinstance(one, list) else [one] for name, one in found.items()}
        return ("parsed", repr(sorted(values.items())))
    except (_Rejected, ValueError, IndexError) as error:
        return ("rejected", str(error))
