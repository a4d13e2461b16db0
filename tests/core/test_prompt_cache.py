"""Prompts resume from kept states: the replies are those of a fresh prompt, and nothing is left behind."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_bench import GREEDY, SAMPLED, VOCAB_TOKENS, Bench, solo

from hermitcrab.core.api import Finished, FinishReason, Request
from hermitcrab.core.fake import PIECE_COSTS, CallKind, FakeBackend
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.trail import CacheFailed
from hermitcrab.errors import DeviceFailed, LaneMemory, SettingError
from hermitcrab.sampling.params import Sampling

# the token that begins a message; no message has it inside
START = 1
GRID_ROWS = 4
PLENTY_BYTES = 1 << 20

SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
DRAFTS = pytest.mark.parametrize("draft_depth", [0, None], ids=["plain", "drafted"])


def message(name: str, tokens: int = 16) -> tuple[int, ...]:
    """A message that no other name has, begun by its start token."""
    dice = random.Random(name)
    return (START, *(dice.randrange(2, VOCAB_TOKENS) for _ in range(tokens - 1)))


def talk(*names: str, tokens: int = 16) -> tuple[int, ...]:
    """A prompt of these messages, and the start of the reply's."""
    return (*(token for name in names for token in message(name, tokens)), START, 2)


def ask(
    name: str, prompt: tuple[int, ...], *, sampling: Sampling = GREEDY, max_new_tokens: int = 12
) -> Request:
    return Request(name, prompt, sampling, max_new_tokens=max_new_tokens)


def cached(
    *session_rows: int,
    budget_bytes: int = PLENTY_BYTES,
    gap_rows: int = 8,
    draft_depth: int | None = None,
    grow_tokens: int | None = None,
    **backend: object,
) -> Bench:
    """A bench that keeps states."""
    rules = LaneRules(
        draft_depth=draft_depth,
        grow_tokens=grow_tokens,
        cache=CacheRules(budget_bytes, frozenset({START}), gap_rows),
    )
    return Bench(FakeBackend(session_rows, **backend), rules)  # type: ignore[arg-type]  # passed on as given


def run(bench: Bench, *requests: Request) -> list[int]:
    """Run requests together; of each prompt, the tokens that came from the cache."""
    bench.submit(*requests)
    bench.run()
    return [reused(bench, request.id) for request in requests]


def reused(bench: Bench, name: str) -> int:
    return bench.ears[name].terminal.usage.cached_tokens


def filled(bench: Bench) -> list[int]:
    """The rows of every prompt pass."""
    return [call.rows[0] for call in bench.backend.calls if call.kind is CallKind.PREFILL]


def books_agree(bench: Bench) -> bool:
    """True if the cache counts what the backend holds, within the budget, and the lanes are clean."""
    status = bench.loop.take_snapshot().cache
    return status.bytes == bench.backend.pieces_bytes <= status.budget_bytes and bench.is_clean


@SAMPLINGS
@DRAFTS
def test_an_exact_repeat_resumes_at_the_last_grid_point_before_its_end(
    sampling: Sampling, draft_depth: int | None
) -> None:
    bench = cached(128, draft_depth=draft_depth)
    prompt = talk("system", "question")
    assert run(bench, ask("cold", prompt, sampling=sampling)) == [0]
    assert run(bench, ask("warm", prompt, sampling=sampling)) == [32]
    assert bench.tokens("warm") == bench.tokens("cold") == solo(ask("solo", prompt, sampling=sampling))
    assert books_agree(bench)


@SAMPLINGS
@DRAFTS
def test_another_question_resumes_behind_the_shared_messages(
    sampling: Sampling, draft_depth: int | None
) -> None:
    bench = cached(128, draft_depth=draft_depth)
    run(bench, ask("first", talk("system", "one"), sampling=sampling))
    other = ask("second", talk("system", "other"), sampling=sampling)
    assert run(bench, other) == [16]
    assert bench.tokens("second") == solo(other)


