"""Rules over a reply's own tokens: the same reply drafted or not, alone or in a crowd, whatever the rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_bench import GREEDY, SAMPLED, VOCAB_TOKENS, Bench, ask, sized, solo, unsized
from table_grammar import TableGrammar, is_pairs, pairs

from hermitcrab.core.api import Failed, Finished, FinishReason, Request, Tokens
from hermitcrab.core.fake import CallKind
from hermitcrab.core.rules import ReplyRules
from hermitcrab.core.thinking import Thinking
from hermitcrab.errors import LaneError, RequestError
from hermitcrab.sampling.edits import mask_of
from hermitcrab.sampling.params import Penalties, Sampling

OPEN, CLOSE, BREAK, EOS = 10, 11, 12, 13
# a reply that would never close its thinking by itself
NEVER_CLOSES = Penalties(bias=((CLOSE, -100.0),))
STRONG = Penalties(presence=1.5, frequency=1.0, repetition=1.3, bias=((3, 2.0), (EOS, 4.0)))


def thinking(budget: int | None, *, is_open: bool = True) -> Thinking:
    return Thinking(is_open, OPEN, (CLOSE, BREAK, BREAK), budget)


@dataclass(frozen=True)
class Recipe:
    """A request that can be made anew for every run, since a grammar is used up by one."""

    name: str = "reply"
    sampling: Sampling = GREEDY
    max_new_tokens: int = 60
    has_grammar: bool = False
    fields: tuple[tuple[str, Any], ...] = ()

    def request(self) -> Request:
        eos_ids = frozenset({EOS})
        return replace(
            ask(self.name, max_new_tokens=self.max_new_tokens, sampling=self.sampling, eos_ids=eos_ids),
            grammar=pairs(eos_ids=eos_ids) if self.has_grammar else None,
            **dict(self.fields),
        )


def recipe(
    name: str = "reply", *, sampling: Sampling = GREEDY, has_grammar: bool = False, **fields: Any
) -> Recipe:
    return Recipe(name, sampling, has_grammar=has_grammar, fields=tuple(fields.items()))


RECIPES = {
    "penalties": recipe(penalties=STRONG),
    "penalties that reward": recipe(penalties=Penalties(presence=-1.0, frequency=-0.5, repetition=0.8)),
    "fewest tokens": recipe(min_tokens=30),
    "a budget of thinking": recipe(thinking=thinking(9)),
    "a budget in the answer": recipe(
        thinking=thinking(4, is_open=False), penalties=Penalties(bias=((OPEN, 2.0),))
    ),
    "a grammar": recipe(has_grammar=True),
    "a grammar after thinking": recipe(has_grammar=True, thinking=thinking(7)),
    "all of it": recipe(
        has_grammar=True, thinking=thinking(5), penalties=STRONG, min_tokens=20, top_logprobs=3
    ),
}
QUALITIES: dict[str, Callable[[int, int], bool]] = {
    "all land": lambda position, index: True,
    "some land": lambda position, index: (position * 7 + index) % 3 > 0,
}


def events_of(bench: Bench, name: str) -> list[Any]:
    """What a reply said, however it was cut into events: tokens with their log probabilities, and the end."""
    ear = bench.ears[name]
    told = [event for event in ear.events if isinstance(event, Tokens)]
    logprobs = [item for event in told for item in event.logprobs]
    terminal = ear.terminal
    reason = terminal.reason if isinstance(terminal, Finished) else terminal.error
    return [ear.tokens, logprobs, reason, terminal.usage.tokens_sha256]


def plain_events(recipe: Recipe) -> list[Any]:
    bench = unsized(4096, draft_depth=0)
    bench.submit(recipe.request())
    bench.run()
    assert bench.is_clean
    return events_of(bench, recipe.name)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("name", RECIPES)
def test_drafted_equals_plain_under_every_rule(name: str, quality: str, sampling: Sampling) -> None:
    made = replace(RECIPES[name], sampling=sampling)
    plain = plain_events(made)
    for depth in (1, 3, 7):
        bench = unsized(256, draft_depth=depth, window_rows=8, lands=QUALITIES[quality])
        bench.submit(made.request())
        bench.run()
        assert events_of(bench, "reply") == plain
        assert bench.is_clean


@pytest.mark.parametrize("name", ["penalties", "fewest tokens", "a grammar", "all of it"])
def test_drafts_land_under_rules(name: str) -> None:
    bench = unsized(256, window_rows=8)
    bench.submit(RECIPES[name].request())
    bench.run()
    assert bench.ears["reply"].terminal.usage.accepted > 0


def test_a_crowd_under_every_rule_equals_each_alone() -> None:
    made = [replace(item, name=name, sampling=SAMPLED) for name, item in RECIPES.items()]
    bench = sized(128, *[48] * 5, row_limit=20, lands=QUALITIES["some land"])
    bench.submit(*(item.request() for item in made))
    bench.run()
    assert bench.loop.snapshot.moves > 0
    assert [events_of(bench, item.name) for item in made] == [plain_events(item) for item in made]
    assert bench.is_clean


PENALTIES = st.builds(
    Penalties,
    presence=st.sampled_from([0.0, 1.5, -1.0]),
    frequency=st.sampled_from([0.0, 0.7]),
    repetition=st.sampled_from([1.0, 1.4, 0.7]),
    bias=st.dictionaries(st.integers(0, 15), st.floats(-9, 9), max_size=3).map(
        lambda bias: tuple(bias.items())
    ),
)


@settings(deadline=None)
@given(
    penalties=PENALTIES,
    min_tokens=st.integers(0, 40),
    budget=st.none() | st.integers(0, 12),
    is_open=st.booleans(),
    has_grammar=st.booleans(),
    is_greedy=st.booleans(),
    depth=st.integers(1, 5),
    period=st.integers(1, 3),
)
def test_any_rules_give_the_plain_reply(
    penalties: Penalties,
    min_tokens: int,
    budget: int | None,
    is_open: bool,
    has_grammar: bool,
    is_greedy: bool,
    depth: int,
    period: int,
) -> None:
    made = recipe(
        sampling=GREEDY if is_greedy else SAMPLED,
        has_grammar=has_grammar,
        penalties=penalties,
        min_tokens=min_tokens,
        thinking=thinking(budget, is_open=is_open),
        top_logprobs=2,
    )
    bench = unsized(
        256, draft_depth=depth, window_rows=6, lands=lambda position, index: position % period == 0
    )
    bench.submit(made.request())
    bench.run()
    assert events_of(bench, "reply") == plain_events(made)
    assert bench.is_clean


def test_a_penalty_changes_the_reply() -> None:
    def distinct(penalties: Penalties) -> int:
        return len(set(solo(replace(ask("reply", max_new_tokens=14), penalties=penalties))))

    assert distinct(Penalties(presence=2.0, frequency=2.0)) == 14 > distinct(Penalties())


def test_a_bias_wins_and_a_ban_loses() -> None:
    assert solo(replace(ask("reply"), penalties=Penalties(bias=((7, 100.0),)))) == [7] * 8
    plain = solo(ask("reply", max_new_tokens=40))
    banned = Penalties(bias=((plain[0], -100.0),))
    assert plain[0] not in solo(replace(ask("reply", max_new_tokens=40), penalties=banned))


def test_no_end_of_text_is_drawn_before_the_fewest_tokens() -> None:
    likes_to_end = Penalties(bias=((EOS, 50.0),))
    request = replace(
        ask("reply", max_new_tokens=40, eos_ids=frozenset({EOS})), penalties=likes_to_end, min_tokens=12
    )
    assert len(solo(request)) == 12
    assert EOS not in solo(request)
    assert solo(replace(request, min_tokens=0)) == []


def test_thinking_past_its_budget_is_closed_with_the_whole_marker() -> None:
    tokens = solo(replace(ask("reply", max_new_tokens=30), thinking=thinking(6), penalties=NEVER_CLOSES))
    assert tokens[5:8] == [CLOSE, BREAK, BREAK]
    assert CLOSE not in tokens[:5]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_the_length_limit_may_cut_a_forced_marker(limit: int) -> None:
    request = replace(ask("reply", max_new_tokens=limit), thinking=thinking(2), penalties=NEVER_CLOSES)
    bench = unsized(64)
    bench.submit(request)
    bench.run()
    assert bench.tokens("reply") == [bench.tokens("reply")[0], CLOSE, BREAK, BREAK][:limit]
    assert bench.ears["reply"].terminal.usage.completion_tokens == limit


def test_a_loop_in_thinking_is_closed_once_drafted_or_not() -> None:
    loops = replace(
        ask("reply", max_new_tokens=700), thinking=thinking(None), penalties=Penalties(bias=((7, 100.0),))
    )
    bench = unsized(1024)
    bench.submit(loops)
    bench.run()
    expected = [*[7] * 256, CLOSE, BREAK, BREAK, *[7] * 441]
    assert bench.tokens("reply") == solo(loops) == expected


def test_forced_tokens_are_rows_of_one_window_and_no_drafts() -> None:
    request = replace(ask("reply", max_new_tokens=5), thinking=thinking(1))
    bench = unsized(64, draft_depth=2)
    bench.submit(request)
    bench.run()
    rows = [call.rows for call in bench.backend.calls if call.kind is CallKind.VERIFY]
    # the first draw is the closing token, its two followers are rows behind it, then the last one alone
    assert rows == [(3,), (1,)]
    assert bench.ears["reply"].terminal.usage.drafted == 0


def test_a_grammar_keeps_every_token_and_ends_the_reply() -> None:
    for seed in range(6):
        made = recipe(sampling=Sampling(temperature=1.0, seed=seed), has_grammar=True)
        tokens, _, reason, _ = plain_events(made)
        assert is_pairs(tokens)
        assert reason is (FinishReason.LENGTH if len(tokens) == 60 else FinishReason.STOP)


def test_a_grammar_without_an_end_token_ends_the_reply_where_nothing_may_follow() -> None:
    request = replace(ask("reply"), grammar=pairs(), penalties=Penalties(bias=((9, 100.0),)))
    bench = unsized(64)
    bench.submit(request)
    bench.run()
    assert len(bench.tokens("reply")) == 3
    assert bench.tokens("reply")[-1] == 9
    assert bench.ears["reply"].terminal.reason is FinishReason.STOP


def test_a_grammar_hears_the_answer_only() -> None:
    grammar = pairs()
    bench = unsized(128)
    request = replace(ask("reply", max_new_tokens=30), thinking=thinking(6), penalties=NEVER_CLOSES)
    bench.submit(replace(request, grammar=grammar))
    bench.run()
    assert grammar.heard == bench.tokens("reply")[8:]
    assert is_pairs(grammar.heard)


def test_a_complete_text_may_end_before_the_fewest_tokens() -> None:
    eos_ids = frozenset({EOS})
    request = replace(
        ask("reply", max_new_tokens=30, eos_ids=eos_ids),
        grammar=pairs(eos_ids=eos_ids),
        penalties=Penalties(bias=((9, 100.0),)),
        min_tokens=20,
    )
    assert len(solo(request)) == 3


class Broken:
    """A grammar that fails once it has heard so many tokens."""

    def __init__(self, after_tokens: int) -> None:
        self._left = after_tokens

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        if len(ahead) >= self._left:
            raise ValueError("a broken grammar")
        return mask_of(range(8), vocab_tokens=VOCAB_TOKENS)

    def advance(self, token: int) -> None:
        self._left -= 1


@pytest.mark.parametrize("after_tokens", [0, 1, 5])
def test_a_grammar_that_fails_ends_its_own_reply_only(after_tokens: int) -> None:
    bench = sized(64, 64)
    bench.submit(replace(ask("broken", max_new_tokens=20), grammar=Broken(after_tokens)), ask("peer"))
    bench.run()
    terminal = bench.ears["broken"].terminal
    assert isinstance(terminal, Failed)
    assert isinstance(terminal.error, LaneError)
    assert "a broken grammar" in str(terminal.error)
    assert bench.tokens("peer") == solo(ask("peer"))
    assert bench.is_clean


def test_a_grammar_that_allows_nothing_ends_its_own_reply_only() -> None:
    bench = sized(64, 64)
    nothing = TableGrammar({}, start="nowhere", ends=frozenset())
    bench.submit(replace(ask("mute"), grammar=nothing), ask("peer"))
    bench.run()
    assert "no first token" in str(bench.ears["mute"].terminal.error)
    assert bench.tokens("peer") == solo(ask("peer"))
    assert bench.is_clean


def test_log_probabilities_come_with_each_delivered_token_and_only_where_asked_for() -> None:
    plain = solo(ask("reply", max_new_tokens=40))
    eos_ids = frozenset({plain[20]})
    bench = unsized(128, 128)
    bench.submit(
        replace(ask("reply", max_new_tokens=40, eos_ids=eos_ids), top_logprobs=2),
        ask("peer", max_new_tokens=40),
    )
    bench.run()
    told = [event for event in bench.ears["reply"].events if isinstance(event, Tokens)]
    logprobs = [item for event in told for item in event.logprobs]
    assert [item.token for item in logprobs] == bench.tokens("reply")
    # greedy: each token is the likeliest in its place
    assert all(item.top[0] == (item.token, item.logprob) and len(item.top) == 2 for item in logprobs)
    assert all(not event.logprobs for event in bench.ears["peer"].events if isinstance(event, Tokens))


def test_log_probabilities_are_the_raw_rows_whatever_is_drawn() -> None:
    plain = unsized(64)
    plain.submit(replace(ask("reply", max_new_tokens=1), top_logprobs=16))
    plain.run()
    forced = unsized(64)
    forced.submit(replace(ask("reply", max_new_tokens=1), top_logprobs=16, thinking=thinking(1)))
    forced.run()
    (raw,), (drawn,) = (events_of(bench, "reply")[1] for bench in (plain, forced))
    assert drawn.token == CLOSE
    assert drawn.top == raw.top
    assert drawn.logprob == dict(raw.top)[CLOSE]


def test_drafts_are_cut_where_they_cannot_stand() -> None:
    rules = ReplyRules(replace(ask("reply"), grammar=pairs()))
    rules.open()
    rules.push(5)
    assert rules.fit((5, 8, 3, 3)) == (5, 8, 3, 3)
    assert rules.fit((5, 9, 3, 3)) == (5, 9)
    assert rules.fit((4, 8)) == ()


def test_an_end_that_is_held_back_is_no_draft() -> None:
    rules = ReplyRules(replace(ask("reply", eos_ids=frozenset({EOS})), min_tokens=2))
    rules.push(1)
    assert rules.fit((EOS, 5)) == ()
    assert rules.fit((4, EOS)) == (4, EOS)


def test_a_text_that_may_go_on_does_so_until_its_fewest_tokens() -> None:
    eos_ids = frozenset({EOS})
    ones = TableGrammar({"ones": {1: "ones"}}, start="ones", ends=frozenset({"ones"}), eos_ids=eos_ids)
    request = replace(ask("reply", max_new_tokens=30, eos_ids=eos_ids), grammar=ones, min_tokens=9)
    assert solo(replace(request, penalties=Penalties(bias=((EOS, 100.0),)))) == [1] * 9


def test_forced_tokens_take_the_place_of_drafts() -> None:
    rules = ReplyRules(replace(ask("reply"), thinking=thinking(3)))
    rules.push(1)
    assert rules.fit((2, 3, 4, 5, 6)) == (2, CLOSE, BREAK, BREAK)
    assert rules.fit((2, CLOSE, BREAK)) == (2, CLOSE, BREAK)
    assert rules.forced(4) == ()
    rules.push(2)
    assert rules.forced(4) == (CLOSE, BREAK, BREAK)
    assert rules.forced(2) == (CLOSE, BREAK)


def test_a_reply_without_rules_has_no_edits() -> None:
    rules = ReplyRules(replace(ask("reply"), thinking=thinking(None)))
    assert rules.open() is None
    assert rules.edits((1, 2)) == ()


def test_rules_over_tokens_there_are_none_of_are_refused_at_once() -> None:
    bench = unsized(64)
    with pytest.raises(RequestError, match="token 16"):
        bench.submit(replace(ask("reply"), penalties=Penalties(bias=((16, 1.0),))))
    with pytest.raises(RequestError, match="closes thinking"):
        bench.submit(replace(ask("reply"), thinking=Thinking(True, None, (16,))))
    with pytest.raises(RequestError, match="min_tokens"):
        bench.submit(replace(ask("reply", eos_ids=frozenset(range(16))), min_tokens=1))
