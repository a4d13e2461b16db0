"""What each stream of a round drafts: a copy of its context or the head's chain, as deep as it pays.

Drafts are made at the start of the round that verifies them: by then it is known who takes part, and the last
tokens are on their way to their clients. Nothing here can change a token: a draft that is not the target's
own draw never stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from hermitcrab.clock import Clock
from hermitcrab.core.backend import Backend, DraftRequest, Facts, Window
from hermitcrab.core.slots import SlotTable
from hermitcrab.core.stream import Stream
from hermitcrab.core.windows import draft_room, exact_drafts, share_rows
from hermitcrab.drafting.costs import RoundCosts
from hermitcrab.drafting.depth import Option, choose_depths
from hermitcrab.drafting.guesses import Guesses, open_guesses
from hermitcrab.drafting.probes import Probes
from hermitcrab.errors import LaneError

# drafts of a look at whether they have begun to pay: the first ones land most often
_LOOK_DRAFTS = 2


class Source(Enum):
    """Where drafts come from; forced ones are no guesses: the reply's rules say what must follow."""

    NONE = 0
    COPY = 1
    HEAD = 2
    FORCED = 3


@dataclass(frozen=True, slots=True)
class Drafted:
    """The drafts of one window."""

    source: Source = Source.NONE
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """The most drafts of a window, and the deepest chain of the head.

    With `drafts_always` every window has the head's deepest chain and no copy, whatever it costs.
    """

    most_drafts: int
    head_depth: int
    drafts_always: bool = False


