"""Pipeline of an engine, micro-batch by micro-batch as vLLM 0.33 schedules them, for comparisons.

As in v1/engine/core.py (``step_with_batch_queue``), up to pp + 1 micro-batches are scheduled before
the result of the oldest is awaited. As in v1/core/sched/async_scheduler.py, the next token of a
request can be scheduled pp micro-batches after its last one, and the chunks of a prompt in
consecutive ones. Stages compute the micro-batches in their order, and a decoding request enters the
first stage when its last token has left the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.step import StepBatch, engine_step_seconds


@dataclass(eq=False)
class Job:
    """Request with its progress."""

    arrival: float
    prompt: int
    output: int
    computed: int = 0
    scheduled: int = 0  # tokens of the answer that are scheduled
    eligible: int = 0  # first micro-batch that may contain its next token
    ready: float = 0.0  # time at which its last token left the last stage
    generated: int = 0
    first: float = 0.0
    finish: float = 0.0


class PlainPipeline:
    """Engine with a cache for all requests, and without delays before the scheduler."""

    def __init__(self, deployment: Deployment, arrivals: Iterable[float], prompt: int, output: int):
        self.deployment = deployment
        self.coming = deque(Job(one, prompt, output) for one in arrivals)
        self.running: list[Job] = []
        self.free = [0.0] * deployment.layout.pp  # time at which each stage is idle
        self.number = 0  # of the next micro-batch
        self.queue: deque[tuple[float, list[tuple[Job, bool]]]] = deque()

    def run(self) -> list[Job]:
        """Return the requests in the order in which they end."""
        now, done = 0.0, list[Job]()
        while self.coming or self.running or self.queue:
            if not self.running and not self.queue:
                now = max(now, self.coming[0].arrival)
            while self.coming and self.coming[0].arrival <= now:
                self.running.append(self.coming.popleft())
            while self.running and len(self.queue) <= len(self.free):
                self.queue.append(self.schedule(now))
            end, batch = self.queue.popleft()
            now = max(now, end)
            for job, has_token in batch:
                if not has_token:
                    continue
                job.generated += 1
                if job.generated == 1:
                    job.first = end
                if job.generated == job.output:
                    job.finish = end
                    self.running.remove(job)
                    done.append(job)
        return done

    def schedule(self, now: float) -> tuple[float, list[tuple[Job, bool]]]:
        """Return (end, [(request, whether it gets a token)]) of the next micro-batch."""
        self.number += 1
        budget, start = self.deployment.setup.step_token_limit, now
        batch, contexts, prompt, keys = list[tuple[Job, bool]](), list[int](), 0, 0.0
        for job in self.running:
            if not budget:
                break
            if job.scheduled:
                if job.eligible > self.number or job.scheduled == job.output:
                    continue
                budget -= 1
                contexts.append(job.prompt + job.scheduled)
                start = max(start, job.ready)
                has_token = True
            else:
                chunk = min(job.prompt - job.computed, budget)
                budget -= chunk
                prompt += chunk
                keys += chunk * (job.computed + chunk / 2)
                job.computed += chunk
                has_token = job.computed == job.prompt
            if has_token:
                job.scheduled += 1
                job.eligible = self.number + len(self.free)
            batch.append((job, has_token))
        if not batch:
            return now, batch
        work = StepBatch(
            len(contexts),
            round(fmean(contexts), -1) if contexts else 0.0,
            prompt,
            round(keys / prompt) if prompt else 0.0,
        )
        end = self.pass_stages(start, work)
        for job, _ in batch:
            job.ready = end
        return end, batch

    def pass_stages(self, start: float, work: StepBatch) -> float:
        """Return the time at which a micro-batch leaves the last stage."""
        deployment = self.deployment
        seconds = engine_step_seconds(deployment, work).total_seconds
        nbytes = 2 * (work.decode + work.prefill) * deployment.model.hidden
        hop = deployment.links.message_seconds(nbytes, deployment.layout.tp)
        for stage, free in enumerate(self.free):
            start = max(start + (hop if stage else 0.0), free) + seconds
            self.free[stage] = start
        return start
