"""Plans whose pages are tested, and a strict HTML reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan
from parc.compiler.pipeline import plan_spec
from parc.compiler.report.page.report_page import report_artifact
from parc.compiler.spec.reading.source import SpecSource, read_source

ROOT = Path(__file__).parent.parent.parent
VOID = ("meta", "input")
"""Elements of HTML without content and without an end tag."""
RACKS = """\
parc: 1
name: racks
model: mixtral-8x22b
cluster:
  node: gb200-nvl72
  racks:
    - {name: r01, nodes: "r01n[01-18]"}
    - {name: r02, nodes: "r02n[01-18]"}
    - {name: r03, nodes: "r03n[01-18]"}
  spare: ["r03n[17-18]"]
  unavailable: [r02n11]
job: {sequence_length: 4096, global_batch: 2048}
layout: {tp: 8, pp: 4, dp: 4, ep: 8, etp: 1}
"""
HUGE = """\
parc: 1
name: huge
model: llama-3.1-405b
cluster: {node: dgx-h100, nodes: 16384, nodes_per_rack: 16}
job: {sequence_length: 8192, global_batch: 65536}
layout: {tp: 8, pp: 16, vpp: 2, cp: 2, micro_batch: 1}
"""
WIDE = """\
parc: 1
name: wide
model: deepseek-v3
cluster: {node: dgx-h100, nodes: 2048, nodes_per_rack: 16}
job: {sequence_length: 4096, global_batch: 16384}
layout: {tp: 1, cp: 2, pp: 16, vpp: 2, ep: 64, etp: 1, micro_batch: 1}
"""


@cache
def planned(name: str) -> AnyPlan:
    """Return the plan of an example, or of ``racks``, ``wide`` or ``huge``."""
    texts = {"racks": RACKS, "wide": WIDE, "huge": HUGE}
    if name in texts:
        source = SpecSource(f"{name}.yaml", texts[name], None)
    else:
        source = read_source(str(ROOT / "examples" / name / "spec.yaml"))
    sink = Sink()
    plan = plan_spec(source, (), sink)
    assert plan is not None, [found.finding.message for found in sink.diagnostics]
    return plan


@cache
def page(name: str) -> str:
    """Return the page of ``planned(name)``."""
    return report_artifact(planned(name)).text


@dataclass
class Picture:
    """SVG of a page: its size, paths, rectangles and texts."""

    width: float
    height: float
    paths: list[dict[str, str]] = field(default_factory=list)
    areas: list[dict[str, str]] = field(default_factory=list)
    words: list[dict[str, str]] = field(default_factory=list)


class Page(HTMLParser):
    """Reader of a page; AssertionError if tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.pictures: list[Picture] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.cells: list[list[str]] = []
        self.inline: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.attributes += [(tag, name, value) for name, value in values.items()]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "svg":
            x, y, width, height = map(float, values["viewbox"].split())
            assert (x, y) == (0, 0)
            self.pictures.append(Picture(width, height))
        lists = {"rect": "areas", "text": "words", "path": "paths"}
        if tag in lists:
            getattr(self.pictures[-1], lists[tag]).append(values)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.inline.append((self.open[-1], data))
            return
        self.text.append(data)
        if "td" in self.open or "th" in self.open:
            self.cells[-1][-1] += data


MOVE = re.compile(r"M([\d.-]+) ([\d.-]+)(?:h([\d.]+)(?:v([\d.]+)h-[\d.]+z)?|L([\d.-]+) ([\d.-]+))")


def boxes(path: dict[str, str]) -> Iterator[tuple[float, float, float, float]]:
    """Yield (left, top, right, bottom) of every box and line of a path; reject other shapes."""
    assert not MOVE.sub("", path["d"]), path["d"][:80]
    thick = float(path.get("stroke-width", "0"))
    for x, y, wide, high, to_x, to_y in MOVE.findall(path["d"]):
        if to_x:
            ends = sorted((float(x), float(to_x))), sorted((float(y), float(to_y)))
            yield ends[0][0], ends[1][0], ends[0][1], ends[1][1]
        else:
            left, top = float(x), float(y) - thick / 2
            yield left, top, left + float(wide), top + (float(high) if high else thick)