@SAMPLINGS
@DRAFTS
def test_a_next_turn_resumes_and_the_reply_is_filled_again(
    sampling: Sampling, draft_depth: int | None
) -> None:
    bench = cached(256, draft_depth=draft_depth)
    prompt = talk("system", "question")
    run(bench, ask("turn 1", prompt, sampling=sampling))
    reply = tuple(bench.tokens("turn 1"))
    later = ask("turn 2", (*prompt, *reply, *message("next"), START, 2), sampling=sampling)
    before = sum(filled(bench))
    assert run(bench, later) == [32]
    assert sum(filled(bench)) - before == len(later.prompt) - 32
    assert bench.tokens("turn 2") == solo(later)


@SAMPLINGS
@DRAFTS
@pytest.mark.parametrize("edited", range(5))
def test_an_edited_history_resumes_at_the_last_boundary_before_the_edit(
    sampling: Sampling, draft_depth: int | None, edited: int
) -> None:
    bench = cached(256, draft_depth=draft_depth)
    names = ["system", "a", "b", "c", "d"]
    run(bench, ask("as it was", talk(*names), sampling=sampling))
    names[edited] = "edited"
    request = ask("edited", talk(*names), sampling=sampling)
    assert run(bench, request) == [16 * edited]
    assert bench.tokens("edited") == solo(request)
    assert books_agree(bench)


def test_a_reply_after_its_state_was_evicted_is_the_same() -> None:
    bench = cached(256, budget_bytes=PIECE_COSTS.rows(32) + PIECE_COSTS.end_bytes)
    request = talk("system", "question")
    run(bench, ask("cold", request))
    for number in range(100):
        run(bench, ask(f"other {number}", talk(f"system {number}", "question")))
    assert run(bench, ask("evicted", request)) == [0]
    assert bench.tokens("evicted") == bench.tokens("cold")
    assert bench.loop.snapshot.cache.evicted > 0
    assert books_agree(bench)


def test_only_prompts_are_kept() -> None:
    bench = cached(256)
    prompt = talk("system", "question")
    run(bench, ask("turn 1", prompt, max_new_tokens=100))
    # the reply's own rows are there to be taken, and are not
    longer = ask("turn 2", (*prompt, *bench.tokens("turn 1")))
    assert run(bench, longer) == [32]
    assert bench.tokens("turn 2") == solo(longer)


def test_a_kept_state_fits_any_session_that_holds_its_prompt() -> None:
    bench = cached(256, 64, 48, grow_tokens=4)
    run(bench, ask("large", talk("system", "question"), max_new_tokens=200))
    requests = [ask(f"small {number}", talk("system", f"{number}"), max_new_tokens=60) for number in range(4)]
    assert run(bench, *requests) == [16] * 4
    assert [bench.tokens(request.id) for request in requests] == [solo(request) for request in requests]


def test_without_a_budget_nothing_is_kept() -> None:
    bench = cached(128, budget_bytes=0)
    run(bench, ask("cold", talk("system")), ask("again", talk("system")))
    assert {call.kind for call in bench.backend.calls}.isdisjoint({CallKind.SAVE_ROWS, CallKind.SAVE_END})
    assert bench.loop.snapshot.cache.misses == 0


def test_the_budget_bounds_what_is_kept_at_every_moment() -> None:
    budget_bytes = 3 * PIECE_COSTS.rows(24) + 4 * PIECE_COSTS.end_bytes
    bench = cached(256, 256, budget_bytes=budget_bytes)
    most: list[int] = []
    bench.backend.on_call = lambda call: most.append(bench.backend.pieces_bytes)
    for number in range(40):
        names = [f"{number % 7} {place}" for place in range(number % 5)]
        run(bench, ask(f"one {number}", talk("system", *names)), ask(f"two {number}", talk(*names, "x")))
    assert 0 < max(most) <= budget_bytes
    assert books_agree(bench)


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(SettingError, match="0 or more"):
        CacheRules(budget_bytes=-1)


