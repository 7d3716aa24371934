"""PARC's pick against published layouts: ``python -m benchmarks.published_layouts``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.published_reasons import layout_words, reason
from benchmarks.published_rows import Comparison, Published, compare, read_table

APART = 0.05
"""Predicted difference from which the page says why."""
AXES = ("tp", "cp", "pp", "vpp", "ep", "micro_batch")
HEAD = """# Published layouts and PARC's pick

Made by `make layouts`; do not edit. Each published layout was compiled as a user would, twice: with
nothing pinned, and with what the source says pinned, on the same hosts, batch and precision.

- **difference**: predicted step time of the published layout over that of PARC's pick, less one.
  Within 3 % layouts are ties to PARC, and the simplest is picked, so small negatives are no error.
- **fits**: predicted peak memory, low end of its band, is under device memory less 8 % headroom. A
  layout that does not fit is priced as if it did.
- **measured**: step time that the source prints or implies, of any software version.
- Gradients are summed and reduced in 16 bit in NVIDIA's recipes, as their common settings say, and
  in 32 bit elsewhere. Runs from before FlashAttention (2021, 2022) are priced as if they ran the
  kernels of today.
- Both are priced with the dispatcher of tokens and its overlap that the source names; CUDA graphs,
  fused expert kernels and DualPipe, which some of the recipes and DeepSeek's own run used, are not.
- NVIDIA's recipes were read at Megatron-Bridge 067f987df. Left out: those that need FSDP or
  offload, development variants, and those that differ from another one in precision alone
  (unless their step time is published). What a source does not state is left to PARC.
"""


def page(comparisons: Sequence[Comparison]) -> str:
    """The page: summary, how the choices differ, the table, and the reasons."""
    parts = [HEAD, _summary(comparisons), _choices(comparisons), _table(comparisons)]
    priced = [found for found in comparisons if found.estimate is not None]
    far = [found for found in priced if abs(found.difference) > APART]
    parts.append(_reasons("PARC's pick is predicted more than 5 % faster", far, 1))
    parts.append(_reasons("The published layout is predicted more than 5 % faster", far, -1))
    refused = [found for found in comparisons if found.estimate is None]
    lines = [f"- `{found.row.id}`: {'; '.join(found.refusal)}" for found in refused]
    parts.append("\n".join(["## Refused by a rule", "", *(lines or ["None."]), ""]))
    return "\n".join(parts)


def _summary(comparisons: Sequence[Comparison]) -> str:
    """One line a family of sources."""
    families = sorted({found.row.family for found in comparisons})
    lines = [
        "## Summary",
        "",
        "| source | layouts | refused | do not fit | median difference | within 3 % | 5 % | 10 % "
        "| slower by more | faster by more |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for family in [*families, "all"]:
        chosen = [found for found in comparisons if family in (found.row.family, "all")]
        lines.append(f"| {family} | {' | '.join(_numbers(chosen))} |")
    return "\n".join([*lines, ""])


def _numbers(chosen: Sequence[Comparison]) -> list[str]:
    """The cells of a summary line; shares are of the layouts that have a price."""
    gaps = [found.difference for found in chosen if found.estimate is not None]
    refused = len(chosen) - len(gaps)
    cells = [str(len(chosen)), str(refused), str(sum(not x.fits for x in chosen) - refused)]
    if not gaps:
        return [*cells, *["-"] * 6]
    shares = [sum(abs(gap) <= limit for gap in gaps) / len(gaps) for limit in (0.03, 0.05, 0.1)]
    return [
        *cells,
        f"{100 * median(gaps):+.1f} %",
        *(f"{100 * share:.0f} %" for share in shares),
        str(sum(gap > 0.1 for gap in gaps)),
        str(sum(gap < -0.1 for gap in gaps)),
    ]


def _choices(comparisons: Sequence[Comparison]) -> str:
    """How often PARC takes less, the same or more of an axis than was published."""
    lines = [
        "## How the choices differ",
        "",
        "Layouts in which PARC picks less, the same or more than was published.",
        "",
        "| axis | less | same | more |",
        "|---|---:|---:|---:|",
    ]
    pairs = [
        (found.layout, found.pick.layout) for found in comparisons if found.layout and found.pick
    ]
    for axis in AXES:
        signs = [_sign(getattr(ours, axis) - getattr(theirs, axis)) for theirs, ours in pairs]
        counts = (str(signs.count(sign)) for sign in (-1, 0, 1))
        lines.append(f"| {axis.replace('_', '-')} | {' | '.join(counts)} |")
    same = sum(
        all(getattr(ours, axis) == getattr(theirs, axis) for axis in ("tp", "cp", "pp", "ep"))
        for theirs, ours in pairs
    )
    return "\n".join([*lines, "", f"All of tp, cp, pp and ep agree in {same} of {len(pairs)}.", ""])


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _table(comparisons: Sequence[Comparison]) -> str:
    lines = [
        "## Layouts",
        "",
        "GB are predicted peaks, published / PARC's pick / limit; seconds are of one step.",
        "",
        "| job | GPUs | published | PARC's pick | published, s | pick, s | difference | GB "
        "| measured, s | source |",
        "|---|---:|---|---|---:|---:|---:|---|---:|---|",
        *(_line(found) for found in comparisons),
    ]
    return "\n".join([*lines, ""])


def _line(found: Comparison) -> str:
    row, pick = found.row, found.pick
    cells = [f"`{row.id}`", f"{row.gpus:,}", _published_words(found)]
    cells.append(layout_words(pick.layout) if pick else "none")
    ours = f"{pick.estimate.time.total_seconds:.3g}" if pick else "-"
    if pick and found.estimate:
        sizes = (found.estimate.peak.total_bytes, pick.estimate.peak.total_bytes)
        limit = pick.estimate.limit_bytes
        cells += [f"{found.estimate.time.total_seconds:.3g}", ours]
        cells.append(f"{100 * found.difference:+.1f} %")
        cells.append(" / ".join(f"{size / 1e9:.0f}" for size in (*sizes, limit)))
    else:
        cells += ["-", ours, "-", "-"]
    cells.append(f"{row.measured_seconds:.3g}" if row.measured_seconds else "")
    return f"| {' | '.join([*cells, row.source])} |"


def _published_words(found: Comparison) -> str:
    if found.layout is None:
        words = (f"{name}{value}" for name, value in found.row.pins.items() if value != 1)
        return " ".join(word for word in words if word[-1].isdigit()) + ", refused"
    return layout_words(found.layout) + ("" if found.fits else ", does not fit")


def _reasons(title: str, far: Sequence[Comparison], sign: int) -> str:
    """A section with one sentence a layout, largest difference first."""
    chosen = sorted(
        (found for found in far if found.difference * sign > 0),
        key=lambda found: (-found.difference * sign, found.row.id),
    )
    lines = [f"- `{found.row.id}`: {reason(found)}." for found in chosen] or ["None."]
    return "\n".join([f"## {title}", "", *lines, ""])


def compare_all(rows: Iterable[Published]) -> list[Comparison]:
    """Compare, and say on a terminal how many are done."""
    done = []
    for row in rows:
        done.append(compare(row))
        if sys.stderr.isatty():
            print(f"\r{len(done)} {row.id:60}", end="", file=sys.stderr, flush=True)
    return done


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0; 2 where the table cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.published_layouts", description=__doc__
    )
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose id holds it")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page to FILE")
    options = parser.parse_args(argv)
    try:
        rows = [row for row in read_table() if options.only in row.id]
    except OSError as error:
        print(f"published_layouts: {error}", file=sys.stderr)
        return 2
    text = page(compare_all(rows))
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
