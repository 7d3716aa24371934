"""Scheduler of continuous batching that advances one step at a time, for comparisons."""

from __future__ import annotations

from parc.compiler.cost.serving.simulation.scheduler import RankLimits, Request


class PlainScheduler:
    """Scheduler written step by step from the rules of vLLM, or of SGLang if prompts run first.

    It counts the tokens of each request.
    """

    def __init__(self, requests: list[Request], limits: RankLimits) -> None:
        self.limits, self.coming = limits, list(requests)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.computed: dict[int, int] = {}
        self.tokens = {id(one): one.prompt for one in requests}
        self.was_preempted: set[int] = set()
        self.preemptions = 0
        self.found: dict[int, list[float]] = {id(one): [] for one in requests}

    def fits(self, more: int) -> bool:
        used = sum(self.computed[id(one)] + self.limits.tokens_per_request for one in self.running)
        return used + more <= self.limits.cache_tokens

    def preempt(self, work: dict[int, int]) -> None:
        last = self.running.pop()
        work.pop(id(last), None)
        self.computed[id(last)] = 0
        self.was_preempted.add(id(last))
        self.waiting.insert(0, last)
        self.preemptions += 1

    def is_decoding(self, one: Request) -> bool:
        return self.tokens[id(one)] - self.computed[id(one)] == 1 and bool(self.found[id(one)])

    def schedule(self) -> dict[int, int]:
        """Return the tokens that each request computes in the next step."""
        work: dict[int, int] = {}
        before = self.preemptions
        if self.limits.prefill_first:
            self.add_prompts(work, before)
        if not work:
            self.add_decoding(work)
        if not self.limits.prefill_first:
            self.add_prompts(work, before)
        return work

    def add_decoding(self, work: dict[int, int]) -> None:
        while not self.fits(sum(self.is_decoding(one) for one in self.running)):
            self.preempt(work)
        work.update({id(one): 1 for one in self.running if self.is_decoding(one)})

    def add_prompts(self, work: dict[int, int], before: int) -> None:
        # Requests that wait for prompts keep space for their next token.
        kept = sum(self.is_decoding(one) and id(one) not in work for one in self.running)
        budget = self.limits.step_tokens - sum(work.values())
        for one in [one for one in self.running if not self.is_decoding(one)]:
            chunk = self.chunk(one, budget)
            while (
                one in self.running and chunk and not self.fits(sum(work.values()) + kept + chunk)
            ):
                self.preempt(work)
            if one in self.running and chunk:
                work[id(one)] = chunk
                budget -= chunk
        while self.waiting and budget and before == self.preemptions:
            one = self.waiting[0]
            if len(self.running) == self.limits.running:
                break
            self.computed[id(one)] = 0 if id(one) in self.was_preempted else one.cached
            chunk = self.chunk(one, budget)
            self.running.append(one)
            whole = self.tokens[id(one)] - self.computed[id(one)]
            if not self.fits(sum(work.values()) + kept + whole):
                self.running.pop()
                break
            self.waiting.pop(0)
            work[id(one)] = chunk
            budget -= chunk

    def chunk(self, one: Request, budget: int) -> int:
        chunk = min(self.tokens[id(one)] - self.computed[id(one)], budget)
        return min(chunk, self.limits.prompt_chunk or chunk)

    def seconds(self, work: dict[int, int]) -> float:
        """Return the time of the step, summed over requests."""
        found = 5e-3
        for one in self.running:
            done, chunk = self.computed[id(one)], work.get(id(one), 0)
            if not chunk:
                continue
            if self.is_decoding(one):
                found += 1e-4 + 2e-7 * done
            else:
                found += 2e-5 * chunk + 1e-9 * ((done + chunk) ** 2 - done**2) / 2
        return found

    def complete(self, one: Request, computed: int, now: float) -> None:
        self.computed[id(one)] += computed
        if self.computed[id(one)] == self.tokens[id(one)]:
            self.tokens[id(one)] += 1
            self.found[id(one)].append(now)
            if len(self.found[id(one)]) == one.output:
                self.running.remove(one)

    def run(self) -> list[tuple[float, float]]:
        now = 0.0
        order = list(self.coming)
        while self.coming or self.waiting or self.running:
            while self.coming and self.coming[0].arrival <= now:
                self.waiting.append(self.coming.pop(0))
            work = self.schedule()
            if not work:
                now = self.coming[0].arrival
                continue
            now += self.seconds(work)
            for one in list(self.running):
                self.complete(one, work.get(id(one), 0), now)
        return [(self.found[id(one)][0], self.found[id(one)][-1]) for one in order]
