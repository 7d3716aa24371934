"""Training programs that PARC emits for fsdp, accelerate and deepspeed.

``launch.program`` contains the path of the user's program, or one of the words in ``WORDS``. If the
spec does not set it, the emitted program builds PARC's own decoder if the decoder has all features
of the model, and otherwise the model of the library transformers. Fine-tuning starts from published
weights, which only the library reads, so it uses the library wherever that has the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from parc.backends.shared.common_rules import always_violated_rule
from parc.backends.shared.render import render
from parc.backends.shared.torch.tensor_plans import tensor_plan_rules
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Artifact, Layout, Model, Problem
from parc.compiler.ir.cluster import CHANGED_SUFFIX
from parc.compiler.ir.hub import hub_repository
from parc.compiler.ir.rule import Rule

ProgramKind = Literal["", "decoder", "transformers", "trainer"]
EMITTED = ("transformers", "trainer")
"""Programs that build the model with the library transformers."""
WORDS: tuple[ProgramKind, ...] = ("decoder", "transformers", "trainer")
"""Values of ``launch.program`` that name a program which PARC emits."""
# transformers 5.20: models whose code is only in their repositories, and multi-modal models.
_REMOTE_CODE = (
    *("bailing_moe", "bailing_moe_v2", "chatglm", "deci", "exaone", "grok", "internlm2", "mimo"),
    *("deepseek", "minimax_m1", "minimax_text_01", "nemotron-nas"),
)
_EQUAL_CLASS = {"kimi_k2": "deepseek_v3"}
"""Family whose repositories contain a copy of a class of transformers -> family of that class."""
_NO_CAUSAL_CLASS = (
    *("glm4v_text", "glm4v_moe_text", "qwen2_vl_text", "qwen2_5_vl_text"),
    *("qwen3_vl_text", "qwen3_vl_moe_text", "glm_image_text", "glm_ocr_text", "molmo2_text"),
    *("cosmos3_edge_text", "granite_docling_text", "qwen3_omni_moe_text", "step3p5"),
)
_REPOSITORY = re.compile(r"\w[\w.-]*/[\w.-]+")
"""Text in ``job.load_dir`` that names a repository, as the emitted start.py reads it."""
MissingParts = Callable[[Model], Sequence[str]]
"""Function that returns descriptions of the features which PARC's decoder for a target lacks."""


def own_program(problem: Problem) -> str:
    """Return the path of the user's training program; empty if PARC emits the program."""
    program = problem.launch.program
    return "" if program in WORDS else program


def program_kind(problem: Problem, missing_parts: MissingParts) -> ProgramKind:
    """Return which program PARC emits; "" if the job starts the user's program."""
    program = problem.launch.program
    if program:
        return next((word for word in WORDS if word == program), "")
    reads_weights = problem.job.kind == "finetune" and not why_not_in_transformers(problem.model)
    return "transformers" if reads_weights or missing_parts(problem.model) else "decoder"


def transformers_source(model: Model) -> str:
    """Return the hub repository or the path of the config.json of ``model``; "" if it has none.

    A changed catalog model has none, because no file contains the changes.
    """
    if model.name.endswith(CHANGED_SUFFIX):
        return ""
    path = model.source.strip().partition("#")[0]
    is_file = path.endswith(".json") and "://" not in path
    return path if is_file else hub_repository(model.source)


def transformers_family(model: Model) -> str | None:
    """Return the family whose class of transformers builds ``model``.

    None if it is the family in the config of the model.
    """
    return _EQUAL_CLASS.get(model.family)


def why_not_in_transformers(model: Model) -> str:
    """Return why the library transformers cannot build ``model``; empty if it can."""
    if model.family in _REMOTE_CODE:
        return f"the code of family {model.family} is not part of transformers"
    if model.family in _NO_CAUSAL_CLASS:
        return f"transformers has no causal language model of family {model.family}"
    if model.name.endswith(CHANGED_SUFFIX):
        return "the spec changes a catalog model, so no config.json describes it"
    if not transformers_source(model):
        return "the model comes neither from a Hugging Face repository nor from a config.json"
    return ""


