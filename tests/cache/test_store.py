"""Kept prefixes share rows, the longest is found, the budget holds, and what is worth least goes first."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.cache.prefixes import PromptChain
from hermitcrab.cache.store import Entry, PieceCosts, Store

GRID_ROWS = 4
COSTS = PieceCosts(row_bytes=10, span_bytes=2, end_bytes=100)


def chain(prompt: str) -> PromptChain:
    return PromptChain([ord(letter) for letter in prompt], grid_rows=GRID_ROWS)


@dataclass
class Shelf:
    """A store beside the pieces that a backend would hold for it: their bytes and the text of each."""

    store: Store
    pieces: dict[int, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)

    def drop(self, pieces: list[int] | frozenset[int]) -> None:
        for piece in pieces:
            # a piece is dropped once, and only if it was there
            del self.pieces[piece], self.texts[piece]

    def keep(self, prompt: str, rows: int | None = None, *, turns: int = 1) -> Entry | None:
        """Keep a prompt's first rows, None: all of them."""
        rows = len(prompt) if rows is None else rows
        offer = self.store.offer(chain(prompt), rows, turns=turns)
        if offer is None:
            return None
        has_room, dropped = self.store.make_room(offer)
        self.drop(dropped)
        if not has_room:
            return None
        rows_piece, end_piece = self.store.pieces_for(offer)
        if offer.needs_rows:
            self.pieces[rows_piece] = COSTS.rows(offer.rows - offer.start_rows)
            self.texts[rows_piece] = prompt[offer.start_rows : rows]
        self.pieces[end_piece] = COSTS.end_bytes
        self.texts[end_piece] = prompt[:rows]
        return self.store.add(offer, rows_piece, end_piece)

    def find(self, prompt: str) -> str | None:
        """The longest kept prefix, read back from its pieces."""
        entry = self.store.longest(chain(prompt), most_rows=len(prompt))
        if entry is None:
            return None
        resumption = self.store.resumption(entry)
        text = "".join(self.texts[piece] for piece in resumption.rows_pieces)
        assert self.texts[resumption.end_piece] == text
        assert len(text) == resumption.rows
        return text

    def use(self, prompt: str) -> None:
        """A request comes."""
        entry = self.store.longest(chain(prompt), most_rows=len(prompt))
        if entry is None:
            self.store.count_miss()
        else:
            self.store.count_hit(entry)

    def check(self) -> None:
        """The store's books and the pieces agree, inside the budget."""
        status = self.store.status
        assert status.bytes == sum(self.pieces.values()) <= status.budget_bytes
        assert self.store.pieces == frozenset(self.pieces)


def shelf(budget_bytes: int = 1_000_000) -> Shelf:
    return Shelf(Store(budget_bytes, COSTS))


def test_the_longest_kept_prefix_is_found() -> None:
    kept = shelf()
    kept.keep("aaaabbbb")
    kept.keep("aaaabbbbcccc")
    kept.keep("aaaadddd")
    assert kept.find("aaaabbbbccccxxxx") == "aaaabbbbcccc"
    assert kept.find("aaaabbbbxxxx") == "aaaabbbb"
    assert kept.find("aaaaddddbbbb") == "aaaadddd"


def test_no_prefix_is_found_of_a_text_that_parts_before_the_first_kept_end() -> None:
    kept = shelf()
    kept.keep("aaaabbbb")
    assert kept.find("aaaaxbbb") is None
    assert kept.find("xaaabbbb") is None


def test_the_same_tokens_elsewhere_in_a_text_are_another_prefix() -> None:
    assert not chain("aaaabbbb").shares(chain("bbbbbbbb"), 8)
    assert chain("aaaabbbb").shares(chain("aaaabbbbcc"), 8)
    assert not chain("aaaabbbb").shares(chain("aaaabbb"), 8)


def test_no_more_rows_are_found_than_may_be() -> None:
    kept = shelf()
    kept.keep("aaaa")
    kept.keep("aaaabbbb")
    entry = kept.store.longest(chain("aaaabbbb"), most_rows=4)
    assert entry is not None
    assert entry.rows == 4


