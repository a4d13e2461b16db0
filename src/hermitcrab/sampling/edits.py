"""What a request asks of a row's logits before the draw: penalties, biases, tokens held back, a mask.

Row j of a window is edited as if the drafts before it were reply tokens, so a reply is the same whether its
tokens came as drafts or one by one. All arithmetic is float64, in this order, for token t with logit x, which
stands `count` times in the reply so far:

    repetition   t in the prompt or the reply: x / repetition if x > 0, else x * repetition
                 (Keskar et al. 2019, arXiv:1909.05858, with the sign case that every server adds)
    frequency    x - frequency * count      (OpenAI's API reference, "logit_bias" and penalties)
    presence     x - presence               if count > 0
    bias         x + bias(t)
    held back    minus infinity             if t is banned, or there is a mask and it leaves t out

A forced token is taken whatever the logits are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from hermitcrab.sampling.params import NO_PENALTIES, Penalties

_NOTHING: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits of one row.

    `counts` has how often each token stands in the reply before the window's drafts, `ahead` the drafts up to
    and including the row, each of which counts once more. `prompt_ids` are the prompt's tokens, where the
    repetition penalty needs them. `mask` has a bit for each token that may be drawn, by `mask_of`.
    """

    penalties: Penalties = NO_PENALTIES
    counts: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    ahead: tuple[int, ...] = ()
    prompt_ids: frozenset[int] = frozenset()
    banned: frozenset[int] = frozenset()
    mask: bytes | None = None
    forced: int | None = None

    def count(self, token: int) -> int:
        """How often the token stands in the reply, the row's own drafts included."""
        return self.counts.get(token, 0) + self.ahead.count(token)


def edited(logits: Sequence[float], edits: Edits) -> list[float]:
    """A row's logits after its edits, a forced token apart; a pure function, the oracle for the engine's."""
    penalties, row = edits.penalties, list(logits)
    replied = {*edits.counts, *edits.ahead}
    if penalties.repetition != 1.0:
        for token in replied | edits.prompt_ids:
            row[token] = repeated(row[token], penalties.repetition)
    for token in replied:
        row[token] -= penalties.frequency * edits.count(token)
        row[token] -= penalties.presence
    for token, bias in penalties.bias:
        row[token] += bias
    for token in range(len(row)):
        if token in edits.banned or (edits.mask is not None and not is_in(edits.mask, token)):
            row[token] = float("-inf")
    return row


def repeated(logit: float, repetition: float) -> float:
    """The logit of a token that has been there."""
    return logit / repetition if logit > 0.0 else logit * repetition


def mask_of(tokens: Iterable[int], *, vocab_tokens: int) -> bytes:
    """A set of tokens as bits: token t is bit t % 8, counted from the lowest, of byte t // 8."""
    bits = bytearray((vocab_tokens + 7) // 8)
    for token in tokens:
        bits[token >> 3] |= 1 << (token & 7)
    return bytes(bits)


def is_in(mask: bytes, token: int) -> bool:
    """Whether the mask has the token; one past its end is not in it."""
    return token >> 3 < len(mask) and bool(mask[token >> 3] >> (token & 7) & 1)


def without(mask: bytes, tokens: Iterable[int]) -> bytes:
    """The mask without these tokens."""
    bits = bytearray(mask)
    for token in tokens:
        if token >> 3 < len(bits):
            bits[token >> 3] &= ~(1 << (token & 7)) & 0xFF
    return bytes(bits)
