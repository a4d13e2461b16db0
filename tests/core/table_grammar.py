"""A tiny grammar written out as a table, for tests of the hook that real grammars use."""

from collections.abc import Mapping, Sequence

from hermitcrab.sampling.edits import mask_of

# tokens are digits here: pairs of equal digits below 8, each pair followed by 8 (more) or 9 (the last one)
PAIRS: Mapping[str, Mapping[int, str]] = {
    "pair": {digit: f"second {digit}" for digit in range(8)},
    **{f"second {digit}": {digit: "sign"} for digit in range(8)},
    "sign": {8: "pair", 9: "end"},
}


class TableGrammar:
    """Walks a table of states from `start`; the text may end in `ends`, by any of `eos_ids`."""

    def __init__(
        self,
        table: Mapping[str, Mapping[int, str]],
        *,
        start: str,
        ends: frozenset[str],
        eos_ids: frozenset[int] = frozenset(),
        vocab_tokens: int = 16,
    ) -> None:
        self._table = table
        self._state = start
        self._ends = ends
        self._eos_ids = eos_ids
        self._vocab_tokens = vocab_tokens
        self.heard: list[int] = []

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        state: str | None = self._state
        for token in ahead:
            state = self._table.get(state, {}).get(token) if state is not None else None
        if state is None:
            return None
        tokens = set(self._table.get(state, {})) | (self._eos_ids if state in self._ends else set())
        return mask_of(tokens, vocab_tokens=self._vocab_tokens) if tokens else None

    def advance(self, token: int) -> None:
        self.heard.append(token)
        self._state = self._table[self._state][token]


def pairs(*, eos_ids: frozenset[int] = frozenset(), vocab_tokens: int = 16) -> TableGrammar:
    """The grammar of pairs, from its start."""
    return TableGrammar(
        PAIRS, start="pair", ends=frozenset({"end"}), eos_ids=eos_ids, vocab_tokens=vocab_tokens
    )


def is_pairs(tokens: Sequence[int]) -> bool:
    """Whether the tokens are pairs up to somewhere."""
    return all(
        token < 8 if at % 3 == 0 else token == tokens[at - 1] if at % 3 == 1 else token in (8, 9)
        for at, token in enumerate(tokens)
    )
