"""Whatever the load and the list: every way to use the memory serves or refuses every request."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from sim_bench import COSTS

from hermitcrab.simulate.compare import Comparison, Plan
from hermitcrab.simulate.costs import DraftGain
from hermitcrab.simulate.lanes import GRAINS
from hermitcrab.simulate.load import LOADS, Arrival, draw_load

DRAFTING = replace(COSTS, drafting=DraftGain(window_rows=3, tokens=2.5))


@settings(max_examples=40, deadline=None)
@given(
    context_tokens=st.sampled_from([4096, 16_384, 262_144]),
    listed=st.lists(st.sampled_from([1024, 2048, 3000, 4096]), max_size=5),
    grow_tokens=st.sampled_from([64, 512, 8192]),
    decode_share=st.sampled_from([0.0, 0.25, 0.9]),
    grain=st.sampled_from(GRAINS),
    load=st.sampled_from(sorted(LOADS)),
    per_minute=st.sampled_from([1, 30, 600]),
    seed=st.integers(0, 1 << 32),
    drafts=st.booleans(),
)
def test_every_request_is_served_once_or_refused(
    context_tokens: int,
    listed: list[int],
    grow_tokens: int,
    decode_share: float,
    grain: int,
    load: str,
    per_minute: int,
    seed: int,
    drafts: bool,
) -> None:
    drawn = draw_load(load, count=8, per_minute=per_minute, seed=seed)
    arrivals = tuple(
        Arrival(item.arrival_s, item.prompt_tokens, min(item.reply_tokens, 1500), item.max_tokens)
        for item in drawn
    )
    plan = Plan(context_tokens, tuple(listed), grow_tokens, decode_share, grain=grain)
    for outcome in Comparison(arrivals, plan, DRAFTING if drafts else COSTS).three():
        assert len({served.arrival_s for served in outcome.served}) == len(outcome.served)
        assert len(outcome.served) + outcome.refused == len(arrivals)
        for served in outcome.served:
            assert served.waited_s >= -1e-6
            assert 0 < served.first_token_s <= served.total_s + 1e-9