# requests that come together


def test_requests_that_arrive_together_on_one_new_prefix_run_it_once() -> None:
    bench = cached(*[256] * 4)
    requests = [ask(f"r{number}", talk("system", "tools", "task", f"part {number}")) for number in range(4)]
    assert run(bench, *requests) == [0, 48, 48, 48]
    assert sum(filled(bench)) == len(requests[0].prompt) + 3 * 18
    assert [bench.tokens(request.id) for request in requests] == [solo(request) for request in requests]
    assert books_agree(bench)


def test_choices_of_one_prompt_run_it_once() -> None:
    bench = cached(*[256] * 3)
    prompt = talk("system", "question")
    requests = [ask(f"c{seed}", prompt, sampling=Sampling(temperature=1.0, seed=seed)) for seed in range(3)]
    assert run(bench, *requests) == [0, 32, 32]
    assert [bench.tokens(request.id) for request in requests] == [solo(request) for request in requests]


@pytest.mark.parametrize("passes", range(1, 7))
def test_when_the_one_that_others_wait_for_is_cancelled_the_next_goes_on(passes: int) -> None:
    bench = cached(*[256] * 3)
    requests = [ask(f"r{number}", talk("system", "tools", "task", f"part {number}")) for number in range(3)]
    bench.submit(*requests)
    bench.step(passes)
    bench.loop.cancel("r0")
    bench.run()
    assert [bench.tokens(request.id) for request in requests[1:]] == [solo(item) for item in requests[1:]]
    assert reused(bench, "r2") == 48
    assert books_agree(bench)


@pytest.mark.parametrize("nth", range(1, 6))
def test_when_the_one_that_others_wait_for_fails_the_next_goes_on(nth: int) -> None:
    bench = cached(*[256] * 3)
    requests = [ask(f"r{number}", talk("system", "tools", "task", f"part {number}")) for number in range(3)]
    bench.submit(*requests)
    bench.step(nth)
    bench.backend.fail_next(CallKind.PREFILL, DeviceFailed("the device failed"))
    bench.run()
    ends = [isinstance(bench.ears[request.id].terminal, Finished) for request in requests]
    assert ends.count(False) == 1
    for request, has_finished in zip(requests, ends, strict=True):
        assert not has_finished or bench.tokens(request.id) == solo(request)
    assert books_agree(bench)


def test_a_prompt_does_not_wait_for_one_that_has_further_to_go() -> None:
    bench = cached(512, 512)
    run(bench, ask("near", talk(*"abcdefgh")))
    # the second has all but the end of it kept, the first begins where they share nothing kept
    slow = ask("slow", talk(*"abcdefgh", *"ijklmnop"))
    bench.submit(slow)
    bench.step(1)
    assert reused_so_far(bench, "slow") == 128
    quick = ask("quick", talk(*"abcdefgh", "z"))
    bench.submit(quick)
    bench.step_until_live("quick")
    assert not bench.tokens("slow")
    bench.run()
    assert bench.tokens("quick") == solo(quick)


def reused_so_far(bench: Bench, name: str) -> int:
    (stream,) = [stream for stream in bench.loop.engine.streams if stream.request.id == name]
    return stream.stats.cached_tokens


def test_prompts_that_share_nothing_wait_for_nobody() -> None:
    bench = cached(256, 256)
    bench.submit(ask("long", talk(*"abcdef")), ask("short", talk(*"uvw")))
    bench.step(2)
    rows = sorted(stream.window.rows for stream in bench.loop.engine.streams)
    assert rows[0] > 0
    bench.run()
    assert books_agree(bench)


# what goes wrong


