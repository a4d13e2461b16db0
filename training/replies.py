"""Replies of a served checkpoint, made by Hermitcrab's own lanes, with a count of how often drafts stood."""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.clock import WallClock
from hermitcrab.core.api import Event, Failed, Finished, FinishReason, Request, Tokens
from hermitcrab.core.backend import Backend, Verified, Window
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.engine.build import build_backend
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.receipts.relays import Relay
from hermitcrab.sampling.params import Sampling

GREEDY = Sampling()
# as deep as the recipe teaches the head to chain its drafts
DRAFT_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt, its one right reply without the end token, the most tokens to draw, and words to show."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    most_tokens: int
    shown: str


@dataclass(slots=True)
class Reply:
    """The sink of one request: its tokens without the end token, and whether it ended by itself."""

    ids: tuple[int, ...] = ()
    ended_by_itself: bool = False
    reply_tokens: int = 0
    rounds: int = 0

    def put(self, event: Event) -> None:
        """Take an event. Raises what the request failed with."""
        match event:
            case Tokens(ids):
                self.ids += ids
            case Finished(reason, usage):
                self.ended_by_itself = reason is FinishReason.STOP
                self.reply_tokens, self.rounds = usage.completion_tokens, usage.rounds
            case Failed(error):
                raise error


@dataclass(slots=True)
class DraftCount:
    """Drafts of one depth: all of them, those whose earlier drafts all stood, and those that stood."""

    drafted: int = 0
    reached: int = 0
    stood: int = 0


class DraftWatch(Relay):
    """A backend that passes every call on, and compares the drafts of each window with its draws.

    What is drafted behind the end of a reply counts for nothing.
    """

    def __init__(self, backend: Backend, eos_ids: frozenset[int]) -> None:
        super().__init__(backend)
        self._eos_ids = eos_ids
        self.depths = [DraftCount() for _ in range(backend.facts().draft_depth)]

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        """Passed on; then counted."""
        verified = self._backend.verify(windows)
        for window, result in zip(windows, verified, strict=True):
            self._count(window.tokens[1:], result.drawn)
        return verified

    def _count(self, drafts: Sequence[int], drawn: Sequence[int]) -> None:
        is_reached = True
        for depth, draft, draw in zip(self.depths, drafts, drawn, strict=False):
            depth.drafted += 1
            depth.reached += is_reached
            has_ended = is_reached and draw in self._eos_ids
            is_reached = is_reached and draft == draw
            depth.stood += is_reached
            if has_ended:
                return


def replies(
    checkpoint: Checkpoint, asks: Sequence[Ask], *, eos_ids: frozenset[int], sessions: int, session_rows: int
) -> tuple[list[Reply], list[DraftCount]]:
    """Greedy replies to all asks, up to `sessions` at once, and the drafts by depth.

    The head drafts three tokens in every window, so that what is counted does not hang on how fast the
    machine is. Runs in float32 on one thread. Raises what a request failed with.
    """
    backend = build_backend(
        checkpoint,
        dtype="float32",
        session_rows=[session_rows] * sessions,
        draft_depth=DRAFT_DEPTH,
        threads=1,
    )
    watch = DraftWatch(backend, eos_ids)
    loop = HostLoop(watch, LaneRules(drafts_always=True), WallClock(), tracers=())
    sinks = [Reply() for _ in asks]
    for place, (ask, sink) in enumerate(zip(asks, sinks, strict=True)):
        loop.submit(Request(str(place), ask.prompt, GREEDY, ask.most_tokens, eos_ids), sink)
    while loop.has_requests:
        loop.step()
    return sinks, watch.depths
