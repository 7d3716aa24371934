"""Texts of a spec reach programs as they are, and are never executed.

A plan with a harmless word in every text field shows at which places of commands, environments and
files the fields appear. With a hostile text instead of the word, the same places must contain the
hostile text, and no script may execute a part of it. PARC_INJECTIONS=20000 sets the number of
(field, targets, text) triples; the default keeps the suite fast.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args, get_origin

from parc.compiler.pipeline import emit_plan
from parc.compiler.spec.annotations import union_members
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import Spec as TrainingSpec
from tests.compiled import Spec, changed, messages_of, planned, resolved
from tests.laws.executed_files import Folder, Records, leaves, structure
from tests.laws.field_pairs import fields_of, placed
from tests.laws.test_hostile_texts import SERVE, TRAIN

COUNT = int(os.environ.get("PARC_INJECTIONS", "250"))
TEXTS = (
    "$(canary {0})",
    "`canary {0}`",
    "';canary {0};'",
    '";canary {0};"',
    "a;canary {0} #",
    "a && canary {0} || canary {0}",
    "a|canary {0}|a&",
    "a\ncanary {0}\n",
    "a'$(canary {0})'\"$(canary {0})\"'",
    "a\\';canary {0};\\\";canary {0};\\",
    "${{x:-$(canary {0})}}",
    "${{x:=`canary {0}`}}${{PATH}}$HOME$1$$",
    "x[$(canary {0})]",
    "$((x[$(canary {0})]))",
    "<(canary {0})>(canary {0})",
    "a >canary{0} <x 2>canary{0}",
    ")\ncanary {0}\n(",
    ") canary {0} (",
    "EOF\ncanary {0}\nEOF\nPY\n",
    "{{canary,{0}}} * ? [a-z] ~ !canary",
    " {0}  a ",
    "-c canary {0}",
    "--{0}=$(canary {0})",
    "{0}\t$'\\x41' %s %x %j %% \\n &",
    "'''+__import__('os').system('canary {0}')+'''",
    '"""+__import__("os").system("canary {0}")+"""',
    "{{{{__import__('os').system('canary {0}')}}}}{{% raw %}}",
    '!!python/object/apply:os.system ["canary {0}"]',
    "a{0}: b\n- c\n---\n#",
    "$(MASTER_ADDR) $$(MASTER_ADDR) {0} $(POD_NAME)",
    "</script><script>canary {0}</script><!--",
    '"><img src=x onerror=canary{0}>',
    "é\u202e\U0001f600\u0301{0}",
    "@{0} *a &b %c > |",
    "{0}" + "a'\"`$(canary {0})" * 8,
)
"""Hostile texts; {0} is the number of the field."""
SHELL = {"launch.setup[]"}
"""Fields that are shell code by definition."""
MAPPINGS = (
    "env",
    "versions",
    "resources",
    "node_selector",
    "claims",
    "peak_tflops",
    "nvlink_domains",
)
"""Last names of the fields that are mappings of names to texts."""
PREFIX = {
    "launch.args[]": {"megatron": "--wandb-project=", "vllm": "--chat-template=", "": "--w="},
    "launch.slurm.extra[]": {"": "--wckey="},
    "launch.env.keys": {"": "A"},
    "launch.kubernetes.claims": {"": "/"},
}
"""Field -> framework -> start of the values that it needs, so that only the rest is hostile."""
PINS = {"tp": 2, "cp": 1, "pp": 1, "vpp": 1, "micro_batch": 1, "recompute": "none"}
TRAINED = changed(TRAIN, {"layout": PINS, "model": {"base": "llama-3-8b", "layers": 4}})
ACCELERATED = changed(TRAINED, {"layout.tp": 1, "job.gradient_precision": "bf16"})
SERVED = changed(SERVE, {"model": {"base": "llama-3-8b"}})
RACKS = {"node": "dgx-h100", "racks": [{"name": "r", "nodes": "n1"}]}
RACKED = changed(TRAINED, {"cluster": RACKS})


@dataclass(frozen=True)
class Trial:
    """Texts of the fields in a compiled spec, and what the emitted files and scripts show."""

    texts: dict[str, str]
    records: Records
    shown: frozenset[tuple[str, str]]
    """(file, text) of the words that programs get, and of the texts in structured files."""
    shapes: dict[str, str]
    """File -> structure of a program or page without its texts."""


LAUNCHERS = ("kubernetes", "preflight", "rankmap", "slurm", "torchrun")
TARGETS: tuple[tuple[Spec, tuple[str, ...]], ...] = (
    (TRAINED, ("megatron", *LAUNCHERS)),
    (TRAINED, ("megatron", "slurm")),
    (RACKED, ("megatron", *LAUNCHERS)),
    (TRAINED, ("deepspeed", *LAUNCHERS)),
    (TRAINED, ("deepspeed",)),
    (TRAINED, ("fsdp", *LAUNCHERS)),
    (TRAINED, ("torchtitan", *LAUNCHERS)),
    (TRAINED, ("megatron-bridge", *LAUNCHERS)),
    (ACCELERATED, ("accelerate", "deepspeed", "slurm", "rankmap")),
    (ACCELERATED, ("accelerate", "deepspeed", "kubernetes")),
    (ACCELERATED, ("accelerate", "torchrun", "slurm")),
    (SERVED, ("vllm", "kubernetes", "rankmap", "slurm")),
    (SERVED, ("vllm", "ray", "rankmap")),
)


def text_fields(root: Any) -> list[str]:
    """Return the paths of all fields that accept text, with ``.keys`` for keys of a mapping."""
    found = []
    for path, annotation in fields_of(root):
        for one in union_members(annotation):
            inner = get_args(one)[0] if get_args(one) else None
            if one is str or (get_origin(one) is tuple and str in union_members(inner)):
                found.append(path if one is str else f"{path}[]")
            elif get_origin(one) is dict and str in union_members(inner):
                found += [path, f"{path}.keys"]
    return found


FIELDS = {False: text_fields(TrainingSpec), True: text_fields(ServingSpec)}


def with_text(spec: Spec, field: str, text: str) -> Spec:
    """Return ``spec`` with a text field set; mappings and lists get a single entry."""
    path = field.removesuffix(".keys")
    prefix = PREFIX.get(field, {"": ""})
    framework = next((one for one in spec["emit"] if one in prefix), "")
    value: Any = prefix[framework] + text
    if field.endswith(".keys"):
        value = {value: "/1"}
    elif path.rpartition(".")[2] in MAPPINGS:
        value = {"name": value}
    if isinstance(value, dict):
        value |= _value_at(spec, path)
    if path.endswith("[]"):
        path, value = path.removesuffix("[]"), [value]
    return placed(spec, path, value)


def _value_at(spec: Spec, path: str) -> dict[str, str]:
    """Return the mapping that ``spec`` has at a path, or an empty one."""
    place: Any = spec
    for name in path.split("."):
        key = name.removesuffix("[]")
        place = place.get(key, {}) if isinstance(place, dict) else {}
        place = place[0] if isinstance(place, list) else place
    return place if isinstance(place, dict) else {}


def accepted(spec: Spec, texts: dict[str, str], dice: random.Random) -> dict[str, str]:
    """Return those ``texts`` that are accepted together; the other fields are refused."""
    texts = dict(texts)
    while True:
        plan, sink = planned(with_texts(spec, texts))
        if plan is not None:
            return texts
        paths = [_bare(one.path) for one in sink.diagnostics if one.severity == "error"]
        refused = [one for one in texts if any(path.startswith(_bare(one)) for path in paths)]
        if not refused:  # the fields contradict each other
            refused = dice.sample(sorted(texts), len(texts) // 8 + 1)
        # A finding on a mapping does not tell if a key or a value is refused: the keys go first.
        for field in [one for one in refused if f"{one}.keys" not in refused]:
            del texts[field]


def with_texts(spec: Spec, texts: dict[str, str]) -> Spec:
    """Return ``spec`` with all ``texts``; a field comes after the sections that contain it."""
    for field, text in sorted(texts.items()):
        spec = with_text(spec, field, text)
    return spec


def _bare(path: str) -> str:
    return re.sub(r"\[\d*\]", "", path.removesuffix(".keys"))


@cache
def fields_with_words(target: int) -> dict[str, str]:
    """Return field -> harmless word of the fields that accept one without other settings."""
    base = TARGETS[target][0]
    # The targets of a base spec differ only in what is checked after the spec is resolved.
    same = next(one for one, (other, _) in enumerate(TARGETS) if other is base)
    if same != target:
        return fields_with_words(same)
    found = {}
    for number, field in enumerate(FIELDS["kind" in base["job"]]):
        tree = with_text(spec_of(target), field, f"w{number}w")
        if field not in SHELL and resolved(tree)[0] is not None:
            found[field] = f"w{number}w"
    return found


def spec_of(target: int) -> Spec:
    base, emit = TARGETS[target]
    return {**base, "emit": list(emit)}


def trial(target: int, texts: dict[str, str], folder: Path) -> Trial:
    """Compile a spec with ``texts`` and run all scripts."""
    plan, sink = planned(with_texts(spec_of(target), texts))
    assert plan is not None
    artifacts = emit_plan(plan, sink)
    assert not sink.failed(), messages_of(sink)
    files = {one.path: one.text for one in artifacts}
    programs = (TRAIN["launch"]["program"], texts.get("launch.program", "train.py"))
    words = Folder(folder).run(files, programs)
    shown = {(file, leaf) for file, text in files.items() for leaf in leaves(file, text)}
    shapes = {file: shape for file, text in files.items() if (shape := structure(file, text))}
    return Trial(texts, words, frozenset(shown | words.words), shapes)


@cache
def harmless(target: int) -> Trial:
    """Return the trial with harmless words."""
    with TemporaryDirectory() as folder:
        words = accepted(spec_of(target), fields_with_words(target), random.Random(0))
        found = trial(target, words, Path(folder))
    assert found.records.words, found.records.errors
    return found


def pairs() -> Iterator[tuple[int, str]]:
    """Yield (target, text) pairs without end: each target in turn, with another text."""
    for number in count():
        yield number % len(TARGETS), TEXTS[(number + number // len(TARGETS)) % len(TEXTS)]


def problems(target: int, texts: dict[str, str], folder: Path) -> list[str]:
    """Return what goes wrong with hostile ``texts``, which the spec accepts."""
    plain = harmless(target)
    found = trial(target, texts, folder)
    wrong = [f"executed or created: {found.records.canaries}"] if found.records.canaries else []
    for field, text in texts.items():
        word = plain.texts.get(field, "")
        for file, shown in plain.shown if word else ():
            expected = shown.replace(word, text)
            if word in shown and not any(
                expected in one for other, one in found.shown if other == file
            ):
                wrong.append(f"{field}: {file} has no {expected!r}")
    if found.shapes != plain.shapes:
        # The harmless words of fields that are refused with hostile texts may cause a difference.
        words = fields_with_words(target)
        # Fields whose text a shell executes by design have no harmless word.
        harmless_texts = {field: words.get(field, "true") for field in texts}
        same = trial(target, harmless_texts, folder / "again").shapes
        wrong += [f"{one} has another structure" for one in same if found.shapes[one] != same[one]]
    return wrong


def test_hostile_texts_are_refused_or_reach_programs_unchanged(tmp_path: Path) -> None:
    tried = executed = 0
    for number, (target, template) in enumerate(pairs()):
        dice = random.Random(number)
        # After a round with all fields, with other halves of them, because a text that is refused
        # hides no other one then.
        share = 1.0 if number < len(TARGETS) * len(TEXTS) else 0.5
        texts = {
            field: template.format(word[1:-1])
            for field, word in fields_with_words(target).items()
            if dice.random() < share
        }
        chosen = accepted(spec_of(target), texts, dice)
        wrong = problems(target, chosen, tmp_path / str(number))
        assert not wrong, (TARGETS[target][1], template, wrong)
        tried, executed = tried + len(texts), executed + len(chosen)
        shutil.rmtree(tmp_path / str(number))
        if tried >= COUNT:
            break
    print(f"{tried} triples, {executed} of them executed")
    assert executed > tried // 3


def test_a_text_that_is_executed_is_found(tmp_path: Path) -> None:
    texts = {"launch.setup[]": "canary 7; echo $(canary 8) > canary9"}
    assert problems(4, texts, tmp_path) == ["executed or created: canary canary9"]
