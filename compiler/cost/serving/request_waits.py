"""Delay between the arrival of a request and the start of its own prompt.

Published times to the first token show four delays in addition to the prompt itself. First, the
front end accepts a request (``front_seconds``); simultaneous requests are accepted one after
another (``admission_seconds``), and the small matrix products of the experts that a prompt uses
cost time, per expert and layer (``prompt_expert_seconds``). Second, a busy scheduler accepts new
requests, and returns tokens, only every few steps (``poll_steps``). Third, a request waits for the
end of the running step. Fourth, prompts of other requests run first, or in the same step.

The last two follow from the steps. A step takes S = d + n p seconds, where n prompts take p seconds
each. A request arrives in a step with probability proportional to its length, so that it waits for
half of M = E[S^2] / E[S] on average, and then for the prompts in its own step:

- Poisson arrivals: n requests arrive during the step before, so that E[S] = d / (1 - r) and M =
  E[S] + p r / (1 - r^2) with the load r = rate x p. r M / p others arrive in the same step. If no
  request decodes, d is 0; the number of decoding requests has a Poisson distribution, so that this
  has the probability exp(-mean) (M/G/infinity).
- A closed loop: each request that ends is replaced at once. The decoding requests end in different
  steps, m of them per step, so that M = E[S] + p r / (1 - f r^2) with the load r = p m / E[S], and
  m others start in the same step. f is the share of the front end in the time of front end and
  decode step: requests that pass a slow front end during a long step start together in the next
  one, as under Poisson arrivals.

An engine that runs prompts first has steps of d or n p seconds. It is a queue with vacations: under
Poisson arrivals, M = d / (1 + r) + p r / (1 - r^2). In a closed loop, the steps with prompts have n
= ``together`` of them. A request decodes every d / (1 - r) seconds, as in an engine with mixed
steps; only p is longer, because such steps have their own fixed part.

If an engine has several data-parallel ranks, they run their steps together (``common_steps.py``).
In a closed loop of equal requests, their prompts start in the same steps, because all requests
start together and end after equally many steps. They also do if an option of the benchmark holds
prompts back (TensorRT-LLM waits for a prompt on each rank). Otherwise, the ranks have prompts in
different steps.

If a prompt is longer than a step, prompts follow one another, and wait as in an M/G/1 queue.

With only one prompt per step, half of the others of the same step come later; without decoding
requests, the wait is then that of an M/D/1 queue. ``tests/cost/serving`` compares both formulas
with the event simulation.

A benchmark of a closed loop starts with all requests together, so that half of the other prompts
precede a request's own prompt in the first of ``CLOSED_LOOP_ROUNDS`` rounds. Later, requests that
end in the same step return together. An engine that mixes prompts and decode steps spreads them,
because its client and front end pass on one request after another. An engine that runs prompts
first holds up all decoding requests until the last prompt has ended, so that requests of equal
length stay together in all rounds.
"""

from __future__ import annotations

from math import inf, sqrt

from parc.compiler.cost.serving.common_steps import CommonSteps, mean_waves
from parc.compiler.cost.serving.lognormal_lengths import mean_square_length
from parc.compiler.ir import Model
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import Lengths, ServingSetup, Traffic

CLOSED_LOOP_ROUNDS = 10
"""Requests per concurrent request in a benchmark of a closed loop (InferenceX sets --num-prompts to
10 x --max-concurrency). The first of each ten arrives together with all others."""

BUSIEST = 0.95
"""Upper limit of the load of a Poisson queue, because the queue would be infinitely long at load
1."""
LEAST_STEP_PROMPTS = 1e-3
"""Minimum number of mean prompts for which a step has tokens besides those of decoding requests."""
FIXED = Lengths(range_ratio=0.0)
"""Lengths that are all equal."""