def test_a_longer_prefix_takes_its_own_rows_only() -> None:
    kept = shelf()
    kept.keep("a" * 400)
    before = kept.store.status.bytes
    kept.keep("a" * 400 + "bbbb")
    assert kept.store.status.bytes - before == COSTS.rows(4) + COSTS.end_bytes


def test_what_is_kept_already_is_not_kept_again() -> None:
    kept = shelf()
    assert kept.keep("aaaa") is not None
    assert kept.keep("aaaa") is None
    assert kept.store.status.kept == 1


def test_a_state_larger_than_the_budget_is_not_offered_room() -> None:
    kept = shelf(budget_bytes=COSTS.rows(8) + COSTS.end_bytes)
    kept.keep("aaaa")
    assert kept.keep("b" * 12) is None
    assert kept.find("aaaa") == "aaaa"


def test_an_end_goes_and_its_rows_stay_while_a_longer_prefix_stands_on_them() -> None:
    kept = shelf()
    middle = kept.keep("aaaabbbb")
    kept.keep("aaaabbbbcccc")
    assert middle is not None
    kept.drop(kept.store.forget(middle))
    assert kept.find("aaaabbbbxxxx") is None
    assert kept.find("aaaabbbbcccc") == "aaaabbbbcccc"
    kept.check()


def test_rows_go_with_the_last_one_that_stood_on_them() -> None:
    kept = shelf()
    middle, longest = kept.keep("aaaabbbb"), kept.keep("aaaabbbbcccc")
    assert middle is not None
    assert longest is not None
    kept.drop(kept.store.forget(middle))
    kept.drop(kept.store.forget(longest))
    assert kept.pieces == {}
    assert kept.store.status.bytes == 0


def test_an_end_that_went_can_be_kept_again_without_its_rows() -> None:
    kept = shelf()
    middle = kept.keep("aaaabbbb")
    kept.keep("aaaabbbbcccc")
    assert middle is not None
    kept.drop(kept.store.forget(middle))
    before = kept.store.status.bytes
    kept.keep("aaaabbbb")
    assert kept.store.status.bytes - before == COSTS.end_bytes
    assert kept.find("aaaabbbbxxxx") == "aaaabbbb"
    kept.check()


def test_among_equals_the_one_unused_for_longest_goes() -> None:
    kept = shelf(budget_bytes=3 * (COSTS.rows(8) + COSTS.end_bytes))
    for letter in "abc":
        kept.use(letter * 8)
        kept.keep(letter * 8)
    kept.use("aaaaaaaa")
    kept.use("dddddddd")
    kept.keep("dddddddd")
    assert [kept.find(letter * 8) is not None for letter in "abcd"] == [True, False, True, True]


def test_many_one_off_requests_do_not_push_out_a_conversation_that_keeps_coming_back() -> None:
    kept = shelf(budget_bytes=8 * (COSTS.rows(16) + COSTS.end_bytes))
    talk = ""
    for turn in range(1, 6):
        talk += "abcdefghijklmnop"
        kept.use(talk)
        kept.keep(talk, turns=turn)
    for number in range(20):
        other = f"{number:03}:" * 4
        kept.use(other)
        kept.keep(other)
        kept.check()
    assert kept.find(talk + "more") == talk


def test_a_new_conversation_gets_in_within_a_few_turns_where_all_that_is_kept_has_been_of_use() -> None:
    kept = shelf(budget_bytes=4 * (COSTS.rows(16) + COSTS.end_bytes))
    for letter in "abcd":
        for _ in range(5):
            kept.use(letter * 16)
            kept.keep(letter * 16)
    reused = []
    for _ in range(6):
        reused.append(kept.find("new conversation"))
        kept.use("new conversation")
        kept.keep("new conversation")
    assert reused[:2] == [None, None]
    assert reused[-1] == "new conversation"


