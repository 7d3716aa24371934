"""Results of a training estimate that follow from its terms: totals, MFU and the length of the run.

``parc explain`` prints them like the terms of ``compiler/cost/step/terms.py``.
"""

from __future__ import annotations

from parc.compiler.cost.step.terms import EstimateTerm

_TIME = "parc/compiler/cost/step/step_interval.py; measured in docs/accuracy.md"
_RUN = "Daly, FGCS 22 (2006), complete model; docs/budget.md"
_BUDGET = "docs/budget.md"

RESULTS: tuple[EstimateTerm, ...] = (
    EstimateTerm(
        "total_bytes",
        "bytes",
        "memory",
        "sum of all memory terms of a pipeline stage; the fullest stage decides if a plan fits",
        "docs/cost-model/memory.md",
    ),
    EstimateTerm(
        "total_seconds",
        "seconds",
        "step time",
        "sum of all terms of the step time, as exposed on the critical path",
        "docs/cost-model/step-time.md",
    ),
    EstimateTerm(
        "step_low_seconds",
        "seconds",
        "low end of the 80 % interval of the step time",
        "step time x exp(-s); s is the spread of the errors on published runs",
        _TIME,
    ),
    EstimateTerm(
        "step_high_seconds",
        "seconds",
        "high end of the 80 % interval of the step time",
        "step time x exp(s); s is the spread of the errors on published runs",
        _TIME,
    ),
    EstimateTerm(
        "model_flops_per_step",
        "FLOPs",
        "model FLOPs per step",
        "3 x FLOPs of the forward pass; causal attention counts half, recompute does not count; "
        "with LoRA, 2 x FLOPs of frozen weights",
        "counted per operator: parc/compiler/cost/counts/flops.py",
    ),
    EstimateTerm(
        "mfu",
        "fraction",
        "MFU",
        "model FLOPs per step / (step time x GPUs x dense peak rate of the GPU at job.precision, "
        "or at 16 bit if the data sheet has none)",
        "PaLM, arXiv:2204.02311, appendix B (which counts attention in full)",
    ),
    EstimateTerm(
        "tokens_per_second",
        "tokens/s",
        "tokens per second, all GPUs",
        "job.global_batch x job.sequence_length / step time",
        "definition",
    ),
    EstimateTerm("steps", "steps", "steps of the run", "job.steps or those of job.tokens", _BUDGET),
    EstimateTerm(
        "tokens",
        "tokens",
        "tokens of the run",
        "steps x job.global_batch x job.sequence_length",
        "definition",
    ),
    EstimateTerm(
        "productive_seconds",
        "seconds",
        "time of the run without failures and checkpoints",
        "steps x step time",
        "definition",
    ),
    EstimateTerm(
        "wall_seconds",
        "seconds",
        "expected time of the run",
        "per checkpoint interval of w seconds: M e^(R/M) (e^((w + d)/M) - 1), with M between "
        "failures, R to restart and d to save; without job.checkpoint_dir: steps x step time",
        _RUN,
    ),
    EstimateTerm(
        "effective_share",
        "fraction",
        "effective training",
        "steps x step time / expected time of the run",
        _RUN,
    ),
    EstimateTerm(
        "expected_failures",
        "failures",
        "expected failures",
        "expected time of the run / time between failures",
        _RUN,
    ),
    EstimateTerm(
        "finish_probability",
        "probability",
        "probability of a run without failures",
        "e^(-steps x step time / time between failures)",
        "failures as a Poisson process; docs/budget.md",
    ),
    EstimateTerm(
        "failure_interval_seconds",
        "seconds",
        "mean time between failures",
        "cluster.failures.gpu_mtbf / GPUs of all hosts in use",
        "Llama 3, arXiv:2407.21783, section 3.3.4; docs/budget.md",
    ),
    EstimateTerm(
        "checkpoint_bytes",
        "bytes",
        "size of a checkpoint",
        "parameters x bytes of weight and optimizer state per parameter, each parameter once",
        _BUDGET,
    ),
    EstimateTerm(
        "checkpoint_steps",
        "steps",
        "steps between checkpoints",
        "job.checkpoint_interval, or the interval that makes the run shortest",
        _RUN,
    ),
    EstimateTerm(
        "best_checkpoint_steps",
        "steps",
        "steps between checkpoints that make the run shortest",
        "w / step time with (1 - w/M) e^(w/M) = e^(-d/M), with M between failures and d to save",
        _RUN,
    ),
    EstimateTerm(
        "save_seconds",
        "seconds",
        "time that training waits per checkpoint",
        "checkpoint / write rate; asynchronous: checkpoint / rate of the copy to host memory",
        _BUDGET,
    ),
    EstimateTerm(
        "restart_seconds",
        "seconds",
        "time from a failure until training continues",
        "detection + restart of cluster.failures + checkpoint / read rate",
        _BUDGET,
    ),
    EstimateTerm(
        "spares",
        "hosts",
        "spare hosts",
        "number of spare hosts with the fewest host-hours of the run; the job waits while more "
        "hosts than these are in repair (Erlang's loss formula)",
        _BUDGET,
    ),
    EstimateTerm(
        "gpu_hours",
        "hours",
        "GPU-hours",
        "GPUs of all hosts in use x expected time of the run",
        _BUDGET,
    ),
    EstimateTerm(
        "energy_kwh",
        "kWh",
        "largest energy of the run",
        "GPU-hours x power limit of a host / GPUs per host x PUE",
        _BUDGET,
    ),
    EstimateTerm("cost", "currency of the spec", "cost", "GPU-hours x price per GPU-hour", _BUDGET),
)
"""Results in ``Estimate``, ``StepTime``, ``StageMemory`` and ``Run`` that are not terms."""