def program_rules(
    problem: Problem, framework: str, missing_parts: MissingParts
) -> tuple[Rule, ...]:
    """Return rules (E10) for the model and the layout of the program that PARC emits."""
    kind = program_kind(problem, missing_parts)
    # The decoder of accelerate is a class of transformers.
    without = ("trainer",) if framework == "accelerate" else ("decoder", "trainer")
    if problem.job.lora is not None and kind in without:
        return (always_violated_rule("E10", ("launch.program",), _explain_adapters(framework)),)
    if kind == "trainer" and framework != "accelerate":
        return (always_violated_rule("E10", ("launch.program",), _explain_trainer(framework)),)
    if kind == "decoder":
        return _decoder_rules(problem, framework, missing_parts)
    if kind not in EMITTED:
        return ()
    why = why_not_in_transformers(problem.model)
    if why:
        lacks = missing_parts(problem.model) if not problem.launch.program else ()
        finding = _explain_no_program(problem, framework, why, lacks)
        return (always_violated_rule("E10", ("model", "launch.program"), finding),)
    if framework != "fsdp":
        return (_unsplit_rule(framework, ("tp", "cp", "pp", "ep")),)
    return (_unsplit_rule(framework, ("cp", "pp", "ep")), *tensor_plan_rules(framework))


def _decoder_rules(
    problem: Problem, framework: str, missing_parts: MissingParts
) -> tuple[Rule, ...]:
    """Return rules (E10) that PARC's own decoder has all parts and can read the first weights."""
    lacks, load = missing_parts(problem.model), problem.job.load_dir or ""
    if lacks:
        finding = Finding(
            message=f"PARC's own decoder for {framework} cannot build {problem.model.name}",
            label=f"it has no {', no '.join(lacks)}",
            help="valid: transformers, or the path of your program",
            fix="launch.program: transformers",
            targets=(framework,),
        )
        return (always_violated_rule("E10", ("launch.program",), finding),)
    # The decoder of accelerate is a class of transformers.
    if framework == "accelerate" or not _REPOSITORY.fullmatch(load):
        return ()
    why = why_not_in_transformers(problem.model)
    finding = Finding(
        message=f"PARC's own decoder for {framework} cannot read weights in the format of Hugging "
        "Face",
        label=f"{load} is a repository of such weights; the decoder reads only its own checkpoints",
        help=f"set launch.program to your own program ({why})"
        if why
        else "set launch.program to transformers, or job.load_dir to the absolute path of a "
        "checkpoint of the same program",
        fix=f"launch.program: {'train.py' if why else 'transformers'}",
        targets=(framework,),
    )
    return (always_violated_rule("E10", ("job.load_dir",), finding),)


def _explain_no_program(
    problem: Problem, framework: str, why: str, lacks: Sequence[str]
) -> Finding:
    has_not = f"PARC's own decoder has no {', no '.join(lacks)}; " if lacks else ""
    return Finding(
        message=f"PARC emits no program for {framework} that builds {problem.model.name}",
        label=f"{has_not}{why}",
        help=_other_programs(problem.model),
        fix="launch.program: train.py",
        targets=(framework,),
    )


def _other_programs(model: Model) -> str:
    """Return what builds a model that the library transformers cannot build."""
    own = "set launch.program to your own program, which imports the emitted files"
    repository = transformers_source(model)
    if model.family in _REMOTE_CODE and repository:
        return (
            f"{own}; it can build the model with the code in {repository} "
            "(AutoModelForCausalLM.from_config with trust_remote_code=True). Read that code "
            "first, because it runs on every host"
        )
    if model.family in (*_REMOTE_CODE, *_NO_CAUSAL_CLASS):
        return own
    return f"set model to the path of a config.json that transformers supports; or {own}"


def routes_to_train(model: Model) -> tuple[str, str]:
    """Return (how the targets with transformers train ``model``, the edit of the spec).

    Other frameworks use this as the help of a finding about a model that they cannot train. The
    edit is "" if one edit is not enough, because the user has to write the program.
    """
    if why := why_not_in_transformers(model):
        return (
            f"fsdp, deepspeed and accelerate start your own program with it: set emit and "
            f"launch.program ({why})",
            "",
        )
    return (
        "fsdp, deepspeed and accelerate train it with the classes of transformers",
        "emit: [fsdp, slurm]",
    )


