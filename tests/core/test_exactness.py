"""A reply is a function of prompt, sampling and weights: drafted = plain, shared = alone, moved = unmoved."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_bench import GREEDY, SAMPLED, ask, sized, solo, solos, unsized

from hermitcrab.core.api import Request
from hermitcrab.sampling.params import Sampling

SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])

QUALITIES: dict[str, Callable[[int, int], bool]] = {
    "all land": lambda position, index: True,
    "none lands": lambda position, index: False,
    "the first lands": lambda position, index: index == 0,
    "some land": lambda position, index: (position * 7 + index) % 3 > 0,
}


@SAMPLINGS
@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_drafted_equals_plain(sampling: Sampling, quality: str, depth: int) -> None:
    bench = unsized(256, draft_depth=depth, window_rows=8, lands=QUALITIES[quality])
    request = ask("reply", max_new_tokens=90, sampling=sampling)
    bench.submit(request)
    bench.run()
    assert bench.tokens("reply") == solo(request)
    assert bench.is_clean


@SAMPLINGS
def test_drafts_land_at_any_temperature(sampling: Sampling) -> None:
    bench = unsized(256)
    bench.submit(ask("reply", max_new_tokens=61, sampling=sampling))
    bench.run()
    usage = bench.ears["reply"].terminal.usage
    assert (usage.drafted, usage.accepted, usage.rounds) == (45, 45, 15)


@SAMPLINGS
@pytest.mark.parametrize("streams", [3, 8, 16])
def test_shared_equals_alone(sampling: Sampling, streams: int) -> None:
    bench = unsized(*[128] * streams, lands=QUALITIES["some land"])
    requests = [
        ask(f"r{index}", prompt_tokens=3 + 2 * index, max_new_tokens=40, sampling=sampling)
        for index in range(streams)
    ]
    bench.submit(*requests)
    bench.run()
    assert [bench.tokens(request.id) for request in requests] == solos(requests)
    assert bench.is_clean


@SAMPLINGS
@pytest.mark.parametrize("quality", QUALITIES)
def test_moved_equals_unmoved(sampling: Sampling, quality: str) -> None:
    bench = sized(256, 96, 48, 24, lands=QUALITIES[quality])
    request = ask("mover", max_new_tokens=220, sampling=sampling)
    bench.submit(request)
    bench.run()
    assert bench.ears["mover"].terminal.usage.moves == 3
    assert bench.tokens("mover") == solo(request)


@SAMPLINGS
def test_paused_equals_unpaused(sampling: Sampling) -> None:
    bench = sized(128, 24, 24, 24, lands=QUALITIES["some land"])
    requests = [ask(name, max_new_tokens=100, sampling=sampling) for name in "abcd"]
    bench.submit(*requests)
    bench.run()
    assert bench.loop.snapshot.pauses > 0
    assert [bench.tokens(request.id) for request in requests] == solos(requests)


def test_a_seed_keeps_its_reply_beside_neighbours_with_other_seeds() -> None:
    requests = [ask(f"r{seed}", sampling=Sampling(temperature=1.0, seed=seed)) for seed in range(5)]
    bench = sized(64, 24, 24, 24, 24)
    bench.submit(*requests)
    bench.run()
    assert [bench.tokens(request.id) for request in requests] == solos(requests)


def test_another_seed_gives_another_reply() -> None:
    replies = [
        tuple(solo(ask("same", max_new_tokens=20, sampling=Sampling(temperature=1.0, seed=seed))))
        for seed in range(5)
    ]
    assert len(set(replies)) == 5


def test_a_neighbour_that_is_cancelled_leaves_a_reply_unchanged() -> None:
    bench = unsized(128, 128)
    bench.submit(ask("stays", max_new_tokens=60), ask("goes", max_new_tokens=60))
    bench.step_until_live("stays", "goes")
    bench.loop.cancel("goes")
    bench.run()
    assert bench.tokens("stays") == solo(ask("stays", max_new_tokens=60))


def test_a_session_that_was_used_before_gives_the_same_reply() -> None:
    bench = unsized(128)
    bench.submit(*(ask(name, max_new_tokens=30) for name in "abc"))
    bench.run()
    assert bench.tokens("c") == solo(ask("c", max_new_tokens=30))


@pytest.mark.parametrize("room_rows", range(9))
def test_a_reply_that_ends_so_many_rows_before_the_edge_equals_plain(room_rows: int) -> None:
    bench = sized(64, 32)
    request = ask("edge", prompt_tokens=10, max_new_tokens=32 - 10 - room_rows)
    bench.submit(request)
    bench.run()
    assert bench.tokens("edge") == solo(request)
    assert bench.is_clean


@pytest.mark.parametrize("pass_rows", [4, 8, 16, 64])
def test_the_length_of_prompt_passes_changes_nothing(pass_rows: int) -> None:
    bench = unsized(128, prompt_pass_rows=pass_rows)
    request = ask("prompted", prompt_tokens=51)
    bench.submit(request)
    bench.run()
    assert bench.tokens("prompted") == solo(request)


REQUESTS = st.lists(
    st.builds(
        lambda prompt_tokens, max_new_tokens, seed, is_greedy: (
            prompt_tokens,
            max_new_tokens,
            seed,
            is_greedy,
        ),
        st.integers(1, 40),
        st.integers(1, 80),
        st.integers(0, 3),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def build(items: list[tuple[int, int, int, bool]]) -> list[Request]:
    return [
        ask(
            f"r{index}",
            prompt_tokens=prompt_tokens,
            max_new_tokens=max_new_tokens,
            sampling=Sampling(temperature=0.0 if is_greedy else 0.9, seed=seed),
        )
        for index, (prompt_tokens, max_new_tokens, seed, is_greedy) in enumerate(items)
    ]


@given(
    items=REQUESTS,
    others=st.lists(st.integers(20, 126), max_size=4),
    grow_tokens=st.integers(1, 30),
    row_limit=st.integers(5, 24),
    depth=st.integers(0, 5),
    period=st.integers(1, 4),
)
def test_any_crowd_in_any_sessions_equals_each_alone(
    items: list[tuple[int, int, int, bool]],
    others: list[int],
    grow_tokens: int,
    row_limit: int,
    depth: int,
    period: int,
) -> None:
    bench = sized(
        126,
        *others,
        grow_tokens=grow_tokens,
        draft_depth=depth,
        row_limit=row_limit,
        window_rows=6,
        lands=lambda position, index: position % period == 0,
    )
    requests = build(items)
    bench.submit(*requests)
    bench.run()
    assert [bench.tokens(request.id) for request in requests] == solos(requests)
    assert bench.is_clean


def copied_script(parts: list[tuple[int, int]]) -> tuple[int, ...]:
    """A reply of parts of one text: so many tokens of it from there, over and over."""
    text = [place * place * place % 61 for place in range(40)]
    return tuple(token for start, count in parts for token in text[start : start + count])


@settings(max_examples=50, deadline=None)
@given(
    replies=st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=12),
        min_size=1,
        max_size=4,
    ),
    depth=st.none() | st.integers(1, 15),
    head_depth=st.integers(0, 7),
    row_limit=st.integers(5, 40),
    backlog_rows=st.integers(16, 40),
    period=st.integers(1, 4),
)
def test_replies_that_repeat_themselves_are_the_same_with_copies_and_without(
    replies: list[list[tuple[int, int]]],
    depth: int | None,
    head_depth: int,
    row_limit: int,
    backlog_rows: int,
    period: int,
) -> None:
    requests = [
        ask(f"r{index}", prompt_tokens=4 + index, max_new_tokens=150) for index in range(len(replies))
    ]
    scripts = {request.prompt: copied_script(parts) for request, parts in zip(requests, replies, strict=True)}

    def run(draft_depth: int | None) -> list[list[int]]:
        bench = sized(
            192,
            *[64] * (len(requests) - 1),
            draft_depth=draft_depth,
            vocab_tokens=64,
            window_rows=16,
            row_limit=row_limit,
            backlog_rows=backlog_rows,
            script=scripts.__getitem__,
            lands=lambda position, index: position % period == 0,
        )
        bench.submit(*requests)
        bench.run()
        assert bench.is_clean
        return [bench.tokens(request.id) for request in requests]

    assert run(depth) == run(0)