@pytest.mark.parametrize("kind", [CallKind.SAVE_ROWS, CallKind.SAVE_END])
@pytest.mark.parametrize("error", [DeviceFailed("no"), LaneMemory("no")], ids=["device", "memory"])
def test_a_state_that_cannot_be_kept_costs_its_request_nothing(kind: CallKind, error: Exception) -> None:
    bench = cached(256)
    bench.backend.fail_next(kind, error)
    request = ask("unkept", talk("system", "question"))
    run(bench, request)
    assert bench.tokens("unkept") == solo(request)
    assert len(bench.book.of(CacheFailed)) == 1
    assert books_agree(bench)


@pytest.mark.parametrize("error", [DeviceFailed("no"), LaneMemory("no")], ids=["device", "memory"])
def test_a_state_that_cannot_be_restored_is_forgotten_and_its_prompt_fills_from_an_earlier_one(
    error: Exception,
) -> None:
    bench = cached(256)
    request = ask("first", talk("system", "question"))
    run(bench, request)
    bench.backend.fail_next(CallKind.RESTORE, error)
    assert run(bench, ask("again", talk("system", "question"))) == [16]
    assert bench.tokens("again") == solo(request)
    assert len(bench.book.of(CacheFailed)) == 1
    assert books_agree(bench)


def test_a_restore_that_fails_in_a_session_that_cannot_be_emptied_ends_that_request_only() -> None:
    bench = cached(256, 256)
    run(bench, ask("first", talk("system", "question")))
    bench.backend.fail_next(CallKind.RESTORE, DeviceFailed("no"))
    bench.backend.fail_next(CallKind.RELEASE, DeviceFailed("no"))
    other = ask("other", talk("unlike", "it"))
    run(bench, ask("hit", talk("system", "question")), other)
    assert not isinstance(bench.ears["hit"].terminal, Finished)
    assert bench.tokens("other") == solo(other)
    bench.step()
    assert books_agree(bench)


def test_a_piece_that_could_not_be_dropped_is_dropped_later() -> None:
    bench = cached(256, budget_bytes=2 * (PIECE_COSTS.rows(32) + PIECE_COSTS.end_bytes))
    run(bench, ask("first", talk("system", "question")))
    bench.backend.fail_next(CallKind.DROP, DeviceFailed("no"))
    for number in range(100):
        run(bench, ask(f"other {number}", talk(f"system {number}", "question")))
    assert books_agree(bench)


def test_a_failure_of_our_own_gives_every_piece_back() -> None:
    bench = cached(256)
    run(bench, ask("first", talk("system", "question")))
    assert bench.backend.pieces
    bench.loop.end_all(DeviceFailed("over"))
    assert not bench.backend.pieces
    assert run(bench, ask("later", talk("system", "question"))) == [0]
    assert books_agree(bench)


@pytest.mark.parametrize("steps", range(12))
def test_a_cancel_at_any_step_of_filling_leaves_nothing_but_states(steps: int) -> None:
    bench = cached(256, 256)
    request = ask("goes", talk(*"abcd"))
    bench.submit(request, ask("stays", talk(*"abxy")))
    bench.step(steps)
    bench.loop.cancel("goes")
    bench.run()
    assert bench.ears["goes"].terminal.usage.cached_tokens == 0
    assert bench.tokens("stays") == solo(ask("stays", talk(*"abxy")))
    assert books_agree(bench)
    # what it left is as good as any
    assert run(bench, ask("again", request.prompt))[0] >= 32
    assert bench.tokens("again") == solo(request)


def test_status_tells_what_the_cache_did() -> None:
    bench = cached(256)
    run(bench, ask("cold", talk("system", "question")))
    run(bench, ask("warm", talk("system", "question")))
    status = bench.loop.snapshot
    assert (status.cache.hits, status.cache.misses, status.cache.reused_tokens) == (1, 1, 32)
    assert status.cache.states == status.cache.kept == 2
    assert status.prompt_tokens == len(talk("system", "question")) + 2
    assert status.cache.budget_bytes == PLENTY_BYTES


# anything at once