def _explain_adapters(framework: str) -> Finding:
    # Trainer leaves saving to peft, whose get_peft_model_state_dict finds no adapter in blocks that
    # are wrapped to recompute activations if the names of the state lack the wrapper (peft 0.21).
    # Whether its checkpoints and its result are complete has not been tested.
    return Finding(
        message=f"the emitted program for {framework} trains LoRA adapters only with transformers",
        label="PARC's own decoder has no adapters, and saving them with the Trainer is not tested",
        help="valid: transformers, or the path of your program",
        fix="launch.program: transformers",
        targets=(framework,),
    )


def _explain_trainer(framework: str) -> Finding:
    other = "[accelerate, deepspeed, ...]" if framework == "deepspeed" else "[accelerate, ...]"
    return Finding(
        message=f"PARC emits no program with Hugging Face's Trainer for {framework}",
        label="the Trainer needs the launcher of Accelerate",
        help=f"valid with {framework}: transformers, or the path of your program; for the Trainer, "
        f"emit: {other}",
        fix="launch.program: transformers",
        targets=(framework,),
    )


def _unsplit_rule(framework: str, fields: tuple[str, ...]) -> Rule:
    """Return the rule that the parallel sizes ``fields`` are 1 for transformers' models."""

    def is_split(problem: Problem, layout: Layout) -> bool:
        del problem
        return any(getattr(layout, name) > 1 for name in fields)

    def explain(problem: Problem, layout: Layout) -> Finding:
        axes = {name: getattr(layout, name) for name in fields}
        above = {name: size for name, size in axes.items() if size > 1}
        whole = f"{', '.join(fields[:-1])} and {fields[-1]}"
        axis, other, decoder = " and tensor-parallel", "", ""
        if problem.job.kind == "finetune" and not problem.launch.program:
            decoder = ", or to decoder, which starts from its own checkpoints"
        if "tp" in fields:
            axis, other = "", "; fsdp also splits over tp the models that have a plan for it"
        return Finding(
            message=f"the emitted transformers program shards the model only over data-parallel"
            f"{axis} ranks",
            label=", ".join(f"{name} is {size}, must be 1" for name, size in above.items()),
            help=f"valid: {whole} 1 with any zero_stage and dp_shard{other}; or set launch.program "
            f"to your own program{decoder}",
            fix=", ".join(f"layout.{name}: 1" for name in above),
            targets=(framework,),
        )

    paths = tuple(f"layout.{name}" for name in fields)
    return Rule("E10", (*paths, "launch.program"), is_split, explain, fields)


def data_file(folder: str, plan: str) -> Artifact:
    """Return ``<folder>/data.py``, which reads the sequences that the JSON file ``plan`` sets."""
    return Artifact(f"{folder}/data.py", render("torch", "data.py.j2", {"plan": plan}))


def start_file(
    folder: str, plan: str, save: str = 'PLAN["checkpoint_dir"]', load: str = 'PLAN["load_dir"]'
) -> Artifact:
    """Return ``<folder>/start.py``, which decides from which checkpoint or weights the run starts.

    ``save`` and ``load`` are the Python expressions of the folders in the JSON file ``plan``.
    """
    values = {"plan": plan, "save": save, "load": load}
    return Artifact(f"{folder}/start.py", render("torch", "start.py.j2", values))


def model_file(folder: str, plan: str, meta: bool = False, sizes: bool = False) -> Artifact:
    """Return ``<folder>/hf_model.py``, which builds the model that the JSON file ``plan`` names.

    With ``meta``, the module also initializes a model that was created on the device meta. With
    ``sizes``, it also builds a Llama from the sizes in ``plan``.
    """
    values = {"plan": plan, "meta": meta, "sizes": sizes}
    return Artifact(f"{folder}/hf_model.py", render("torch", "hf_model.py.j2", values))


def adapters_file(folder: str, plan: str) -> Artifact:
    """Return ``<folder>/adapters.py``, which adds the LoRA adapters in the JSON file ``plan``."""
    return Artifact(f"{folder}/adapters.py", render("torch", "adapters.py.j2", {"plan": plan}))
