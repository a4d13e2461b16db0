"""What a reply's own tokens ask of its next ones: edits of each row, forced tokens, drafts that cannot stand.

Each row of a window is asked for what holds behind the tokens before it, drafts included. So it makes no
difference whether a token came as a draft, in a window of any width, or alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.core.api import Request
from hermitcrab.core.thinking import ThinkingState, at_start
from hermitcrab.errors import LaneError
from hermitcrab.sampling.edits import Edits, is_in, without


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the reply, in the committed part or so many drafts ahead of it.

    `ahead` are the drafts on the way there, `answered` those of them that the grammar hears.
    """

    reply_tokens: int
    thinking: ThinkingState | None
    ahead: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()

    @property
    def forced(self) -> int | None:
        return None if self.thinking is None else self.thinking.forced

    @property
    def is_answering(self) -> bool:
        return self.thinking is None or not self.thinking.is_quiet

    def after(self, token: int) -> "_Place":
        thinking = None if self.thinking is None else self.thinking.after(token)
        is_heard = self.is_answering and (thinking is None or not thinking.is_open)
        return _Place(
            self.reply_tokens + 1,
            thinking,
            (*self.ahead, token),
            (*self.answered, token) if is_heard else self.answered,
        )


class ReplyRules:
    """One reply's rules and the state they have come to; changed by `push` only, a token at a time."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._counts: dict[int, int] = {}
        self._prompt_ids = frozenset(request.prompt) if request.penalties.repetition != 1.0 else frozenset()
        self._place = _Place(0, None if request.thinking is None else at_start(request.thinking))
        # what the grammar has said since the last token, by the drafts it was asked about
        self._masks: dict[tuple[int, ...], bytes | None] = {}

    def open(self) -> Edits | None:
        """The edits of the row that the first token is drawn from. Raises LaneError if none may be drawn."""
        if self._request.grammar is not None and self._place.is_answering:
            try:
                mask = self._ask_grammar(())
            except Exception as error:
                raise LaneError(f"the grammar of the reply failed: {error}") from error
            if mask is None:
                raise LaneError("the grammar of the reply allows no first token")
        return self._row(self._place, {})

    def push(self, token: int) -> bool:
        """Take in the next reply token; True when the grammar lets nothing follow it, and the reply ends."""
        place, self._masks = self._place.after(token), {}
        grammar = self._request.grammar
        if self._request.penalties.looks_back:
            self._counts[token] = self._counts.get(token, 0) + 1
        if grammar is not None and place.answered:
            grammar.advance(token)
        self._place = _Place(place.reply_tokens, place.thinking)
        return grammar is not None and place.is_answering and self._ask_grammar(()) is None

    def forced(self, most: int) -> tuple[int, ...]:
        """The tokens, at most so many, that must follow the reply so far."""
        place, tokens = self._place, list[int]()
        while len(tokens) < most and (token := place.forced) is not None:
            tokens.append(token)
            place = place.after(token)
        return tuple(tokens)

    def fit(self, drafts: Sequence[int]) -> tuple[int, ...]:
        """The drafts, in order, up to the first that cannot stand; forced tokens take the place of others."""
        place, fitted = self._place, list[int]()
        for draft in drafts:
            if not self._may_stand(place, draft):
                break
            fitted.append(draft)
            place = place.after(draft)
        while len(fitted) < len(drafts) and (token := place.forced) is not None:
            fitted.append(token)
            place = place.after(token)
        return tuple(fitted)

    def edits(self, drafts: Sequence[int]) -> tuple[Edits | None, ...]:
        """The edits of a window's rows, the last committed token's first; empty where no row has any."""
        place, counts = self._place, dict(self._counts)
        rows = [self._row(place, counts)]
        for draft in drafts:
            place = place.after(draft)
            rows.append(self._row(place, counts))
        return tuple(rows) if any(row is not None for row in rows) else ()

    def _row(self, place: _Place, counts: dict[int, int]) -> Edits | None:
        penalties, forced = self._request.penalties, place.forced
        if forced is not None:
            return Edits(forced=forced)
        mask, banned = self._mask(place), self._held_back(place)
        if penalties.are_off and mask is None and not banned:
            return None
        if mask is not None and banned:
            open_mask = without(mask, banned)
            # a text that is complete before its fewest tokens may only end
            mask, banned = (open_mask if any(open_mask) else mask), frozenset()
        ahead = place.ahead if penalties.looks_back else ()
        return Edits(penalties, counts, ahead, self._prompt_ids, banned, mask)

    def _held_back(self, place: _Place) -> frozenset[int]:
        is_early = place.reply_tokens < self._request.min_tokens
        # a reply that must be in a grammar does not end before it has begun to be
        is_outside = self._request.grammar is not None and not place.is_answering
        return self._request.eos_ids if is_early or is_outside else frozenset()

    def _mask(self, place: _Place) -> bytes | None:
        """The grammar's mask; None where it has no say, or where no token that is drawn will stand."""
        if self._request.grammar is None or not place.is_answering:
            return None
        if not place.answered:
            return self._ask_grammar(())
        try:
            return self._ask_grammar(place.answered)
        except Exception:  # noqa: BLE001 - the grammar is the server's; if it matters, `push` will meet it again
            return None

    def _ask_grammar(self, answered: tuple[int, ...]) -> bytes | None:
        grammar = self._request.grammar
        assert grammar is not None, "a reply without a grammar has no masks"
        if answered not in self._masks:
            mask = grammar.allowed(answered)
            self._masks[answered] = mask if mask is not None and any(mask) else None
        return self._masks[answered]

    def _may_stand(self, place: _Place, draft: int) -> bool:
        forced = place.forced
        if forced is not None:
            return draft == forced
        if draft in self._held_back(place):
            return False
        mask = self._mask(place)
        if mask is None:
            # either the grammar has no say here, or it lets nothing follow
            return self._request.grammar is None or not place.is_answering
        return is_in(mask, draft)