@frozen
class StepSeconds:
    """Times in seconds in the steady state of a data-parallel rank."""

    prefill: float
    """Time that one prompt adds to steps."""
    decode: float
    """Time of a step without prompts."""
    step: float
    """Mean time of a step."""
    latency: float = 0.0
    """Time from the start of a prompt to its first token, without the time of decode steps."""
    shared: float = 0.0
    """Part of ``prefill`` in work that all data-parallel ranks of the engine share."""
    quadratic: float = 0.0
    """Fraction of the rest of ``prefill`` that is proportional to the square of the length."""
    starts: float = 0.0
    """Number of prompts that start per step on all data-parallel ranks, apart from those that start
    on all ranks at once."""
    alone: float = 0.0
    """Time of the steps that contain only the prompt of one request; 0 if prompts share steps with
    decoding requests."""
    together: float = 1.0
    """Mean number of prompts in such a step."""
    paused: float = 0.0
    """Steps per decode step of a request in which the request waits for prompts of its own rank,
    while other data-parallel ranks decode."""

    @property
    def request_step(self) -> float:
        """Mean time between two decode steps of a request."""
        return self.step * (1 + self.paused)

    def square(self, queue: RequestQueue) -> float:
        """Return the mean square of the time of a prompt, divided by the square of its mean.

        The part that is proportional to the square of the length has the moments of the square of a
        lognormal variable: E[l^3] = E[l^2]^3 and E[l^4] = E[l^2]^6 if E[l] = 1.
        """
        length, linear = queue.square, 1 - self.quadratic
        mixed = 2 * linear * self.quadratic * length**2
        return linear**2 * length + mixed + self.quadratic**2 * length**4

    def aligned(self, ranks: int) -> float:
        """Return the time that prompts add if one starts on each of ``ranks`` ranks at once."""
        return self.prefill + (ranks - 1) * self.shared


@frozen
class RequestQueue:
    """Work ahead of a request when it arrives at a data-parallel rank."""

    prompts: float = 0.0
    """Number of prompts that run before the prompt of the request because their requests arrived
    together with it."""
    arrivals: float = 0.0
    """Number of requests that the front end of the engine accepts before this request."""
    steps: float = 0.0
    """Additional steps until the request is accepted and its first token is returned."""
    rate: float | None = None
    """Requests per second under Poisson arrivals; None in a closed loop."""
    busy: float = 1.0
    """Probability that the engine runs a step when the request arrives; under Poisson arrivals, a
    step in which requests decode."""
    ranks: int = 1
    """Data-parallel ranks of the engine that run their steps together; 1 if each step has equally
    many prompts on all ranks (``aligned_starts``)."""
    waited: float = 1.0
    """Fraction of the prompts that start in the same step for which the request waits: between 0.5
    if a step has one prompt, and 1 if a step has many."""
    front: float = 0.0
    """Seconds that a request spends in the front end after its predecessor has ended; 0 under
    Poisson arrivals."""
    dense: float = 0.0
    """Prompts per step while requests return that have ended one step after another."""
    step_prompts: float = inf
    """Largest number of mean prompts per step and rank; below 1 if a prompt takes several steps."""
    lengths: Lengths = FIXED
    """Distribution of the prompt lengths."""
    square: float = 1.0
    """Mean square of the time of a prompt, divided by the square of its mean."""
    present: float = 0.0
    """Number of requests that are always in the system of the rank; 0 under Poisson arrivals."""
    behind: float = 0.0
    """Number of prompts that run between the prompt of the request and its first decode steps."""
    spread: float = 1.0
    """Fraction of the other running requests whose prompts run at any time."""

    prefill_first: bool = False
    """True if the decoding requests of a rank wait while prompts run on it."""
    together: float = 1.0
    """Number of requests that end in the same step, and whose prompts run together."""
    aligned_starts: bool = False
    """True if the prompts of different data-parallel ranks start in the same steps: in a closed
    loop of equal requests, or if an option of the engine holds prompts back."""

    @property
    def chunks(self) -> float:
        """Number of steps in which a prompt of mean length runs."""
        return max(1 / self.step_prompts, 1.0)

    def others(self, running: float) -> float:
        """Return the number of other requests that decode while a request decodes.

        ``running`` is the mean number of decoding requests of the rank over time. In a closed loop,
        the request is one of them. Under Poisson arrivals, it decodes in addition to them, because
        arrivals see the mean over time (PASTA; Wolff, Operations Research 30, 1982).
        """
        return max(running - 1, 0.0) if self.rate is None else running

    def prompts_while_decoding(self, running: float) -> float:
        """Return the number of prompts of its rank that delay the decode steps of a request.

        ``running`` is the mean number of decoding requests of the rank over time.
        """
        return self.behind + self.spread * self.others(running)

    def prompts_of_all_ranks(self, running: float) -> float:
        """Return the number of prompts of all ranks that run at any time while a request decodes.

        ``running`` is the mean number of decoding requests of a rank over time.
        """
        if self.rate is not None:
            return running * self.ranks
        busy_ranks = (self.arrivals + 1) / self.present
        return self.spread * max(running * busy_ranks - 1, 0.0)