class Turns:
    """Conversations that grow by turns and fork, held against each of their replies alone."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.dice = random.Random(seed)
        self.histories: list[tuple[int, ...]] = [message("system"), message("another system", 9)]
        self.alone: dict[tuple[object, ...], list[int]] = {}
        self.asked = 0

    def play(self, at_once: int) -> None:
        """So many conversations take a turn together; some are cancelled on the way."""
        chosen = [self.dice.choice(self.histories[-8:]) for _ in range(at_once)]
        requests = [self.request(history) for history in chosen]
        self.bench.submit(*requests)
        for request in requests:
            if self.dice.random() < 0.1:
                self.bench.step(self.dice.randrange(8))
                self.bench.loop.cancel(request.id)
        self.bench.run()
        for request in requests:
            self.take(request)

    def request(self, history: tuple[int, ...]) -> Request:
        dice = self.dice
        if dice.random() < 0.2:
            # forget the last messages, or change a token in the middle
            cut = dice.randrange(1, len(history) + 1)
            history = (*history[:cut], *message(f"edit {dice.random()}", 5))
        prompt = (*history, *message(f"user {self.asked}", dice.randrange(2, 20)), START, 2)
        sampling = dice.choice([GREEDY, Sampling(temperature=0.9, seed=dice.randrange(4))])
        self.asked += 1
        return ask(f"r{self.asked}", prompt[-300:], sampling=sampling, max_new_tokens=dice.randrange(1, 16))

    def take(self, request: Request) -> None:
        tokens, end = self.bench.tokens(request.id), self.bench.ears[request.id].terminal
        alone = solo(request)
        assert tokens == alone[: len(tokens)]
        assert isinstance(end, Finished)
        assert end.reason is FinishReason.CANCELLED or tokens == alone
        self.histories.append((*request.prompt, *tokens))


def play(turns: int, *, seed: int, budget_bytes: int, grow_tokens: int | None = 8) -> Bench:
    bench = cached(
        512,
        *[384] * 3,
        budget_bytes=budget_bytes,
        grow_tokens=grow_tokens,
        lands=lambda position, index: (position * 7 + index) % 3 > 0,
    )
    lives = Turns(bench, seed)
    while lives.asked < turns:
        lives.play(lives.dice.randrange(1, 5))
        assert books_agree(bench)
    assert bench.loop.snapshot.cache.hits > turns // 4
    return bench


@pytest.mark.parametrize("budget_bytes", [4_000, PLENTY_BYTES])
def test_200_random_turns_with_forks_and_cancels_are_each_as_if_fresh(budget_bytes: int) -> None:
    play(200, seed=5, budget_bytes=budget_bytes)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "budget_bytes"), [(1, 2_500), (2, 8_000), (3, 20_000), (4, PLENTY_BYTES)])
def test_1000_random_turns_with_forks_and_cancels_are_each_as_if_fresh(seed: int, budget_bytes: int) -> None:
    play(1000, seed=seed, budget_bytes=budget_bytes)


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=8),
    message_tokens=st.integers(1, 12),
    gap_rows=st.integers(0, 20),
    budget_bytes=st.integers(300, 6_000),
    sessions=st.integers(1, 4),
    pass_rows=st.sampled_from([4, 8, 32]),
)
def test_any_prompts_together_under_any_budget_are_each_as_if_fresh(
    prompts: list[str], message_tokens: int, gap_rows: int, budget_bytes: int, sessions: int, pass_rows: int
) -> None:
    bench = cached(
        *[128] * sessions, budget_bytes=budget_bytes, gap_rows=gap_rows, prompt_pass_rows=pass_rows
    )
    requests = [
        ask(f"r{place}", talk(*names, tokens=message_tokens), max_new_tokens=5)
        for place, names in enumerate(prompts)
    ]
    run(bench, *requests)
    assert [bench.tokens(request.id) for request in requests] == [solo(request) for request in requests]
    assert books_agree(bench)
