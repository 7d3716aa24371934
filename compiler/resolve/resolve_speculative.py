"""Speculative decoding of a service: the layers of its draft, and its acceptance rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.compiler.catalog.find_model import Library
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Model
from parc.compiler.ir.serving import ServingSetup
from parc.compiler.ir.serving_features import Speculative, SpeculativeMethod
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.service_spec import SpeculativeSpec

AT = "job.speculative"
DEFAULT_ACCEPTANCE: dict[SpeculativeMethod, float] = {
    "mtp": 0.85,
    "eagle": 0.65,
    "eagle3": 0.75,
    "draft-model": 0.65,
    "ngram": 0.4,
}
"""Acceptance rate if the spec does not set it. mtp: 85 to 90 % for the second token (DeepSeek-V3,
arXiv:2412.19437, section 5.4.3). eagle, eagle3: published speed-ups of EAGLE (arXiv:2401.15077) and
EAGLE-3 (arXiv:2503.01840) correspond to these rates. draft-model: 0.6 to 0.7 (arXiv:2211.17192,
table 3). ngram: an assumption, because the rate depends on how often answers repeat prompts."""
EAGLE3_VOCABULARY = 32_000
"""Tokens that a published EAGLE-3 head can draft, its reduced vocabulary."""
COMBINED_STATES = {"mtp": 2, "eagle": 2, "eagle3": 3}
"""Method -> number of vectors of the hidden size that the draft combines to one: the embedding and
the last hidden state, or hidden states of three layers."""
OWN_CHECKPOINT = ("eagle", "eagle3", "draft-model")
"""Methods whose draft has a checkpoint of its own."""


def resolve_speculative(
    spec: SpeculativeSpec | None, model: Model, library: Library, sink: Sink
) -> Speculative | None:
    """Return the draft that ``job.speculative`` describes; None without one, or after an error.

    Errors: a setting is missing or has no effect with the method, or the draft has another
    vocabulary than the model (V41).
    """
    if spec is None:
        return None
    findings = tuple(_wrong_settings(spec))
    for name, finding in findings:
        sink.report("V41", finding, at=f"{AT}.{name}" if getattr(spec, name) else AT)
    draft = _draft_model(spec, model, library, sink)
    if findings or (draft is None and spec.method != "ngram"):
        return None
    acceptance = spec.acceptance
    return Speculative(
        spec.method,
        spec.tokens,
        DEFAULT_ACCEPTANCE[spec.method] if acceptance == "auto" else acceptance,
        spec.checkpoint,
        draft,
        COMBINED_STATES.get(spec.method, 0) * float(model.hidden) ** 2,
        is_whole_model=spec.method == "draft-model",
    )


def with_speculative(
    setup: ServingSetup, speculative: Speculative | None, may_run_fewer: bool
) -> ServingSetup:
    """Return the setup of an engine with the draft ``speculative``.

    In a step, each running request computes one token, and one more per draft token. If
    ``may_run_fewer``, the number of running requests is reduced until all of them fit in a step.
    """
    if speculative is None:
        return setup
    running = setup.max_running
    if may_run_fewer and running is not None and setup.max_batched_tokens is not None:
        running = max(min(running, setup.max_batched_tokens // (1 + speculative.tokens)), 1)
    return replace(
        setup,
        speculative=speculative,
        draft_tokens=speculative.tokens,
        accepted_tokens=speculative.accepted_tokens,
        max_running=running,
    )


def _wrong_settings(spec: SpeculativeSpec) -> Iterator[tuple[str, Finding]]:
    """Yield (name of a setting, finding) if it is missing or has no effect with the method."""
    cause = (Cause(f"{AT}.method", f"the method is {spec.method}"),)
    examples = {"checkpoint": "/models/draft", "model": "llama-3.2-1b"}
    needed = {
        "checkpoint": spec.method in OWN_CHECKPOINT,
        "model": spec.method == "draft-model",
    }
    for name, is_needed in needed.items():
        written = getattr(spec, name) is not None
        if is_needed and not written:
            yield (
                name,
                Finding(
                    f"{spec.method} needs job.speculative.{name}",
                    label="the draft is not part of the model's checkpoint",
                    fix=f"{AT}.{name}: {examples[name]}",
                    causes=cause,
                ),
            )
        elif written and not is_needed:
            yield (
                name,
                Finding(
                    f"job.speculative.{name} has no effect with {spec.method}",
                    label=f"{name} belongs to a draft with its own "
                    + ("architecture" if name == "model" else "checkpoint"),
                    fix=f"remove {AT}.{name}",
                    causes=cause,
                ),
            )


def _draft_model(spec: SpeculativeSpec, model: Model, library: Library, sink: Sink) -> Model | None:
    """Return the layers that the draft computes; None for ngram, or after an error."""
    if spec.method == "draft-model" and spec.model is not None:
        return _small_model(spec.model, model, library, sink)
    if spec.method in ("ngram", "draft-model"):
        return None
    # A multi-token-prediction layer is one more decoder layer of the model, with experts if the
    # model has some. An EAGLE head is a decoder layer with a dense MLP. Neither has the shape of
    # certain layers, which the variants of the model describe.
    experts = model.experts if spec.method == "mtp" else None
    size = model.ffn.size or 4 * model.hidden
    return replace(
        model,
        layers=1,
        pattern="",
        linear=None,
        mamba=None,
        convolution=None,
        variants=(),
        mtp_layers=0,
        experts=None if experts is None else replace(experts, pattern=(True,)),
        ffn=replace(model.ffn, size=size),
        vocab=min(EAGLE3_VOCABULARY, model.vocab) if spec.method == "eagle3" else model.vocab,
    )


def _small_model(name: str, model: Model, library: Library, sink: Sink) -> Model | None:
    """Return the small model called ``name``; None after reporting why it cannot be the draft."""
    own = Sink()
    draft = resolve_model(name, library, own)
    if draft is None:
        found = next(iter(own.diagnostics)).finding
        sink.report("V41", replace(found, causes=()), at=f"{AT}.model")
        return None
    if draft.vocab == model.vocab:
        return draft
    finding = Finding(
        "target and draft model should have the same vocabulary size",
        label=f"{draft.name} has {draft.vocab} tokens, {model.name} has {model.vocab}",
        help="the draft must use the tokenizer of the model; choose a smaller model of its family",
        causes=(Cause("model", model.name),),
    )
    sink.report("V41", finding, at=f"{AT}.model")
    return None