def draft_limits(facts: Facts, *, draft_depth: int | None, drafts_always: bool) -> DraftLimits:
    """What a backend's facts leave of the asked depth; None asks for as much as there is."""
    most = min(facts.exact_widths[-1], facts.row_limit) - 1
    most = most if draft_depth is None else min(most, draft_depth)
    return DraftLimits(most, min(most, facts.draft_depth), drafts_always)


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a stream could draft: a copy, or a chain of the head; `gains` are the expected tokens."""

    source: Source
    copied: tuple[int, ...]
    gains: tuple[float, ...]

    @property
    def option(self) -> Option:
        return Option(self.gains, is_head=self.source is Source.HEAD)


_NO_OFFER = _Offer(Source.NONE, (), ())


class Drafts:
    """Makes the drafts of every round, and learns from what became of them."""

    def __init__(
        self, backend: Backend, table: SlotTable, clock: Clock, *, facts: Facts, limits: DraftLimits
    ) -> None:
        self._backend = backend
        self._table = table
        self._clock = clock
        self._facts = facts
        self._widths = facts.exact_widths
        self._limits = limits
        self._costs = RoundCosts()
        self._probes = Probes()
        self._last: tuple[Sequence[Option], int, Sequence[int]] = ((), -1, ())

    def open(self, stream: Stream) -> None:
        """Take in a stream that has its first token; the head has absorbed its prompt but the last row."""
        if self._limits.most_drafts:
            text = (*stream.request.prompt, *stream.reply.tokens)
            stream.guesses = open_guesses(text, most_drafts=self._limits.most_drafts)
            stream.window.absorbed_rows = stream.window.rows - 1

    def make(self, chosen: Sequence[Stream]) -> list[Drafted]:
        """The drafts of a round's streams, in order; a head that fails ends the streams it was asked for."""
        offers = [self._offer(stream) for stream in chosen]
        depths = [exact_drafts(depth, self._widths) for depth in self._choose(chosen, offers)]
        chains = self._run_head(chosen, offers, depths)
        made = [
            Drafted(offer.source, offer.copied[:depth]) if offer.copied and depth else chain
            for offer, depth, chain in zip(offers, depths, chains, strict=True)
        ]
        return [self._fit(stream, drafted) for stream, drafted in zip(chosen, made, strict=True)]

    def learn(
        self, stream: Stream, drafted: Drafted, *, landed: int, new_tokens: Sequence[int], is_alone: bool
    ) -> None:
        """A stream's window brought new tokens; the first `landed` of its drafts were right."""
        guesses = stream.guesses
        if guesses is None:
            return
        guesses.copies.extend(new_tokens)
        count = len(drafted.tokens)
        match drafted.source:
            case Source.COPY:
                guesses.note_copy(drafted=count, landed=landed, is_alone=is_alone)
            case Source.HEAD:
                guesses.note_head(drafted=count, landed=landed)
            case Source.NONE | Source.FORCED:
                pass

    def note_round(self, windows: Sequence[Window], *, seconds: float) -> None:
        """A round's forward and keeps took so long."""
        rows = [len(window.tokens) for window in windows]
        self._costs.observe_forward(sum(rows), len(rows), widest=max(rows), seconds=seconds)

    def _offer(self, stream: Stream) -> _Offer:
        guesses = stream.guesses
        if guesses is None:
            return _NO_OFFER
        room = draft_room(
            depth=self._limits.most_drafts,
            remaining_tokens=stream.remaining_tokens,
            rows=stream.window.rows,
            capacity_rows=self._table.capacity(stream.home),
        )
        forced = stream.rules.forced(room)
        if forced:
            return _Offer(Source.FORCED, forced, (1.0,) * len(forced))
        head = _Offer(Source.HEAD, (), guesses.head_rates.gains(min(room, self._limits.head_depth)))
        if self._limits.drafts_always:
            return head
        copied = guesses.copies.propose(min(room, guesses.copy_tokens))
        return self._prefer(_copy_offer(guesses, copied), head) if copied else head

    def _fit(self, stream: Stream, drafted: Drafted) -> Drafted:
        """The drafts that the reply's rules let stand, as many as make a window that may be run."""
        tokens = stream.rules.fit(drafted.tokens)
        count = exact_drafts(len(tokens), self._widths)
        return Drafted(drafted.source, tokens[:count]) if count else Drafted()

    def _prefer(self, copy: _Offer, head: _Offer) -> _Offer:
        """The copy, which costs nothing to make, unless the head's drafts promise more tokens a second."""
        paces = [
            choose_depths([offer.option], self._costs, spare_rows=self._limits.most_drafts).tokens_per_s
            for offer in (copy, head)
        ]
        return head if paces[1] > paces[0] else copy

    def _choose(self, chosen: Sequence[Stream], offers: Sequence[_Offer]) -> Sequence[int]:
        row_limit = self._facts.row_limit
        if self._limits.drafts_always:
            return share_rows([len(offer.gains) for offer in offers], row_limit=row_limit)
        options = [offer.option for offer in offers]
        depths = self._best(options)
        for stream, offer, depth in zip(chosen, offers, depths, strict=True):
            if stream.guesses is not None and offer.source is Source.COPY and not depth:
                stream.guesses.copy_rates.relax()
        # without a measured round there is nothing to compare
        if self._costs.is_empty:
            return depths
        if not any(depths):
            self._probes.note_plain(len(depths))
        elif self._probes.is_due(len(depths)):
            return [0] * len(depths)
        return self._look(chosen, offers, depths)

    def _best(self, options: Sequence[Option]) -> Sequence[int]:
        """The depths that pay; worked out again only if something has changed."""
        last_options, last_version, depths = self._last
        if last_version != self._costs.version or last_options != options:
            spare_rows = self._facts.row_limit - len(options)
            depths = choose_depths(options, self._costs, spare_rows=spare_rows).depths
            self._last = (options, self._costs.version, depths)
        return depths

    def _look(
        self, chosen: Sequence[Stream], offers: Sequence[_Offer], depths: Sequence[int]
    ) -> Sequence[int]:
        """The depths, with a few drafts for those without for long, if drafts could pay at all."""
        due = [
            (index, stream.guesses)
            for index, (stream, offer) in enumerate(zip(chosen, offers, strict=True))
            if stream.guesses is not None
            and offer.source is Source.HEAD
            and not depths[index]
            and (_waiting_rows(stream) >= stream.guesses.look_rows or self._must_absorb(stream))
        ]
        if not due:
            return depths
        # could pay at all: if all that any stream could have landed
        hopes = [Option((1.0,) * len(offer.gains), offer.option.is_head) for offer in offers]
        spare_rows = self._facts.row_limit - len(hopes)
        is_hopeful = any(choose_depths(hopes, self._costs, spare_rows=spare_rows).depths)
        looked = list(depths)
        for index, guesses in due:
            guesses.note_look()
            looked[index] = min(_LOOK_DRAFTS, len(offers[index].gains)) if is_hopeful else 0
        return share_rows(looked, row_limit=self._facts.row_limit)

    def _run_head(
        self, chosen: Sequence[Stream], offers: Sequence[_Offer], depths: Sequence[int]
    ) -> list[Drafted]:
        """Chains for the streams that get some; the head also absorbs where too many rows wait for it."""
        wanted = [
            depth if offer.source is Source.HEAD else 0 for offer, depth in zip(offers, depths, strict=True)
        ]
        asked = [
            index
            for index, (stream, depth) in enumerate(zip(chosen, wanted, strict=True))
            if depth or self._must_absorb(stream)
        ]
        chains = [Drafted()] * len(chosen)
        if not asked:
            return chains
        # what a stream costs that drafts in every round, not one that has to catch up first
        is_usual = all(
            wanted[index] and _waiting_rows(chosen[index]) <= 1 + self._limits.head_depth for index in asked
        )
        started_s = self._clock.now_s()
        try:
            drafts = self._backend.draft([_request(chosen[index], depth=wanted[index]) for index in asked])
        except LaneError as error:
            for index in asked:
                chosen[index].finish(error)
            return chains
        if is_usual:
            self._costs.observe_draft(max(wanted), len(asked), seconds=self._clock.now_s() - started_s)
        for index, tokens in zip(asked, drafts, strict=True):
            chosen[index].window.absorbed_rows = chosen[index].window.rows
            chains[index] = Drafted(Source.HEAD if tokens else Source.NONE, tokens)
        return chains

    def _must_absorb(self, stream: Stream) -> bool:
        if not self._limits.head_depth:
            return False
        return _waiting_rows(stream) + self._limits.most_drafts + 1 > self._facts.backlog_rows


def _waiting_rows(stream: Stream) -> int:
    """Settled rows that the head has not absorbed."""
    return stream.window.rows - stream.window.absorbed_rows


def _copy_offer(guesses: Guesses, copied: tuple[int, ...]) -> _Offer:
    return _Offer(Source.COPY, copied, guesses.copy_rates.gains(len(copied)))


def _request(stream: Stream, *, depth: int) -> DraftRequest:
    """All rows that the head has not absorbed; the token after each is the reply's."""
    window, prompt_tokens = stream.window, stream.limits.prompt_tokens
    return DraftRequest(
        slot=stream.home,
        position=window.absorbed_rows,
        next_tokens=tuple(
            stream.reply.tokens[window.absorbed_rows + 1 - prompt_tokens : window.rows + 1 - prompt_tokens]
        ),
        depth=depth,
        sampling=stream.request.sampling,
    )
