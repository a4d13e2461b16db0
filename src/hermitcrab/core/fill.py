"""Prompts fill in passes between rounds: which prompt is next, and when a round is due instead.

Passes start at multiples of the backend's grid. They alternate between the prompt with the fewest rows
left, so that short ones get going, and the oldest one, so that none starves: the oldest prompt gets at
least every other pass.
"""

from collections.abc import Sequence

from hermitcrab.core.api import Progress
from hermitcrab.core.backend import Backend, Facts
from hermitcrab.core.kept import PromptCache
from hermitcrab.core.rounds import Rounds
from hermitcrab.core.status import Totals
from hermitcrab.core.stream import Stream
from hermitcrab.errors import LaneError


class DecodeShare:
    """Decides between a round and a prompt pass: rounds get their share of the time while prompts fill.

    After every pass at least one round is due, until rounds have had `share` of the time since both kinds
    of work were there. Time moves choices only, never tokens.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._round_s = 0.0
        self._pass_s = 0.0
        self._is_pass_last = False

    def is_round_due(self, *, has_live: bool, has_filling: bool) -> bool:
        """True if a round comes next; at least one of both kinds of work is there."""
        if not (has_live and has_filling):
            self.reset()
            return has_live
        return self._is_pass_last or self._round_s < self._share * (self._round_s + self._pass_s)

    def reset(self) -> None:
        """One kind of work is all there is: time is counted from when the other comes."""
        self._round_s = self._pass_s = 0.0
        self._is_pass_last = False

    def count_round(self, seconds: float) -> None:
        """A round took so long."""
        self._round_s += seconds
        self._is_pass_last = False

    def count_pass(self, seconds: float) -> None:
        """A prompt pass took so long."""
        self._pass_s += seconds
        self._is_pass_last = True


def next_prompt(filling: Sequence[Stream], *, passes_run: int) -> Stream:
    """The stream whose prompt gets the next pass; `filling` in order of admission."""
    if passes_run % 2:
        return filling[0]
    return min(filling, key=lambda stream: stream.limits.prompt_tokens - stream.window.rows)


class Prompts:
    """Runs prompt passes, and the first draw after the last of them."""

    def __init__(
        self, backend: Backend, facts: Facts, rounds: Rounds, totals: Totals, *, cache: PromptCache | None
    ) -> None:
        self._backend = backend
        self._pass_rows = facts.prompt_pass_rows
        self._rounds = rounds
        self._totals = totals
        self._cache = cache
        self._passes_run = 0

    def run_pass(self, filling: Sequence[Stream]) -> None:
        """Restore a kept state, or run one pass of one prompt; a failure ends that stream."""
        ready = list(filling) if self._cache is None else self._cache.ready(filling)
        if self._cache is not None and self._cache.resume_one(ready):
            return
        stream = next_prompt(ready, passes_run=self._passes_run)
        self._passes_run += 1
        try:
            self._run(stream)
        except LaneError as error:
            stream.finish(error)

    def _run(self, stream: Stream) -> None:
        prompt, start, cache = stream.request.prompt, stream.window.rows, self._cache
        end = min(start + self._pass_rows, len(prompt))
        if cache is not None:
            end = cache.pass_end(stream, end)
            if start == 0:
                cache.begin(stream)
        self._backend.prefill(stream.home, start, prompt[start:end])
        stream.window.rows = end
        self._totals.prompt_tokens += end - start
        stream.tell(Progress.FILLING)
        if cache is not None:
            cache.keep(stream)
        if end == len(prompt):
            self._draw_first(stream)

    def _draw_first(self, stream: Stream) -> None:
        request, position = stream.request, len(stream.request.prompt)
        token = self._backend.draw_first(stream.home, position, request.sampling, stream.rules.open())
        logprobs = (
            ()
            if request.top_logprobs is None
            else (self._backend.first_logprobs(stream.home, token, request.top_logprobs),)
        )
        self._rounds.begin(stream, token, logprobs)