def test_a_conversation_that_never_comes_back_makes_room_in_the_end() -> None:
    kept = shelf(budget_bytes=2 * (COSTS.rows(16) + COSTS.end_bytes))
    kept.keep("abcdefghijklmnop", turns=50)
    for number in range(1000):
        other = f"{number:03}:" * 4
        kept.use(other)
        kept.keep(other)
    assert kept.find("abcdefghijklmnop") is None


def test_where_many_texts_part_is_worth_more_than_where_one_goes_on() -> None:
    def filled(budget_bytes: int) -> Shelf:
        kept = shelf(budget_bytes)
        for tail in "wxyz":
            kept.keep("system__")
            kept.keep("system__" + tail * 8)
        kept.keep("lonely__")
        kept.keep("lonely__" + "q" * 8)
        return kept

    kept = filled(filled(1_000_000).store.status.bytes)
    kept.use("new")
    kept.keep("n" * 8)
    assert kept.find("lonely__") is None
    assert kept.find("system__") == "system__"


def test_an_offer_that_was_given_up_leaves_nothing_behind() -> None:
    kept = shelf()
    kept.keep("aaaabbbb")
    before = kept.store.status.bytes
    offer = kept.store.offer(chain("aaaabbbbcccc"), 12, turns=1)
    assert offer is not None
    assert kept.store.make_room(offer) == (True, [])
    assert kept.store.withdraw(offer) == []
    assert kept.store.status.bytes == before
    kept.check()


def test_what_an_offer_stands_on_is_not_dropped_to_make_room_for_it() -> None:
    kept = shelf(budget_bytes=COSTS.rows(8) + COSTS.rows(8) + COSTS.end_bytes)
    kept.keep("aaaabbbb")
    kept.keep("aaaabbbbccccdddd", turns=8)
    assert kept.find("aaaabbbbccccdddd") == "aaaabbbbccccdddd"
    kept.check()


def test_clearing_gives_every_piece_back() -> None:
    kept = shelf()
    kept.keep("aaaa")
    kept.keep("aaaabbbb")
    kept.drop(kept.store.clear())
    assert kept.pieces == {}
    assert kept.find("aaaabbbb") is None
    kept.check()


def test_the_status_counts() -> None:
    kept = shelf()
    kept.use("aaaabbbb")
    kept.keep("aaaabbbb")
    kept.use("aaaabbbbcccc")
    status = kept.store.status
    assert (status.hits, status.misses, status.reused_tokens) == (1, 1, 8)
    assert (status.kept, status.evicted, status.states) == (1, 0, 1)


TEXTS = st.text("ab", min_size=1, max_size=9).map(lambda text: "".join(letter * 4 for letter in text))


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["keep", "use", "forget", "withdraw"]), TEXTS, st.integers(1, 9)),
        max_size=60,
    ),
    budget_bytes=st.integers(0, 2500),
)
def test_whatever_is_kept_used_and_lost_the_books_agree_and_what_is_found_is_a_prefix(
    steps: list[tuple[str, str, int]], budget_bytes: int
) -> None:
    kept = shelf(budget_bytes)
    for step, text, turns in steps:
        match step:
            case "keep":
                kept.keep(text, turns=turns)
            case "use":
                kept.use(text)
            case "forget":
                entry = kept.store.longest(chain(text), most_rows=len(text))
                if entry is not None:
                    kept.drop(kept.store.forget(entry))
            case "withdraw":
                offer = kept.store.offer(chain(text), len(text), turns=turns)
                if offer is not None:
                    has_room, dropped = kept.store.make_room(offer)
                    kept.drop(dropped)
                    if has_room:
                        kept.drop(kept.store.withdraw(offer))
        kept.check()
        found = kept.find(text)
        assert found is None or text.startswith(found)


@pytest.mark.parametrize("budget_bytes", [0, 1])
def test_a_budget_too_small_for_anything_keeps_nothing(budget_bytes: int) -> None:
    kept = shelf(budget_bytes)
    assert kept.keep("aaaa") is None
    assert kept.store.status.states == 0