def closed_loop_queue(
    setup: ServingSetup, traffic: Traffic, ranks: float, present: float
) -> RequestQueue:
    """Return the work ahead of a request if each rank always has ``present`` requests.

    The engine has ``ranks`` data-parallel ranks, which share one front end.
    """
    arrivals = setup.engine.arrivals
    others = max(present - 1, 0.0)
    everywhere = max(present * ranks - 1, 0.0)
    # Probability that the engine is busy: 0 without other requests, close to 1 with many.
    busy = everywhere / (everywhere + 1)
    first_round, later_rounds = 1 / CLOSED_LOOP_ROUNDS, 1 - 1 / CLOSED_LOOP_ROUNDS
    prefill_first = runs_prompts_first(setup)
    together = max(present / _ending_steps(traffic), 1.0) if prefill_first else 1.0
    companions = together - 1
    # The prompts of a step end together, so that a request also waits for later ones in its step.
    batch = min(setup.step_token_limit / traffic.computed_input_tokens, companions + 1)
    ahead = (companions + max(batch - 1, 0.0)) / 2
    return RequestQueue(
        prompts=first_round * others / 2 + later_rounds * ahead,
        arrivals=everywhere,
        front=arrivals.front_seconds,
        steps=(arrivals.poll_steps + arrivals.option_steps) * busy,
        busy=busy,
        waited=_waited_share(setup, traffic),
        dense=0.0 if prefill_first else 1 / _ending_steps(traffic),
        lengths=traffic.lengths,
        square=mean_square_length(traffic.lengths),
        present=present,
        behind=first_round * others / 2 + later_rounds * (companions - ahead),
        spread=later_rounds * (1 - companions / others) if others else 1.0,
        prefill_first=prefill_first,
        together=together,
        # Requests of equal length that start together end together, on all ranks.
        aligned_starts=arrivals.option_steps > 0 or (_ending_steps(traffic) == 1 and ranks > 1),
    )


def runs_prompts_first(setup: ServingSetup) -> bool:
    """Return True if decoding requests wait while the engine runs prompts.

    Decode pools compute one token of a prompt, and separate GPUs run prompts at the same time.
    """
    is_mixed = setup.pool == "decode" or setup.prefill_apart
    return setup.engine.scheduling.prefill_first and not is_mixed


def _ending_steps(traffic: Traffic) -> float:
    """Return the number of steps over which requests end that started in the same step."""
    lengths = traffic.lengths
    # Width of the distribution of answer lengths divided by their mean; the width of a uniform
    # distribution is its standard deviation x sqrt(12).
    width = 2 * lengths.range_ratio or lengths.output_cv * sqrt(12)
    return max(width * traffic.output_tokens, 1.0)


def poisson_queue(setup: ServingSetup, traffic: Traffic, rate: float) -> RequestQueue:
    """Return the work ahead of a request on a rank with Poisson arrivals.

    ``rate`` is the number of requests per second per data-parallel rank.
    """
    return RequestQueue(
        rate=rate,
        waited=_waited_share(setup, traffic),
        step_prompts=setup.step_token_limit / traffic.computed_input_tokens,
        lengths=traffic.lengths,
        square=mean_square_length(traffic.lengths),
        prefill_first=runs_prompts_first(setup),
    )


def _waited_share(setup: ServingSetup, traffic: Traffic) -> float:
    """Return the fraction of the prompts of its own step for which a request waits."""
    if setup.prefill_apart:  # transfers of caches follow one another
        return 0.5
    return 1 - min(traffic.computed_input_tokens / setup.step_token_limit, 1.0) / 2


def seconds_outside_steps(setup: ServingSetup, model: Model) -> float:
    """Return the time in seconds that a request alone spends without delaying other requests.

    Decode pools receive prompts that other engines have computed.
    """
    arrivals = setup.engine.arrivals
    experts = 0
    if model.experts and not setup.prefill_apart:
        experts = model.moe_layers * model.experts.count
    return arrivals.front_seconds + arrivals.prompt_expert_seconds * experts


def seconds_until_prompt_runs(
    setup: ServingSetup, model: Model, queue: RequestQueue, seconds: StepSeconds
) -> float:
    """Return the time in seconds from the arrival of a request until its prompt runs.

    The time does not include a wait for a free slot in the engine.
    """
    front = seconds_outside_steps(setup, model)
    front += setup.engine.arrivals.admission_seconds * queue.arrivals
    front += queue.prompts * seconds.aligned(queue.ranks)
    return front + _seconds_in_steps(queue, seconds)


