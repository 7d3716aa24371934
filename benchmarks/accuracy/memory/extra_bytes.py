"""Bytes of published runs that the memory models lack: flags that PARC never sets, counters."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.memory.micro_batches import logits_bytes, micro_batch_activation_bytes
from parc.compiler.cost.memory.saved_products import saved_product_bytes
from parc.compiler.cost.memory.states import (
    accumulates_whole_gradients,
    weight_gradient_optimizer_bytes,
)
from parc.compiler.cost.memory.waiting_gradients import HALF_GRADIENT
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents, stage_contents
from parc.compiler.ir import Layout, ProgramMemory, StageMemory

LATE_GRADIENTS = {
    "fsdp2",
    "torchtitan",
    "torchtitan_2024",
    "automodel",
    "kempnerforge",
    "litgpt",
}
"""Programs that free all gradients after a step (``zero_grad``, which sets them to None)."""
ROUTED_CACHE = 0.05
"""Bytes of free blocks that torch keeps with Megatron and routed experts, in addition to the
fragmentation without experts, relative to model states, activations and logits. Reserved bytes
exceed allocated ones by 11 to 20 % in all seven pairs of the three documents that state both; with
this share, the prediction reaches the high end of the interval."""
LOST_LOGITS = 0.6
"""Bytes that torch's allocator loses without expandable segments, relative to logits and loss, the
largest tensors of a step: the first optimizer step puts its state into their free blocks, so that
those of the next step need new segments. Fitted to 22 readings of Megatron and torchtitan, of which
21 are within 7 %."""


@dataclass(frozen=True, slots=True)
class Run:
    """Published run, as far as these bytes depend on it."""

    features: list[str]
    """Program and deviations."""
    kind: str
    """Counter of the reading."""
    group: int
    """Micro-batches that an interleaved rank runs on one chunk before it changes to the next one;
    0 if their number is the pipeline size."""
    cost_model: CostModel
    layout: Layout
    program: ProgramMemory

    def scores_bytes(self) -> float:
        """Return the bytes of the scores' buffer, which Megatron's own attention always keeps.

        Source: Megatron-LM, get_global_memory_buffer. The result is 0 for other attention.
        """
        if "local" not in self.features:
            return 0.0
        problem, layout = self.cost_model.problem, self.layout
        heads = problem.model.attention.heads // layout.tp
        return 2.0 * heads * layout.micro_batch * problem.job.sequence_length**2

    def extra_activation_bytes(self, stage: int) -> float:
        """Return the bytes that a rank of ``stage`` allocates at the peak besides its model's.

        The result is negative if gradients of the memory model do not exist at the peak.
        """
        load = self._load(stage)
        extra = self._grouped_bytes(load, stage) + load.loss * self._kept_output_bytes()
        if self.kind == "allocated" and self.features[0] in LATE_GRADIENTS:
            extra -= self._absent_gradient_bytes(load, stage)
        extra += self._whole_table_bytes(load) - self._recomputed_product_bytes(load)
        if self.program.name == "nanotron":
            extra -= self._absent_half_gradient_bytes(load, stage)
        return extra

    def fixed_segment_bytes(self, stage: int, copied: float, memory: StageMemory) -> float:
        """Return the fragmentation of ``memory`` without expandable segments.

        If the optimizer step copies gradients, those copies that fit into no freed block replace
        the fragmentation of model states, if they are larger: both count memory that only the step
        uses. Otherwise ``LOST_LOGITS`` of logits and loss are lost. The fragmentation of Megatron,
        a share of all its tensors, contains them; that of FSDP2 was measured without them.
        """
        program = self.program
        states = program.static_fragmentation * memory.static_bytes
        if program.state.step:
            more = self.misfit_bytes(stage, copied) - states
        else:
            more = LOST_LOGITS * memory.logits_bytes - (states and memory.fragmentation_bytes)
        return memory.fragmentation_bytes + max(more, 0.0)

    def cached_bytes(self, memory: StageMemory) -> float:
        """Return the bytes of free blocks that reserved memory contains although no tensor fits.

        With routed experts, tensors of Megatron change their sizes with every micro-batch. The job
        need these blocks, because torch returns them to the device before it fails. Without
        expandable segments, bytes lost for other reasons contain them.
        """
        program = self.program
        if self.cost_model.problem.model.experts is None or not program.static_fragmentation:
            return 0.0
        dynamic = memory.activations_bytes + memory.logits_bytes
        shown = (program.static_fragmentation + ROUTED_CACHE) * memory.static_bytes
        shown += (program.fragmentation + ROUTED_CACHE) * dynamic
        return max(shown - memory.fragmentation_bytes, 0.0)

    def misfit_bytes(self, stage: int, copied: float) -> float:
        """Return the bytes of the step's copies of gradients that fit into no freed block.

        ``copied`` is the number of bytes of all copies.

        Without expandable segments, torch puts a tensor into one segment. The copies (terms of
        ``ProgramMemory.state.step``) come when the activations are free, and reuse the place of the
        largest of them; larger copies need segments of their own. Vectors are left out. ZeRO's
        optimizer copies all gradients to one tensor (DeepSpeed, stage_1_and_2.py, step).
        """
        if self.program.name == "deepspeed":
            return copied
        problem, layout, load = self.cost_model.problem, self.layout, self._load(stage)
        model = problem.model
        step, shards = self.program.state.step, layout.tp
        if layout.zero_stage:
            shards *= layout.optimizer_shards[0]
        tokens = layout.tokens(problem.job.sequence_length)
        parts = 2 if model.ffn.gated else 1
        largest = max(2.0 * tokens * parts * model.ffn.size / layout.tp, self.scores_bytes())
        heads = model.attention.query_projection_heads * model.attention.head_dim
        inputs = heads + model.attention.key_value_projection_width
        layer = [inputs, heads, parts * model.ffn.size, model.ffn.size]
        copies = [step * model.hidden * width / shards for width in layer]
        misfit = load.layers * sum(size for size in copies if size > largest)
        logits = 4.0 * tokens * model.vocab / layout.tp * load.loss
        vocabulary = step * model.hidden * model.vocab / shards
        matrices = load.embedding + load.loss
        if model.tied_embeddings:
            matrices = min(matrices, 1)
        return misfit + matrices * vocabulary * (vocabulary > max(largest, logits))

    def _load(self, stage: int) -> StageContents:
        return stage_contents(self.cost_model.problem.model, self.layout.split, stage)

    def _kept_output_bytes(self) -> float:
        """Return the bytes of the last stage's outputs that some programs keep until the step ends.

        Megatron's ``--defer-embedding-wgrad-compute`` keeps inputs and output gradients of the
        output projection (tensor_parallel/layers.py, grad_output_buffer) for the number of
        micro-batches after the colon of the word ``deferred_head``. Pipelines of torch keep the
        logits of all micro-batches, unless ``return_outputs`` is false (pipelining/stage.py,
        output_chunks).
        """
        problem, layout = self.cost_model.problem, self.layout
        model, job = problem.model, problem.job
        count = layout.micro_batches(job.global_batch)
        tokens = 2.0 * layout.tokens(job.sequence_length)
        logits = tokens * model.vocab / layout.tp
        for feature in self.features:
            name, _, limit = feature.partition(":")
            if name == "deferred_head":
                inputs = tokens * model.hidden / (layout.tp if layout.sequence_parallel else 1)
                return min(int(limit), count) * (logits + inputs)
        if {"torchtitan_2024", "fsdp2"} & set(self.features) and layout.pp > 1:
            return count * logits
        return 0.0

    def _recomputed_product_bytes(self, load: StageContents) -> float:
        """Return the bytes of products that recompute by operator does not save.

        The number of layers whose products are in nvfp4 follows the colon of the word
        ``nvfp4_layers``. torchao multiplies in its own operator, which is not in torchtitan's list;
        BF16 and NVFP4 runs of two models differ by about these bytes
        (torchtitan, components/quantization/nvfp4.md).
        """
        model, layout = self.cost_model.problem.model, self.layout
        for feature in self.features:
            name, _, count = feature.partition(":")
            if name == "nvfp4_layers":
                tokens = layout.tokens(self.cost_model.problem.job.sequence_length)
                (kind, *_) = load.layers_by_kind(model)
                saved = saved_product_bytes(model, layout, kind, tokens, self.program)
                heads = model.attention.query_projection_heads * model.attention.head_dim
                return int(count) * (saved - 2.0 * tokens * heads / layout.tp)
        return 0.0

    def _whole_table_bytes(self, load: StageContents) -> float:
        """Return the bytes of the parts of a table that tensor parallelism does not split.

        In pipelines of KempnerForge, it does not split the output projection either.
        """
        layout, program = self.layout, self.program
        if not program.whole_embedding or layout.tp == 1:
            return 0.0
        model = self.cost_model.problem.model
        tables = load.embedding + (load.loss and layout.pp > 1)
        parameters = tables * model.vocab * model.hidden * (1 - 1 / layout.tp)
        each = program.state.bytes_on_rank(
            layout.zero_stage, layout.optimizer_shards[0], layout.pp > 1
        )
        if accumulates_whole_gradients(self.cost_model, layout, program):
            each = (each[0], program.state.unreduced, each[2])
        return parameters * sum(each)

    def _grouped_bytes(self, load: StageContents, stage: int) -> float:
        """Return the activation bytes that larger groups of micro-batches add.

        A rank runs the forward passes of a whole group on every chunk but the last one before its
        first backward pass (Megatron-LM, schedules.py, get_pp_rank_microbatches).
        """
        layout = self.layout
        if not self.group:
            return 0.0
        kept, _ = micro_batch_activation_bytes(self.cost_model, layout, load, stage, self.program)
        return (layout.vpp - 1) * (self.group - layout.pp) * kept / layout.vpp

    def _absent_gradient_bytes(self, load: StageContents, stage: int) -> float:
        """Return the bytes of gradients that do not exist when memory is at its peak.

        At the loss there are no gradients, after the backward pass of the last layer there are all
        of them beside the working set of a layer. With accumulation they exist all the time. The
        caching allocator keeps their memory: FSDP2 allocates them on the stream of its
        reduce-scatters, whose memory no other stream uses (_fsdp_collectives.py, foreach_reduce).
        """
        layout, cost_model = self.layout, self.cost_model
        if layout.pp > 1 or layout.micro_batches(cost_model.problem.job.global_batch) > 1:
            return 0.0
        kept, working = micro_batch_activation_bytes(cost_model, layout, load, stage, self.program)
        _, gradients, _ = weight_gradient_optimizer_bytes(cost_model, layout, load, self.program)
        logits = logits_bytes(cost_model, layout, load, self.program)
        return min(gradients, kept + max(logits - working, 0.0))

    def _absent_half_gradient_bytes(self, load: StageContents, stage: int) -> float:
        """Return the bytes of 16-bit gradients that do not exist when memory is at its peak.

        Nanotron adds them to fp32 gradients and frees them after the backward pass of every
        micro-batch (optim/gradient_accumulator.py, _accumulate_grad), in which they replace the
        activations of the micro-batch. With data parallelism, the reserved bytes contain them
        besides the activations: eight readings of reserved bytes exceed those of allocated bytes by
        about this amount.
        """
        if self.kind == "reserved" and self.layout.dp > 1:
            return 0.0
        layout, cost_model = self.layout, self.cost_model
        kept, working = micro_batch_activation_bytes(cost_model, layout, load, stage, self.program)
        logits = logits_bytes(cost_model, layout, load, self.program)
        half = HALF_GRADIENT * sum(cost_model.stage_parameters(layout, load))
        return min(half, kept + max(logits - working, 0.0))
