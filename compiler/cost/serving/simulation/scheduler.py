"""Scheduler of one data-parallel rank.

An engine has one of two policies. If prompts and decoding requests share steps, as in vLLM v1
(v1/core/sched/scheduler.py, schedule), running requests are served first, and prompts are computed
in chunks that fill the rest of the step. If prompts run first, as in SGLang without mixed chunks
(managers/scheduler.py, get_next_batch_to_run), a step contains only prompts while there are any,
and the decoding requests of this rank wait.

In both, new requests are admitted in their order of arrival while there are slots, tokens of the
step, and cache for the whole prompt. If the cache is full, the request that was admitted last is
preempted and later computed again. The cache is counted in tokens, with half a block per request
for the last, partly filled block.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import ceil, inf

from parc.compiler.cost.serving.simulation.step_times import StepTimes
from parc.compiler.ir.frozen import frozen

WAITING_WEIGHT = 4
"""Weight of a waiting request relative to a running one when vLLM chooses a data-parallel rank
(v1/engine/core_client.py, DPLBAsyncMPClient)."""


class Request:
    """Request with its progress in the simulation. Times are in seconds."""

    __slots__ = (
        *("arrival", "cached", "base", "delay", "epoch", "finish", "first", "generated", "joined"),
        *("output", "position", "prompt", "target"),
    )

    def __init__(
        self, arrival: float, prompt: int, output: int, cached: int = 0, delay: float = 0.0
    ) -> None:
        """Create a request; ``cached`` tokens of its prompt are found in the prefix cache.

        ``delay`` is the time in seconds that loading a part of them from host memory takes. The
        request waits for it, but the steps of other requests do not.
        """
        self.arrival, self.delay = arrival, delay
        self.prompt, self.output, self.cached = prompt, output, cached
        self.first = self.finish = inf
        self.generated = 0.0
        self.position = 0  # tokens whose keys and values the cache stores, before decoding
        self.target = prompt  # tokens to compute before the request decodes
        self.base = 0.0  # tokens in the cache when decoding began, in step ``joined``
        self.joined = 0
        self.epoch = 0  # number of preemptions


@frozen
class RankLimits:
    """Limits of the scheduler of one data-parallel rank."""

    running: int
    """Maximum number of running requests."""
    step_tokens: int
    """Maximum number of tokens per step."""
    cache_tokens: float
    """Number of tokens that the cache stores."""
    tokens_per_request: float = 0.0
    """Additional tokens of cache per running request: half a block."""
    accepted: float = 1.0
    """Tokens per decode step and request; above 1 with speculative decoding."""
    verified: int = 1
    """Tokens of the limit ``step_tokens`` that a decoding request uses."""
    prompt_chunk: int = 0
    """Maximum number of tokens of one prompt per step; 0: no maximum."""
    reserves_output: bool = False
    """True if a request is admitted only if the cache can store its whole output."""
    prefill_first: bool = False
    """True if decoding requests wait while prompts run; False if they run in the same steps."""
    late_share: float = 0.0
    """Seconds from the end of a step to the first token of a prompt, divided by the seconds that
    the prompt adds to the step: the last chunk enters a pipeline after the other chunks."""

    @property
    def longest_request(self) -> int:
        """Number of tokens of the longest request that can run."""
        return int(self.cache_tokens - self.tokens_per_request - ceil(self.accepted))


class Rank:
    """Queue and running requests of one data-parallel rank."""

    def __init__(self, limits: RankLimits, times: StepTimes) -> None:
        """Create a rank without requests."""
        self.limits, self.times = limits, times
        self.waiting: deque[Request] = deque()
        self.load = 0  # waiting requests x WAITING_WEIGHT + running requests
        self.running: dict[Request, None] = {}  # in the order of admission
        self.prefilling: list[Request] = []
        self.decoding = 0
        self.active = 0  # decoding requests that run in the scheduled step: all or none
        self.context = 0.0  # sum over the decoding requests
        self.used = 0.0  # tokens of cache
        self.step = 0  # number of steps in which the decoding requests ran
        self.preemptions = 0
        self.chunks: list[tuple[Request, int]] = []
        self.prompt_tokens, self.prompt_keys = 0, 0.0
        self.horizon: float = inf
        self.is_changed = True  # True if ``schedule`` may find other work than before
        self.queue_start = 0.0  # time until which the engine has recorded the queue length
        # Seconds of a step of the scheduled work: ``base_seconds + per_context * context``.
        self.base_seconds = self.per_context = 0.0
        self.late_seconds = 0.0  # from the end of the step to the first tokens of its prompts
        self.growth_seconds = 0.0  # growth of ``context`` per step, in seconds
        self.least_seconds = 0.0  # seconds that the step takes at least
        self.growth = 0.0 if limits.reserves_output else limits.accepted
        self._finishing: list[tuple[int, int, Request, int]] = []
        self._sequence = 0

    def add(self, request: Request) -> None:
        """Add a request to the end of the queue."""
        self.waiting.append(request)
        self.load += WAITING_WEIGHT
        self.is_changed = True

    def schedule(self) -> None:
        """Choose the work of the next step, and set ``horizon``.

        ``horizon`` is the number of consecutive steps that run this work; without work, it is
        infinite. It need not be called while ``is_changed`` is False.
        """
        if self.chunks:
            self.chunks, self.prompt_tokens, self.prompt_keys = [], 0, 0.0
        limits, before = self.limits, self.preemptions
        if limits.prefill_first and (self.waiting or self.prefilling):
            self._schedule_prompts(limits.step_tokens, before)
        if not self.chunks:
            # Preempt requests until the cache has space for the next tokens of the others.
            while self.decoding * self.growth > limits.cache_tokens - self.used:
                self._preempt_last()
        if not limits.prefill_first and (self.waiting or self.prefilling):
            self._schedule_prompts(limits.step_tokens - self.decoding * limits.verified, before)
        self.active = 0 if limits.prefill_first and self.chunks else self.decoding
        if self.chunks or self.preemptions != before:
            # After a preemption, the next step may admit requests again.
            self.horizon = 1 if self.running else inf
        else:
            self.horizon = self._decode_horizon()
            self.is_changed = False
        self._set_step_line()

    def _schedule_prompts(self, budget: int, before: int) -> None:
        """Schedule up to ``budget`` tokens of admitted and waiting prompts.

        No request is admitted in a step that preempts one, that is, if there were ``before``
        preemptions until this step and there are more now.
        """
        if self.prefilling:
            budget = self._continue_prompts(budget)
        if self.waiting and self.preemptions == before:
            self._admit(budget)

    def _set_step_line(self) -> None:
        """Set the time of a step of the scheduled work."""
        decode, times = self.active, self.times
        self.least_seconds = times.least_seconds(decode)
        if decode:
            self.base_seconds, slope = times.decode_line(decode, self.context / decode)
            self.per_context = slope / decode
            self.growth_seconds = slope * self.limits.accepted
        else:
            self.base_seconds = times.decode_line(0, 0.0)[0]
            self.per_context = self.growth_seconds = 0.0
        if self.chunks:
            prompts = times.prompt_seconds(decode, self.prompt_tokens, self.prompt_keys)
            self.base_seconds += prompts
            if self.limits.late_share:
                longest = max(chunk for _, chunk in self.chunks)
                self._add_late_seconds(
                    self.limits.late_share * prompts * longest / self.prompt_tokens
                )

    def _add_late_seconds(self, late: float) -> None:
        """Let the prompts of the step end ``late`` seconds after the step.

        The decoding requests wait for them too, unless other prompts follow.
        """
        if not self.waiting and all(one.position >= one.target for one in self.prefilling):
            self.base_seconds += late
            late = 0.0
        self.late_seconds = late

    def _decode_horizon(self) -> float:
        """Return the number of decode steps until a request ends or the cache is full."""
        decode, growth = self.decoding, self.growth
        if not decode:
            return inf
        finishing = self._finishing
        while finishing[0][3] != finishing[0][2].epoch:
            heappop(finishing)
        horizon: float = finishing[0][0] - self.step
        if growth:
            until_full = (self.limits.cache_tokens - self.used) // (decode * growth)
            if until_full < horizon:
                horizon = until_full
        window = self.times.window
        if window < inf:
            mean, accepted = self.context / decode, self.limits.accepted
            if mean < window < mean + horizon * accepted:
                # Beyond the attention window, the time of a step follows another line.
                horizon = min(horizon, ceil((window - mean) / accepted))
        return horizon if horizon > 1 else 1

    def _continue_prompts(self, budget: int) -> int:
        """Schedule chunks of admitted prompts; return the tokens that are left in the step."""
        for request in tuple(self.prefilling):
            if budget <= 0:
                break
            if request not in self.running:
                continue
            chunk = self._chunk(request, budget)
            while self._needed(chunk) > self.limits.cache_tokens - self.used:
                self._preempt_last()
                if request not in self.running:
                    return budget
            self._add_chunk(request, chunk)
            budget -= chunk
        return budget

    def _admit(self, budget: int) -> None:
        """Admit waiting requests while slots, tokens of the step and cache suffice."""
        limits, waiting, running = self.limits, self.waiting, self.running
        while waiting and budget > 0 and len(running) < limits.running:
            request = waiting[0]
            request.position = start = 0 if request.epoch else request.cached
            whole = request.target - start
            if self.growth:
                occupied = limits.tokens_per_request + start
                # The whole prompt must fit, although only its first chunk is stored in this step
                # (vLLM's scheduler_reserve_full_isl).
                needed = occupied + (whole + self.decoding * self.growth)
            else:
                needed = occupied = limits.tokens_per_request + request.prompt + request.output
            if needed > limits.cache_tokens - self.used:
                return
            waiting.popleft()
            running[request] = None
            self.load += 1 - WAITING_WEIGHT
            self.used += occupied
            self.prefilling.append(request)
            chunk = self._chunk(request, budget)
            self._add_chunk(request, chunk)
            budget -= chunk

    def _chunk(self, request: Request, budget: int) -> int:
        """Return the number of prompt tokens of a request that run in the step."""
        chunk, most = request.target - request.position, self.limits.prompt_chunk or budget
        if most > budget:
            most = budget
        return most if chunk > most else chunk

    def _needed(self, chunk: int) -> float:
        """Return the tokens of cache that a chunk and the decoding requests need in this step."""
        return chunk + self.decoding * self.growth if self.growth else 0.0

    def _add_chunk(self, request: Request, chunk: int) -> None:
        start = request.position
        request.position = end = start + chunk
        self.chunks.append((request, chunk))
        self.prompt_tokens += chunk
        self.prompt_keys += self.times.visible_keys(start, end)
        if self.growth:
            self.used += chunk

    def _preempt_last(self) -> None:
        """Move the request that was admitted last to the front of the queue."""
        request = next(reversed(self.running))
        if request in self.prefilling:
            self.prefilling.remove(request)
            self._drop_chunk(request)
        else:
            steps = (self.step - request.joined) * self.limits.accepted
            self.decoding -= 1
            self.context -= request.base + steps
            request.generated += steps
        self._release(request)
        request.epoch += 1
        # Prompt and generated tokens are computed again, which yields the next token.
        request.target = request.prompt + int(request.generated)
        self.waiting.appendleft(request)
        self.load += WAITING_WEIGHT
        self.preemptions += 1

    def _drop_chunk(self, request: Request) -> None:
        """Remove the chunk of a preempted request from the step."""
        for index, (other, chunk) in enumerate(self.chunks):
            if other is request:
                start = request.position - chunk
                self.prompt_tokens -= chunk
                self.prompt_keys -= self.times.visible_keys(start, request.position)
                del self.chunks[index]
                return

    def _release(self, request: Request) -> None:
        """Free the slot and the cache of a request."""
        del self.running[request]
        self.load -= 1
        occupied: float
        if self.limits.reserves_output:
            occupied = request.prompt + request.output
        elif request.position < request.target or not request.base:
            occupied = request.position
        else:
            occupied = request.base + (self.step - request.joined) * self.limits.accepted
        request.base = 0.0
        self.used -= occupied + self.limits.tokens_per_request

    def pass_steps(self, steps: int) -> None:
        """Complete ``steps`` steps, after which the scheduled work goes on unchanged."""
        self.horizon -= steps
        if self.active:
            self.step += steps
            tokens = self.active * steps
            self.context += tokens * self.limits.accepted
            self.used += tokens * self.growth

    def finish_steps(self, steps: int, now: float, done: list[Request]) -> None:
        """Complete ``steps`` steps of the scheduled work at time ``now``.

        Requests that end are added to ``done``.
        """
        self.pass_steps(steps)
        if self.decoding:
            self.is_changed = True
            finishing, step, limits = self._finishing, self.step, self.limits
            while finishing and finishing[0][0] <= step:
                _, _, request, epoch = heappop(finishing)
                if request.epoch != epoch:
                    continue  # it was preempted
                tokens = request.base + (step - request.joined) * limits.accepted
                self.decoding -= 1
                self.context -= tokens
                if limits.reserves_output:
                    tokens = request.prompt + request.output
                self._end(request, tokens, now, done)
        if self.chunks:
            self._finish_chunks(now, done)

    def _finish_chunks(self, now: float, done: list[Request]) -> None:
        first = now + self.late_seconds
        for request, _ in self.chunks:
            if request.position < request.target:
                continue
            self.prefilling.remove(request)
            # A preempted request that already had a first token keeps the time of this token.
            if request.first == inf:
                request.first = first
            request.generated += 1 if request.generated < request.output else 0
            left = request.output - request.generated
            if left <= 0:
                reserves = self.limits.reserves_output
                tokens = request.prompt + request.output if reserves else request.position
                self._end(request, tokens, first, done)
                continue
            request.base, request.joined = float(request.position), self.step
            self.decoding += 1
            self.context += request.base
            self._sequence += 1
            last = self.step + ceil(left / self.limits.accepted)
            heappush(self._finishing, (last, self._sequence, request, request.epoch))

    def _end(self, request: Request, tokens: float, now: float, done: list[Request]) -> None:
        """Free the slot of a request that has ended, and the cache of its ``tokens`` tokens."""
        request.finish = now
        del self.running[request]
        self.load -= 1
        self.used -= tokens + self.limits.tokens_per_request
        done.append(request)