def _seconds_in_steps(queue: RequestQueue, seconds: StepSeconds) -> float:
    """Return the wait in seconds for the running step and for other prompts of the own step."""
    prefill, step = seconds.prefill, seconds.step
    common = _seconds_in_common_steps(queue, seconds) if queue.ranks > 1 else 0.0
    if queue.prefill_first and queue.ranks == 1:
        return _seconds_in_separate_steps(queue, seconds)
    if queue.rate is not None:
        if queue.chunks > 1:
            return max(_seconds_behind_chunks(queue, seconds), common)
        if queue.ranks > 1:
            return common
        load = min(queue.rate * prefill, BUSIEST)
        seen = queue.busy * step + seconds.square(queue) * prefill * load / (1 - load * load)
        return (0.5 + queue.waited * load) * seen
    # Seconds per step in which prompts run, on average and in the steps before the own one.
    prompts = step - seconds.decode
    ahead = max(step, seconds.decode + queue.dense * prefill)
    if queue.ranks > 1:
        return queue.steps * ahead + common
    # Requests that pass the front end during a long step start together in the next one, as under
    # Poisson arrivals, unless a decode step takes longer than the front end.
    load = min(prompts / step, BUSIEST)
    spaced = queue.front / (queue.front + seconds.decode)
    longer = seconds.square(queue) * prefill * load / (1 - spaced * load * load)
    seen = max(step + longer, ahead)
    return queue.steps * ahead + queue.busy * (seen / 2 + queue.waited * prompts)


def _seconds_in_separate_steps(queue: RequestQueue, seconds: StepSeconds) -> float:
    """Return the same wait for one rank whose steps contain either prompts or decoding requests."""
    prefill, decode, square = seconds.prefill, seconds.decode, seconds.square(queue)
    if queue.rate is None:
        # Per decode step, ``prompts`` seconds of steps with ``together`` prompts each.
        prompts = seconds.step - decode
        long = square * prefill * seconds.together * prompts
        seen = (decode * decode + long) / seconds.step
        others = queue.waited * prompts / seconds.step * seen
        return queue.steps * decode + queue.busy * (seen / 2 + others)
    load = min(queue.rate * prefill, BUSIEST)
    # The engine decodes for a step whenever no prompt waits: a queue with vacations (Doshi,
    # Queueing Systems 1, 1986). Prompts that arrive in one step run together in the next.
    if queue.chunks > 1:
        return queue.busy * decode / 2 + load * square * prefill / (2 * (1 - load))
    seen = queue.busy * decode / (1 + load) + square * prefill * load / (1 - load * load)
    return (0.5 + queue.waited * load) * seen


def _seconds_behind_chunks(queue: RequestQueue, seconds: StepSeconds) -> float:
    """Return the same wait if each prompt fills several steps, so that prompts follow one another.

    A prompt takes s seconds with the decode steps between its chunks. The wait is that of a queue
    in front of all data-parallel ranks (Sakasegawa, Annals of the Institute of Statistical
    Mathematics 29, 1977), which is exact for one rank, or for the running step if no prompt runs.
    """
    alone = queue.chunks * seconds.decode + seconds.prefill
    served = alone if queue.ranks == 1 else max(alone, queue.chunks * seconds.step)
    load = min((queue.rate or 0.0) * served, BUSIEST)
    behind: float = load ** (sqrt(2 * (queue.ranks + 1)) - 1) / (queue.ranks * (1 - load))
    square = seconds.square(queue)
    return (1 - load) * queue.busy * seconds.decode / 2 + behind * served * square / 2


def _seconds_in_common_steps(queue: RequestQueue, seconds: StepSeconds) -> float:
    """Return the same wait for an engine whose data-parallel ranks run their steps together."""
    own, ranks = seconds.prefill - seconds.shared, queue.ranks
    rate = seconds.starts / seconds.step if queue.rate is None else ranks * queue.rate
    common = steps_of_all_ranks(queue, seconds)
    seen = queue.busy * common.seen_seconds(seconds.decode, rate * seconds.step)
    others = rate * seen
    slower = common.slowest_of(min(others + 1, ranks)) - 1
    waves = mean_waves(others, ranks, complete=True) * common.slowest_of(ranks)
    return 0.5 * seen + own * (slower + queue.waited * waves) + seconds.shared * others


def steps_of_all_ranks(queue: RequestQueue, seconds: StepSeconds) -> CommonSteps:
    """Return the steps that all data-parallel ranks of an engine run together."""
    return CommonSteps(
        queue.ranks,
        seconds.prefill - seconds.shared,
        seconds.shared,
        queue.step_prompts,
        queue.lengths,
        seconds.quadratic,
        is_closed=queue.rate is None,
    )
